"""Weights of a trainer in other processes, as a file in the shared memory of their machine."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from magcli.generate.digest import digests
from magcli.generate.types import Digests
from magcli.generate.weights import shared, untied
from magcli.train.commands import GatherWeights, RankState

FILES = 2
"""Files of ``ShareWeights`` that exist at a time."""


@dataclass(frozen=True, slots=True)
class ShareWeights:
    """Write the parameters, each under one name, to a file in shared memory, for processes of rank 0's machine.

    The files of the last two calls exist, so that whoever reads one is not disturbed by the next.
    """

    dtype: torch.dtype | None = None

    def run(self, state: RankState) -> tuple[Path, Digests] | None:
        """The file and the digests of its tensors, of rank 0."""
        gathered = GatherWeights(self.dtype, on_cpu=True).run(state)
        if state.ranks.rank:
            return None
        buffers = {name for name, _ in state.model.named_buffers()}
        parameters = {name: tensor for name, tensor in untied(gathered).items() if name not in buffers}
        stack = ExitStack()
        file = stack.enter_context(shared(parameters, dtype=self.dtype))
        state.kept.append(stack)
        if len(state.kept) > FILES:
            state.kept.popleft().close()
        return file.path, digests(parameters, self.dtype)
