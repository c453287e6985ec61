"""The program as a test's script sees it: names that send calls, and objects of the program as handles.

Runs inside the judge's sandbox, without magcli. What the script does with an object that is not plain data is asked of
the program: calls, attributes, operators. But it equals no plain data and has no order among it, so a class that claims
to equal everything gains nothing; and an object whose own equality or order tells no two objects apart is refused.

A function may return an object of its own where plain data is expected. So the methods of plain data (``startswith``),
and its text, length, truth and arithmetic with other values, are asked only of objects that the script itself made from
a class of the problem, or if the script shows by an attribute that no plain data has that it expects an object.
"""

from collections import deque

from magcli.verify.code.proxies import MAX_NAME, READERS, ask, asked, call, parts_of, refused, refused_object
from magcli.verify.code.rewriting import names_class
from magcli.verify.code.values import NotPlain
from magcli.verify.code.writing import ATOMS, passing, written

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

READ_ONLY = frozenset(
    name
    for kind in (str, bytes, tuple, frozenset, int, float, complex)
    for name in dir(kind)
    if not name.startswith("_")
) | {"get", "items", "keys", "values"}
PLAIN_ATTRIBUTES = READ_ONLY | {name for kind in (list, dict, set) for name in dir(kind) if not name.startswith("_")}
"""What only plain data can answer, without and with what changes a list, dict or set."""

SEQUENCES = ("range", "deque", "dict_keys", "dict_values", "dict_items")
"""Types of objects whose elements come with them."""
GENERATORS = frozenset(("send", "throw", "close"))
MAX_FETCHED = 1_000
"""Elements of an iterator that are fetched at once."""


class Evidence:
    """What the script shows of what it expects.

    ``objects``: it asks for attributes that no plain data has; ``answered``: the origins of objects that had one;
    ``ended``: no more is asked, as the verdict is being written.
    """

    def __init__(self) -> None:
        self.objects = False
        self.answered: set[str] = set()
        self.ended = False


evidence = Evidence()


