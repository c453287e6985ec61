"""Wrong programs that would pass a test if more than the call were evaluated in their process.

``STYLES`` maps a test to a right function ``f``; ``CALLS`` are those that curation reads as a call and its value;
``LIARS`` are values returned by a wrong ``f`` that agree with any question; ``PRELUDES`` rebind names that a test may
use.
"""

STYLES = {
    "assert f(2) == [2, 3]": "return [n, n + 1]",
    "assert [2, 3] == f(2)": "return [n, n + 1]",
    "assert f(2) == {'a': 2}": "return {'a': n}",
    "assert f(2) == 7": "return n + 5",
    "assert f(2) == 'xx'": "return 'x' * n",
    "assert f(2) == (1, None)": "return (1, None)",
    "assert f(2) is None": "return None",
    "assert f(2) is True": "return n > 1",
    "assert f(2) is False": "return n > 3",
    "assert f(2) != 3 and f(2) == 4": "return n * 2",
    "assert f(2) in (7, 8)": "return n + 5",
    "assert f(2) in {'a': 1, 'b': 2}": "return 'b'",
    "assert f(2) not in [0, 1] and 5 < f(2) < 9": "return n + 5",
    "assert 7 in f(2) and 8 not in f(2)": "return [n + 5]",
    "assert not f(2) and f(3) == 1": "return n - 2",
    "assert abs(f(2) - 0.5) < 1e-6": "return 1 / n",
    "assert abs(f(2) - 0.5) <= 1e-6 * max(1, abs(f(2)))": "return 1 / n",
    "assert -1e-6 < f(2) - 0.5 < 1e-6": "return 1 / n",
    "assert not abs(f(2) - 0.5) > 1e-6": "return 1 / n",
    "assert round(f(2), 3) == 0.333": "return 1 / 3",
    "assert f(2) - 5 == 0": "return n + 3",
    "assert f(2) % 7 == 6 and f(2) // 7 == 1 and -f(2) == -13": "return 13",
    "assert math.isclose(f(2), 0.5)": "return 1 / n",
    "assert math.isclose(f(2), 0.5, rel_tol=1e-3) == True": "return 1 / n",
    "assert math.isclose(f(2), 0.5) is True": "return 1 / n",
    "assert isclose(f(2), 0.5)": "return 1 / n",
    "assert math.floor(f(2)) == 3 and math.sqrt(f(2)) > 1.8": "return 3.5",
    "assert np.allclose(f(2), [0.5, 0.25])": "return [1 / n, 1 / n ** 2]",
    "assert np.allclose(f(2), [0.5, 0.25], atol=1e-3) == True": "return [1 / n, 1 / n ** 2]",
    "assert numpy.isclose(f(2), 0.5).all()": "return 1 / n",
    "assert np.array_equal(f(2), np.array([[1, 2], [3, 4]]))": "return [[1, 2], [3, 4]]",
    "assert (np.array(f(2)) == np.array([1, 2])).all()": "return [1, 2]",
    "assert f(2) == pytest.approx(0.5)": "return 1 / n",
    "assert len(f(2)) == 4 and f(2)[0] == 5": "return [5, 6, 7, 8]",
    "assert f(2)[1:] == [6, 7]": "return [5, 6, 7]",
    "assert f(2)['a']['b'] == 3": "return {'a': {'b': 3}}",
    "assert sum(f(2)) == 12 and max(f(2)) == 9": "return [1, 2, 9]",
    "assert min(f(2)) == 1 and sorted(f(2), reverse=True) == [3, 2, 1]": "return [2, 3, 1]",
    "assert sorted(f(2)) == [1, 2]": "return [2, 1]",
    "assert set(f(2)) == {1, 2}": "return [1, 2, 1]",
    "assert tuple(f(2)) == (1, 2)": "return [1, 2]",
    "assert list(f(2)) == [0, 1]": "return range(n)",
    "assert list(map(sorted, f(2))) == [[1, 2], [3]]": "return [[2, 1], [3]]",
    "assert set(map(tuple, f(2))) == {(1, 2), (3,)}": "return [[1, 2], [3]]",
    "assert str(f(2)) == '12' and repr(f(2)) == '12'": "return 12",
    "assert f'{f(2):.2f}' == '0.33'": "return 1 / 3",
    "assert '%.2f' % f(2) == '0.33'": "return 1 / 3",
    "assert '{:.2f}'.format(f(2)) == '0.33'": "return 1 / 3",
    "assert f(2).startswith('ab') and f(2).endswith('yz')": "return 'abcxyz'",
    "assert f(2).count('a') == 3 and f(2).find('b') == 3": "return 'aaab'",
    "assert f(2).upper() == 'ABC' and f(2).isalpha()": "return 'abc'",
    "assert f(2).split(',') == ['1', '2']": "return '1,2'",
    "assert f(2).strip().lower() == 'abc'": "return ' ABC '",
    "assert ''.join(f(2)) == 'abc'": "return list('abc')",
    "assert f(2).issubset({1, 2, 3}) and f(2).issuperset({1, 2})": "return {1, 2}",
    "assert f(2) <= {1, 2, 3} and f(2) >= {1, 2}": "return {1, 2}",
    "assert f(2) & {1, 5} == {1} and f(2) | {5} == {1, 2, 5}": "return {1, 2}",
    "assert f(2).get('a') == 1 and sorted(f(2).items()) == [('a', 1)]": "return {'a': 1}",
    "assert set(f(2).keys()) == {'a'} and list(f(2).values()) == [1]": "return {'a': 1}",
    "assert Counter(f(2)) == Counter([1, 1, 2])": "return [1, 2, 1]",
    "assert all(x in f(2) for x in [1, 2, 3]) and len(f(2)) == 3": "return [3, 2, 1]",
    "assert all(x % 2 == 1 for x in f(2)) and len(f(2)) == 2": "return [3, 5]",
    "assert any(x == 5 for x in f(2))": "return [3, 5]",
    "assert [x * 2 for x in f(2)] == [2, 4]": "return [1, 2]",
    "assert {k: v + 1 for k, v in f(2).items()} == {'a': 2}": "return {'a': 1}",
    "assert all(f(i) == i * i for i in range(1, 5))": "return n * n",
    "assert [f(i) for i in (1, 2, 3)] == [1, 4, 9]": "return n * n",
    "assert isinstance(f(2), int) and f(2) == 3": "return n + 1",
    "assert isinstance(f(2), (list, tuple)) and len(f(2)) == 2": "return [1, 2]",
    "assert type(f(2)) == dict and len(f(2)) == 1 and 7 in f(2)": "return {7: 1}",
    "assert type(f(2)).__name__ == 'str' and f(2) == 'a'": "return 'a'",
    "assert bool(f(2)) and f(2) == 6": "return 6",
    "assert int(f(2)) == 3 and float(f(2)) == 3.5": "return 3.5",
    "assert (f(2) == 6) == True": "return 6",
    "assert (f(2), f(3)) == (4, 9)": "return n * n",
    "assert [f(2), 1] == [4, 1]": "return n * n",
    "assert (lambda x: x == 4)(f(2))": "return n * n",
    "assert f(2) == 4 if f(3) == 9 else False": "return n * n",
    "assert f(2) == 4 or f(2) == 5": "return n * n",
    "assert f(2) == Fraction(1, 2)": "from fractions import Fraction; return Fraction(1, n)",
    "assert Decimal(f(2)) == Decimal('0.5')": "return '0.5'",
    "assert f(2).real == 1 and f(2).imag == 2": "return 1 + 2j",
    "assert json.loads(f(2)) == {'a': [1]}": "return '{\"a\": [1]}'",
    "assert list(zip(f(2), 'ab')) == [(1, 'a'), (2, 'b')]": "return [1, 2]",
    "assert list(enumerate(f(2))) == [(0, 1), (1, 2)]": "return [1, 2]",
    "assert list(itertools.permutations(f(2))) == [(1, 2), (2, 1)]": "return [1, 2]",
    "assert f(2) == sorted(f(2)) and f(2)[-1] == 9": "return [1, 9]",
}

