"""One rank's training step: the same code with real tensors on real ranks, and with fake ones on pretended ranks.

Fake tensors have sizes and no values, so 24B weights take no memory, and the ``fake`` process group has any number of
ranks in one process, whose collectives do nothing. Everything else is magcli's own: packing, attention, log-probs,
sharding, clipping and optimizer.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.distributed._tools.fake_collectives  # what collectives return without values
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import FSDPModule
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from benchmarks.rank_memory.live import ACTIVATIONS, GRADIENTS, MOMENTS, TEMPORARY, WEIGHTS, LiveParts
from magcli.model import attention
from magcli.plan import memory
from magcli.train import attention as training_attention
from magcli.train import logprobs, optim, packing, padded
from magcli.train.distributed import Ranks, mesh_of
from magcli.train.shard import ShardedModel, shard

PROMPT_TOKENS = 256
PROMPTS = 2
COMPLETIONS = 8


@dataclass(frozen=True, slots=True)
class Counted:
    """What a step took on one rank: the bytes of its peak and of its parts, calls and bytes of collectives."""

    peak: int
    parts: dict[str, int]
    calls: dict[str, int]
    sent: dict[str, int]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A micro-batch, and what follows from the lengths of its sequences; made of real tensors."""

    packed: packing.Packed
    layout: training_attention.Packing
    scored: logprobs.Scored


def micro_batch(tokens: int, vocabulary: int) -> Prepared:
    """A micro-batch of this many tokens: some prompts with completions of equal length, which are scored."""
    length = (tokens - PROMPTS * PROMPT_TOKENS) // COMPLETIONS
    prompts = [[1 + number % (vocabulary - 1)] * PROMPT_TOKENS for number in range(PROMPTS)]
    completions = [[token % vocabulary for token in range(length)]] * COMPLETIONS
    pairs = [(prompts[number % PROMPTS], tokens) for number, tokens in enumerate(completions)]
    packed = packing.pack_completions(pairs)
    is_generated = packed.spread([1.0] * COMPLETIONS) > 0
    return Prepared(packed, padded.buckets(packed), logprobs.scored_tokens(packed, is_generated))


@dataclass(frozen=True, slots=True)
class Setting:
    """How a step is done: ``tokens`` in each of the ``micro_batches``, matrix products in ``bf16``.

    ``keeps_whole_gradients``: gradients are reduced after the last micro-batch only, and whole on each rank until then.
    ``fsdp_size``: of the ranks share one copy of the weights (hybrid sharding); 0: all.
    """

    tokens: int
    bf16: bool = True
    micro_batches: int = 2
    keeps_whole_gradients: bool = False
    fsdp_size: int = 0


def count_step(config: PretrainedConfig, ranks: Ranks, batch: Prepared, setting: Setting) -> Counted:
    """The memory and collectives of an optimizer step on this rank, with activation checkpointing."""
    with LiveParts() as live:
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
        training_attention.set_packed_attention(model)
        sharded = shard(model, ranks, bf16=setting.bf16, checkpoint_activations=True)
        assert isinstance(sharded, FSDPModule)
        live.mark([*model.parameters(), *model.buffers()], WEIGHTS)
        optimizer = optim.adamw(model, lr=1e-5, weight_decay=0.1)
        _first_step(model, optimizer)
        live.mark(_moments(optimizer), MOMENTS)
        live.restart()
        for number in range(1, setting.micro_batches + 1):
            is_last = number == setting.micro_batches
            sharded.set_requires_gradient_sync(is_last or not setting.keeps_whole_gradients)
            _accumulate(sharded, batch, live, bf16=setting.bf16, is_last=is_last)
        _step(model, optimizer)
        return Counted(live.peak, live.parts(), dict(live.calls), dict(live.sent))


def _accumulate(sharded: ShardedModel, batch: Prepared, live: LiveParts, *, bf16: bool, is_last: bool) -> None:
    """One micro-batch, as ``magcli.rl.objective.accumulate`` does it."""

    def compute(model: PreTrainedModel) -> Tensor:
        with optim.autocast(torch.device("cpu"), bf16):
            scored = logprobs.token_logprobs(model, batch.packed, where=batch.scored, packing=batch.layout)
        return -scored.values.sum()

    live.part = ACTIVATIONS
    loss = sharded(compute)
    live.part = TEMPORARY
    sharded.backward(loss, is_last=is_last)
    live.mark(_gradients(sharded.model), GRADIENTS)


def _step(model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> None:
    """``clip_and_step`` without the decision that needs the value of the norm."""
    optim.clip(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _first_step(model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> None:
    """Let the optimizer make its moments."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _gradients(model: PreTrainedModel) -> list[Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def _moments(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    states = optimizer.state.values()
    return [value for state in states for value in state.values() if isinstance(value, Tensor)]


def count_fake_step(config: PretrainedConfig, ranks: int, setting: Setting, *, on_gpu: bool = True) -> Counted:
    """The same for one of ``ranks`` pretended ranks, without memory for tensors; ``on_gpu``: as it would be there."""
    batch = micro_batch(setting.tokens, config.vocab_size)
    with _pretended(ranks, setting.fsdp_size or ranks) as pretended, ExitStack() as patches:
        for change in _as_on_gpu() if on_gpu else _as_on_cpu():
            patches.enter_context(change)
        patches.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        return count_step(config, pretended, batch, setting)


@contextmanager
def _pretended(size: int, sharing: int) -> Iterator[Ranks]:
    """Rank 0 of ``size`` ranks that do not exist."""
    dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    try:
        yield Ranks(0, size, torch.device("cpu"), mesh_of("cpu", size, sharing))
    finally:
        dist.destroy_process_group()


def _as_on_gpu() -> list[Any]:
    """What magcli does on a GPU, with fake tensors on the CPU: PyTorch without CUDA has none on a GPU."""
    return [
        patch.object(attention, "scaled_dot_product_attention", _flash_on_gpu),
        patch.object(padded, "_kernel_dtype", lambda value: value.dtype),
        patch.object(logprobs, "_is_cpu", lambda _: False),
        patch.object(logprobs, "_factors", lambda _, products: products),
        patch.dict(logprobs.BLOCK_BYTES, {"cpu": memory.GPU_BLOCK_BYTES}),
    ]


def _as_on_cpu() -> list[Any]:
    return [patch.object(attention, "scaled_dot_product_attention", _flash_on_cpu)]


def _flash_on_gpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float,
    dropout_p: float,
    enable_gqa: bool,
) -> Tensor:
    """The kernel that a GPU has for this; fake tensors on the CPU would store all scores."""
    assert attn_mask is None, "the kernel has no masks"
    kernel = torch.ops.aten._scaled_dot_product_flash_attention
    output: Tensor = kernel(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    return output


def _flash_on_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float,
    dropout_p: float,
    enable_gqa: bool,
) -> Tensor:
    """The kernel of a CPU."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output: Tensor = kernel(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]
    return output