class Handle:
    """An object of the program.

    Args:
        kind: The name of its type, as the program says.
        items: Its elements if it is a sequence of the standard library.
        number: By which the program knows it.
        abilities: ``i`` it is iterable, ``n`` an iterator, ``c`` a container.
    """

    __slots__ = ("_ended", "_left", "_origin", "_root", "abilities_", "items_", "kind_", "number_")

    def __init__(self, kind: str, items: "tuple[Any, ...] | None", number: int, abilities: str = "") -> None:
        # ``_left``: elements that are fetched and not yet used; ``_ended``: there are no more to fetch; ``_origin`` and
        # ``_root``: where the script has it from, see ``PLAIN_OF_ORIGIN``. Not by assignment, which asks the program.
        own: dict[str, Any] = {
            "kind_": kind, "items_": items, "number_": number, "abilities_": abilities, "_left": deque(items or ()),
            "_ended": items is not None, "_origin": "value", "_root": "",
        }  # fmt: skip
        for name, value in own.items():
            object.__setattr__(self, name, value)

    # ---- attributes and calls ----

    def __getattr__(self, name: str) -> "Any":
        # A list has no ``send``: the script expects a generator.
        is_shown = self._root in evidence.answered or (name in GENERATORS and "n" in self.abilities_)
        if name.startswith("__") or (name in PLAIN_OF_ORIGIN[self._origin] and not is_shown):
            raise AttributeError(f"a {self.kind_} has no {name!r}")
        value = ask(f"H[{self.number_}].{name}")
        if name not in PLAIN_ATTRIBUTES:
            evidence.answered.add(self._root)
        return of_origin(value, METHOD_OF_ORIGIN[self._origin], f"{self._root}.{name}")

    def __setattr__(self, name: str, value: "Any") -> None:
        asked("N('builtins','setattr')({},{},{})", self, name, value)

    def __delattr__(self, name: str) -> None:
        asked("N('builtins','delattr')({},{})", self, name)

    def __call__(self, *args: "Any", **kwargs: "Any") -> "Any":
        value = call(f"H[{self.number_}]", args, kwargs)
        return of_origin(value, RESULT_OF_ORIGIN[self._origin], f"{self._root}()")

    def __enter__(self) -> "Any":
        return of_origin(ask(f"H[{self.number_}].__enter__()"), "value", f"{self._root}.with")

    def __exit__(self, kind: "Any", error: "Any", trace: object) -> bool:
        if kind is None:
            ask(f"H[{self.number_}].__exit__(None,None,None)")
            return False
        # The program must not suppress an assert that fails, or a refusal.
        if not issubclass(kind, Exception) or issubclass(kind, AssertionError):
            return False
        args = tuple(value for value in error.args if type(value) in ATOMS)
        return asked("X('leave_context')({},{},{})", self, kind.__name__, args) is True

    # ---- elements ----

    def __iter__(self) -> "Iterator[Any]":
        if self.items_ is not None:
            return iter(self.items_)
        if "n" in self.abilities_:
            return self._rest()
        if "i" not in self.abilities_:
            raise TypeError(f"a {self.kind_} has no elements")
        return iter(of_origin(ask(f"N('builtins','iter')(H[{self.number_}])"), "value", f"{self._root}[]"))

    def _rest(self) -> "Iterator[Any]":
        """The elements of an iterator, fetched more and more at once."""
        # One at first, as the iterator may not end, or do work for each element.
        most = 1
        while self._left or self._fetch(most):
            most = min(2 * most, MAX_FETCHED)
            yield self._left.popleft()

    def _fetch(self, most: int) -> bool:
        """Fetch elements of an iterator; whether there is one."""
        if self._ended:
            return False
        elements, has_ended = parts_of(ask(f"X('some')(H[{self.number_}],{most})"), list, object)
        root = f"{self._root}[]"
        self._left.extend([of_origin(value, "value", root) for value in elements])
        object.__setattr__(self, "_ended", has_ended is not False)
        return bool(self._left)

    def __next__(self) -> "Any":
        if "n" not in self.abilities_:
            raise TypeError(f"a {self.kind_} is not an iterator")
        if not self._left and not self._fetch(1):
            raise StopIteration
        return self._left.popleft()

    def __contains__(self, value: object) -> bool:
        if self.is_object_() and "c" in self.abilities_ and self.items_ is None:
            return certain(asked("X('contains')({},{})", self, value), self.kind_, "containment")
        return any(item is value or item == value for item in self)

    def __len__(self) -> int:
        if self.items_ is not None:
            return len(self.items_)
        if not self.is_object_():
            raise TypeError(f"a {self.kind_} has no length")
        return int(self._unary("N('builtins','len')", int))

    def __getitem__(self, index: "Any") -> "Any":
        # A range or deque; the views of a dict have no elements by index.
        if self.items_ is not None and self.kind_ in SEQUENCES[:2]:
            return self.items_[index]
        return of_origin(asked("{}[{}]", self, index), RESULT_OF_ORIGIN[self._origin], f"{self._root}[]")

    def __setitem__(self, index: "Any", value: "Any") -> None:
        asked("N('operator','setitem')({},{},{})", self, index, value)

    def __delitem__(self, index: "Any") -> None:
        asked("N('operator','delitem')({},{})", self, index)

    def __reversed__(self) -> "Iterator[Any]":
        if self.items_ is not None:
            return iter(self.items_[::-1])
        return iter(of_origin(ask(f"N('builtins','reversed')(H[{self.number_}])"), "value", f"{self._root}[]"))

    # ---- what plain data has, too ----

    def is_object_(self) -> bool:
        """Whether the script expects an object where it has this one from."""
        return self._origin in ("made", "returned") or evidence.objects

    def _unary(self, function: str, kind: type, *more: "Any") -> "Any":
        """The value of a function of one object, which must be plain data of a type."""
        # A verdict or traceback that names it asks nothing.
        if evidence.ended:
            return f"a {self.kind_}"
        if not self.is_object_():
            raise refused_object(self.kind_)
        value = asked(function + "({}" + ",{}" * len(more) + ")", self, *more)
        if type(value) is not kind:
            raise refused(f"a {self.kind_}, whose {kind.__name__} is none")
        return value

    def __bool__(self) -> bool:
        # As of ``re``, whose truth scripts assert.
        if self.kind_ == "Match":
            return True
        if self.items_ is not None:
            return bool(self.items_)
        return bool(self._unary("N('builtins','bool')", bool))

    def __hash__(self) -> int:
        value = ask(f"N('builtins','hash')(H[{self.number_}])")
        if type(value) is not int:
            raise refused(f"a {self.kind_}, whose hash is none")
        return value

    # ---- comparisons ----

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle):
            raise refused_object(self.kind_)
        if self.items_ is not None and other.items_ is not None and self.kind_ == other.kind_:
            return bool(self.items_ == other.items_)
        return certain(asked("X('equal')({},{})", self, other), self.kind_, "equality")


