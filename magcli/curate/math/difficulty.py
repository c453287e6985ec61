"""Judge the difficulty of a problem and its ground truth by a model's samples (recipe, section 4).

Pass 1 (a weak model) drops problems that are never solved or too easy. Pass 2 (that model after RL, again on all
problems) also drops problems where most samples agree on an answer that differs from the ground truth, which is then
probably wrong.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from magcli.errors import UsageError

Same = Callable[[str, str], bool]
"""Whether the verifier considers two answers equal."""

Judgement = Literal["kept", "too-easy", "too-hard", "never-solved", "suspect-gold"]


class Summary(NamedTuple):
    """A problem after one pass: the columns of :data:`magcli.data.schema.DIFFICULTY`.

    ``majority`` is the most common answer in its most common spelling, empty if no sample has one;
    ``majority_share`` is its fraction of all samples, including those without an answer.
    """

    pass_rate: float
    num_samples: int
    majority: str
    majority_share: float


MAJORITY = 0.5
"""The share of the samples above which an answer is that of the majority."""


class Rules(NamedTuple):
    """Which problems are kept.

    ``low`` to ``high`` is the inclusive band of pass rates; ``low`` 0 keeps unsolved problems. ``drop_suspect``: drop a
    problem if a majority contradicts the ground truth (pass 2). A majority is more than half of the samples.
    """

    low: float
    high: float
    drop_suspect: bool = False


def band(text: str) -> tuple[float, float]:
    """Parse a band of pass rates ``LOW..HIGH``.

    Raises:
        UsageError: the format is wrong, or it is not a range within [0, 1].
    """
    try:
        low, high = map(float, text.split(".."))
    except ValueError:
        raise UsageError(f"filter-math.keep: '{text}' is not LOW..HIGH, such as 0.01..0.9") from None
    if not 0 <= low <= high <= 1:
        raise UsageError(f"filter-math.keep: {text} is not a range within 0..1 with LOW <= HIGH")
    return low, high


def summarise(answers: Sequence[str], correct: Sequence[bool], same: Same) -> Summary:
    """Summarise the samples of one problem.

    Args:
        answers: The answer of each sample, at least one; empty if it has none, which cannot form a majority.
        correct: Whether each sample is correct.
        same: Equality of two answers; called only for different texts, and assumed symmetric and transitive.
    """
    classes = answer_classes(answers, same)
    majority = max(classes, key=classes.__getitem__, default="")
    pass_rate = sum(correct) / len(correct)
    return Summary(pass_rate, len(answers), majority, classes.get(majority, 0) / len(answers))


def answer_classes(answers: Sequence[str], same: Same) -> dict[str, int]:
    """Group non-empty answers by the verifier's equality: the number of samples by their most common spelling.

    Equal texts are counted first; then each text, most common first, is compared with one representative of each class,
    so n samples with k distinct texts need at most k(k - 1) / 2 comparisons.
    """
    texts = Counter(text for text in map(str.strip, answers) if text)
    sizes: dict[str, int] = {}
    for text, count in texts.most_common():
        # The class of the first equal answer, or a class of its own.
        representative = next((answer for answer in sizes if same(text, answer)), text)
        sizes[representative] = sizes.get(representative, 0) + count
    return sizes


def judge(summary: Summary, rules: Rules, *, gold_matches_majority: bool) -> Judgement:
    """Decide whether to keep a problem.

    ``gold_matches_majority``: whether the majority answer equals the ground truth.
    """
    agreed = bool(summary.majority) and summary.majority_share > MAJORITY
    if rules.drop_suspect and agreed and not gold_matches_majority:
        return "suspect-gold"
    return _by_rate(summary.pass_rate, rules)


def _by_rate(rate: float, rules: Rules) -> Judgement:
    if rate > rules.high:
        return "too-easy"
    if rate < rules.low:
        return "too-hard" if rate else "never-solved"
    return "kept"


class SampleCounts(NamedTuple):
    """The counts that decide: graded samples, correct ones, those with the ground truth's answer in any format
    (``gold``), and those in the largest class of any other answer (``other``)."""

    judged: int
    right: int
    gold: int
    other: int


def count_samples(
    answers: Sequence[str], correct: Sequence[bool], rules: Rules, *, same: Same, is_gold: Callable[[str], bool]
) -> SampleCounts:
    """Count samples; answers are compared only if a majority can drop the problem.

    ``is_gold`` is equality with the ground truth; for the others see :func:`summarise`.
    """
    classes = answer_classes(answers, same) if rules.drop_suspect else {}
    gold = other = 0
    for answer, num_samples in classes.items():
        if is_gold(answer):
            # Equality may not be quite transitive, so several classes may equal the ground truth.
            gold = max(gold, num_samples)
        else:
            other = max(other, num_samples)
    return SampleCounts(len(answers), sum(correct), gold, other)


def settled(counts: SampleCounts, remaining: int, rules: Rules) -> bool:
    """Whether ``judge`` decides the same for any outcome of the ``remaining`` samples.

    Each of those may be correct, wrong with any answer, or ungraded and not counted. Not a test of significance: True
    is certain, provided that ``same`` is an equivalence relation.
    """
    if not counts.judged:
        return False
    total = counts.judged + remaining
    # Samples that stay ungraded only lower the total, so both bounds hold for them too.
    worst = _by_rate(counts.right / total, rules)
    best = _by_rate((counts.right + remaining) / total, rules)
    if not rules.drop_suspect:
        return worst == best
    contradicted = _contradicted(counts, remaining)
    if contradicted is None:
        return False
    return contradicted or worst == best


def needed(counts: SampleCounts, remaining: int, rules: Rules) -> int:
    """The minimum number of ``remaining`` samples after which the problem can be settled.

    0 if it is settled or none remain.
    """
    for more in range(remaining):
        if _may_settle(counts, more, remaining, rules):
            return more
    return remaining


def _may_settle(counts: SampleCounts, more: int, remaining: int, rules: Rules) -> bool:
    """Whether some outcome of ``more`` samples settles the problem.

    A contradiction is ruled out soonest by answers equal to the ground truth, some badly formatted to limit the pass
    rate; it is proved soonest by more of the most common other answer.
    """
    judged, right, gold, other = counts
    # Each number of correct ones among those that equal the ground truth.
    agreeing = [SampleCounts(judged + more, right + more_right, gold + more, other) for more_right in range(more + 1)]
    against = SampleCounts(judged + more, right, gold, other + more)
    return any(settled(outcome, remaining - more, rules) for outcome in (*agreeing, against))


def _contradicted(counts: SampleCounts, remaining: int) -> bool | None:
    """Whether a majority will contradict the ground truth; None while that is open.

    True if another answer is already a majority of all samples and the ground truth cannot reach it. False if every
    answer that could become a majority, including new ones, must stay behind the ground truth.
    """
    total = counts.judged + remaining
    # Ungraded samples only raise this share, and the ground truth may still get all that remain.
    if counts.other / total > MAJORITY and counts.other > counts.gold + remaining:
        return True
    # A new answer gets at most ``remaining``, which is no more.
    most_other = counts.other + remaining
    is_open = most_other / total > MAJORITY and most_other >= counts.gold
    return None if is_open else False
