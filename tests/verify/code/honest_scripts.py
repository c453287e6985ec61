"""Right programs with scripts as test authors write them: ``HONEST`` maps a name to a program and a script.

The script's first unknown name, or ``f``, is the program's.
"""

HONEST: dict[str, tuple[str, str]] = {}


def case(name: str, program: str, script: str) -> None:
    """Add a case; a leading line break is dropped."""
    assert name not in HONEST
    HONEST[name] = program.strip("\n"), script.strip("\n")


# ---- exceptions ----

case("subclass of the expected exception", "def f(d): return {}[d]", "try:\n    f(1)\n    assert False\nexcept LookupError:\n    pass")
case(
    "own subclass of a builtin exception",
    "class TooSmall(ValueError): pass\ndef f(n):\n    if n < 0: raise TooSmall('no')\n    return n",
    "try:\n    f(-1)\n    assert False, 'nothing raised'\nexcept ValueError as error:\n    assert str(error) == 'no'\nassert f(2) == 2",
)
case(
    "own subclass with arguments of its own",
    "class Bad(ValueError):\n    def __init__(self, code): self.code = code; super().__init__(f'code {code}')\ndef f(n): raise Bad(n)",
    "with pytest.raises(ValueError, match='code 7'):\n    f(7)",
)
case(
    "own exception that the test names",
    "class Empty(Exception): pass\nclass Box:\n    def __init__(self): self.items = []\n    def take(self):\n        if not self.items: raise Empty('nothing')\n        return self.items.pop()",
    "box = Box()\ntry:\n    box.take()\n    assert False\nexcept Empty as error:\n    assert str(error) == 'nothing'",
)
case(
    "own exception in pytest.raises",
    "class Empty(Exception): pass\ndef f(x):\n    if not x: raise Empty('nothing')\n    return x",
    "with pytest.raises(Empty) as caught:\n    f([])\nassert 'nothing' in str(caught.value)\nassert f([1]) == [1]",
)
case("exception in a flag", "def f(n):\n    if n < 0: raise OverflowError('x')\n    return n", "raised = False\ntry:\n    f(-1)\nexcept ArithmeticError:\n    raised = True\nassert raised")
case("exception of a kind of OSError", "def f(p): return open(p).read()", "try:\n    f('/no/such')\n    assert False\nexcept OSError as error:\n    assert error.errno == 2")
case("unicode error", "def f(b): return b.decode('ascii')", "try:\n    f(b'\\xff')\n    assert False\nexcept UnicodeDecodeError:\n    pass")
case("pytest.raises of several kinds", "def f(n): return 1 / n", "with pytest.raises((TypeError, ArithmeticError)):\n    f(0)")
case("expected exception with an assert in the handler", "def f(n):\n    raise KeyError('k')", "try:\n    f(1)\nexcept KeyError as error:\n    assert error.args[0] == 'k'\nelse:\n    assert False")
case("no exception is expected", "def f(n): return n", "try:\n    r = f(3)\nexcept Exception as error:\n    assert False, f'raised {error}'\nassert r == 3")
case("alternatives by AssertionError", "def f(): return [2, 1]", "try:\n    assert f() == [1, 2]\nexcept AssertionError:\n    assert f() == [2, 1]")
case("failures are collected", "def f(n): return n + 1", "failures = []\nfor n in range(3):\n    try:\n        assert f(n) == n + 1\n    except AssertionError:\n        failures.append(n)\nassert not failures")
case("error of a callback is caught by the program", "def f(g):\n    try:\n        return g()\n    except ZeroDivisionError:\n        return None", "assert f(lambda: 1 / 0) is None\nassert f(lambda: 3) == 3")
case("own error of a callback passes through", "def f(g):\n    try:\n        return g()\n    finally:\n        pass", "class Mine(Exception):\n    pass\ndef bad():\n    raise Mine('x')\ntry:\n    f(bad)\n    assert False\nexcept Mine as error:\n    assert str(error) == 'x'")
case("retries after errors of a callback", "def retry(g, n):\n    for k in range(n):\n        try: return g()\n        except Exception:\n            if k == n - 1: raise", "calls = []\ndef g():\n    calls.append(1)\n    if len(calls) < 3:\n        raise ValueError('again')\n    return 'done'\nassert retry(g, 3) == 'done'\nassert len(calls) == 3")