def certain(answer: "Any", kind: str, what: str) -> bool:
    """An answer of the program, which must tell objects apart."""
    if type(answer) is not bool:
        raise refused(f"a {kind}, whose {what} tells no objects apart")
    return answer


# ---- operators ----


def check_operand(handle: Handle, other: "Any") -> None:
    """Raise Refused unless the other operand is an object, too, or the script made this one."""
    if handle._origin != "made" and not isinstance(other, Handle):
        raise refused_object(handle.kind_)


def ordered(sign: str) -> "Callable[[Handle, Any], bool]":
    """A comparison by order."""

    def operate(self: Handle, other: "Any") -> bool:
        check_operand(self, other)
        return certain(asked("X('in_order')({},{},{})", sign, self, other), self.kind_, "order")

    return operate


def binary(request: str, *, reflected: bool = False) -> "Callable[[Handle, Any], Any]":
    """An operator of an object with another, or of an object that the script made with any value."""

    def operate(self: Handle, other: "Any") -> "Any":
        check_operand(self, other)
        operands = (other, self) if reflected else (self, other)
        return of_operator(asked(request, *operands), self)

    return operate


def converted(module: str, name: str, kind: type) -> "Callable[..., Any]":
    """A conversion to plain data of a type, with the arguments of the function that converts."""

    def convert(self: Handle, *more: "Any") -> "Any":
        return kind(self._unary(f"N({module!r},{name!r})", kind, *more))

    return convert


def unary(request: str) -> "Callable[[Handle], Any]":
    """An operator of one object."""

    def operate(self: Handle) -> "Any":
        if not self.is_object_():
            raise refused_object(self.kind_)
        return of_operator(asked(request, self), self)

    return operate


def of_operator(value: "Any", operand: Handle) -> "Any":
    """The result of an operator: an object of the operand's class is made like it."""
    is_alike = isinstance(value, Handle) and value.kind_ == operand.kind_
    origin = operand._origin if is_alike else RESULT_OF_ORIGIN[operand._origin]
    return of_origin(value, origin, operand._root)


BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip
UNARY = {
    "neg": "-{}", "pos": "+{}", "invert": "~{}", "abs": "N('builtins','abs')({})", "round": "N('builtins','round')({})",
}  # fmt: skip
ORDERED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
CONVERTED: "dict[str, tuple[str, type]]" = {
    "str": ("builtins", str), "repr": ("builtins", str), "format": ("builtins", str), "int": ("builtins", int),
    "float": ("builtins", float), "index": ("operator", int),
}  # fmt: skip
for operator, symbol in BINARY.items():
    setattr(Handle, f"__{operator}__", binary(f"{{}}{symbol}{{}}"))
    setattr(Handle, f"__r{operator}__", binary(f"{{}}{symbol}{{}}", reflected=True))
    # By a function, as a request is an expression.
    setattr(Handle, f"__i{operator}__", binary(f"N('operator','i{operator}')({{}},{{}})"))
for operator, symbol in UNARY.items():
    setattr(Handle, f"__{operator}__", unary(symbol))
for operator, symbol in ORDERED.items():
    setattr(Handle, f"__{operator}__", ordered(symbol))
for operator, (module, result) in CONVERTED.items():
    setattr(Handle, f"__{operator}__", converted(module, operator, result))


# ---- where an object comes from ----

PLAIN_OF_ORIGIN: "dict[str, frozenset[str]]" = {
    "value": PLAIN_ATTRIBUTES, "solution": frozenset(), "made": frozenset(), "returned": READ_ONLY,
}  # fmt: skip
"""The attributes that are not asked of the program, by where the script has an object from.

``made``: from a class of the problem. ``solution``: the same, but what its methods return are values. ``returned``:
from a method of a made object, such as the object itself. ``value``: from a function.
"""
METHOD_OF_ORIGIN = {"value": "value", "solution": "method of a solution", "made": "method", "returned": "method"}
RESULT_OF_ORIGIN = {
    "method": "returned", "method of a solution": "value", "name": "value", "value": "value", "made": "returned",
    "returned": "returned", "solution": "value",
}  # fmt: skip
"""The origin of what a call, an operator or an element is."""
for called in ("method", "method of a solution", "name"):
    PLAIN_OF_ORIGIN[called] = PLAIN_ATTRIBUTES
    METHOD_OF_ORIGIN[called] = "value"


