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
    """The collectives of a model.

    Attributes:
        shape: the sizes of the model.
        bf16: training gathers layers in bf16, as it does with ``--bf16``.
        link: between two ranks that share one copy of the weights, and between two devices of an engine.
        node_link: between two ranks of different copies (hybrid sharding); None: as ``link``.
    """

    shape: ModelShape
    bf16: bool
    link: Link
    node_link: Link | None = None

    def micro_batch(self, ranks: int) -> float:
        """Seconds of the collectives of a micro-batch on one of the ``ranks`` that share one copy of the weights."""
        return self.link.seconds(of_micro_batch(self.shape, bf16=self.bf16), ranks)

    def optimizer_step(self, ranks: int, copies: int) -> float:
        """Seconds in which ``copies`` of the weights, of this many ranks each, add up their gradients."""
        return (self.node_link or self.link).seconds(of_optimizer_step(self.shape, ranks), copies)

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
    units = _units(shape)
    gathers = 2 * units if shape.tied else 2 * units - 1
    return Collectives(gathers + units, gathered + FP32 * shape.parameters)


def of_optimizer_step(shape: ModelShape, ranks: int) -> Collectives:
    """The all-reduces in which each of ``ranks`` adds up its shard of the gradients with those of other copies.

    They are in float32, one for each unit of FSDP2, after the last micro-batch of an optimizer step.
    """
    both_ways = 2
    return Collectives(_units(shape), both_ways * FP32 * shape.parameters / ranks)


def _units(shape: ModelShape) -> int:
    """The units that FSDP2 gathers and reduces: the layers, embedding and head if they are two, and the rest."""
    return shape.layers + (1 if shape.tied else 3)


def of_sequence(shape: ModelShape) -> Collectives:
    """The all-reduces of a decode step for one sequence: two a layer, of a hidden state in bf16."""
    calls = 2 * shape.layers
    both_ways = 2
    return Collectives(calls, both_ways * calls * BF16 * shape.hidden)