# ---- arguments ----

case("keyword arguments", "def f(a, *, b=2, **c): return a + b + sum(c.values())", "assert f(1, b=3) == 4\nassert f(a=1) == 3\nassert f(1, **{'x': 5}) == 8")
case("list by keyword changed in place", "def f(items): items.sort()", "x = [3, 1]\nf(items=x)\nassert x == [1, 3]")
case("deque changed in place", "def f(d): d.rotate(1); d.append(9)", "from collections import deque\nd = deque([1, 2, 3])\nf(d)\nassert d == deque([3, 1, 2, 9])\nassert list(d) == [3, 1, 2, 9]")
case("inner list changed in place", "def f(m):\n    for row in m: row.reverse()", "inner = [1, 2]\nm = [inner, [3, 4]]\nf(m)\nassert m == [[2, 1], [4, 3]]\nassert inner == [2, 1]")
case("list in a dict changed in place", "def f(d): d.setdefault('a', []).append(3)", "a = [1]\nd = {'a': a}\nf(d)\nf(d)\nassert a == [1, 3, 3] and d == {'a': [1, 3, 3]}")
case("list in a tuple changed in place", "def f(t): t[0].append(1)", "t = ([], 2)\nf(t)\nassert t == ([1], 2)")
case("rows swapped in place", "def f(m): m[0], m[1] = m[1], m[0]", "a, b = [1], [2]\nm = [a, b]\nf(m)\nassert m == [[2], [1]] and a == [1] and b == [2]\nassert m[0] is b")
case("dict changed in place", "def f(d): d.pop('a'); d['b'] = 2", "d = {'a': 1}\nf(d)\nassert d == {'b': 2}")
case("set changed in place", "def f(s): s.discard(1); s.add((2, 3))", "s = {1}\nf(s)\nassert s == {(2, 3)}")
case("bytearray changed in place", "def f(b): b[0] = 65; b.extend(b'z')", "b = bytearray(b'xy')\nf(b)\nassert b == bytearray(b'Ayz')")
case("array changed in place", "def f(a): a *= 2", "import numpy as np\na = np.array([1, 2])\nf(a)\nassert (a == np.array([2, 4])).all()")
case("counter and defaultdict changed in place", "def f(c, d):\n    c['x'] += 1; d['y'].append(1)", "from collections import Counter, defaultdict\nc, d = Counter('x'), defaultdict(list)\nf(c, d)\nassert c['x'] == 2 and d['y'] == [1]\nassert d['new'] == []")
case("object of the test changed in place", "def f(p): p.x += 1; p.tags.append('t')", "class P:\n    def __init__(self, x):\n        self.x = x\n        self.tags = []\np = P(2)\nf(p)\nassert p.x == 3 and p.tags == ['t']")
case(
    "linked list of the test's own nodes",
    "def f(head):\n    before = None\n    while head:\n        head.next, before, head = before, head, head.next\n    return before",
    "class Node:\n    def __init__(self, val, next=None):\n        self.val = val\n        self.next = next\n\ndef values(node):\n    out = []\n    while node:\n        out.append(node.val)\n        node = node.next\n    return out\nhead = Node(1, Node(2, Node(3)))\nnew = f(head)\nassert values(new) == [3, 2, 1]\nassert values(head) == [1]",
)
case(
    "linked list of the program's nodes changed in place",
    "class Node:\n    def __init__(self, val, next=None): self.val, self.next = val, next\ndef push(head, v):\n    while head.next: head = head.next\n    head.next = Node(v)",
    "head = Node(1, Node(2))\npush(head, 3)\nassert head.next.next.val == 3\nassert head.next.next.next is None",
)
case(
    "linked list of LeetCode changed in place",
    "class Solution:\n    def deleteNode(self, node):\n        node.val = node.next.val\n        node.next = node.next.next",
    "head = list_node([4, 5, 1])\nSolution().deleteNode(head)\nassert list_values(head) == [5, 1]",
)
case("reversed", "def f(x): return list(x)", "assert f(reversed([1, 2])) == [2, 1]\nassert f(reversed(range(3))) == [2, 1, 0]\nassert f(reversed({'a': 1, 'b': 2})) == ['b', 'a']")
case("map, filter, zip and generators", "def f(x): return sum(x)", "assert f(map(int, '12')) == 3\nassert f(filter(None, [0, 4])) == 4\nassert f(a * b for a, b in zip([1, 2], [3, 4])) == 11")
case("infinite iterators", "from itertools import islice\ndef f(x, n): return list(islice(x, n))", "import itertools\nassert f(itertools.count(3), 2) == [3, 4]\nassert f(itertools.cycle('ab'), 3) == ['a', 'b', 'a']\ndef powers():\n    n = 1\n    while True:\n        yield n\n        n *= 2\nassert f(powers(), 4) == [1, 2, 4, 8]")
case("iterators of itertools", "def f(x): return [list(p) for p in x]", "import itertools\nassert f(itertools.combinations([1, 2, 3], 2)) == [[1, 2], [1, 3], [2, 3]]\nassert f(itertools.product('a', [1])) == [['a', 1]]")
case("seen.append", "def f(items, visit):\n    for item in items: visit(item * 2)", "seen = []\nf([1, 2], seen.append)\nassert seen == [2, 4]")
case("bound methods and partials", "def f(g, x): return g(x)", "from functools import partial\nassert f('abc'.index, 'c') == 2\nassert f({'a': 5}.get, 'a') == 5\nassert f(partial(pow, 2), 5) == 32\nassert f(partial(lambda a, b: a - b, 9), 4) == 5")
case("operator's getters", "def f(items, key): return sorted(items, key=key)", "import operator\nassert f([(1, 'b'), (2, 'a')], operator.itemgetter(1)) == [(2, 'a'), (1, 'b')]")
case("callable object of the test", "def f(g, x): return g(x)", "class Doubler:\n    def __call__(self, x):\n        return 2 * x\nassert f(Doubler(), 4) == 8")
case("standard classes as arguments", "def f(kind, items): return kind(items)", "from collections import deque, Counter\nfrom fractions import Fraction\nassert f(tuple, [1]) == (1,)\nassert list(f(deque, [1])) == [1]\nassert f(Counter, 'aab') == {'a': 2, 'b': 1}\nassert f(Fraction, 3) == 3")
case("callbacks that call each other", "def f(g, h, n): return g(h, n)", "assert f(lambda h, n: h(n) + 1, lambda n: n * 10, 4) == 41")

