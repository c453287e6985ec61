"""How much memory training and sampling take, computed from the sizes of a model.

Each function returns bytes of one card (or of the host, on a CPU), and counts what PyTorch allocates: no CUDA context,
no fragmentation. ``training_lines`` and ``engine_lines`` list the parts with the phases in which they are there; the
peak is the largest phase. The parts are those of a Llama-like decoder, checked against measured runs
(``tests/model/test_memory_measured.py``) and runs with fake tensors (``tests/model/test_memory.py``).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from magcli.model.shape import ModelShape

LOGITS_BYTES = 1 << 30
"""Float32 logits of a micro-batch that are stored for the backward pass; of more, all are recomputed there."""

CPU_BLOCK_BYTES, GPU_BLOCK_BYTES = 1 << 27, 1 << 30
"""Float32 logits that are computed at once: larger matrix products are no faster on a CPU."""

CPU_PIECE_BYTES, GPU_PIECE_BYTES = 1 << 21, 1 << 27
"""Float32 logits on which row-wise work is done at once: a part of a CPU's cache, and what fills a GPU."""

PREFILL_TOKENS = 4096
"""Prompt tokens that the embedded engine computes in one step."""

SAMPLED_COPIES = 4
"""Float32 copies of the logits of all slots while tokens are drawn: raw, scaled, log-probabilities, probabilities."""

ADAM_STATES = 2
"""Float32 values of AdamW's state per trained parameter."""

ASLEEP_BYTES = 2 << 30
"""What vLLM keeps of a card while it sleeps, such as its CUDA context, kernels and CUDA graphs: an estimate, never
measured by us."""

FP32, BF16 = 4, 2

Phase = Literal["loading", "forward", "scoring", "backward", "sampling"]
UPDATE: tuple[Phase, ...] = ("forward", "scoring", "backward")
"""The phases of an update: the layers and the logits, the backward pass of the logits, that of the layers."""
AFTER_LOADING: tuple[Phase, ...] = (*UPDATE, "sampling")
PHASES: tuple[Phase, ...] = ("loading", *AFTER_LOADING)


@dataclass(frozen=True, slots=True)
class Line:
    """A part of the memory, in bytes, and the phases in which it is there."""

    name: str
    size: int
    phases: tuple[Phase, ...] = AFTER_LOADING


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How a model is trained on one rank.

    ``bf16``: matrix products in bf16 by autocast, master weights in float32. ``lora_rank`` 0 trains all weights;
    ``bf16_base``: the frozen weights under adapters are in bf16. ``offload_moments``: AdamW's moments are in host
    memory. ``padding`` is the number of slots in padded attention batches per token, in which completions of one
    prompt each have it. ``reference``: a copy of the model for a KL penalty; ``teacher``: another model that only
    scores, in bf16 with ``bf16_teacher``. ``scored`` is the share of the tokens whose logits are needed.
    ``loads_whole``: each rank loads the whole model before it keeps its shard. ``step_tokens``: those of an optimizer
    step, which are in one micro-batch if it has room for all; 0: unknown.
    """

    shape: ModelShape
    micro_tokens: int
    on_gpu: bool
    bf16: bool
    ranks: int = 1
    lora_rank: int = 0
    bf16_base: bool = False
    offload_moments: bool = False
    activation_checkpointing: bool = False
    padding: float = 1.1
    scored: float = 1.0
    reference: bool = False
    loads_whole: bool = True
    teacher: ModelShape | None = None
    bf16_teacher: bool = False
    step_tokens: int = 0

    @property
    def tokens(self) -> int:
        """The tokens of the largest micro-batch."""
        return min(self.micro_tokens, self.step_tokens or self.micro_tokens)

    @property
    def base_is_bf16(self) -> bool:
        """Whether the frozen weights under adapters are in bf16; without adapters all are trained, in float32."""
        return self.bf16_base and self.lora_rank > 0


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """The embedded engine: ``slots`` sequences of up to ``longest`` tokens, prompt included.

    ``packed``: linear layers are kept in a CPU's blocked layout. ``copies`` of the weights divide the slots among them.
    ``share``: bytes of the card for weights and cache, which bounds the number of sequences; 0 is no bound.
    ``adapter_rank``: the weights are those of the trainer, and the engine's own are adapters of this rank; 0: all are.
    """

    shape: ModelShape
    slots: int
    longest: int
    bf16: bool
    on_gpu: bool
    packed: bool = True
    copies: int = 1
    share: int = 0
    adapter_rank: int = 0


def value_bytes(bf16: bool) -> int:
    """The bytes of a value in bf16, or else in float32."""
    return BF16 if bf16 else FP32


def present(lines: Iterable[Line]) -> list[Line]:
    """The parts that take something."""
    return [line for line in lines if line.size]


def lora_parameters(shape: ModelShape, rank: int) -> int:
    """Number of weights of adapters of this rank on all linear layers: rank x (inputs + outputs) each."""
    widths = (
        (shape.hidden, shape.queries),
        (shape.hidden, shape.keys),
        (shape.hidden, shape.keys),  # values
        (shape.queries, shape.hidden),  # output of attention
        (shape.hidden, shape.inner),  # gate
        (shape.hidden, shape.inner),  # up
        (shape.inner, shape.hidden),  # down
    )
    return shape.layers * rank * sum(inputs + outputs for inputs, outputs in widths)


def trained_parameters(plan: TrainingPlan) -> int:
    """Number of weights that have a gradient."""
    return lora_parameters(plan.shape, plan.lora_rank) if plan.lora_rank else plan.shape.parameters


def weight_bytes(plan: TrainingPlan) -> int:
    """The shard of the weights, with adapters: float32, or bf16 for the base under adapters."""
    base = plan.shape.parameters * value_bytes(plan.base_is_bf16)
    adapters = FP32 * lora_parameters(plan.shape, plan.lora_rank)
    return (base + adapters) // plan.ranks


def gradient_bytes(plan: TrainingPlan) -> int:
    """The shard of the float32 gradients."""
    return FP32 * trained_parameters(plan) // plan.ranks


def moment_bytes(plan: TrainingPlan) -> int:
    """The shard of AdamW's two float32 moments, wherever they are."""
    return ADAM_STATES * FP32 * trained_parameters(plan) // plan.ranks


