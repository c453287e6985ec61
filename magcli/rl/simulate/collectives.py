"""What collectives cost: calls and bytes, counted from the sizes of a model, over the speed of a link.

The bytes are those that an all-gather returns or that go into a reduction. In a ring each of N ranks sends (N - 1) / N
of them, and an all-reduce is a reduction and a gather. Nothing is known here of what overlaps with computation.
"""

from dataclasses import dataclass

from magcli.model.shape import ModelShape

FP32, BF16 = 4, 2


@dataclass(frozen=True, slots=True)
class Collectives:
    """A number of calls that together move this many bytes."""

    calls: int
    size: float


@dataclass(frozen=True, slots=True)
class Link:
    """What connects two ranks: bytes per second in each direction, and seconds that a call takes besides."""

    bytes_per_s: float
    latency: float = 0.0

    def seconds(self, collectives: Collectives, ranks: int) -> float:
        """How long collectives take over a number of ranks; one has none."""
        if ranks == 1:
            return 0.0
        moved = collectives.size * (ranks - 1) / ranks
        return collectives.calls * self.latency + moved / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class Costs:
    """The collectives of a model: ``bf16`` if training gathers layers in bf16, as it does with ``--bf16``."""

    shape: ModelShape
    bf16: bool
    link: Link

    def micro_batch(self, ranks: int) -> float:
        """Seconds of the collectives of a micro-batch on a trainer rank."""
        return self.link.seconds(of_micro_batch(self.shape, bf16=self.bf16), ranks)

    def gathering(self, ranks: int) -> float:
        """Seconds in which trainer ranks gather all weights in float32, to send them to engines."""
        return self.link.seconds(Collectives(1, FP32 * self.shape.parameters), ranks)

    def step(self, ranks: int) -> float:
        """Seconds of a decode step's all-reduces on an engine's rank, whatever runs: their latency."""
        return self.link.seconds(Collectives(of_sequence(self.shape).calls, 0.0), ranks)

    def sequence(self, ranks: int) -> float:
        """Seconds that a running sequence adds to these all-reduces."""
        return self.link.seconds(Collectives(0, of_sequence(self.shape).size), ranks)


def of_micro_batch(shape: ModelShape, *, bf16: bool) -> Collectives:
    """FSDP2's all-gathers and reduce-scatters for a micro-batch (``magcli.train.shard``).

    Layers are gathered for both passes, in bf16 or float32, and so are the LM head and the final norm, in float32. An
    embedding that is not tied is gathered for the forward pass alone; one that is tied is gathered with the final norm.
    Gradients are reduced in float32.
    """
    ends = shape.head if shape.tied else 2 * shape.head
    layers = shape.parameters - ends - shape.hidden
    gathered = 2 * (BF16 if bf16 else FP32) * layers + 2 * FP32 * (shape.head + shape.hidden)
    if not shape.tied:
        gathered += FP32 * shape.head
    units = shape.layers + (1 if shape.tied else 3)
    gathers = 2 * units if shape.tied else 2 * units - 1
    return Collectives(gathers + units, gathered + FP32 * shape.parameters)


def of_sequence(shape: ModelShape) -> Collectives:
    """The all-reduces of a decode step for one sequence: two a layer, of a hidden state in bf16."""
    calls = 2 * shape.layers
    both_ways = 2
    return Collectives(calls, both_ways * calls * BF16 * shape.hidden)
