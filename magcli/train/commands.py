"""What the ranks of a training run do together: each command is run by all of them at the same time."""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from magcli.choices import SaveDtype
from magcli.model.allocator import FreedMemory
from magcli.model.weights.save import Original, open_original, save_model, try_saving
from magcli.train import checkpoint
from magcli.train.background_save import BackgroundSaver
from magcli.train.distributed import Ranks
from magcli.train.lora import adapted_layers, adapter_weights, frozen_weights, merged_weights, save_adapter
from magcli.train.shard import ShardedModel, full_weights, hidden_size


@dataclass(frozen=True, slots=True)
class RankState:
    """The training state on one rank: its shards of the model, its optimizer, and full reference and teacher, if any.

    With LoRA the reference is the model itself, with its adapters off. ``original`` is the model that training started
    from, on rank 0; None: the folder that the model was loaded from.
    """

    ranks: Ranks
    sharded: ShardedModel
    optimizer: Optimizer
    tokenizer: PreTrainedTokenizerBase
    reference: PreTrainedModel | None = None
    original: Original | None = None
    teacher: PreTrainedModel | None = None
    kept: deque[ExitStack] = field(default_factory=deque)
    """What a command leaves open for later ones, such as files in shared memory."""
    connections: dict[str, Any] = field(default_factory=dict)
    """Process groups and the like that a command keeps for later ones, by name."""
    freed: FreedMemory = field(default_factory=FreedMemory)
    """Memory of the host that a command has freed."""

    @property
    def model(self) -> PreTrainedModel:
        """The model, whose full weights are available only inside ``sharded``."""
        return self.sharded.model


ADAM_STATES = 2
"""Float32 values of AdamW's state per trained parameter."""
WAITING_SECONDS = 10.0
"""How long ranks wait for the end of a checkpoint before other commands have a turn."""
SAVER = "saver"
"""The name of the ``BackgroundSaver`` among the connections of a rank."""
OpenState = Callable[[Ranks, bool], RankState]
"""Loads the training state of a rank; the flag asks for bf16 matrix products."""


class RankCommand(Protocol):
    """Work that all ranks do at the same time."""

    def run(self, state: RankState) -> Any:
        """This rank's part; only rank 0's return value is used."""


@dataclass(frozen=True, slots=True)
class GatherWeights:
    """Gather the full weights on rank 0, for the generators or to be saved.

    LoRA adapters are merged into them: in ``dtype``, by default float32, and in CPU memory with ``on_cpu``.
    """

    dtype: torch.dtype | None = None
    on_cpu: bool = False

    def run(self, state: RankState) -> dict[str, Tensor]:
        """The model's full state dict on rank 0."""
        if adapted_layers(state.model):
            return merged_weights(state.model, dtype=self.dtype, on_cpu=self.on_cpu)
        return full_weights(state.model, state.ranks)


@dataclass(frozen=True, slots=True)
class Save:
    """Write a checkpoint: in Hugging Face layout from a single process, in shards from several.

    Several ranks go on to write after this has returned, until ``SaveEnded`` is true. Only rank 0's ``state`` is
    written.
    """

    folder: Path
    state: Mapping[str, Any]

    def run(self, state: RankState) -> None:
        """Each rank copies its shards, and begins to write them.

        Raises:
            EnvironmentFault: the checkpoint cannot be written, or an earlier one could not be.
        """
        parts = {"model": state.model, "optimizer": state.optimizer, "state": self.state, "tokenizer": state.tokenizer}
        if state.ranks.size == 1:
            checkpoint.save(self.folder, **parts)
            return
        if SAVER not in state.connections:
            state.connections[SAVER] = BackgroundSaver(state.ranks)
        state.connections[SAVER].start(self.folder, **parts)


@dataclass(frozen=True, slots=True)
class SaveEnded:
    """Ask whether the last checkpoint is complete, and wait for it for at most ``seconds``."""

    seconds: float = 0.0

    def run(self, state: RankState) -> bool:
        """Whether no checkpoint is being written; rank 0 knows of all ranks.

        Raises:
            EnvironmentFault: it could not be written.
        """
        saver: BackgroundSaver | None = state.connections.get(SAVER)
        return saver is None or saver.has_ended(self.seconds)


@dataclass(frozen=True, slots=True)
class Load:
    """Resume from a checkpoint that the controller has verified."""

    folder: Path

    def run(self, state: RankState) -> dict[str, Any]:
        """The caller's state from the checkpoint."""
        return checkpoint.load_verified(self.folder, state.model, state.optimizer)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the process that plans the training must know of the model.

    ``buffers`` are the names in its state dict that are not parameters; ``weights`` is the number of parameters of all
    ranks; ``shapes`` has the shape of each whole parameter, tied ones once.
    """

    hidden_size: int
    weights: int
    buffers: frozenset[str]
    has_adapters: bool
    shapes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Describe:
    """Say what the model is."""

    def run(self, state: RankState) -> ModelFacts:
        """The facts of the model."""
        return ModelFacts(
            hidden_size(state.model),
            sum(parameter.numel() for parameter in state.model.parameters()),
            frozenset(name for name, _ in state.model.named_buffers()),
            bool(adapted_layers(state.model)),
            {name: tuple(parameter.shape) for name, parameter in state.model.named_parameters()},
        )


@dataclass(frozen=True, slots=True)
class SaveModel:
    """Write only the model, in the layout and dtypes of the original; ``exact``: in float32."""

    folder: Path
    exact: bool

    def run(self, state: RankState) -> None:
        """Rank 0 writes; all gather."""
        weights = GatherWeights(on_cpu=True).run(state)
        # The others have only taken part in gathering.
        if state.ranks.rank == 0:
            dtype: SaveDtype | None = "fp32" if self.exact else None
            save_model(state.model, original_of(state), self.folder, weights=weights, dtype=dtype)


@dataclass(frozen=True, slots=True)
class SaveAdapter:
    """Write the LoRA adapters, if there are any, for ``PeftModel.from_pretrained``."""

    folder: Path

    def run(self, state: RankState) -> None:
        """LoRA trains in one process."""
        if adapted_layers(state.model):
            save_adapter(state.model, self.folder)


@dataclass(frozen=True, slots=True)
class GatherAdapters:
    """The LoRA adapters themselves, by their names in peft's files; LoRA trains in one process."""

    def run(self, state: RankState) -> Mapping[str, Tensor]:
        """The adapters."""
        return adapter_weights(state.model)


@dataclass(frozen=True, slots=True)
class FrozenWeights:
    """The weights under LoRA adapters, by the names that they had before LoRA; LoRA trains in one process."""

    def run(self, state: RankState) -> Mapping[str, Tensor]:
        """The tensors themselves, not copies."""
        return frozen_weights(state.model)


@dataclass(frozen=True, slots=True)
class TrySaving:
    """Try what ``SaveModel`` and a checkpoint will need, without writing weights."""

    folder: Path

    def run(self, state: RankState) -> None:
        """Rank 0 tries.

        Raises:
            EnvironmentFault: the folder cannot be written, the disk has too little space, or the weights do not fit
                the files of the original.
        """
        if state.ranks.rank:
            return
        parameters = list(state.model.parameters())
        trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
        # Weights and the optimizer's moments, all in float32.
        checkpoint_bytes = (1 + ADAM_STATES) * trained * torch.float32.itemsize
        weights = frozen_weights(state.model)
        try_saving(state.model, original_of(state), self.folder, weights=weights, more_bytes=checkpoint_bytes)


def original_of(state: RankState) -> Original:
    """What a saved model takes over."""
    return state.original or open_original(state.model.name_or_path)