def loading_bytes(plan: TrainingPlan) -> int:
    """What the whole model takes more than its shard while ranks load it."""
    if plan.ranks == 1 or not plan.loads_whole:
        return 0
    # The shard is counted as weights already.
    return FP32 * plan.shape.parameters - weight_bytes(plan)


def gathered_layer_bytes(plan: TrainingPlan) -> int:
    """The layers that a rank gathers: one is used while the next is on its way."""
    if plan.ranks == 1:
        return 0
    # The layers of a decoder are of one size.
    layer = plan.shape.linear // plan.shape.layers
    return 2 * layer * value_bytes(plan.bf16)


def gathered_head_bytes(plan: TrainingPlan) -> int:
    """The float32 head that a rank gathers, or the embedding before it."""
    return 0 if plan.ranks == 1 else FP32 * plan.shape.head


def gathered_head_phases(plan: TrainingPlan) -> tuple[Phase, ...]:
    """A head that is tied to the embedding is there for the whole step."""
    return UPDATE if plan.shape.tied else ("forward", "scoring")


def cast_bytes(plan: TrainingPlan) -> int:
    """The bf16 copies of the weights of all linear layers, autocast's or those that are held (``cast_phases``)."""
    # Several ranks gather each layer in bf16 (``gathered_layer_bytes``); a base in bf16 needs no copies.
    if not plan.bf16 or plan.ranks > 1 or plan.base_is_bf16:
        return 0
    return BF16 * plan.shape.linear


def cast_phases(plan: TrainingPlan) -> tuple[Phase, ...]:
    """When they are there: held from update to update; autocast's end with what needs them.

    That is the forward pass where the backward pass computes it again. Frozen weights under adapters are not held.
    """
    if plan.activation_checkpointing:
        return ("forward",)
    return UPDATE if plan.lora_rank else AFTER_LOADING


def layer_activation_bytes(plan: TrainingPlan) -> int:
    """What one layer keeps of one token for its backward pass.

    Norms keep the float32 residual stream and its normalised values, linear layers their inputs (bf16: a copy for each
    layer), the gated network three inner values, attention its padded queries, keys, values and outputs.
    """
    shape = plan.shape
    element = value_bytes(plan.bf16)
    # Of the gated network three values and the input of its last matrix, of attention the input of its last matrix.
    inner_and_queries = element * (4 * shape.inner + shape.queries)
    if not plan.bf16:
        # Two norms, with the stream, its normalised values, and the output, which is the input of the next matrices.
        norms = 2 * 3 * FP32 * shape.hidden
        return norms + inner_and_queries + attention_bytes(plan, FP32)
    norms = 2 * 2 * FP32 * shape.hidden  # two norms, two float32 values each
    inputs = 5 * BF16 * shape.hidden  # of the queries', keys', values', gate's and inner values' matrices
    kernel = value_bytes(plan.on_gpu)
    return norms + inputs + inner_and_queries + attention_bytes(plan, kernel)