# ---- streams ----

case("stdout redirected", "def f(n):\n    for k in range(n): print(k, end=' ')", "import io\nfrom contextlib import redirect_stdout\nout = io.StringIO()\nwith redirect_stdout(out):\n    f(3)\nassert out.getvalue() == '0 1 2 '")
case("stdout replaced", "import sys\ndef f(name): sys.stdout.write('Hello, ' + name + '\\n')", "import io, sys\nold = sys.stdout\nsys.stdout = io.StringIO()\nf('Bo')\ntext = sys.stdout.getvalue()\nsys.stdout = old\nassert text.strip() == 'Hello, Bo'")
case("stdout patched", "def f(n): print(n)\n", "import io\nfrom unittest.mock import patch\nwith patch('sys.stdout', new_callable=io.StringIO) as out:\n    f(5)\nassert out.getvalue() == '5\\n'")
case("print patched", "def f(n): print('n', n)", "from unittest.mock import patch\nwith patch('builtins.print') as said:\n    f(5)\nsaid.assert_called_once_with('n', 5)\nassert said.call_count == 1")
case("stderr redirected", "import sys\ndef f(): print('oh', file=sys.stderr)", "import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stderr(out):\n    f()\nassert out.getvalue() == 'oh\\n'")
case("output before an exception", "def f():\n    print('first')\n    raise ValueError", "import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n    try:\n        f()\n        assert False\n    except ValueError:\n        pass\nassert out.getvalue() == 'first\\n'")
case("input replaced", "def f():\n    a = int(input('a? '))\n    return a + int(input())", "import builtins\nanswers = iter(['3', '4'])\nold = builtins.input\nbuiltins.input = lambda prompt='': next(answers)\ntry:\n    assert f() == 7\nfinally:\n    builtins.input = old")
case("input patched", "def f(): return input().upper()", "from unittest.mock import patch\nwith patch('builtins.input', side_effect=['yes', 'no']):\n    assert f() == 'YES'\n    assert f() == 'NO'")
case("stdin replaced", "import sys\ndef f():\n    n = int(input())\n    return n + sum(int(line) for line in sys.stdin)", "import io, sys\nsys.stdin = io.StringIO('1\\n2\\n3\\n')\nassert f() == 6")
case("stdin read at once", "import sys\ndef f(): return [int(x) for x in sys.stdin.read().split()]", "import io, sys\nsys.stdin = io.StringIO('1 2\\n3')\nassert f() == [1, 2, 3]")

