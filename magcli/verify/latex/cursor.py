"""A place in the tokens of an answer, which the readers move along."""

from collections.abc import Callable, Sequence

from magcli.verify.latex.tokens import END, Token, Unreadable
from magcli.verify.latex.tree import Expr

MAX_DEPTH = 60
Reader = Callable[["Cursor"], Expr]


class Cursor:
    """A place in the tokens, and who reads brackets, commands and cells of tables: they stand in modules above.

    ``points``: ``C(5,2)`` is a point, no number of combinations. ``bars`` counts open absolute values, ``depth``
    nesting; ``bound`` are the letters of sums, which are no constants.
    """

    __slots__ = ("at", "bars", "bound", "cell", "command", "depth", "group", "points", "tokens")

    def __init__(self, tokens: Sequence[Token], group: "Reader", command: "Reader", cell: "Reader") -> None:
        self.tokens, self.group, self.command, self.cell = list(tokens), group, command, cell
        self.at = self.bars = self.depth = 0
        self.bound: set[str] = set()
        self.points = False

    def peek(self, ahead: int = 0) -> Token:
        """A token that is still to come."""
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else END

    def next(self) -> Token:
        """The next token, which is then behind; the end stays the end."""
        token = self.peek()
        self.at += 1
        return token

    def eat(self, *values: str) -> str:
        """The next token's value where it is one of these signs, else nothing."""
        token = self.peek()
        if token.value in values and token.kind in ("op", "cmd"):
            self.at += 1
            return token.value
        return ""

    def expect(self, value: str) -> None:
        """Take a sign that must come next.

        Raises:
            Unreadable: it does not.
        """
        if not self.eat(value):
            raise Unreadable("unparsable")

    def deeper(self) -> None:
        """Count one level of nesting.

        Raises:
            Unreadable: there are more than ``MAX_DEPTH``.
        """
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("too-deep")