def handle(parts: "list[Any]") -> "Any":
    """Read a handle; of a coroutine, one of the script. Raises NotPlain."""
    kind, items, number, abilities = parts
    if type(kind) is not str or not isinstance(items, list | None) or type(number) is not int:
        raise NotPlain("malformed object")
    made = Handle(kind[:MAX_NAME], None if items is None else tuple(items), number, str(abilities))
    return made if kind != "coroutine" else awaited(made)


async def awaited(coroutine: Handle) -> "Any":
    """What a coroutine of the program returns, which runs in an event loop there."""
    return of_origin(asked("N('asyncio','run')({})", coroutine), "value", "await")


READERS["other"] = handle
ATOMS[Handle] = lambda value: f"H[{value.number_}]"


def of_origin(value: "Any", origin: str, root: str) -> "Any":
    """A value of the program; a handle that knows where the script has it from, also within a tuple."""
    if type(value) is Handle:
        object.__setattr__(value, "_origin", origin)
        object.__setattr__(value, "_root", root)
    elif type(value) is tuple:
        for part in value:
            of_origin(part, origin, root)
    return value


class Named:
    """A name that the problem defines."""

    def __init__(self, name: str) -> None:
        self.name_, self.path_ = name, f"P[{name!r}]"

    def __call__(self, *args: "Any", **kwargs: "Any") -> "Any":
        return of_origin(call(self.path_, args, kwargs), self._result(), self.name_)

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)
        return of_origin(ask(f"{self.path_}.{name}"), "name", f"{self.name_}.{name}")

    def __getitem__(self, index: "Any") -> "Any":
        return of_origin(asked(self.path_ + "[{}]", index), "value", self.name_)

    def __iter__(self) -> "Iterator[Any]":
        return iter(of_origin(ask(f"N('builtins','iter')({self.path_})"), "value", self.name_))

    def __len__(self) -> int:
        return int(ask(f"N('builtins','len')({self.path_})"))

    def __bool__(self) -> bool:
        return True

    def _result(self) -> str:
        """The origin of what it returns: a class is known by its capital letter."""
        if self.name_ == "Solution":
            return "solution"
        return "made" if names_class(self.name_) else "value"


ATOMS[Named] = lambda value: value.path_


def is_instance(value: "Any", kind: "Any") -> bool:
    """``isinstance``, of an object of the program also for a class of the program."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    own = [one for one in kinds if isinstance(one, Named)]
    others = tuple(one for one in kinds if not isinstance(one, Named))
    if isinstance(value, others):
        return True
    return isinstance(value, Handle) and any(
        asked("N('builtins','isinstance')({},{})", value, one) is True for one in own
    )


def is_subclass(kind: "Any", other: "Any") -> bool:
    """``issubclass``, also of classes of the program."""
    if isinstance(kind, Named) or isinstance(other, Named):
        return asked("N('builtins','issubclass')({},{})", kind, other) is True
    return issubclass(kind, other)


# ---- nodes ----


class Nodes:
    """A linked list or tree that the script makes, which the program gets as ``ListNode`` or ``TreeNode``."""

    def __init__(self, kind: str, values: "Iterable[Any]") -> None:
        self.kind = kind
        self.values = list(values)
        self.sent: list[Handle | None] = []
        # LeetCode omits missing children at the end.
        while kind == "tree" and self.values and self.values[-1] is None:
            self.values.pop()


def written_nodes(nodes: Nodes) -> str:
    """Nodes in a request. The program makes them once, since it may change them."""
    if not nodes.sent:
        # In a request of its own, between what the current one has sent so far.
        before = vars(passing).copy()
        nodes.sent.append(asked(f"P['{nodes.kind}_node']({{}})", nodes.values))
        vars(passing).update(before)
    return written(nodes.sent[0])


ATOMS[Nodes] = written_nodes


def values_of_nodes(kind: str, nodes: "Any") -> "list[Any]":
    """The values of a linked list or tree, of the script or of the program."""
    if nodes is None:
        return []
    if isinstance(nodes, Nodes) and not nodes.sent:
        return nodes.values
    if not isinstance(nodes, Nodes | Handle):
        raise refused(f"a {type(nodes).__name__}, which is no {kind} of nodes")
    values = call(f"P['{kind}_values']", (nodes,), {})
    if not isinstance(values, list):
        raise refused(f"no {kind} of nodes")
    return values
