"""Whether similar statements are one problem in other words, or several problems of one template.

Statements are aligned word by word. What stands in one of them in place of other words decides: names, letters, quoted
text and words such as *least* or *multiply* make another problem; typos, pronouns and verbs such as *find* do not.
Another noun or adjective may be a synonym. It makes another problem in a statement without numbers, where the words are
all there is, and where three or more similar statements differ at that point: there their template has a gap.
"""

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import chain
from typing import NamedTuple

from magcli.curate.math.words import NUMBER_WORDS, THOUSANDS, TOKEN, without_layout

MIN_FILLERS = 3
"""Different words at one point of similar statements from which on it is a gap of their template."""
LONG_WORD = 5
"""Letters from which on a word with one wrong letter is a typo."""
_GRAMMAR = """
a an the this that these those such it its he him his she her they them their we us our you your i who whom whose
is are was were be been being am do does did done has have had having will would can could shall should may might
of in on at to for from by with as into onto than then so and also if when where while which what how much many
there here each every now please ll re ve
的 了 是 则 那 么 何 什 吗 呢 个 请 为 有 在 共 一 和 与 这 他 她 它 们
"""
_TASK = """
find compute calculate determine evaluate solve give get tell say state write show let suppose assume given consider
know known following answer question problem exercise solution value result total altogether same equal equals
求 问 计 算 多 少
"""
# What follows the apostrophe of it's, don't, I'm and he'd.
_CONTRACTED = "stmd"
_NEGATION = "not no never none neither nor without except unless cannot 不 没 非 无"
_QUANTITY = """
or all some any only both either least most exactly fewer less greatest largest biggest highest smallest lowest fewest
maximum minimum max min maximal minimal multiply multiplied add added subtract subtracted divide divided sum product
difference quotient mean median mode odd even positive negative increase decrease increasing decreasing before after
above below clockwise counterclockwise true false 最 大 小 加 减 乘 除 奇 偶 正 负
"""
NEUTRAL = frozenset(_GRAMMAR.split() + _TASK.split())
"""Words that may be replaced, left out or added in another wording: of grammar, and for the task itself."""
NEGATIONS = frozenset(_NEGATION.split())
DECIDING = NEGATIONS | frozenset(_QUANTITY.split())
"""Words that say which quantity is meant; another one in their place makes another problem."""
# Ends where the word begins: a sentence's end, then only spaces and opening marks.
_STARTS_SENTENCE = re.compile(r"(?:\A|[.?!:;。？！：\n])[\s\"“'‘(\[$*]*\Z")
# Double quotes, or single ones that are no apostrophes within words.
_QUOTED = re.compile(r"[\"“][^\"”“\n]{1,200}[\"”]|(?<!\w)['‘`][^'’`\n]{1,200}['’`](?!\w)")


class Word(NamedTuple):
    """A word, number or LaTeX command, and what it says where another word stands in its place."""

    text: str
    named: bool
    """It begins with a capital letter, and is no grammatical word at the beginning of a sentence."""
    quoted: bool

    @property
    def content(self) -> bool:
        """Whether it is neither a number or a LaTeX command, which are compared elsewhere, nor a neutral word."""
        return self.quoted or (self.text[0].isalpha() and self.text not in NEUTRAL)


class Change(NamedTuple):
    """Words of one statement in whose place another statement has other words; either may be none."""

    start: int
    end: int
    old: tuple[Word, ...]
    new: tuple[Word, ...]

    @property
    def swap(self) -> bool:
        """Whether words with a meaning stand in the place of others."""
        return bool(self.old and self.new)

    @property
    def filler(self) -> str:
        """The other statement's words."""
        return " ".join(word.text for word in self.new)

    @property
    def typo(self) -> bool:
        """Whether the words differ by one letter."""
        if any(word.quoted for word in (*self.old, *self.new)):
            return False
        # Joined, so that a word split in two is a typo as well.
        old, new = ("".join(word.text for word in words) for words in (self.old, self.new))
        return max(len(old), len(new)) >= LONG_WORD and _one_letter_apart(old, new)


def words_of(statement: str) -> list[Word]:
    """The words, numbers and LaTeX commands of a statement; number words are numbers."""
    text = THOUSANDS.sub("", without_layout(statement))
    quotes = [match.span() for match in _QUOTED.finditer(text)]
    words = []
    for match in TOKEN.finditer(text):
        lowered = match[0].lower()
        position = match.start()
        # The s of "it's" is no word.
        if lowered in _CONTRACTED and text[position - 1 : position] in "'’":
            continue
        quoted = any(start < position < end for start, end in quotes)
        # A capital letter marks a name, except where any word has one.
        starts_sentence = _STARTS_SENTENCE.search(text, max(0, position - 6), position)
        named = match[0][0].isupper() and not (starts_sentence and lowered in NEUTRAL)
        spelling = str(NUMBER_WORDS.get(lowered, lowered))
        words.append(Word(spelling, named, quoted))
    return words


