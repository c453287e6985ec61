"""The models of each trainer rank of `magcli rl`: the policy, and those that only score its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from magcli.errors import usage
from magcli.model.model import Model
from magcli.stages.shared import rank_weights
from magcli.train.attention import use_packed_attention
from magcli.train.commands import RankState

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from magcli.plan.formats import TrainerPlan
    from magcli.stages.rl.spec import PolicySpec
    from magcli.train.commands import OpenState
    from magcli.train.distributed import Ranks


def open_state(spec: PolicySpec, model: Model, plan: TrainerPlan) -> OpenState:
    """The function that loads a rank's state: its weights, optimizer, the reference model of a KL penalty, the teacher.

    With LoRA the reference is the model itself, with its adapters off.
    """

    def reference(ranks: Ranks, policy: PreTrainedModel) -> PreTrainedModel | None:
        if not spec.has_reference:
            return None
        # Without its adapters it has the initial weights, which takes no second copy.
        if plan.lora_rank:
            return policy
        # In float32 like the trained weights, with whose log-probs its own are compared.
        copy = model.load(dtype=torch.float32, device=str(ranks.device))
        use_packed_attention(copy, plan.attention)
        return copy.requires_grad_(False)

    def teacher(ranks: Ranks) -> PreTrainedModel | None:
        if not spec.teacher:
            return None
        return rank_weights.frozen_model(plan, Model.open(spec.teacher), ranks)

    def opened(ranks: Ranks, bf16: bool) -> RankState:
        sharded = rank_weights.sharded_model(plan, model, ranks, seed=spec.seed)
        return RankState(
            ranks,
            sharded,
            rank_weights.optimizer(plan, sharded),
            model.tokenizer,
            reference=reference(ranks, sharded.model),
            # Rank 0 writes the model.
            original=None if ranks.rank else rank_weights.original(model, spec.save_dtype),
            teacher=teacher(ranks),
        )

    return opened


def check_teacher(teacher: str, model: Model) -> None:
    """Refuse a teacher whose token ids are not the policy's; an empty text is none.

    Raises:
        UsageError: its tokenizer has another vocabulary.
        EnvironmentFault: there is no such model.
    """
    if not teacher:
        return
    # Equal sizes are not enough: each id must be the same token.
    vocabulary = Model.open(teacher).tokenizer.get_vocab()
    text = f"rl: --teacher {teacher} has another tokenizer than --model {model.name}"
    usage(vocabulary == model.tokenizer.get_vocab(), f"{text}; give a teacher with the same token ids")