# ---- what is returned ----

case("closure", "def f(n): return lambda x: x + n", "add = f(3)\nassert add(4) == 7\nassert f(1)(2) == 3")
case("counter in a closure", "def f():\n    n = 0\n    def inc():\n        nonlocal n\n        n += 1\n        return n\n    return inc", "inc = f()\ninc()\nassert inc() == 2\nassert f()() == 1")
case("pair of closures", "def f():\n    v = [0]\n    return (lambda: v[0]), (lambda x: v.__setitem__(0, x))", "get, put = f()\nput(5)\nassert get() == 5")
case("decorator", "def memo(g):\n    seen = {}\n    def inner(x):\n        if x not in seen: seen[x] = g(x)\n        return seen[x]\n    return inner", "calls = []\n@memo\ndef square(x):\n    calls.append(x)\n    return x * x\nassert square(3) == 9\nassert square(3) == 9\nassert calls == [3]")
case("composition", "def compose(*g):\n    def inner(x):\n        for one in reversed(g): x = one(x)\n        return x\n    return inner", "assert compose(lambda x: x + 1, lambda x: x * 2)(5) == 11\nassert compose()(5) == 5\nassert list(map(compose(str, abs), [-1, 2])) == ['1', '2']")
case("partial", "from functools import partial\ndef f(n): return partial(pow, n)", "assert f(2)(3) == 8")
case("generator", "def f():\n    a, b = 0, 1\n    while True:\n        yield a\n        a, b = b, a + b", "g = f()\nassert [next(g) for _ in range(6)] == [0, 1, 1, 2, 3, 5]\nassert next(g) == 8\nimport itertools\nassert list(itertools.islice(f(), 4)) == [0, 1, 1, 2]")
case("generator that ends", "def f(n):\n    yield from range(n)", "assert list(f(3)) == [0, 1, 2]\ng = f(1)\nassert next(g) == 0\nassert next(g, 'end') == 'end'\ntry:\n    next(f(0))\n    assert False\nexcept StopIteration:\n    pass")
case("generator that is sent values", "def f():\n    total = 0\n    while True:\n        x = yield total\n        total += x", "g = f()\nnext(g)\nassert g.send(3) == 3\nassert g.send(4) == 7\ng.close()")
VECTOR = """
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, o): return Vector(self.x + o.x, self.y + o.y)
    def __sub__(self, o): return Vector(self.x - o.x, self.y - o.y)
    def __mul__(self, k): return Vector(self.x * k, self.y * k)
    __rmul__ = __mul__
    def __neg__(self): return Vector(-self.x, -self.y)
    def __abs__(self): return (self.x ** 2 + self.y ** 2) ** 0.5
    def __eq__(self, o): return isinstance(o, Vector) and (self.x, self.y) == (o.x, o.y)
    def __hash__(self): return hash((self.x, self.y))
    def __repr__(self): return f'Vector({self.x}, {self.y})'
    def __bool__(self): return bool(self.x or self.y)
    def __iter__(self): return iter((self.x, self.y))
"""
case("operators", VECTOR, "a, b = Vector(1, 2), Vector(3, 4)\nassert a + b == Vector(4, 6)\nassert b - a == Vector(2, 2)\nassert a * 3 == Vector(3, 6)\nassert 3 * a == Vector(3, 6)\nassert -a == Vector(-1, -2)\nassert a != b")
case("text of an object", VECTOR, "v = Vector(1, 2)\nassert repr(v) == 'Vector(1, 2)'\nassert str(v) == 'Vector(1, 2)'\nassert f'{v}' == 'Vector(1, 2)'\nassert '{}'.format(v) == 'Vector(1, 2)'\nassert '%s' % v == 'Vector(1, 2)'")
case("hash, set and truth of an object", VECTOR, "assert hash(Vector(1, 2)) == hash(Vector(1, 2))\nassert len({Vector(1, 2), Vector(1, 2), Vector(0, 1)}) == 2\nassert Vector(1, 0) and not Vector(0, 0)\nassert bool(Vector(0, 0)) is False")
case("abs and unpacking of an object", VECTOR, "assert abs(Vector(3, 4)) == 5.0\nx, y = Vector(7, 8)\nassert (x, y) == (7, 8)\nassert list(Vector(7, 8)) == [7, 8]")
case("objects in a list", VECTOR, "vs = [Vector(1, 2), Vector(3, 4)]\nassert Vector(3, 4) in vs\nassert vs.index(Vector(3, 4)) == 1\nassert [v + v for v in vs] == [Vector(2, 4), Vector(6, 8)]")
case("order of objects", "class Version:\n    def __init__(self, text): self.parts = [int(p) for p in text.split('.')]\n    def __lt__(self, o): return self.parts < o.parts\n    def __le__(self, o): return self.parts <= o.parts\n    def __eq__(self, o): return self.parts == o.parts", "a, b = Version('1.2'), Version('1.10')\nassert a < b and not b < a\nassert b > a\nassert a <= b and a <= Version('1.2')\nassert sorted([b, a])[0].parts == [1, 2]\nassert max(a, b).parts == [1, 10]")
MATRIX = """
class Grid:
    def __init__(self, rows): self.rows = rows
    def __getitem__(self, at): return self.rows[at[0]][at[1]]
    def __setitem__(self, at, v): self.rows[at[0]][at[1]] = v
    def __delitem__(self, at): self.rows[at[0]][at[1]] = None
    def __len__(self): return len(self.rows)
    def __contains__(self, v): return any(v in row for row in self.rows)
    def __iter__(self): return iter(self.rows)
    def __reversed__(self): return reversed(self.rows)
    def __call__(self, k): return self.rows[k]
"""
case("elements of an object", MATRIX, "g = Grid([[1, 2], [3, 4]])\nassert g[0, 1] == 2\ng[0, 1] = 7\nassert g[0, 1] == 7\nassert len(g) == 2\nassert 7 in g and 9 not in g\nassert [sum(row) for row in g] == [8, 7]\nassert g(1) == [3, 4]\ndel g[1, 1]\nassert list(reversed(g)) == [[3, None], [1, 7]]")
case("attributes of an object", MATRIX, "g = Grid([[1]])\ng.name = 'x'\nassert g.name == 'x'\nassert hasattr(g, 'rows') and not hasattr(g, 'columns')\nassert getattr(g, 'rows') == [[1]]")
case("context manager", "class Log:\n    def __init__(self): self.said = []\n    def __enter__(self): self.said.append('in'); return self\n    def __exit__(self, *a): self.said.append('out')", "log = Log()\nwith log as inner:\n    inner.said\n    assert log.said == ['in']\nassert log.said == ['in', 'out']")
case("context manager of a function", "from contextlib import contextmanager\n@contextmanager\ndef scope(items):\n    items.append('in')\n    yield 5\n    items.append('out')", "items = []\nwith scope(items) as v:\n    assert v == 5\nassert v == 5")
case("context manager that suppresses", "class Quiet:\n    def __enter__(self): return self\n    def __exit__(self, kind, error, trace):\n        self.kind = kind and kind.__name__\n        return kind is not None and issubclass(kind, KeyError)", "q = Quiet()\nwith q:\n    {}['a']\nassert q.kind == 'KeyError'\ntry:\n    with Quiet():\n        raise ValueError('x')\n    assert False\nexcept ValueError:\n    pass")
case("iterator class", "class Down:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return self\n    def __next__(self):\n        if self.n == 0: raise StopIteration\n        self.n -= 1\n        return self.n + 1", "assert list(Down(3)) == [3, 2, 1]\nd = Down(2)\nassert next(d) == 2 and next(d) == 1\nassert [x for x in Down(1)] == [1]")
case("stack with len and bool", "class Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)\n    def pop(self): return self.items.pop()\n    def __len__(self): return len(self.items)", "s = Stack()\nassert not s and len(s) == 0\ns.push(4)\nassert s and len(s) == 1\nassert s.pop() == 4")
case("object of a function", "class Point:\n    def __init__(self, x): self.x = x\n    def __repr__(self): return f'<{self.x}>'\n    def __add__(self, o): return Point(self.x + o.x)\ndef make(x): return Point(x)", "p = make(3)\nassert p.x == 3\nassert repr(p) == '<3>'\nassert (make(1) + make(2)).x == 3")
case("methods of an object of a function", "class Account:\n    def __init__(self): self.total = 0\n    def deposit(self, n): self.total += n; return self.total\ndef open_account(): return Account()", "a = open_account()\na.deposit(5)\nassert a.deposit(2) == 7\nassert a.total == 7")
case("namedtuple", "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(a): return P(a, a + 1)", "assert f(1) == (1, 2)\nassert f(1).x == 1 and f(1).y == 2")
case("dataclass", "from dataclasses import dataclass\n@dataclass(order=True)\nclass Item:\n    price: int\n    name: str = 'x'", "assert Item(1) == Item(1, 'x')\nassert Item(1) != Item(2)\nassert Item(1) < Item(2)\nassert repr(Item(1)) == \"Item(price=1, name='x')\"\nassert Item(price=3).price == 3")
case("enum", "from enum import Enum\nclass Color(Enum):\n    RED = 1\n    BLUE = 2\ndef mix(c): return Color.BLUE if c == Color.RED else Color.RED", "assert mix(Color.RED) == Color.BLUE\nassert Color.RED.value == 1\nassert Color.RED.name == 'RED'\nassert Color['BLUE'] == Color.BLUE")
case("class methods and constants", "class T:\n    LIMIT = 3\n    @classmethod\n    def of(cls, x):\n        t = cls(); t.x = x; return t\n    @staticmethod\n    def double(x): return 2 * x", "assert T.LIMIT == 3\nassert T.of(4).x == 4\nassert T.double(4) == 8")
case("deque and range", "from collections import deque\ndef f(n): return deque(range(n)), range(n)", "from collections import deque\nd, r = f(3)\nassert d == deque([0, 1, 2])\nassert d[0] == 0 and len(d) == 3\nassert r == range(3) and list(r) == [0, 1, 2]")
case("isinstance of the program's class", "class Stack: pass\ndef make(): return Stack()", "assert isinstance(make(), Stack)")