def attention_bytes(plan: TrainingPlan, kernel: int) -> int:
    """What attention keeps of one token: padded queries, keys, values and outputs in the kernel's type."""
    return round(kernel * (2 * plan.shape.queries + 2 * plan.shape.keys) * plan.padding)


def adapter_activation_bytes(plan: TrainingPlan) -> int:
    """What the adapters of one layer keep of one token: the product with the first matrix of each of 7 layers."""
    return 7 * plan.lora_rank * value_bytes(plan.bf16)


def activation_bytes(plan: TrainingPlan) -> int:
    """What all layers keep of a micro-batch; with checkpointing only the residual stream that enters each layer."""
    shape = plan.shape
    stream = value_bytes(plan.base_is_bf16) * shape.hidden
    kept = layer_activation_bytes(plan) + adapter_activation_bytes(plan)
    layer = stream if plan.activation_checkpointing else kept
    last_norm = 4 * stream
    return plan.tokens * (shape.layers * layer + last_norm)


def recomputed_bytes(plan: TrainingPlan) -> int:
    """The activations of the one layer that is recomputed, and its bf16 weights."""
    if not plan.activation_checkpointing:
        return 0
    layer = layer_activation_bytes(plan) + adapter_activation_bytes(plan)
    return plan.tokens * layer + cast_bytes(plan) // plan.shape.layers


