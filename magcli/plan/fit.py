"""Whether a run fits a card, and the smallest change of its options that makes it fit."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from magcli.choices import AUTO
from magcli.model.shape import ModelShape
from magcli.plan import memory
from magcli.plan.memory import EnginePlan, Line, TrainingPlan

PROPOSED_RANK = 32
"""The LoRA rank that is proposed where training all weights does not fit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is on one card: a trainer, and perhaps the embedded ``engine`` or vLLM with a ``share`` in bytes.

    ``engine_stays``: the engine is there during updates too. vLLM gives its share back then if it ``sleeps``.
    """

    training: TrainingPlan
    engine: EnginePlan | None = None
    engine_stays: bool = True
    share: int = 0
    sleeps: bool = False

    @property
    def lines(self) -> list[Line]:
        """All parts of the memory."""
        parts = memory.training_lines(self.training)
        if self.engine is not None:
            parts += memory.engine_lines(self.engine, stays=self.engine_stays)
        if self.share:
            parts += memory.share_lines(self.share, sleeps=self.sleeps)
            parts += memory.probe_lines(self.training) if self.sleeps else []
        return parts

    @property
    def peak(self) -> int:
        """The bytes of the largest phase."""
        return memory.peak_bytes(self.lines)


@dataclass(frozen=True, slots=True)
class Change:
    """Options to add to a command, what they cost (slower, or another result), and the plan with them."""

    flags: str
    cost: int
    apply: Callable[[Plan], Plan]


MICRO = 1
ASYNC = 2
RECOMPUTE = 3
OFFLOAD = 5
SHARED = 10
LORA = 20
"""Costs of changes: of each halving of micro-batches or of concurrent sequences, of recomputing activations, of moments
in host memory, of sampling without vLLM, and of training adapters only."""

SHARES = (30, 25, 20, 15)
"""Shares of a GPU in percent that are proposed for vLLM."""

USUAL_SEQUENCES = 16
"""Sequences whose cache fits beside the weights of a model that needs more than the usual share."""

VLLM_SCRATCH_BYTES = 1 << 30
"""Buffers of vLLM beside weights and cache: an estimate, never measured by us."""

MOST_CARDS = 64

SURE = 1.2
"""How much more than its forecast a run may take and still fit; on GPUs it was up to 1.15 times (docs/gpu.md)."""

FEWEST_TOKENS = 1024
"""The smallest micro-batch that is proposed."""

FEWEST_KEPT_TOKENS = 8192
"""The smallest micro-batch that is chosen to keep activations; an estimate of where launches begin to take longer."""

MOST_TOKENS = 65536
"""The largest micro-batch that is chosen: its matrix products fill any GPU, and more tokens only take memory."""


def smaller_micro_batches(plan: Plan, *, longest: int) -> list[Change]:
    """Micro-batches of a half, a quarter and so on, not smaller than the ``longest`` sequence."""
    changes: list[Change] = []
    fewest = max(FEWEST_TOKENS, longest)
    tokens = _half(plan.training.tokens)
    # A micro-batch has whole sequences, so it holds the longest one.
    while tokens >= fewest:
        halvings = len(changes) + 1
        changes.append(Change(f"--micro-tokens {tokens}", MICRO * halvings, _with_training(micro_tokens=tokens)))
        tokens = _half(tokens)
    return changes


def fewer_sequences(plan: Plan, *, group: int) -> list[Change]:
    """Half as many concurrent sequences, a quarter and so on, in multiples of ``group``."""
    if plan.engine is None:
        return []
    changes: list[Change] = []
    groups = plan.engine.slots // 2 // group
    while groups >= 1:
        slots = groups * group
        halvings = len(changes) + 1
        changes.append(Change(f"--n-async {slots}", ASYNC * halvings, _with_slots(slots)))
        groups //= 2
    return changes


def least_share(shape: ModelShape, *, longest: int, ranks: int = 1) -> int:
    """Bytes of a GPU without which vLLM does not start: its weights, and the cache of one sequence.

    Both are divided among ``ranks``, each on a GPU of its own.
    """
    weights = -(-memory.BF16 * shape.parameters // ranks)  # rounded up
    cache = longest * memory.token_cache_bytes(shape, bf16=True, ranks=ranks)
    return weights + cache


def usual_share(shape: ModelShape, *, total: int, longest: int, share: float, ranks: int = 1) -> int:
    """vLLM's bytes of a GPU of ``total``: this ``share``, or what its weights, scratch and a few sequences take."""
    least = least_share(shape, longest=longest, ranks=ranks)
    # The least has the cache of one of the sequences.
    others = (USUAL_SEQUENCES - 1) * longest * memory.token_cache_bytes(shape, bf16=True, ranks=ranks)
    return max(round(share * total), least + others + VLLM_SCRATCH_BYTES)


