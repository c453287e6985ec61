"""Whether the asserts of a test's script were reached, inside the judge's sandbox.

A script passes only if it looked at what the program returned:

- An assert that fails is final, whatever catches it, unless a handler names ``AssertionError``; then a later assert
  must hold.
- An exception that the script swallows must not have skipped an assert. Where it expects one (``assert False`` after
  the call, ``pytest.raises``) there is none to skip.
- A loop with asserts, and ``all`` or ``any``, over elements of what the program returned must have had one at least
  once, unless an assert holds that expects something empty.
- ``zip`` must not end with the program's elements before the expected ones.
- Arrays that are close must have elements, and the program's are not repeated.
"""

import re

from magcli.verify.code.comparing import rule
from magcli.verify.code.handles import Handle, evidence
from magcli.verify.code.proxies import refused, state
from magcli.verify.code.values import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any


class Reached:
    """What was reached so far.

    ``asserted``: whether an assert was; ``lenient``: how many handlers of ``AssertionError`` are around; ``pending``:
    the assert that failed there; ``cut``: whether a swallowed exception skipped an assert; ``ended``: the bodies of
    ``with`` that ran to their end.
    """

    def __init__(self) -> None:
        self.asserted = False
        self.lenient = 0
        self.pending = ""
        self.cut = False
        self.ended: set[int] = set()


reached = Reached()


def comparison(value: "Any") -> bool:
    """The value of an assert that is a single comparison; a failure is final."""
    reached.asserted = True
    met = bool(value)
    # Where a handler catches it, a failure is pending until an assert outside of such blocks holds.
    if met:
        if not reached.lenient:
            reached.pending = ""
    elif reached.lenient:
        reached.pending = failure()
    else:
        state.final = state.final or f"failed {failure()}"
    return met


def condition(value: "Any") -> bool:
    """The value of any other assert, of which the verdict names no two values."""
    rule.difference = ""
    return comparison(value)


def absence(value: "Any") -> bool:
    """The value of ``not`` of something of the program, which may be empty then."""
    met = condition(value)
    rule.empty = rule.empty or met
    return met


def failure() -> str:
    """Why an assert does not hold."""
    return rule.difference or f"is false for {described(state.returned)}"


def described(value: "Any") -> str:
    """A value for a verdict; nothing is asked of the program."""
    evidence.ended = True
    return f"a {value.kind_}" if isinstance(value, Handle) else shown(value)


class Lenient:
    """A block whose failing asserts a handler of ``AssertionError`` catches."""

    def __enter__(self) -> None:
        reached.lenient += 1

    def __exit__(self, *error: object) -> None:
        reached.lenient -= 1


class Assertion:
    """A call of an assertion of a library, whose failure is that of an assert."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: "Any", error: "Any", trace: object) -> None:
        # Any other exception says nothing of the assert, and ends the script if nothing catches it.
        if kind is None or issubclass(kind, AssertionError):
            condition(kind is None)


def expected() -> None:
    """An exception was caught that the script expects."""
    reached.asserted = True


def cut() -> None:
    """An exception was swallowed that skipped asserts."""
    reached.cut = True


def end(site: int) -> None:
    """The body of a ``with`` ran to its end."""
    reached.ended.add(site)


def after(site: int) -> None:
    """The statement after a ``with``, which is reached without its end if it has swallowed an exception."""
    if site not in reached.ended:
        cut()
    # The ``with`` may be in a loop.
    reached.ended.discard(site)


def looped(site: int, iterable: "Iterable[Any]") -> "Iterator[Any]":
    """The elements of what the program returned; notes whether there was one."""
    # A site that was never reached does not count, one that was reached must once have had an element.
    rule.looked.setdefault(site, False)
    for item in iterable:
        rule.looked[site] = True
        yield item


def filled(site: int, value: "Any") -> "Any":
    """An array of the program; notes whether it has elements."""
    if isinstance(value, Handle):
        return value  # whose size would be asked of the program
    # Of an array the elements of all dimensions, else what ``len`` says.
    size = getattr(value, "size", None)
    if not isinstance(size, int) and hasattr(value, "__len__"):
        size = len(value)
    if isinstance(size, int):
        rule.looked[site] = size > 0 or rule.looked.get(site, False)
    return value


def zipped(of_program: "tuple[bool, ...]", *iterables: "Iterable[Any]") -> "Iterator[tuple[Any, ...]]":
    """``zip``; raises Refused if the program's elements end before those of a sequence of the script."""
    sequences: list[Any] = []
    for value, is_own in zip(iterables, of_program, strict=True):
        # A range only counts: zip(f(), range(1000)).
        if not is_own and hasattr(value, "__len__") and not isinstance(value, range):
            sequences.append(value)
    iterators = [iter(value) for value in iterables]
    count = 0
    while True:
        row = []
        for iterator, is_own in zip(iterators, of_program, strict=True):
            try:
                row.append(next(iterator))
            # As in zip, the first iterable that ends ends all.
            except StopIteration:
                if is_own and any(len(value) > count for value in sequences):
                    raise refused("shorter than what it is compared with") from None
                return
        count += 1
        yield tuple(row)


class Raises:
    """``pytest.raises`` as a context manager."""

    def __init__(self, *kinds: "Any", match: str = "") -> None:
        self._kinds, self._match = kinds, match

    def __enter__(self) -> "Raises":
        return self

    def __exit__(self, kind: "Any", error: "Any", trace: object) -> bool:
        if kind is None:
            condition(False)
            raise AssertionError
        if not isinstance(error, self._kinds):
            return False
        if self._match:
            assert condition(re.search(self._match, str(error)))
        expected()
        self.value = error
        self.type = kind
        return True

    def match(self, pattern: str) -> bool:
        """Whether the text of the exception has the pattern, as an assertion."""
        assert condition(re.search(pattern, str(self.value)))
        return True


def fail(reason: str = "", *more: object) -> None:
    """``pytest.fail``."""
    condition(False)
    raise AssertionError(reason)


# ---- arrays ----


def close(
    function: "Callable[..., Any]", from_left: bool, left: "Any", right: "Any", *more: "Any", **words: "Any"
) -> "Any":
    """A function of numpy that compares two arrays, of which one is the program's.

    Raises Refused if that is empty, and the other is not.
    """
    import numpy

    actual, wanted = (left, right) if from_left else (right, left)
    try:
        shape, other = numpy.shape(actual), numpy.shape(wanted)
        common_shape = numpy.broadcast_shapes(shape, other)
        size, common_size = numpy.size(actual), numpy.prod(common_shape, dtype=int)
    except ValueError:
        return function(left, right, *more, **words)  # numpy says which shapes do not go together
    if size == 0 and numpy.size(wanted) > 0:
        raise refused("an empty array, which is close to anything")
    if size >= common_size:
        return function(left, right, *more, **words)
    # numpy would repeat the program's array.
    if function.__name__.startswith("assert"):
        raise AssertionError(f"shapes {shape} and {other} differ")
    return numpy.zeros(shape, bool) if function.__name__ == "isclose" else False


# ---- verdict ----


def verdict_at_end() -> str:
    """The verdict on a script that ended without a failure: it passes if it reached what it asserts."""
    if reached.pending:
        return f"failed {reached.pending}"
    if reached.cut:
        return "failed an assert is skipped, as the script catches an exception of the program"
    if not rule.empty and not all(rule.looked.values()):
        return f"failed nothing is asserted of what is empty where the call returns {described(state.returned)}"
    return "passed"
