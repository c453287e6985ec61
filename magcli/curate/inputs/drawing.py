"""Random values for new inputs: of all sizes, and in styles such as extreme, equal or sorted ones."""

from random import Random
from typing import Literal

Style = Literal["any", "few", "low", "high", "ends", "equal", "rising"]
STYLES: tuple[Style, ...] = ("any", "any", "any", "few", "few", "low", "high", "ends", "equal", "rising")
SIZES = (0.0, 0.15, 0.15, 0.25, 0.25, 0.25, 0.35, 0.35, 0.5, 0.5, 0.75, 1.0)
"""For size s a length bounded by h is about h^s; 0 gives the minimum, 1 the maximum."""
MAX_FAILURES = 60
"""Number of consecutive attempts that give no new input, after which there are no more."""
# Numbers of style ``few`` are at most this far from the least one, so that many are equal.
_FEW = 3


def size_and_style(random: Random) -> tuple[float, Style]:
    """Those of one input."""
    return random.choice(SIZES), random.choice(STYLES)


def length(low: int, high: int, size: float, random: Random) -> int:
    """A length or count."""
    if size in (0.0, 1.0) or high <= low:
        return high if size == 1.0 else low
    # Equal steps of size are equal factors of length, so short inputs are as common as long ones.
    most = min(high, max(low + 1, int(high**size)))
    return random.randint(max(low, most // 2), most)


def number(low: int, high: int, style: Style, random: Random) -> int:
    """An integer; a few of them are near zero, as far as the range allows."""
    match style:
        case "low":
            return low
        case "high":
            return high
        case "ends":
            return random.choice((low, high))
        case "few":
            least = min(max(low, 0), high)
            return random.randint(least, min(high, least + _FEW))
    return random.randint(low, high)


def word(alphabet: str, num_letters: int, style: Style, random: Random) -> str:
    """A text over an alphabet, of which some styles use one or two letters."""
    different = {"few": 2, "ends": 2, "equal": 1, "low": 1, "high": 1}.get(style, len(alphabet))
    letters = random.sample(alphabet, min(different, len(alphabet))) or ["a"]
    chosen = random.choices(letters, k=num_letters)
    return "".join(sorted(chosen) if style == "rising" else chosen)


def edited(old: str, alphabet: str, random: Random) -> str:
    """A text with a letter replaced, deleted or inserted."""
    letters = list(old)
    index = random.randint(0, len(letters))
    # An empty slice inserts, an empty choice deletes.
    letters[index : index + random.randint(0, 1)] = random.choices(alphabet or "a", k=random.randint(0, 1))
    return "".join(letters)
