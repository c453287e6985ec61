"""Training on one or many ranks: rank 0 runs the training loop and sends commands, the other ranks execute them."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from magcli.errors import EnvironmentFault, MagError, first_line
from magcli.model import exhausted
from magcli.model.save import Original, SaveDtype, open_original, save_model, try_saving
from magcli.train import checkpoint
from magcli.train.distributed import RankChannel, Ranks, close_ranks
from magcli.train.lora import adapted_layers, adapter_weights, frozen_weights, merged_weights, save_adapter
from magcli.train.shard import ShardedModel, full_weights


@dataclass(frozen=True, slots=True)
class RankState:
    """The training state on one rank: its shards of the model, its optimizer, and the full reference model, if any.

    With LoRA the reference is the model itself, with its adapters off. ``original`` is the model that training started
    from, on rank 0; None: the folder that the model was loaded from.
    """

    ranks: Ranks
    sharded: ShardedModel
    optimizer: Optimizer
    tokenizer: PreTrainedTokenizerBase
    reference: PreTrainedModel | None = None
    original: Original | None = None

    @property
    def model(self) -> PreTrainedModel:
        """The model, whose full weights are available only inside ``sharded``."""
        return self.sharded.model


ADAM_STATES = 2
"""Float32 values of AdamW's state per trained parameter."""
OpenState = Callable[[Ranks, bool], RankState]
"""Loads the training state of a rank; the flag asks for bf16 matrix products."""


class RankCommand(Protocol):
    """Work that all ranks do at the same time, on rank 0's command."""

    def run(self, state: RankState) -> Any:
        """This rank's part; only rank 0's return value is used."""


@dataclass(frozen=True, slots=True)
class Open:
    """The first command: each rank loads its state before running it."""

    bf16: bool

    def run(self, state: RankState) -> None:
        """Nothing: ``follow`` loads the state before it runs the command."""


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
    """Write a sharded checkpoint; only rank 0's ``state`` is written."""

    folder: Path
    state: Mapping[str, Any]

    def run(self, state: RankState) -> None:
        """Each rank writes its shards."""
        checkpoint.save_sharded(
            self.folder,
            state.ranks,
            model=state.model,
            optimizer=state.optimizer,
            state=self.state,
            tokenizer=state.tokenizer,
        )


@dataclass(frozen=True, slots=True)
class Load:
    """Resume from a checkpoint that rank 0 has verified."""

    folder: Path

    def run(self, state: RankState) -> dict[str, Any]:
        """The caller's state from the checkpoint."""
        return checkpoint.load_verified(self.folder, state.model, state.optimizer)


def follow(ranks: Ranks, open_state: OpenState) -> None:
    """The loop of every rank but 0: load the state and run commands until rank 0 says to stop.

    Raises:
        EnvironmentFault: rank 0 or the launcher has died, or this rank could not run a command.
    """
    channel = RankChannel(ranks)
    state: RankState | None = None
    while (command := channel.receive()) is not None:
        try:
            if isinstance(command, Open):
                with exhausted.explained("loading the model", exhausted.LOADING):
                    state = open_state(ranks, command.bf16)
            assert state is not None, "a command came before the state was loaded"
            with exhausted.explained("training", exhausted.TRAINING):
                command.run(state)
        except Exception as error:
            channel.answer(error)
            if not isinstance(error, RuntimeError):
                raise
            name = type(command).__name__
            raise EnvironmentFault(f"rank {ranks.rank}: {name} failed: {first_line(error)}") from error
        channel.answer()
    channel.close()
    close_ranks()