# ---- where the asserts are ----

case("empty result is expected", "def f(x): return [v for v in x if v > 9]", "assert f([1]) == []\nassert all(v > 9 for v in f([1]))\nassert len(f([])) == 0")
case("some results are empty", "def f(x): return [v for v in x if v % 2]", "for data in ([], [2], [1, 2, 3]):\n    out = f(data)\n    assert all(v % 2 for v in out)\n    for v in out:\n        assert v in data")
case("elements of a result", "def f(n): return list(range(1, n))", "for v in f(4):\n    assert v > 0\nassert all(isinstance(v, int) for v in f(3))")
case("pairs with what is expected", "def f(n): return [0.5 * k for k in range(n)]", "for got, want in zip(f(3), [0.0, 0.5, 1.0]):\n    assert abs(got - want) < 1e-9")
case("prefix of a generator", "def f():\n    n = 0\n    while True:\n        yield n\n        n += 2", "for got, want in zip(f(), [0, 2, 4]):\n    assert got == want")
case("close arrays", "def f(n): return [5.0] * n", "import numpy as np\nassert np.allclose(f(3), 5.0)\nassert np.allclose(f(2), [5.0, 5.0])\nnp.testing.assert_allclose(f(3), 5.0)\nassert np.isclose(f(2), 5.0).all()\nassert np.all(np.array(f(2)) > 4)")
case("empty arrays are expected", "def f(n): return [5.0] * n", "import numpy as np\nassert np.allclose(f(0), [])\nassert np.array_equal(f(0), np.array([]))")
case("asserts under with", "def f(n): return n", "import contextlib, warnings\nwith warnings.catch_warnings():\n    assert f(3) == 3\nwith contextlib.suppress(KeyError):\n    assert f(4) == 4")
case("asserts under try", "def f(n): return n", "try:\n    assert f(3) == 3\nexcept Exception as error:\n    raise AssertionError('failed') from error\ntry:\n    assert f(4) == 4\nfinally:\n    pass")
case("subset of what is allowed", "def f(x): return {v for v in x if v < 3}", "assert f([1, 2, 5]) <= {1, 2, 3}\nassert set(f([1])).issubset({1})")
case("eval of the test's own text", "def f(x): return x * 2", "for text, value in (('1 + 2', 6), ('[1] * 2', [1, 1, 1, 1])):\n    pass\nassert f(eval('1 + 2')) == 6\nassert f(eval('[1] * 2')) == [1, 1, 1, 1]")
case("text read without executing it", "def f(x): return repr({'a': x})", "import ast, json\nassert ast.literal_eval(f(3)) == {'a': 3}\nassert json.loads(f(3).replace(\"'\", '\"')) == {'a': 3}")
case("template of the program", "def f(greeting): return greeting + ', {name}! {0[1]}'", "assert f('Hi').format([1, 2], name='Bo') == 'Hi, Bo! 2'")
case("bytes of pickled plain data", "import pickle\ndef f(x): return pickle.dumps(x)", "import pickle\nassert pickle.loads(f([1, {'a': (2.5, None)}])) == [1, {'a': (2.5, None)}]")
case("namedtuple and dataclass of the test", "def f(p): return p[0] + p[1]", "from collections import namedtuple\nfrom dataclasses import dataclass\nP = namedtuple('P', 'x y')\n@dataclass\nclass Case:\n    given: tuple\n    wanted: int\nfor case in (Case((1, 2), 3), Case(P(3, 4), 7)):\n    assert f(case.given) == case.wanted")
case("operations by name", "class Stack:\n    def __init__(self): self.x = []\n    def push(self, v): self.x.append(v)\n    def top(self): return self.x[-1]", "stack, got = Stack(), []\nfor name, args in (('push', [1]), ('push', [2]), ('top', [])):\n    got.append(getattr(stack, name)(*args))\nassert got == [None, None, 2]")