def layer_gradient_bytes(plan: TrainingPlan) -> int:
    """Gradients inside a layer during its backward pass: inner values, the residual stream, and its largest weight.

    Up to three inner gradients are there at once; those of a recomputed layer take the place of its activations.
    """
    shape = plan.shape
    element = value_bytes(plan.bf16)
    inner_gradients = 1 if plan.activation_checkpointing else 3
    inner = inner_gradients * element * shape.inner
    stream = 3 * FP32 * shape.hidden
    # A gated network has three matrices of this width, which are not more than all weights of the layer.
    layer_weights = shape.linear // shape.layers
    widest = min(shape.inner, layer_weights // (3 * shape.hidden))
    largest_weight = 0 if plan.lora_rank else shape.hidden * widest
    weight_copies = BF16 + FP32 if plan.bf16 else FP32  # the product in bf16, and its sum
    return plan.tokens * (inner + stream) + weight_copies * largest_weight


def head_gradient_bytes(plan: TrainingPlan) -> int:
    """The gradient of a tied head, which waits for that of the embedding until the end of the backward pass."""
    return FP32 * plan.shape.head if plan.shape.tied and not plan.lora_rank else 0


def head_copy_bytes(plan: TrainingPlan) -> int:
    """The copy of the head in the type of the factors of its product: on a GPU bf16, else float32; 0 if it is of it."""
    bf16_factors = plan.on_gpu and plan.bf16
    if plan.base_is_bf16 == bf16_factors:
        return 0  # no copy of what has the type already
    return value_bytes(bf16_factors) * plan.shape.head


def head_copy_phases(plan: TrainingPlan) -> tuple[Phase, ...]:
    """The backward pass has the bf16 copy of the head anyway, and keeps the float32 one."""
    return ("forward",) if plan.on_gpu and plan.bf16 else ("forward", "scoring")


def stores_logits(plan: TrainingPlan) -> bool:
    """Whether the logits of a micro-batch are stored for the backward pass."""
    return scored_tokens(plan) * FP32 * plan.shape.vocabulary <= LOGITS_BYTES


def scored_tokens(plan: TrainingPlan) -> int:
    """Number of tokens of a micro-batch whose logits are needed."""
    return round(plan.tokens * plan.scored)


def logit_bytes(plan: TrainingPlan) -> int:
    """Buffers of float32 logits: of all scored tokens or of one block, and of one piece for row-wise work."""
    row = FP32 * plan.shape.vocabulary
    everything = scored_tokens(plan) * row
    block = GPU_BLOCK_BYTES if plan.on_gpu else CPU_BLOCK_BYTES
    piece = GPU_PIECE_BYTES if plan.on_gpu else CPU_PIECE_BYTES
    # Blocks and pieces are of whole rows, of at least one.
    stored = everything if stores_logits(plan) else max(row, min(block, everything))
    scratch = 2 * max(row, min(piece, everything))
    return stored + scratch


def head_backward_bytes(plan: TrainingPlan) -> int:
    """What the backward pass of the head makes: its gradient, the products, bf16 copies, the hidden states' gradient.

    The product of one block is added to the gradient of the others; that of all rows is the gradient.
    """
    trained_head = 0 if plan.lora_rank else plan.shape.head
    hidden_states = scored_tokens(plan) * plan.shape.hidden
    copies = BF16 * (plan.shape.head + hidden_states) if plan.bf16 else 0
    gradient = FP32 * trained_head
    product = value_bytes(plan.bf16) * trained_head
    if stores_logits(plan) and not plan.bf16:
        product = 0  # it is the gradient
    return copies + product + gradient + FP32 * hidden_states


def checkpoint_copy_bytes(plan: TrainingPlan) -> int:
    """A rank's copy of its shard of a checkpoint in host memory, from the first one on; a single process has none."""
    return checkpoint_bytes(plan) // plan.ranks if plan.ranks > 1 else 0


def host_lines(plan: TrainingPlan) -> list[Line]:
    """What several ranks on GPUs take of the memory of their hosts, each rank."""
    line = Line("copy of a rank's checkpoint", checkpoint_copy_bytes(plan))
    return [line] if plan.on_gpu and line.size else []


def training_lines(plan: TrainingPlan) -> list[Line]:
    """The parts of training, those that take nothing left out."""
    # Without its adapters the model itself is the reference.
    reference = FP32 * plan.shape.parameters if plan.reference and not plan.lora_rank else 0
    teacher = value_bytes(plan.bf16_teacher) * plan.teacher.parameters if plan.teacher else 0
    # Offloaded moments, and the copy of a rank on a GPU, are in host memory.
    moments = 0 if plan.offload_moments else moment_bytes(plan)
    checkpoint_copy = 0 if plan.on_gpu else checkpoint_copy_bytes(plan)
    lines = [
        Line("weights" if plan.bf16_base else "weights, float32", weight_bytes(plan), PHASES),
        Line("gradients, float32", gradient_bytes(plan), UPDATE),
        Line("Adam moments, float32", moments),
        Line("copy of a rank's checkpoint", checkpoint_copy),
        Line("reference model, float32", reference),
        Line(f"teacher, {'bf16' if plan.bf16_teacher else 'float32'}", teacher),
        Line("whole model before it is sharded", loading_bytes(plan), ("loading",)),
        Line("gathered layers", gathered_layer_bytes(plan), UPDATE),
        Line("gathered embedding or head", gathered_head_bytes(plan), gathered_head_phases(plan)),
        Line("bf16 copies of weights", cast_bytes(plan), cast_phases(plan)),
        Line("activations", activation_bytes(plan), UPDATE),
        Line("copy of the head", head_copy_bytes(plan), head_copy_phases(plan)),
        Line("logits", logit_bytes(plan), ("forward", "scoring")),
        Line("gradient of the head", head_backward_bytes(plan), ("scoring",)),
        Line("gradient of the tied head", head_gradient_bytes(plan), ("backward",)),
        Line("one recomputed layer", recomputed_bytes(plan), ("backward",)),
        Line("gradients inside a layer", layer_gradient_bytes(plan), ("backward",)),
    ]
    return present(lines)


def engine_weight_bytes(plan: EnginePlan) -> int:
    """The weights for sampling; a float32 head beside bf16 weights, or one in a CPU's layout beside the embedding."""
    element = value_bytes(plan.bf16)
    is_packed_apart = plan.packed and not plan.on_gpu and plan.shape.tied
    head = FP32 * plan.shape.head if plan.bf16 or is_packed_apart else 0
    rank = plan.adapter_rank
    weights = lora_parameters(plan.shape, rank) if rank else plan.shape.parameters
    return plan.copies * (element * weights + head)


def token_cache_bytes(shape: ModelShape, *, bf16: bool, ranks: int = 1) -> int:
    """Keys and values of one token in one of the ``ranks`` of an engine, which has at least one key-value head."""
    # ``cached`` counts the keys and values of a token in all layers and heads.
    values_of_head = shape.cached // shape.kv_heads
    heads_of_rank = max(1, shape.kv_heads // ranks)
    return values_of_head * heads_of_rank * value_bytes(bf16)


def grown_capacity(longest: int) -> int:
    """Positions per slot of a cache that grew in steps of a quarter until a sequence of ``longest`` tokens fits.

    It depends on where the growth started by at most a step, so this is the largest.
    """
    # 5/4 of the longest, rounded up to a multiple of 32.
    return -(-longest * 5 // 128) * 32


def cache_bytes(plan: EnginePlan) -> int:
    """The KV cache: each slot has room for the longest sequence; on a GPU it is allocated once, without spare room."""
    allocated = -(-plan.longest // 256) * 256  # rounded up to a multiple of 256
    capacity = allocated if plan.on_gpu else grown_capacity(plan.longest)
    slot = capacity * token_cache_bytes(plan.shape, bf16=plan.bf16)
    if not plan.share:
        return plan.slots * slot
    left = plan.share - engine_weight_bytes(plan)
    slots_with_room = max(1, left // slot)
    return min(plan.slots, slots_with_room) * slot


def cache_growth_bytes(plan: EnginePlan) -> int:
    """Old keys beside the new ones while the cache of a CPU grows."""
    if plan.on_gpu:
        return 0
    # Keys are half of the cache, and had 4/5 of their size before it grew by a quarter.
    return 2 * cache_bytes(plan) // 5


def sampling_scratch_bytes(plan: EnginePlan) -> int:
    """Copies of the logits of all slots, and the inner values of prompts and newest tokens."""
    element = value_bytes(plan.bf16)
    logits = SAMPLED_COPIES * FP32 * plan.slots * plan.shape.vocabulary
    prompt_tokens = min(PREFILL_TOKENS, plan.slots * plan.longest)
    newest_tokens = plan.slots
    inner_values = 3 * element * plan.shape.inner + 4 * FP32 * plan.shape.hidden  # of one token
    return logits + (prompt_tokens + newest_tokens) * inner_values


def engine_lines(plan: EnginePlan, *, stays: bool = True) -> list[Line]:
    """The parts of the embedded engine beside a trainer; weights and cache are there during updates if it ``stays``."""
    dtype = "bf16" if plan.bf16 else "float32"
    weights = f"adapters, {dtype}, and head" if plan.adapter_rank else f"weights, {dtype}"
    phases: tuple[Phase, ...] = AFTER_LOADING if stays else ("sampling",)
    lines = [
        Line(f"engine: {weights}", engine_weight_bytes(plan), phases),
        Line(f"engine: KV cache, {plan.slots} x {plan.longest:,} tokens", cache_bytes(plan), phases),
        Line("engine: growth of the cache", cache_growth_bytes(plan), ("sampling",)),
        Line("engine: scratch", sampling_scratch_bytes(plan), ("sampling",)),
    ]
    return present(lines)


def share_lines(share: int, *, sleeps: bool = False) -> list[Line]:
    """vLLM on the trainer's card: its share of the memory, most of it given back while the trainer works if it
    ``sleeps``.
    """
    if not sleeps:
        return [Line("engine: vLLM's share", share)]
    return [
        Line("engine: vLLM's share", share, ("sampling",)),
        Line("engine: vLLM asleep", min(share, ASLEEP_BYTES), UPDATE),
    ]


def probe_lines(plan: TrainingPlan) -> list[Line]:
    """A forward pass of the trainer while vLLM is awake, to compare both: the inside of one layer, and logits."""
    shape = plan.shape
    element = value_bytes(plan.bf16)
    stream = 3 * FP32 * shape.hidden
    inner_values = element * (3 * shape.inner + shape.queries + 2 * shape.keys)
    size = plan.tokens * (stream + inner_values) + logit_bytes(plan) + head_copy_bytes(plan)
    return [Line("probe of trainer and engine", size, ("sampling",))]


def phase_bytes(lines: Iterable[Line]) -> dict[Phase, int]:
    """The sum of the parts in each phase."""
    parts = list(lines)
    return {phase: sum(line.size for line in parts if phase in line.phases) for phase in PHASES}


def peak_bytes(lines: Iterable[Line]) -> int:
    """The memory of the largest phase."""
    return max(phase_bytes(lines).values())


def checkpoint_bytes(plan: TrainingPlan) -> int:
    """One checkpoint: the trained weights and their moments, in float32."""
    return FP32 * (1 + ADAM_STATES) * trained_parameters(plan)


def disk_lines(plan: TrainingPlan, *, checkpoints: int, trajectory: int) -> Sequence[Line]:
    """What a run writes: checkpoints (one more than are kept, for a moment), weights for the landscape, the model."""
    weights = FP32 * plan.shape.parameters
    lines = [
        Line(f"checkpoints, {checkpoints + 1}", (checkpoints + 1) * checkpoint_bytes(plan)),
        Line(f"trajectory, {trajectory}", trajectory * weights),
        Line("model", weights),
    ]
    return present(lines)
