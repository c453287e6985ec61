"""The functions that expressions of tests may call, with plain data of any size, and their costs.

They have the names of the builtins, ``math``, ``numpy`` and ``collections``, accept only plain data, bound their
results, and compare as the originals do. A list and an array are the same.
"""

import json
import math
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from itertools import chain, combinations, permutations, product
from types import GeneratorType
from typing import Any

from magcli.verify.code.methods import (
    MAX_BITS,
    MAX_SIZE,
    VIEWS,
    Budget,
    Unsupported,
    bits_of,
    flat,
    readable,
    too_wide,
    truth,
)
from magcli.verify.code.outputs import Other, same

MAX_DIGITS = 1_000
"""Maximum number of digits to round to or write."""


def called(budget: Budget, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The value of a function call."""
    for value in (*args, *kwargs.values()):
        budget.charge(value)
    return function(budget, *args, **kwargs) if function in _TABLE else function(*args, **kwargs)


def callable_of(value: Any) -> Callable[..., Any]:
    """A callable value; of a type, its constructor."""
    if isinstance(value, type):
        value = FUNCTIONS.get(_NAMES.get(value, value.__name__))
    if not callable(value):
        raise TypeError("it cannot be called")
    function: Callable[..., Any] = value
    return function


# ---- types ----

TYPES: dict[str, type] = {
    **{kind.__name__: kind for kind in (bool, int, float, complex, str, bytes, list, tuple, dict, frozenset)},
    "set": frozenset,
    "Fraction": Fraction,
    "Decimal": Decimal,
    "NoneType": type(None),
}
_NAMES = {frozenset: "frozenset", type(None): "NoneType"}

CONSTANTS: dict[str, Any] = {
    **{f"math.{name}": getattr(math, name) for name in ("pi", "e", "inf", "nan", "tau")},
    **{f"{module}.{name}": getattr(math, name) for module in ("np", "numpy") for name in ("pi", "e", "inf", "nan")},
    **{f"string.{name}": getattr(string, name) for name in string.__all__ if isinstance(getattr(string, name), str)},
}


# ---- functions ----


def _set(budget: Budget, value: Any = ()) -> Any:
    return budget.make_set(list(budget.items(value)))


def _dict(budget: Budget, value: Any = (), **kwargs: Any) -> Any:
    pairs = list(value.items()) if isinstance(value, dict) else [tuple(pair) for pair in budget.items(value)]
    return budget.make_dict([*pairs, *kwargs.items()])


def _counter(budget: Budget, value: Any = ()) -> Any:
    if isinstance(value, dict):
        return value
    keys = list(budget.items(value))
    budget.make_set(keys)
    return dict(Counter(keys))


def _key(budget: Budget, key: Any) -> Any:
    """The sort key, charged for each call."""
    if key is None:
        return None
    function = callable_of(key)
    return lambda value: called(budget, function, [value], {})


def _sorted(budget: Budget, value: Any, *, key: Any = None, reverse: Any = False) -> Any:
    return sorted(_ordered(budget.items(value)), key=_key(budget, key), reverse=truth(reverse))


def _most(function: Callable[..., Any]) -> Callable[..., Any]:
    def most(budget: Budget, *args: Any, key: Any = None, **kwargs: Any) -> Any:
        values = list(budget.items(args[0])) if len(args) == 1 else list(args)
        return function(_ordered(values), key=_key(budget, key), **kwargs)

    return most


def _ordered(values: Iterable[Any]) -> Iterator[Any]:
    """The values; raises Unsupported at NaN, which has no order."""
    for value in values:
        if isinstance(value, float) and value != value:
            raise Unsupported("NaN has no order")
        yield value


def _reversed(budget: Budget, value: Any) -> Any:
    if isinstance(value, frozenset | GeneratorType):
        raise TypeError(f"a {type(value).__name__} has no order")
    return list(budget.items(value))[::-1]


def _len(budget: Budget, value: Any) -> Any:
    if isinstance(value, Other) and value.kind in ("range", "deque", *(kind.__name__ for kind in VIEWS)):
        value = value.items
    if isinstance(value, GeneratorType):
        raise TypeError("it has no length")
    return len(value)


def _sum(budget: Budget, value: Any, start: Any = 0) -> Any:
    total = start
    for part in budget.items(value):
        if isinstance(total, str):
            raise TypeError("strings cannot be summed")
        budget.charge(total)
        budget.spend_on_numbers(total, part)
        total = total + part
    return total


def _round(budget: Budget, value: Any, digits: Any = None) -> Any:
    if isinstance(digits, int) and abs(digits) > MAX_DIGITS:
        raise Unsupported("it has too many digits")
    return round(value) if digits is None else round(value, digits)


def _pow(budget: Budget, one: Any, other: Any, modulus: Any = None) -> Any:
    sizes = [abs(part).bit_length() for part in (one, other, modulus) if isinstance(part, int)]
    if modulus is not None:
        budget.check_size(max(sizes) ** 2)
        return pow(one, other, modulus)
    if isinstance(one, int) and isinstance(other, int):
        budget.check_size(one.bit_length() * abs(other) // 8)
    if isinstance(one, Fraction) and isinstance(other, int):
        budget.check_size(bits_of(one) * abs(other) // 8)
    return one**other


def _bytes(budget: Budget, value: Any = b"", *more: Any) -> Any:
    if isinstance(value, int):
        budget.check_size(value)
    return bytes(readable(value), *more)


def _str(budget: Budget, *args: Any) -> Any:
    if any(isinstance(value, Other | GeneratorType) for value in args):
        raise TypeError("it is not plain data")
    return str(*args)


def _repr(budget: Budget, value: Any) -> Any:
    return repr(value) if not isinstance(value, Other | GeneratorType) else _str(budget, value)


def _format(budget: Budget, value: Any, spec: Any = "") -> Any:
    if too_wide(spec):
        raise Unsupported("its width is not known")
    return format(value, spec)


def _map(budget: Budget, function: Any, *iterables: Any) -> Any:
    apply = callable_of(function)
    lists = [budget.items(value) for value in iterables]
    return (called(budget, apply, parts, {}) for parts in zip(*lists, strict=False))


def _filter(budget: Budget, function: Any, value: Any) -> Any:
    predicate = truth if function is None else callable_of(function)
    return (part for part in budget.items(value) if truth(called(budget, predicate, [part], {})))


def _isinstance(budget: Budget, value: Any, kinds: Any) -> Any:
    asked = kinds if isinstance(kinds, tuple) else (kinds,)
    if not all(isinstance(kind, type) for kind in _leaves(asked)):
        raise TypeError("it is not a type")
    return isinstance(value, tuple(_leaves(asked)))


def _leaves(kinds: Any) -> Iterator[Any]:
    for kind in kinds:
        if isinstance(kind, tuple):
            yield from _leaves(kind)
        else:
            yield kind


def _type(budget: Budget, value: Any) -> Any:
    if isinstance(value, Other):
        raise TypeError(f"a {value.kind} is not plain data")
    return type(value)


def _chosen(function: Callable[..., Any], count: Callable[..., int]) -> Callable[..., Any]:
    def chosen(budget: Budget, value: Any, *more: Any) -> Any:
        items = list(budget.items(value))
        size = more[0] if more else len(items)
        budget.check_size(count(len(items), size) * (1 + size))
        return list(function(items, *more))

    return chosen


def _product(budget: Budget, *iterables: Any, repeat: Any = 1) -> Any:
    lists = [list(budget.items(value)) for value in iterables]
    too_large = MAX_SIZE + 1
    # A large power is not computed, as that alone could take too long.
    size = math.prod(map(len, lists)) ** repeat if repeat < 100 else too_large
    budget.check_size(min(size, too_large))
    return list(product(*lists, repeat=repeat))


def _reduce(budget: Budget, function: Any, value: Any, *start: Any) -> Any:
    combine = callable_of(function)
    return reduce(lambda one, other: called(budget, combine, [one, other], {}), budget.items(value), *start)


def _deque(budget: Budget, value: Any = ()) -> Any:
    return Other("deque", tuple(budget.items(value)))


def _defaultdict(budget: Budget, factory: Any = None, value: Any = (), **kwargs: Any) -> Any:
    return _dict(budget, value, **kwargs)


def _chain(budget: Budget, *iterables: Any) -> Any:
    return list(chain.from_iterable(budget.items(value) for value in iterables))


def _small(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is slow for large numbers."""

    def small(budget: Budget, *args: Any, **kwargs: Any) -> Any:
        if sum(map(bits_of, args)) > 4096 * 2 or any(bits_of(value) > 4096 for value in args):
            raise Unsupported("a number is too large")
        return function(*args, **kwargs)

    return small


def _counted(function: Callable[..., Any]) -> Callable[..., Any]:
    def counted(budget: Budget, *args: Any) -> Any:
        if any(value > 5000 for value in args):
            raise Unsupported("a number is too large")
        return function(*args)

    return counted


def _over_items(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numbers only: a product of text and numbers is as long as the program likes."""

    def over_items(budget: Budget, value: Any, **kwargs: Any) -> Any:
        items = list(budget.items(value))
        if not all(isinstance(part, int | float | complex | Fraction | Decimal) for part in (*items, *kwargs.values())):
            raise TypeError("it computes with numbers only")
        if sum(map(bits_of, items)) > MAX_BITS:
            raise Unsupported("numbers are too large")
        return function(items, **kwargs)

    return over_items


def _plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes time in proportion to its arguments."""

    def plainly(budget: Budget, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return plainly


def _decimal(budget: Budget, value: Any = "0") -> Any:
    number = Decimal(value)
    if abs(number.adjusted()) > MAX_DIGITS:
        raise Unsupported("a number is too large")
    return number


def _fraction(budget: Budget, *args: Any) -> Any:
    if any(isinstance(value, str) and "e" in value.lower() for value in args):
        raise Unsupported("its size is not known")
    return Fraction(*args)


# ---- arrays ----


def _array(budget: Budget, value: Any, dtype: Any = None) -> Any:
    if isinstance(value, list | tuple):
        return [_array(budget, part) for part in value]
    return value


def _round_array(budget: Budget, value: Any, decimals: Any = 0) -> Any:
    if isinstance(value, list):
        return [_round_array(budget, part, decimals) for part in value]
    return _round(budget, value, decimals)


def _leaf_pairs(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of numbers of two arrays of one shape; raises ValueError if the shapes differ."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            raise ValueError("the shapes differ")
        for left, right in zip(one, other, strict=True):
            yield from _leaf_pairs(left, right)
    elif isinstance(one, list | tuple) or isinstance(other, list | tuple):
        raise ValueError("the shapes differ")
    else:
        yield one, other


def _close(one: Any, other: Any, rtol: Any, atol: Any, equal_nan: Any) -> bool:
    """As in numpy, the tolerance is relative to the second number."""
    if isinstance(one, Decimal | Fraction):
        one = float(one)
    if isinstance(other, Decimal | Fraction):
        other = float(other)
    if one != one or other != other:
        return bool(equal_nan) and one != one and other != other
    if one == other:
        return True
    return bool(abs(one - other) <= atol + rtol * abs(other) < math.inf)


def _allclose(budget: Budget, one: Any, other: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: Any = False) -> Any:
    try:
        return all(_close(left, right, rtol, atol, equal_nan) for left, right in _leaf_pairs(one, other))
    except ValueError:
        return False


def _isclose_array(
    budget: Budget, one: Any, other: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: Any = False
) -> Any:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            raise ValueError("the shapes differ")
        pairs = zip(one, other, strict=True)
        return [_isclose_array(budget, left, right, rtol, atol, equal_nan) for left, right in pairs]
    return _allclose(budget, one, other, rtol, atol, equal_nan)


def _array_equal(budget: Budget, one: Any, other: Any) -> Any:
    try:
        return all(same(left, right) or same(right, left) for left, right in _leaf_pairs(one, other))
    except ValueError:
        return False


_BUILTINS: dict[str, Callable[..., Any]] = {
    "abs": _plainly(abs), "all": lambda budget, value: all(map(truth, budget.items(value))),
    "any": lambda budget, value: any(map(truth, budget.items(value))), "ascii": _repr, "bin": _plainly(bin),
    "bool": lambda budget, value=False: truth(value), "bytes": _bytes, "chr": _plainly(chr),
    "complex": _plainly(complex), "dict": _dict, "divmod": _small(divmod),
    "enumerate": lambda budget, value, start=0: list(enumerate(budget.items(value), start)), "filter": _filter,
    "float": _plainly(float), "format": _format, "frozenset": _set, "hex": _plainly(hex), "int": _plainly(int),
    "isinstance": _isinstance, "len": _len, "list": lambda budget, value=(): list(budget.items(value)), "map": _map,
    "max": _most(max), "min": _most(min), "oct": _plainly(oct), "ord": _plainly(ord), "pow": _pow,
    "range": _plainly(range), "repr": _repr, "reversed": _reversed, "round": _round, "set": _set, "sorted": _sorted,
    "str": _str, "sum": _sum, "tuple": lambda budget, value=(): tuple(budget.items(value)), "type": _type,
    "zip": lambda budget, *iterables, strict=False: list(zip(*map(budget.items, iterables), strict=truth(strict))),
}  # fmt: skip
_OF_NUMBERS = (
    "acos asin atan atan2 cbrt ceil copysign cos cosh degrees dist exp fabs floor fmod gcd hypot isclose isfinite "
    "isinf isnan isqrt lcm log log10 log1p log2 pow radians sin sinh sqrt tan tanh trunc"
)
_MATH: dict[str, Callable[..., Any]] = {
    **{name: _small(getattr(math, name)) for name in _OF_NUMBERS.split()},
    **{name: _counted(getattr(math, name)) for name in ("comb", "factorial", "perm")},
    "fsum": _over_items(math.fsum),
    "prod": _over_items(math.prod),
}
_NUMPY: dict[str, Callable[..., Any]] = {
    "abs": _BUILTINS["abs"], "all": lambda budget, value: all(map(truth, flat(value))), "allclose": _allclose,
    "any": lambda budget, value: any(map(truth, flat(value))), "array": _array, "array_equal": _array_equal,
    "asarray": _array, "isclose": _isclose_array, "isnan": _MATH["isnan"], "round": _round_array,
    "sqrt": _MATH["sqrt"],
}  # fmt: skip
_OTHERS: dict[str, Callable[..., Any]] = {
    "Counter": _counter, "Decimal": _decimal, "Fraction": _fraction, "OrderedDict": _dict, "allclose": _allclose,
    "array_equal": _array_equal, "collections.Counter": _counter, "collections.OrderedDict": _dict,
    "collections.defaultdict": _defaultdict, "collections.deque": _deque, "copy.copy": lambda budget, value: value,
    "copy.deepcopy": lambda budget, value: value, "decimal.Decimal": _decimal, "defaultdict": _defaultdict,
    "deque": _deque, "fractions.Fraction": _fraction, "functools.reduce": _reduce, "isclose": _MATH["isclose"],
    "itertools.chain": _chain,
    "itertools.chain.from_iterable": lambda budget, value: _chain(budget, *budget.items(value)),
    "itertools.combinations": _chosen(combinations, math.comb),
    "itertools.permutations": _chosen(permutations, math.perm), "itertools.product": _product,
    "json.loads": lambda budget, text: json.loads(text, object_pairs_hook=budget.make_dict),
}  # fmt: skip

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_BUILTINS,
    **_OTHERS,
    **{f"math.{name}": function for name, function in _MATH.items()},
    **{f"{module}.{name}": function for module in ("np", "numpy") for name, function in _NUMPY.items()},
}
"""Each takes the budget as its first argument."""

_TABLE = frozenset(FUNCTIONS.values())

MODULES = frozenset(("math", "np", "numpy", "collections", "copy", "decimal", "fractions", "functools", "itertools",
                     "json", "operator", "os", "pytest", "random", "re", "string", "sys"))  # fmt: skip
"""Names of modules in tests, including some without supported functions."""

LIBRARY = frozenset(name for name in _OTHERS if "." not in name) | {"approx"}
"""Names that tests import from these modules."""
