"""What a model's samples say about a problem's difficulty and about its ground truth (recipe, section 4).

Pass 1 (a weak model) drops problems that are never solved or too easy. Pass 2 (that model after RL, on the whole set
again) also drops problems where most samples agree on one answer that differs from the ground truth, which is then
probably wrong.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

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


def judge(
    summary: Summary,
    *,
    low: float,
    high: float,
    drop_suspect: bool,
    gold_matches_majority: bool,
    majority_threshold: float = 0.5,
) -> Judgement:
    """Decide whether a problem stays.

    Args:
        summary: the problem's samples.
        low, high: the band of pass rates to keep, both ends included; ``low`` 0 keeps what no sample solved.
        drop_suspect: whether a majority against the ground truth drops the problem (pass 2).
        gold_matches_majority: whether the verifier finds the majority answer equal to the ground truth.
        majority_threshold: a majority is a share above this one.
    """
    agreed = bool(summary.majority) and summary.majority_share > majority_threshold
    if drop_suspect and agreed and not gold_matches_majority:
        return "suspect-gold"
    if summary.pass_rate > high:
        return "too-easy"
    if summary.pass_rate < low:
        return "too-hard" if summary.pass_rate else "never-solved"
    return "kept"
