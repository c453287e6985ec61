"""Which metrics of a training run make which charts, and how people are told to read them."""

from collections.abc import Mapping
from typing import Literal, NamedTuple


class Plan(NamedTuple):
    """A chart of metrics: title, how to read it, and the metrics with the names they have in its key."""

    title: str
    told: str
    keys: Mapping[str, str]
    unit: Literal["number", "share"] = "number"


RL = (
    Plan(
        "Reward",
        "Mean over all completions sampled for an update, trained or not; the band is its 95 % interval over groups.",
        {"reward": "reward"},
    ),
    Plan(
        "Parts of the reward",
        "Their means: format 0.1, correctness 0.9, up to 0.1 off for length, one language 0.1.",
        {
            "reward_correct": "correctness",
            "reward_format": "format",
            "reward_language": "language",
            "reward_length": "length",
        },
    ),
    Plan(
        "Right answers",
        "Share of the completions: in the format asked for, and wherever the answer stands.",
        {"correct": "right", "correct_anywhere": "right anywhere"},
        "share",
    ),
    Plan(
        "Length",
        "Tokens of a completion: the mean, and what one in twenty exceeds.",
        {"length_mean": "mean", "length_p95": "95 %"},
    ),
    Plan(
        "Cut at the limit",
        "Share of the completions that reached the longest length allowed.",
        {"cut_share": "cut"},
        "share",
    ),
    Plan(
        "Staleness",
        "Updates made between the start of a completion and its training: the mean, and the most.",
        {"staleness_mean": "mean", "staleness_max": "most"},
    ),
    Plan(
        "Several versions",
        "Share of the trained completions that more than one version of the weights wrote.",
        {"mixed_versions": "mixed"},
        "share",
    ),
    Plan(
        "Speed",
        "Tokens a second while each side works.",
        {"generate_tokens_per_s": "generated", "train_tokens_per_s": "trained"},
    ),
    Plan(
        "Waiting",
        "Share of an update's time in which a side stood still.",
        {"trainer_idle": "trainer", "generator_idle": "generators"},
        "share",
    ),
    Plan("Time", "Seconds that an update took, waiting included.", {"seconds": "seconds"}),
    Plan("Entropy", "Of the next token, in nats, on average; near 0 nothing new is tried.", {"entropy": "entropy"}),
    Plan(
        "Clipped",
        "Share of the tokens whose ratio was clipped: from below, and from above.",
        {"clip_low_share": "below", "clip_high_share": "above"},
        "share",
    ),
    Plan("Gradient norm", "Before clipping.", {"grad_norm": "norm"}),
    Plan(
        "Engine and trainer",
        "How far their log-probabilities differ at equal weights: the mean, and what one token in a hundred exceeds.",
        {"mismatch_mean": "mean", "mismatch_p99": "99 %"},
    ),
    Plan(
        "Moved by an update",
        "Divergence of the trained policy from the one that sampled, estimated, in nats a token.",
        {"approx_kl": "divergence"},
    ),
    Plan(
        "Problems",
        "In play, solved so often that they are retired, or unsolved and deferred.",
        {"problems_active": "in play", "problems_retired": "retired", "problems_deferred": "deferred"},
    ),
    Plan("Learning rate", "Of the optimizer.", {"lr": "rate"}),
)
"""Charts of an RL run; one of its groups stands after the third."""

SFT = (
    Plan(
        "Loss",
        "Cross-entropy of the target tokens, in nats: of the batch, and of rows held out.",
        {"loss": "batch", "held_out_loss": "held out"},
    ),
    Plan("Right answers", "Sampled on problems while the run went on.", {"accuracy": "accuracy"}, "share"),
    Plan("Gradient norm", "Before clipping.", {"grad_norm": "norm"}),
    Plan("Learning rate", "Of the optimizer.", {"lr": "rate"}),
)
"""Charts of a run of supervised fine-tuning."""
