"""The settings of the races between ``magcli rl`` and TRL's GRPOTrainer, fixed before either side was tuned.

Both sides have the same model, problems, reward, group size, completions an update, updates, limits, temperature,
objective (as near as TRL comes to it) and cores. What a side may choose freely is ``MAGCLI`` and ``TRL_ARMS``: TRL
races with the arm that short trials find best.
"""

from dataclasses import dataclass

GROUP = 8
COMPLETIONS = 32
"""Completions of one update: four problems."""
LR = 1e-6
CLIP_LOW, CLIP_HIGH = 0.2, 0.28
TEMPERATURE = 1.0
THREADS = 2
SEED = 0

SYSTEM = "Answer in one short sentence."
"""The system prompt. The lengths that the model then has are heavy-tailed: of 16 completions the median had 67 tokens,
the mean 118, and three ran to the limit. Under its own system prompt half of them did, which leaves no tail to see."""

HEAVY_LIMIT = 256
"""Tokens at which a completion is cut where lengths are the model's own."""
FIXED_TOKENS = 128
"""Tokens of every completion where the model has no end token."""
UNUSED_TOKEN = "<jupyter_script>"
"""A token of SmolLM2's vocabulary that it does not write; as end token it makes all completions equally long."""


@dataclass(frozen=True, slots=True)
class Size:
    """How long a race is: updates made before the clock and on it, pairs of runs, and the same for a trial of TRL.

    magcli begins with two batches generated at once, of which its first two updates train one each: a warm-up that is
    shorter than staleness + 1 updates would leave generation outside the clock.
    """

    warmup: int
    timed: int
    pairs: int
    trial_warmup: int
    trial_timed: int

    @property
    def updates(self) -> int:
        """Updates of one run."""
        return self.warmup + self.timed


FULL = Size(warmup=2, timed=2, pairs=3, trial_warmup=0, trial_timed=1)
SHORT = Size(warmup=2, timed=2, pairs=1, trial_warmup=0, trial_timed=1)
"""To see that all works: ``PEERS_SHORT=1``."""

TAIL = 2
"""Updates that magcli is asked for beyond the timed ones: its pipeline is as full at the end of the clock as at its
start, so that no completion is counted whose tokens were made outside."""

MAGCLI = {"n_async": 64, "micro_tokens": 4096, "staleness": 1, "dtype": "auto", "bf16": "auto"}
"""magcli's own choices: as many slots as admission allows sequences; the number formats are those it finds faster."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to run TRL: how it generates, and in which precision."""

    continuous: bool
    bf16: bool

    @property
    def name(self) -> str:
        """As it is printed."""
        return f"{'continuous' if self.continuous else 'static'} {'bf16' if self.bf16 else 'fp32'}"


TRL_ARMS = tuple(Arm(continuous, bf16) for continuous in (False, True) for bf16 in (False, True))
PATIENCE = 3.0
"""A trial that takes this many times as long as the shortest before it is given up."""
TRL_MICRO = 8
"""Completions of a micro-batch of TRL's; the gradient is accumulated over four. All 32 at once take over 20 GB."""
TRL_BLOCKS = 96
"""Pages of 256 tokens for continuous batching: more than all 32 completions fill. The default is half of the memory."""

TOY_SEEDS = (0, 1, 2)
TOY_LEVEL = 0.7
"""Mean reward that the toy model, which begins near 0.5, is timed to."""
TOY_SMOOTH = 3
"""Updates over which the mean is taken."""
TOY_MARKS = (10, 20, 40, 80, 160)
"""Seconds at which rewards are printed."""
TOY_THREADS = 2
"""Those of both cores, which both sides gain from when nothing else runs."""
TOY_TRL_MICRO = 512
"""All completions of an update in one batch of TRL's."""
