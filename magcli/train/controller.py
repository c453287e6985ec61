"""Training on one or many ranks: a controller plans the work and has all ranks run its commands together."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from magcli.errors import MagError
from magcli.model import exhausted
from magcli.train import checkpoint
from magcli.train.commands import (
    WAITING_SECONDS,
    Describe,
    FrozenWeights,
    GatherAdapters,
    GatherWeights,
    Load,
    ModelFacts,
    OpenState,
    RankCommand,
    RankState,
    Save,
    SaveAdapter,
    SaveEnded,
    SaveModel,
    TrySaving,
)
from magcli.train.distributed import Ranks


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


class OneProcess:
    """The only rank of a run."""

    size = 1

    def __init__(self, device: str = "cpu") -> None:
        self._ranks = Ranks(device=torch.device(device))
        self.state: RankState | None = None

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


class RankController:
    """The handle on all ranks of a run.

    Every method raises EnvironmentFault when a rank has died, hangs or failed; the message names the rank.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._facts: ModelFacts | None = None
        self._when_written: Callable[[], None] | None = None
        """What to do once the checkpoint that is being written is complete; None: none is."""

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._executor.size

    @property
    def facts(self) -> ModelFacts:
        """What the model is."""
        if self._facts is None:
            raise MagError("the training state was used before it was loaded")
        return self._facts

    def open(self, open_state: OpenState, *, bf16: bool = False) -> None:
        """Load the state of every rank."""
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

    def frozen_weights(self) -> Mapping[str, Tensor]:
        """The weights under the LoRA adapters themselves, by the names that they had before LoRA."""
        weights: Mapping[str, Tensor] = self._on_all(FrozenWeights())
        return weights

    def save(self, folder: Path, state: Mapping[str, Any], when_written: Callable[[], None] = lambda: None) -> None:
        """Write a checkpoint: in Hugging Face layout from a single process, in shards from several.

        Several ranks have copied their shards when this returns, and write them while later commands run. An earlier
        checkpoint is finished before.

        Args:
            folder: where it appears when it is complete.
            state: the caller's, in JSON types.
            when_written: called once it is complete: by this, by a later ``check_save`` or by ``finish_save``.

        Raises:
            EnvironmentFault: it cannot be written, or the earlier one could not be.
        """
        self.finish_save()
        # The state of the caller is rank 0's to write.
        self.run([Save(folder, state)] + [Save(folder, {})] * (self.size - 1))
        self._when_written = when_written
        self.check_save()

    def check_save(self) -> None:
        """Learn whether a checkpoint that was being written is complete, without waiting for it.

        Raises:
            EnvironmentFault: it could not be written.
        """
        self._end_save(seconds=0.0)

    def finish_save(self) -> None:
        """Wait until no checkpoint is being written; errors as ``check_save``."""
        # In turns of a few seconds, so that no command runs into its time limit.
        while self._when_written is not None:
            self._end_save(seconds=WAITING_SECONDS)

    def _end_save(self, seconds: float) -> None:
        if self._when_written is not None and self._on_all(SaveEnded(seconds)):
            when_written, self._when_written = self._when_written, None
            when_written()

    def load(self, folder: Path) -> dict[str, Any]:
        """Resume from a checkpoint of any number of ranks; returns the caller's state saved with it.

        One that is being written is waited for.

        Raises:
            DataError: it is incomplete, damaged or of another model.
        """
        self.finish_save()
        checkpoint.check(folder)
        state: dict[str, Any] = self._on_all(Load(folder))
        return state

    def save_model(self, folder: Path, *, exact: bool = False) -> None:
        """Write only the model, LoRA adapters merged, in the original's layout and dtypes; ``exact``: in float32."""
        self._on_all(SaveModel(folder, exact))

    def save_adapter(self, folder: Path) -> None:
        """Write the LoRA adapters, if there are any, for ``PeftModel.from_pretrained``."""
        self._on_all(SaveAdapter(folder))

    def try_saving(self, folder: Path) -> None:
        """Try what ``save_model`` and a checkpoint will need, without writing weights; errors as ``TrySaving``."""
        self._on_all(TrySaving(folder))

    def run(self, commands: Sequence[RankCommand]) -> Any:
        """Run one command on each rank; returns rank 0's result."""
        return self._executor.run(commands)

    def _on_all(self, command: RankCommand) -> Any:
        """Run the same command on all ranks; returns rank 0's result."""
        return self.run([command] * self.size)