CALLS = (
    "assert f(2) == [2, 3]",
    "assert [2, 3] == f(2)",
    "assert f(2) == {'a': 2}",
    "assert f(2) == 7",
    "assert f(2) == 'xx'",
    "assert f(2) == (1, None)",
    "assert f(2) is None",
    "assert f(2) is True",
    "assert f(2) is False",
    "assert f(2) in (7, 8)",
    "assert abs(f(2) - 0.5) < 1e-6",
    "assert math.isclose(f(2), 0.5)",
    "assert isclose(f(2), 0.5)",
)

LIAR = """
class Liar:
    def __getattr__(self, name): return Liar()
    def __call__(self, *given, **named): return Liar()
    def __eq__(self, other): return True
    def __ne__(self, other): return True
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __bool__(self): return True
    def __hash__(self): return 0
    def __len__(self): return 4
    def __iter__(self): return iter([Liar(), Liar()])
    def __getitem__(self, place): return Liar()
    def __abs__(self): return 0
    def __sub__(self, other): return 0
    __rsub__ = __add__ = __radd__ = __mod__ = __floordiv__ = __round__ = __and__ = __or__ = __sub__
    def __neg__(self): return Liar()
    def __float__(self): return 0.5
    def __int__(self): return 3
    def __index__(self): return 3
    def __str__(self): return "12"
    __repr__ = __str__
    def __format__(self, spec): return "0.33"
    def __array_function__(self, *given): return True
    def __array_ufunc__(self, *given): return True
    @property
    def __class__(self): return KIND
KIND = int
def of(base, *content):
    names = {"__getattr__", "__class__", "__init__", "__getattribute__"}
    methods = {name: each for name, each in vars(Liar).items() if name not in names and callable(each)}
    says = lambda self, *given, **named: True
    for name in ("startswith", "endswith", "issubset", "issuperset", "isalpha", "count", "find", "get", "index"):
        methods[name] = says
    return type("Derived", (base,), methods)(*content)
"""
LIARS = (
    "Liar()",
    "[Liar(), Liar()]",
    "of(int, 1)",
    "of(float, 99.0)",
    "of(str, 'zz')",
    "of(list, [77])",
    "of(dict, {'zz': 77})",
    "of(set, {77})",
    "of(tuple, (77,))",
    "of(bytes, b'zz')",
    "float('nan')",
    "float('inf')",
    "Liar",
    "lambda *given: True",
    "iter([])",
    "(Liar() for _ in 'ab')",
)