class RankController:
    """Rank 0's handle on all ranks; also works for a single process.

    Every method raises EnvironmentFault when a rank has died, hangs or failed; the message names the rank.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._state: RankState | None = None
        self._channel = RankChannel(ranks) if ranks.size > 1 else None
        self._one_command = threading.Lock()

    @property
    def state(self) -> RankState:
        """The training state of rank 0."""
        if self._state is None:
            raise MagError("the training state was used before it was loaded")
        return self._state

    @property
    def lr(self) -> float:
        """The learning rate of the last update."""
        return float(self.state.optimizer.param_groups[0]["lr"])

    def open(self, open_state: OpenState, *, bf16: bool = False) -> None:
        """Load the state of every rank; the other ranks use the function that ``follow`` was given."""

        def open_rank_0() -> None:
            with exhausted.explained("loading the model", exhausted.LOADING):
                self._state = open_state(self.ranks, bf16)

        self._on_all_ranks([Open(bf16)] * self.ranks.size, open_rank_0)

    def weights(self, dtype: torch.dtype | None = None, *, on_cpu: bool = False) -> Mapping[str, Tensor]:
        """The full weights by name: the trained tensors themselves if unsharded, else a copy.

        Only weights that LoRA adapters are merged into take ``dtype`` and ``on_cpu``; see ``GatherWeights``.
        """
        weights: Mapping[str, Tensor] = self.run([GatherWeights(dtype, on_cpu)] * self.ranks.size)
        return weights

    def adapters(self) -> Mapping[str, Tensor]:
        """The LoRA adapters themselves, by their names in peft's files; LoRA trains in one process."""
        return adapter_weights(self.state.model)

    def save(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Write a checkpoint: in Hugging Face layout from a single process, in shards from several."""
        rank_0 = self.state
        if self.ranks.size == 1:
            checkpoint.save(
                folder, model=rank_0.model, optimizer=rank_0.optimizer, state=state, tokenizer=rank_0.tokenizer
            )
        else:
            self.run([Save(folder, state)] + [Save(folder, {})] * (self.ranks.size - 1))

    def load(self, folder: Path) -> dict[str, Any]:
        """Resume from a checkpoint of any number of ranks; returns the caller's state saved with it.

        Raises:
            DataError: it is incomplete, damaged or of another model.
        """
        checkpoint.check(folder)
        state: dict[str, Any] = self.run([Load(folder)] * self.ranks.size)
        return state

    def save_model(self, folder: Path, *, exact: bool = False) -> None:
        """Write only the model, in the layout and dtypes of the original; ``exact``: in float32."""
        dtype: SaveDtype | None = "fp32" if exact else None
        save_model(self.state.model, self._original(), folder, weights=self.weights(on_cpu=True), dtype=dtype)

    def save_adapter(self, folder: Path) -> None:
        """Write the LoRA adapters, if there are any, for ``PeftModel.from_pretrained``."""
        if adapted_layers(self.state.model):
            save_adapter(self.state.model, folder)

    def try_saving(self, folder: Path) -> None:
        """Try what ``save_model`` and a checkpoint will need, without writing weights.

        Raises:
            EnvironmentFault: the folder cannot be written, the disk has too little space, or the weights do not fit
                the files of the original.
        """
        parameters = list(self.state.model.parameters())
        trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
        checkpoint_bytes = (1 + ADAM_STATES) * trained * torch.float32.itemsize
        weights = frozen_weights(self.state.model)
        try_saving(self.state.model, self._original(), folder, weights=weights, more_bytes=checkpoint_bytes)

    def _original(self) -> Original:
        """What a saved model takes over."""
        return self.state.original or open_original(self.state.model.name_or_path)

    def stop(self) -> None:
        """Let the other ranks exit; ranks that failed, or wait for one that did, exit by themselves."""
        if self._channel is None:
            return
        if self._channel.in_step:
            with suppress(RuntimeError, EnvironmentFault):
                self._channel.send([None] * self.ranks.size)
                close_ranks()
        self._channel.close()

    def run(self, commands: Sequence[RankCommand]) -> Any:
        """Run one command on each rank; returns rank 0's result."""

        def run_rank_0() -> Any:
            with exhausted.explained("training", exhausted.TRAINING):
                return commands[0].run(self.state)

        return self._on_all_ranks(commands, run_rank_0)

    def _on_all_ranks(self, commands: Sequence[RankCommand], run_rank_0: Callable[[], Any]) -> Any:
        """Send the other ranks their commands while rank 0 does its own part; returns when all are done."""
        if self._channel is None:
            return run_rank_0()
        with self._one_command:
            try:
                self._channel.send(commands)
                result = run_rank_0()
            except Exception as error:
                self._channel.wait(error)
                raise
            self._channel.wait()
        return result
