"""What all ranks of a trainer do at the same time, each on its share of the model, whatever it is trained by."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor
from torch.optim import Optimizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from magcli.train import checkpoint
from magcli.train.distributed import Ranks
from magcli.train.shard import Whole, full_weights

if TYPE_CHECKING:
    from peft import PeftModel


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank holds of the trainer: its shards, and the whole of a reference model if there is one.

    ``adapters`` are those of LoRA, peft's view of the model, where only they are trained.
    """

    ranks: Ranks
    whole: Whole
    optimizer: Optimizer
    tokenizer: PreTrainedTokenizerBase
    reference: PreTrainedModel | None = None
    adapters: "PeftModel | None" = None

    @property
    def model(self) -> PreTrainedModel:
        """The model, whose weights are whole inside ``whole`` only."""
        return self.whole.model


class Order(Protocol):
    """What rank 0 has all ranks do at the same time."""

    def carry_out(self, share: Share) -> Any:
        """This rank's part; what it returns matters on rank 0 only."""
        ...


@dataclass(frozen=True, slots=True)
class Open:
    """The first order: it takes a share to carry it out, so that each rank opens its own."""

    bf16: bool

    def carry_out(self, share: Share) -> None:
        """Nothing more."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Gather all weights on rank 0, for the generators."""

    def carry_out(self, share: Share) -> dict[str, Tensor]:
        """The state of the model on rank 0."""
        return full_weights(share.model, share.ranks)


@dataclass(frozen=True, slots=True)
class Save:
    """Write a checkpoint; ``state`` is rank 0's alone."""

    folder: Path
    state: Mapping[str, Any]

    def carry_out(self, share: Share) -> None:
        """Each rank writes its shards."""
        checkpoint.save_shared(
            self.folder,
            share.ranks,
            model=share.model,
            optimizer=share.optimizer,
            state=self.state,
            tokenizer=share.tokenizer,
        )


@dataclass(frozen=True, slots=True)
class Load:
    """Go on from a checkpoint that rank 0 has found whole."""

    folder: Path

    def carry_out(self, share: Share) -> dict[str, Any]:
        """The state that was saved."""
        return checkpoint.load_checked(self.folder, share.model, share.optimizer)