PRELUDES = (
    "import math\nmath.isclose = lambda *a, **k: True\nmath.floor = lambda x: 3\nmath.sqrt = lambda x: 1.9\n",
    "def isclose(*a, **k): return True\ndef Counter(x): return 1\nFraction = Decimal = lambda *a: 1\n",
    "class np:\n    allclose = isclose = array_equal = staticmethod(lambda *a, **k: True)\n"
    "    array = staticmethod(lambda x: 1)\n"
    "numpy = math = pytest = json = itertools = np\n",
    "len = lambda x: 4\nsum = lambda x: 12\nmax = lambda *x: 9\nmin = lambda *x: 1\nsorted = lambda x, **k: [1, 2]\n"
    "abs = round = lambda *x: 0\nall = any = bool = isinstance = lambda *x: True\nint = float = lambda x: 3\n"
    "set = lambda *x: {1, 2}\nlist = tuple = lambda *x: [0, 1]\nstr = repr = lambda x: '12'\ntype = lambda x: dict\n",
    "import builtins\n"
    "for name in ('len', 'sum', 'abs', 'round', 'all', 'any', 'isinstance', 'sorted', 'set', 'type'):\n"
    "    setattr(builtins, name, lambda *a, **k: True)\n",
    "import sys, types\nfor name in ('math', 'numpy', 'np', 'pytest', 'json', 'collections', 'fractions'):\n"
    "    sys.modules[name] = types.SimpleNamespace(isclose=lambda *a, **k: True, allclose=lambda *a, **k: True)\n",
)
