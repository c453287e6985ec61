"""Graded rollouts as the loss sees them, and micro-batches of them as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from magcli.generate.types import Rollout
from magcli.train.logprobs import LogProbs, token_logprobs
from magcli.train.optim import autocast
from magcli.train.packing import Packed, pack_completions


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout: its advantage, the weight of each of its tokens, and the temperature that drew them.

    ``proximal`` ``[generated tokens]``: the trainer's log-probs before the batch's first optimizer step; None where the
    forward pass that trains comes before that step and gives them.
    """

    prompt: tuple[int, ...]
    rollout: Rollout
    advantage: float
    weight: float
    temperature: float = 1.0
    proximal: Tensor | None = None

    @property
    def length(self) -> int:
        """Tokens of prompt and completion."""
        return len(self.prompt) + len(self.rollout.tokens)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples end to end.

    ``generated`` (bool) and ``temperature`` are ``[T]``, over all tokens; ``sampler`` (the engine's log-probs),
    ``advantage`` and ``weight`` are ``[N]``, over the generated ones, and so is ``proximal`` where the samples have it.
    """

    packed: Packed
    generated: Tensor
    temperature: Tensor
    sampler: Tensor
    advantage: Tensor
    weight: Tensor
    proximal: Tensor | None


def lay_out(samples: Sequence[Sample], device: torch.device) -> MicroBatch:
    """Pack samples on a device; those of one prompt share it, so that it is computed once.

    A sample without generated tokens takes part in the forward pass and in nothing else.
    """
    packed = pack_completions([(sample.prompt, sample.rollout.tokens) for sample in samples]).to(device)
    generated = packed.spread([1.0] * len(samples)) > 0
    logprobs = [value for sample in samples for value in sample.rollout.logprobs]
    proximal = [sample.proximal for sample in samples if sample.proximal is not None]
    return MicroBatch(
        packed,
        generated,
        packed.spread([sample.temperature for sample in samples]).where(generated, 1.0),
        torch.tensor(logprobs, dtype=torch.float32, device=device),
        packed.spread([sample.advantage for sample in samples])[generated],
        packed.spread([sample.weight for sample in samples])[generated],
        torch.cat(proximal) if proximal else None,
    )


def score(model: PreTrainedModel, batch: MicroBatch, *, bf16: bool, entropy_grad: bool = False) -> LogProbs:
    """Log-probs and entropies ``[N]`` of the generated tokens, each at its own temperature."""
    with autocast(batch.generated.device, bf16):
        scored = token_logprobs(
            model, batch.packed, temperature=batch.temperature, where=batch.generated, entropy_grad=entropy_grad
        )
    return LogProbs(scored.values[batch.generated], scored.entropy[batch.generated])


def made_by(version: int, samples: Sequence[Sample]) -> Tensor:
    """Which generated tokens are of sequences that this version of the weights made whole: bool ``[N]``.

    A sequence that older weights began keeps their KV cache, so its later tokens are of no one version.
    """
    made = [(sample.rollout.versions == ((0, version),), len(sample.rollout.tokens)) for sample in samples]
    return torch.tensor([whole for whole, length in made for _ in range(length)], dtype=torch.bool)
