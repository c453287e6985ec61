"""Training on one or many ranks: a controller plans the work and has all ranks run its commands together."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from magcli.errors import EnvironmentFault, MagError, first_line
from magcli.model import exhausted
from magcli.train import checkpoint
from magcli.train.commands import (
    Describe,
    GatherAdapters,
    GatherWeights,
    Load,
    ModelFacts,
    Open,
    OpenState,
    RankCommand,
    RankState,
    Save,
    SaveAdapter,
    SaveModel,
    TrySaving,
)
from magcli.train.distributed import RankChannel, Ranks, close_ranks


class Executor(Protocol):
    """Runs commands on all ranks, wherever they are.

    Its methods raise EnvironmentFault when a rank has died, hangs or failed; the message names the rank.
    """

    @property
    def size(self) -> int:
        """Number of ranks."""

    @property
    def state(self) -> RankState | None:
        """The training state of rank 0, if it is in this process and loaded."""

    def open(self, open_state: OpenState, *, bf16: bool) -> None:
        """Load the state of every rank."""

    def run(self, commands: Sequence[RankCommand]) -> Any:
        """Run one command on each rank; returns rank 0's result."""

    def stop(self) -> None:
        """End the ranks that are not this process."""


class OneProcess:
    """The only rank of a run."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.state: RankState | None = None

    @property
    def size(self) -> int:
        """Number of ranks."""
        return 1

    def open(self, open_state: OpenState, *, bf16: bool) -> None:
        """Load the state."""
        with exhausted.explained("loading the model", exhausted.LOADING):
            self.state = open_state(self._ranks, bf16)

    def run(self, commands: Sequence[RankCommand]) -> Any:
        """Run the command; returns its result."""
        if self.state is None:
            raise MagError("the training state was used before it was loaded")
        with exhausted.explained("training", exhausted.TRAINING):
            return commands[0].run(self.state)

    def stop(self) -> None:
        """Nothing to end."""


class LaunchedRanks:
    """Ranks that torchrun started, of which this process is the first; the others are in ``follow``."""

    def __init__(self, ranks: Ranks) -> None:
        self._first = OneProcess(ranks)
        self._size = ranks.size
        self._channel = RankChannel(ranks)
        self._one_command = threading.Lock()

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._size

    @property
    def state(self) -> RankState | None:
        """The state of rank 0."""
        return self._first.state

    def open(self, open_state: OpenState, *, bf16: bool) -> None:
        """Load the state of every rank; the other ranks use the function that ``follow`` was given."""
        self._on_all([Open(bf16)] * self._size, lambda: self._first.open(open_state, bf16=bf16))

    def run(self, commands: Sequence[RankCommand]) -> Any:
        """Run one command on each rank; returns rank 0's result."""
        return self._on_all(commands, lambda: self._first.run(commands))

    def stop(self) -> None:
        """Let the other ranks exit; ranks that failed, or wait for one that did, exit by themselves."""
        if self._channel.in_step:
            with suppress(RuntimeError, EnvironmentFault):
                self._channel.send([None] * self._size)
                close_ranks()
        self._channel.close()

    def _on_all(self, commands: Sequence[RankCommand], run_first: Callable[[], Any]) -> Any:
        """Send the other ranks their commands while rank 0 does its own part; returns when all are done."""
        with self._one_command:
            try:
                self._channel.send(commands)
                result = run_first()
            except Exception as error:
                self._channel.wait(error)
                raise
            self._channel.wait()
        return result


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
    """The handle on all ranks of a run.

    Every method raises EnvironmentFault when a rank has died, hangs or failed; the message names the rank.
    """

    def __init__(self, ranks: Ranks | Executor) -> None:
        self._executor: Executor
        if isinstance(ranks, Ranks):
            self._executor = OneProcess(ranks) if ranks.size == 1 else LaunchedRanks(ranks)
        else:
            self._executor = ranks
        self._facts: ModelFacts | None = None

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._executor.size

    @property
    def state(self) -> RankState:
        """The training state of rank 0, which is in this process."""
        if self._executor.state is None:
            raise MagError("the training state was used before it was loaded, or it is in another process")
        return self._executor.state

    @property
    def facts(self) -> ModelFacts:
        """What the model is."""
        if self._facts is None:
            raise MagError("the training state was used before it was loaded")
        return self._facts

    def open(self, open_state: OpenState, *, bf16: bool = False) -> None:
        """Load the state of every rank; under torchrun the others use the function that ``follow`` was given."""
        self._executor.open(open_state, bf16=bf16)
        self._facts = self._on_all(Describe())

    def weights(self, dtype: torch.dtype | None = None, *, on_cpu: bool = False) -> Mapping[str, Tensor]:
        """The full weights by name: the trained tensors themselves if unsharded, else a copy.

        Only weights that LoRA adapters are merged into take ``dtype`` and ``on_cpu``; see ``GatherWeights``.
        """
        weights: Mapping[str, Tensor] = self._on_all(GatherWeights(dtype, on_cpu))
        return weights

    @property
    def is_elsewhere(self) -> bool:
        """Whether rank 0 is in another process, so that its tensors are not at hand."""
        return self._executor.state is None

    def adapters(self) -> Mapping[str, Tensor]:
        """The LoRA adapters themselves, by their names in peft's files; LoRA trains in one process."""
        adapters: Mapping[str, Tensor] = self._on_all(GatherAdapters())
        return adapters

    def save(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Write a checkpoint: in Hugging Face layout from a single process, in shards from several."""
        self.run([Save(folder, state)] + [Save(folder, {})] * (self.size - 1))

    def load(self, folder: Path) -> dict[str, Any]:
        """Resume from a checkpoint of any number of ranks; returns the caller's state saved with it.

        Raises:
            DataError: it is incomplete, damaged or of another model.
        """
        checkpoint.check(folder)
        state: dict[str, Any] = self._on_all(Load(folder))
        return state

    def save_model(self, folder: Path, *, exact: bool = False) -> None:
        """Write only the model, in the layout and dtypes of the original; ``exact``: in float32."""
        self._on_all(SaveModel(folder, exact))

    def save_adapter(self, folder: Path) -> None:
        """Write the LoRA adapters, if there are any, for ``PeftModel.from_pretrained``."""
        self._on_all(SaveAdapter(folder))

    def try_saving(self, folder: Path) -> None:
        """Try what ``save_model`` and a checkpoint will need, without writing weights; errors as ``TrySaving``."""
        self._on_all(TrySaving(folder))

    def stop(self) -> None:
        """End the ranks that are not this process."""
        self._executor.stop()

    def run(self, commands: Sequence[RankCommand]) -> Any:
        """Run one command on each rank; returns rank 0's result."""
        return self._executor.run(commands)

    def _on_all(self, command: RankCommand) -> Any:
        """Run the same command on all ranks; returns rank 0's result."""
        return self.run([command] * self.size)