def smaller_share(plan: Plan, *, total: int, longest: int, ranks: int = 1) -> list[Change]:
    """A smaller share of a GPU of ``total`` bytes for vLLM, in which its weights and a sequence still fit."""
    if not plan.share:
        return []
    least = least_share(plan.training.shape, longest=longest, ranks=ranks)
    changes = []
    # Fewer sequences fit into a smaller share, so it costs what fewer sequences cost.
    for number, percent in enumerate(SHARES, 1):
        share = total * percent // 100
        if least < share < plan.share:
            changes.append(Change(f"--gpu-memory {percent / 100}", ASYNC * number, _with_share(share)))
    return changes


def recomputation(plan: Plan) -> list[Change]:
    """Activation checkpointing, unless it is on."""
    if plan.training.activation_checkpointing:
        return []
    return [Change("--activation-checkpointing yes", RECOMPUTE, _with_training(activation_checkpointing=True))]


def without_recomputation(plan: Plan, usable: int, *, fewest: int) -> Plan:
    """The plan with activations kept, which saves a quarter of the compute, if it surely fits; else as it is.

    Micro-batches may be halved for it, down to the ``fewest`` tokens.
    """
    kept = _with_training(activation_checkpointing=False)(plan)
    smaller = [change.apply(kept) for change in smaller_micro_batches(kept, longest=fewest)]
    for option in (kept, *smaller):
        if SURE * option.peak <= usable:
            return option
    return plan


def larger_micro_batches(plan: Plan, usable: int) -> Plan:
    """The plan with micro-batches doubled as long as it surely fits, up to all tokens of an optimizer step."""
    most = min(MOST_TOKENS, plan.training.step_tokens or MOST_TOKENS)
    while plan.training.micro_tokens < most:
        larger = _with_training(micro_tokens=2 * plan.training.micro_tokens)(plan)
        if SURE * larger.peak > usable:
            break
        plan = larger
    return plan


def micro_batches_that_fit(plan: Plan, usable: int, *, longest: int) -> Plan:
    """The plan with micro-batches halved until it fits, but not smaller than the ``longest`` sequence."""
    smaller = plan
    for change in smaller_micro_batches(plan, longest=longest):
        if smaller.peak <= usable:
            break
        smaller = change.apply(plan)
    return smaller


@dataclass(frozen=True, slots=True)
class Free:
    """What the options of a run leave to its plan: whether activations are recomputed, and the tokens of micro-batches,
    which are not fewer than those of the ``longest`` sequence.
    """

    recomputation: bool
    micro_tokens: bool
    longest: int

    @classmethod
    def of(cls, activation_checkpointing: str, micro_tokens: int, longest: int) -> "Free":
        """What is left open by the values of the two options."""
        return cls(activation_checkpointing == AUTO, micro_tokens == 0, longest)


def as_fast_as_fits(plan: Plan, free: Free, usable: int) -> Plan:
    """The plan on a GPU: activations are kept if that surely fits, then micro-batches as large as surely fit."""
    if free.recomputation:
        # Micro-batches that the user gives a size stay as they are.
        fewest = max(free.longest, FEWEST_KEPT_TOKENS) if free.micro_tokens else plan.training.tokens
        plan = without_recomputation(plan, usable, fewest=fewest)
    if free.micro_tokens:
        plan = micro_batches_that_fit(plan, usable, longest=free.longest)
        plan = larger_micro_batches(plan, usable)
    return plan


def adapters(plan: Plan, *, bf16_base: bool) -> list[Change]:
    """Training of LoRA adapters instead of all weights, unless it is on."""
    if plan.training.lora_rank or plan.training.ranks > 1:
        return []
    change = _with_training(lora_rank=PROPOSED_RANK, bf16_base=bf16_base)
    return [Change(f"--lora {PROPOSED_RANK}", LORA, change)]


