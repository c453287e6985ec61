"""How a model writes its thoughts before its answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thoughts:
    """The text that opens and closes a model's thoughts.

    ``opening_tag`` and ``closing_tag`` are their tags alone, without the whitespace around them.
    """

    opening: str
    closing: str

    @property
    def opening_tag(self) -> str:
        """``opening`` without whitespace."""
        return self.opening.strip()

    @property
    def closing_tag(self) -> str:
        """``closing`` without whitespace."""
        return self.closing.strip()

    def join(self, thoughts: str, answer: str) -> str:
        """The completion of a model that has these thoughts and gives this answer."""
        inner = thoughts.strip("\n")
        return f"{self.opening}{inner}{self.closing}{answer}"

    def split(self, text: str) -> tuple[str, str]:
        """The thoughts and the answer of a completion, without tags; no thoughts if they are not closed."""
        before, closed, after = text.partition(self.closing_tag)
        if not closed:
            return "", text
        return before.replace(self.opening_tag, "", 1).strip(), after.strip()


THINK = Thoughts("<think>\n", "\n</think>\n\n")
"""The form of the recipe (section 2), of DeepSeek-R1 and of Qwen3."""
