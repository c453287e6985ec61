"""Settings of the RL comparisons, fixed before either side was tuned.

Both sides have the same model, problems, reward, group size, completions per update, updates, length limit,
temperature, cores and, as far as TRL implements it, objective. Each side may choose what ``MAGCLI`` and ``TRL_ARMS``
name; TRL runs in the arm that short trials find fastest.
"""

from dataclasses import dataclass

from benchmarks.pairs import SHORT

GROUP = 8
COMPLETIONS = 32
"""Completions per update: four problems."""
LR = 1e-6
CLIP_LOW, CLIP_HIGH = 0.2, 0.28
TEMPERATURE = 1.0
THREADS = 2
SEED = 0

SYSTEM = "Answer in one short sentence."
"""A system prompt that gives heavy-tailed lengths: of 16 completions the median had 67 tokens, the mean 118, and three
reached the limit. Under the model's default system prompt half of them did."""

HEAVY_LIMIT = 256
"""Token limit where lengths are the model's own."""
FIXED_TOKENS = 128
"""Tokens of every completion where the model has no end token."""
UNUSED_TOKEN = "<jupyter_script>"
"""A token that SmolLM2 does not generate; with it as end token all completions reach the limit."""

WARMUP, TIMED = 2, 2
"""Updates before the clock starts and on it. magcli starts with two batches in flight: a warm-up shorter than
staleness + 1 updates would not count their generation."""
TAIL = 2
"""Updates that magcli is asked for beyond the timed ones, so that its pipeline is as full at the end of the clock as at
its start."""
TRIAL_WARMUP, TRIAL_TIMED = 0, 1
PAIRS = 1 if SHORT else 3

MAGCLI = {"n_async": 64, "micro_tokens": 4096, "staleness": 1, "dtype": "auto", "bf16": "auto"}


@dataclass(frozen=True, slots=True)
class Arm:
    """A configuration of TRL: continuous or static batching, and the number format."""

    continuous: bool
    bf16: bool

    @property
    def name(self) -> str:
        """As in the output and in ``PEERS_ARM``."""
        return f"{'continuous' if self.continuous else 'static'} {'bf16' if self.bf16 else 'fp32'}"


TRL_ARMS = tuple(Arm(continuous, bf16) for continuous in (False, True) for bf16 in (False, True))
TIMEOUT_FACTOR = 3.0
"""A trial is stopped after this many times the shortest trial so far."""
TRL_MICRO = 8
"""Completions per micro-batch of TRL, with four gradient accumulation steps: all 32 at once take over 20 GB."""
TRL_BLOCKS = 96
"""Pages of 256 tokens for continuous batching, more than 32 completions need; the default takes half of the memory."""

LORA_ALPHA = 32
"""Adapters are scaled by this over their rank, on both sides."""

TOY_SEEDS = (0,) if SHORT else (0, 1, 2)
TOY_LEVEL = 0.7
"""The mean reward to reach; the toy model starts near 0.5."""
TOY_SMOOTH = 3
"""Updates over which the reward is averaged."""
TOY_MARKS = (10, 20, 40, 80, 160)
"""Seconds at which rewards are printed."""
TOY_TRL_MICRO = 512
"""All completions of an update in one micro-batch of TRL."""