def shared_base(plan: Plan, engine: EnginePlan, *, group: int) -> list[Change]:
    """The embedded engine on the trainer's frozen weights instead of vLLM, which has a copy of them; with LoRA only.

    ``engine`` is the engine as it would be with weights of its own. It may have fewer sequences too, as in
    ``fewer_sequences``.
    """
    if not plan.share:
        return []
    changes = [Change("--engine torch", SHARED, _on_shared_base(engine))]
    with_engine = replace(plan, engine=engine)
    for fewer in fewer_sequences(with_engine, group=group):
        # Only the engine of the changed plan is wanted: the share of vLLM goes when it is applied.
        smaller = fewer.apply(with_engine).engine
        assert smaller is not None, "the plan has an engine"
        changes.append(Change(f"--engine torch {fewer.flags}", SHARED + fewer.cost, _on_shared_base(smaller)))
    return changes


def offloaded_moments(plan: Plan) -> list[Change]:
    """AdamW's moments in the host memory of a GPU, unless they are there; not with several ranks."""
    training = plan.training
    if training.offload_moments or not training.on_gpu or training.ranks > 1:
        return []
    return [Change("--offload moments", OFFLOAD, _with_training(offload_moments=True))]


def smallest(plan: Plan, kinds: Sequence[Sequence[Change]], usable: int) -> tuple[Change, ...] | None:
    """The cheapest changes, at most one of each kind, after which a plan fits; None if nothing does."""
    # Few enough to try all: some kinds, each with some sizes.
    for changes in sorted(_combinations(kinds), key=_cost):
        if changed(plan, changes).peak <= usable:
            return changes
    return None


def _combinations(kinds: Sequence[Sequence[Change]]) -> Iterator[tuple[Change, ...]]:
    """All ways to take at most one change of each kind."""
    options = [[None, *kind] for kind in kinds]
    for taken in product(*options):
        yield tuple(change for change in taken if change is not None)


def _cost(changes: Sequence[Change]) -> tuple[int, int]:
    """What changes cost together; of equal costs, fewer changes come first."""
    return sum(change.cost for change in changes), len(changes)


def changed(plan: Plan, changes: Sequence[Change]) -> Plan:
    """The plan with all of these changes."""
    for change in changes:
        plan = change.apply(plan)
    return plan


def sharded(plan: Plan, kinds: Sequence[Sequence[Change]], usable: int) -> tuple[int, tuple[Change, ...]] | None:
    """The number of trainer cards over which a plan fits, a power of 2 up to ``MOST_CARDS``, and changes to make then.

    The engine has other cards. None if a plan does not fit on any number, or trains adapters, which is done on one.
    """
    if plan.training.lora_rank:
        return None
    # Several ranks train all weights only.
    without_adapters = [kind for kind in kinds if all(change.cost != LORA for change in kind)]
    ranks = 2 * plan.training.ranks
    while ranks <= MOST_CARDS:
        training = replace(plan.training, ranks=ranks)
        split = replace(plan, training=training, engine=None, share=0)
        changes = smallest(split, without_adapters, usable)
        if changes is not None:
            return ranks, changes
        ranks *= 2
    return None


def _half(tokens: int) -> int:
    """Half as many tokens, as the power of 2 below."""
    half = (tokens + 1) // 2
    # The highest bit alone: the largest power of 2 that is not more.
    return 1 << (half.bit_length() - 1)


def _with_training(**options: object) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, training=replace(plan.training, **options))  # type: ignore[arg-type]


def _on_shared_base(engine: EnginePlan) -> Callable[[Plan], Plan]:
    def apply(plan: Plan) -> Plan:
        rank = plan.training.lora_rank
        # Only with the trainer's own type of weights can the engine use them.
        if not rank or engine.bf16 != plan.training.bf16_base:
            return plan
        return replace(plan, share=0, sleeps=False, engine=replace(engine, adapter_rank=rank))

    return apply


def _with_share(share: int) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, share=share)


def _with_slots(slots: int) -> Callable[[Plan], Plan]:
    def apply(plan: Plan) -> Plan:
        return plan if plan.engine is None else replace(plan, engine=replace(plan.engine, slots=slots))

    return apply
