"""The weights that a trainer rank of `sft` and `rl` loads, their optimizer, and what the saved model takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from magcli.model.weights.save import open_original
from magcli.model.weights.slices import has_slices
from magcli.plan import formats
from magcli.train import lora
from magcli.train.attention import use_packed_attention
from magcli.train.load_shards import load_shards
from magcli.train.lora import keep_stream_in_float32
from magcli.train.optim import adamw
from magcli.train.shard import shard

if TYPE_CHECKING:
    from torch.optim import AdamW
    from transformers import PreTrainedModel

    from magcli.choices import SaveDtype
    from magcli.model.model import Model
    from magcli.model.weights.save import Original
    from magcli.plan.formats import TrainerPlan
    from magcli.train.distributed import Ranks
    from magcli.train.shard import ShardedModel


def frozen_model(plan: TrainerPlan, model: Model, ranks: Ranks) -> PreTrainedModel:
    """A whole model on a rank's device that only scores the policy's tokens."""
    dtype = torch.bfloat16 if formats.frozen_in_bf16(model, bf16=plan.bf16) else torch.float32
    loaded = model.load(dtype=dtype, device=str(ranks.device))
    use_packed_attention(loaded, plan.attention)
    keep_stream_in_float32(loaded)
    return loaded.requires_grad_(False)


def loads_whole(model: Model, ranks: int, *, from_scratch: bool = False) -> bool:
    """Whether each of several ranks loads the whole model before it keeps its shard."""
    return ranks > 1 and (from_scratch or not has_slices(model))


def sharded_model(
    plan: TrainerPlan, model: Model, ranks: Ranks, *, from_scratch: bool = False, seed: int = 0
) -> ShardedModel:
    """A rank's shards of the weights in evaluation mode, with packed attention and the adapters of the plan.

    Of several ranks each reads its own slices of the files, if the model can be read so.
    """
    computes = {"bf16": plan.bf16, "checkpoint_activations": plan.recomputes}
    # Random weights have no files, and must be the same on all ranks.
    if ranks.size > 1 and not from_scratch:
        # None if the model's files cannot be read in slices.
        sharded = load_shards(model, ranks, **computes, attention=plan.attention)
        if sharded is not None:
            return sharded
    # Weights that are trained are float32 masters; only a frozen base may be bf16.
    dtype = torch.bfloat16 if plan.bf16_base else torch.float32
    weights = model.load(dtype=dtype, device=str(ranks.device), from_scratch=from_scratch, seed=seed)
    use_packed_attention(weights, plan.attention)
    if plan.lora_rank:
        lora.add_lora(weights, rank=plan.lora_rank, alpha=plan.lora_alpha, seed=seed)
    return shard(weights, ranks, **computes)


def original(model: Model, save_dtype: SaveDtype, *, from_scratch: bool = False) -> Original:
    """What the saved model takes over from the one that training starts from, with all tokens that end a turn.

    Raises:
        UsageError: --stop does not name single tokens.
    """
    return open_original(
        model.name,
        dtype=save_dtype,
        ends=model.ends,
        chat_template=model.template.source,
        from_scratch=from_scratch,
        text_places={} if from_scratch else model.text_places,
    )


def optimizer(plan: TrainerPlan, sharded: ShardedModel) -> AdamW:
    """AdamW for a rank's shards of the weights."""
    # The schedule sets the rate before each step.
    return adamw(sharded.model, lr=0.0, weight_decay=plan.weight_decay, offload_moments=plan.offloads_moments)
