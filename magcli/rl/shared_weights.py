"""Weights of a trainer in other processes, as a file."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from magcli.generate.types import Digests
from magcli.generate.weights.digest import digests
from magcli.generate.weights.matching import shared, sweep, untied
from magcli.train.commands import GatherWeights, RankState

FILES = 2
"""Files of ``ShareWeights`` that exist at a time."""


@dataclass(frozen=True, slots=True)
class ShareWeights:
    """Write the parameters, each under one name, to a file for other processes.

    It is in shared memory, for those of rank 0's machine, or in a folder that other machines can read too.

    The files of the last two calls exist, so that whoever reads one is not disturbed by the next.
    """

    dtype: torch.dtype | None = None
    folder: Path | None = None

    def run(self, state: RankState) -> tuple[Path, Digests] | None:
        """The file and the digests of its tensors, of rank 0."""
        # All ranks take part, and rank 0 gets the tensors.
        gathered = GatherWeights(self.dtype, on_cpu=True).run(state)
        if state.ranks.rank:
            return None
        if not state.kept:
            sweep()  # a rank that was lost on this machine may have left a file
        buffers = {name for name, _ in state.model.named_buffers()}
        parameters = {name: tensor for name, tensor in untied(gathered).items() if name not in buffers}
        # The file lives until its stack is closed.
        stack = ExitStack()
        file = stack.enter_context(shared(parameters, dtype=self.dtype, folder=self.folder))
        state.kept.append(stack)
        if len(state.kept) > FILES:
            state.kept.popleft().close()
        return file.path, digests(parameters, self.dtype)


def remove_weights_in(folder: Path) -> None:
    """Remove the files that lost ranks have left in a folder that no other run uses."""
    for left in folder.glob("magcli-*.safetensors"):
        left.unlink(missing_ok=True)
