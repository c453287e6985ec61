"""The table of docs/cluster.md: what one of 8, 64 and 256 ranks needs to train 1.5B, 7B and 24B weights."""

from benchmarks.rank_memory.live import (
    ACTIVATIONS,
    BUFFERS,
    GATHERED,
    GRADIENTS,
    MOMENTS,
    TEMPORARY,
    WEIGHTS,
    WHOLE_GRADIENTS,
)
from benchmarks.rank_memory.models import SHAPES, config_of
from benchmarks.rank_memory.step import Counted, Setting, count_fake_step

RANKS = (8, 64, 256)
SETTING = Setting(tokens=8192)
COLUMNS = (WEIGHTS, GRADIENTS, MOMENTS, GATHERED, WHOLE_GRADIENTS, BUFFERS, ACTIVATIONS, TEMPORARY)
GATHER, REDUCE = "_allgather_base_", "_reduce_scatter_base_"


def run() -> None:
    """Print the table; its last columns are those of one micro-batch."""
    titles = ("model", "ranks", *COLUMNS, "peak", "all-gathers", "reduce-scatters")
    print(f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}", flush=True)
    for name in SHAPES:
        for ranks in RANKS:
            print(line(name, ranks, count_fake_step(config_of(name), ranks, SETTING)), flush=True)


def line(name: str, ranks: int, counted: Counted) -> str:
    """A line of the table: GB of memory, and calls and GB of the collectives of one micro-batch."""
    sizes = [f"{counted.parts[part] / 1e9:.2f}" for part in COLUMNS]
    collectives = [
        f"{counted.calls[kind] // SETTING.micro_batches}: {counted.sent[kind] / SETTING.micro_batches / 1e9:.1f}"
        for kind in (GATHER, REDUCE)
    ]
    return f"| {' | '.join([name, str(ranks), *sizes, f'{counted.peak / 1e9:.1f}', *collectives])} |"
