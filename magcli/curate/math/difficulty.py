"""What a model's samples say about a problem's difficulty and about its ground truth (recipe, section 4).

Pass 1 (a weak model) drops problems that are never solved or too easy. Pass 2 (that model after RL, on the whole set
again) also drops problems where most samples agree on one answer that differs from the ground truth, which is then
probably wrong.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from magcli.errors import UsageError

Same = Callable[[str, str], bool]
"""Whether two answers are equal to the verifier."""

Judgement = Literal["kept", "too-easy", "too-hard", "never-solved", "suspect-gold"]


class Summary(NamedTuple):
    """One problem after one pass: the columns of :data:`magcli.data.schema.DIFFICULTY`.

    ``majority`` is the answer most samples agree on, in its most common spelling, empty when no sample gave one;
    ``majority_share`` is its share of all samples, those without an answer included.
    """

    pass_rate: float
    num_samples: int
    majority: str
    majority_share: float


class AnswerClass(NamedTuple):
    """Answers that are equal to the verifier: the most common spelling and how many samples gave any of them."""

    answer: str
    num_samples: int


class Rules(NamedTuple):
    """Which problems stay.

    ``low`` and ``high`` are the band of pass rates to keep, both ends included; ``low`` 0 keeps what no sample solved.
    ``drop_suspect``: whether a majority against the ground truth drops the problem (pass 2). A majority is a share
    above ``majority``.
    """

    low: float
    high: float
    drop_suspect: bool = False
    majority: float = 0.5


def band(text: str) -> tuple[float, float]:
    """The pass rates that ``LOW..HIGH`` names.

    Raises:
        UsageError: it is not of that form, or not an interval within 0 to 1.
    """
    try:
        low, high = map(float, text.split(".."))
    except ValueError:
        raise UsageError(f"filter-math.keep: '{text}' is not LOW..HIGH, such as 0.01..0.9") from None
    if not 0 <= low <= high <= 1:
        raise UsageError(f"filter-math.keep: the band {text} is not within 0 to 1, or its ends are the wrong way round")
    return low, high


def summarise(answers: Sequence[str], correct: Sequence[bool], same: Same) -> Summary:
    """Sum up the samples of one problem.

    Args:
        answers: what each sample answered; empty for one that gave no answer, which cannot form a majority.
        correct: whether each sample was right.
        same: equality of two answers; asked only about different texts, and assumed symmetric and transitive.

    Raises:
        ValueError: there are no samples, or the two sequences differ in length.
    """
    if not answers or len(answers) != len(correct):
        raise ValueError(f"{len(answers)} answers and {len(correct)} verdicts; need as many of each, at least one")
    classes = answer_classes(answers, same)
    top = max(classes, key=lambda each: each.num_samples, default=AnswerClass("", 0))
    return Summary(sum(correct) / len(correct), len(answers), top.answer, top.num_samples / len(answers))


def answer_classes(answers: Sequence[str], same: Same) -> list[AnswerClass]:
    """Group answers by the verifier's equality, empty ones left out.

    Equal texts are counted first; then each text, the most common first, is compared with one representative of each
    class so far, so n samples with k different texts need at most k(k - 1) / 2 comparisons.
    """
    classes: list[AnswerClass] = []
    for answer, count in Counter(text for text in map(str.strip, answers) if text).most_common():
        home = next((i for i, known in enumerate(classes) if same(answer, known.answer)), None)
        if home is None:
            classes.append(AnswerClass(answer, count))
        else:
            classes[home] = AnswerClass(classes[home].answer, classes[home].num_samples + count)
    return classes


def judge(summary: Summary, rules: Rules, *, gold_matches_majority: bool) -> Judgement:
    """Decide whether a problem stays.

    ``gold_matches_majority``: whether the verifier finds the majority answer equal to the ground truth.
    """
    agreed = bool(summary.majority) and summary.majority_share > rules.majority
    if rules.drop_suspect and agreed and not gold_matches_majority:
        return "suspect-gold"
    return _by_rate(summary.pass_rate, rules)


def _by_rate(rate: float, rules: Rules) -> Judgement:
    if rate > rules.high:
        return "too-easy"
    if rate < rules.low:
        return "too-hard" if rate else "never-solved"
    return "kept"


class Count(NamedTuple):
    """Samples in the only respects that decide: ``gold`` answer as the ground truth does, rightly formatted or not, and
    ``other`` is how many are in the largest class of any other answer."""

    judged: int
    right: int
    gold: int
    other: int


def count(
    answers: Sequence[str], correct: Sequence[bool], rules: Rules, *, same: Same, is_gold: Callable[[str], bool]
) -> Count:
    """Count samples. Answers are compared only where a majority of them can drop the problem.

    ``is_gold`` is equality with the ground truth; for the others see :func:`summarise`.
    """
    classes = answer_classes(answers, same) if rules.drop_suspect else []
    golden = [is_gold(each.answer) for each in classes]
    gold = max((each.num_samples for each, is_ in zip(classes, golden, strict=True) if is_), default=0)
    other = max((each.num_samples for each, is_ in zip(classes, golden, strict=True) if not is_), default=0)
    return Count(len(answers), sum(correct), gold, other)


def settled(found: Count, remaining: int, rules: Rules) -> bool:
    """Whether ``judge`` says the same of these samples whatever ``remaining`` more of them turn out to be.

    Each of those may be right, wrong with any answer, or not graded at all, in which case it is not counted. Not a
    test of significance: True is certain, as far as ``same`` is the equivalence that ``summarise`` takes it for.
    """
    if not found.judged:
        return False
    total = found.judged + remaining
    worst, best = (_by_rate((found.right + right) / total, rules) for right in (0, remaining))
    if not rules.drop_suspect:
        return worst == best
    doubt = _contradicted(found, remaining, rules.majority)
    return doubt is True or (doubt is False and worst == best)


def needed(found: Count, remaining: int, rules: Rules) -> int:
    """How many of ``remaining`` samples must be made before the problem can be settled, if they turn out best for that.

    0 where it is settled or none remain.
    """
    return next((more for more in range(remaining) if _may_settle(found, more, remaining, rules)), remaining)


def _may_settle(found: Count, more: int, remaining: int, rules: Rules) -> bool:
    """Whether some outcome of ``more`` samples settles the problem.

    Nothing rules a contradiction out sooner than answers like the ground truth, some of them badly formatted lest the
    rate of right ones be too high; nothing proves one sooner than one more of the most common other answer each time.
    """
    judged, right, gold, other = found
    agreeing = (Count(judged + more, right + each, gold + more, other) for each in range(more + 1))
    against = Count(judged + more, right, gold, other + more)
    return any(settled(each, remaining - more, rules) for each in (*agreeing, against))


def _contradicted(found: Count, remaining: int, majority: float) -> bool | None:
    """Whether a majority will be against the ground truth; None while that is open.

    It will where another answer is a majority even if it grows no more, and the ground truth's cannot reach it. It will
    not where any answer that could become a majority, one not seen yet among them, must stay behind the ground truth's.
    """
    total, could = found.judged + remaining, found.other + remaining
    if found.other / total > majority and found.other > found.gold + remaining:
        return True
    return None if could / total > majority and could >= found.gold else False