def changes(one: Sequence[Word], other: Sequence[Word]) -> list[Change]:
    """Where the words with a meaning differ; positions are those of ``one``."""
    shorter = min(len(one), len(other))
    # Equal beginnings and ends are set aside, as the matcher takes quadratic time.
    num_before = 0
    while num_before < shorter and one[num_before].text == other[num_before].text:
        num_before += 1
    num_after = 0
    while num_after < shorter - num_before and one[-1 - num_after].text == other[-1 - num_after].text:
        num_after += 1
    old = one[num_before : len(one) - num_after]
    new = other[num_before : len(other) - num_after]
    texts, new_texts = ([word.text for word in words] for words in (old, new))
    # ``autojunk`` would ignore words that are frequent in a long statement.
    matcher = SequenceMatcher(None, texts, new_texts, autojunk=False)
    differing = []
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        if kind == "equal":
            continue
        left, right = _meaningful(old[start:end], new[new_start:new_end])
        if left or right:
            differing.append(Change(num_before + start, num_before + end, left, right))
    return differing


def same_problem(differing: Sequence[Change], *, strict: bool) -> bool:
    """Whether statements with equal numbers, operators and answers, and with these changes, are one problem.

    ``strict``: nothing but typos and neutral words may differ, as the statements have no numbers.
    """
    return all(change.typo or not (strict or _decides(change)) for change in differing)


def gaps(of_all: Iterable[Sequence[Change]]) -> set[int]:
    """The positions in the first of similar statements where most have words of their own, by their changes."""
    fillers: dict[int, set[str]] = {}
    for change in chain.from_iterable(of_all):
        if not change.swap or change.typo:
            continue
        for position in range(change.start, change.end):
            fillers.setdefault(position, set()).add(change.filler)
    # The first statement's own words are one more.
    return {position for position, texts in fillers.items() if len(texts) >= MIN_FILLERS - 1}


def filled_in(differing: Sequence[Change], positions: set[int]) -> tuple[tuple[int, str], ...]:
    """What a statement with these changes has in the gaps at these positions."""
    fillers = []
    for change in differing:
        in_gap = not positions.isdisjoint(range(change.start, change.end))
        if in_gap and change.swap and not change.typo:
            fillers.append((change.start, change.filler))
    return tuple(fillers)


def _meaningful(old: Sequence[Word], new: Sequence[Word]) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    """The words with a meaning of both sides, without those that stand on both."""
    # Letters are variables, also those that are words otherwise, such as a.
    if all(_is_letter(word) for word in (*old, *new)):
        return tuple(old), tuple(new)
    texts = {word.text for word in old}
    common = texts.intersection(word.text for word in new)
    left = tuple(word for word in old if word.content and word.text not in common)
    right = tuple(word for word in new if word.content and word.text not in common)
    return left, right


def _decides(change: Change) -> bool:
    """Whether a change makes another problem even if all numbers are equal."""
    old, new = change.old, change.new
    texts = {word.text for word in (*old, *new)}
    if any(word.quoted for word in (*old, *new)) or texts & NEGATIONS:
        return True
    if not change.swap:
        return False
    if texts & DECIDING:
        return True
    # One name, or one letter, for another.
    if any(word.named for word in old) and any(word.named for word in new):
        return True
    if any(map(_is_letter, old)) and any(map(_is_letter, new)):
        return True
    # A whole phrase for another one: of the first statement no neutral word stands between.
    return min(len(old), len(new)) > 1 and change.end - change.start == len(old)


def _is_letter(word: Word) -> bool:
    return len(word.text) == 1 and word.text.isascii()


def _one_letter_apart(one: str, other: str) -> bool:
    """Whether one letter was added, left out or replaced, or two neighbours were exchanged."""
    short, long = sorted((one, other), key=len)
    if len(long) - len(short) > 1:
        return False
    num_equal = 0
    while num_equal < len(short) and short[num_equal] == long[num_equal]:
        num_equal += 1
    short_rest, long_rest = short[num_equal:], long[num_equal:]
    # One letter more.
    if len(short) < len(long):
        return short_rest == long_rest[1:]
    # Another letter.
    if short_rest[1:] == long_rest[1:]:
        return True
    first, second = short_rest[:1], short_rest[1:2]
    return second + first + short_rest[2:] == long_rest
