"""Checkpoints of several ranks, written while they train.

Training waits until each rank has copied its shards of weights and optimizer state to host memory. A thread of each
rank then writes and checksums them. When all have, rank 0 writes the manifest and gives the folder its name, so it
appears complete or not at all. The threads have a process group of their own: in that of training their collectives
could meet those of an update, and all would wait for ever.

``torch.distributed.checkpoint.async_save`` is not used: its future ends before the checksums, and its copies hold whole
storages, which the padding of FSDP enlarges.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.state_dict_saver import save as save_shards
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from magcli.data.durable import atomic_folder
from magcli.errors import EnvironmentFault
from magcli.train import checkpoint
from magcli.train.distributed import Ranks, mesh_of
from magcli.train.moving import wait_for
from magcli.train.shard_index import INDEX, IndexWriter

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PINNED_FROM = 1 << 20
"""Bytes from which the memory of a copy is pinned: to pin a page takes longer than to copy it."""


class BackgroundSaver:
    """Writes the checkpoints of a run from one rank, one at a time. All ranks call each method at the same time."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._group: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=ranks.timeout))
        self._copies = HostCopies(ranks)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._write: Future[None] | None = None

    def start(
        self,
        folder: Path,
        *,
        model: "PreTrainedModel",
        optimizer: Optimizer,
        state: Mapping[str, Any],
        tokenizer: "PreTrainedTokenizerBase",
    ) -> None:
        """Copy this rank's shards and begin to write them; returns when the weights may change.

        The folder must be on a file system that all ranks share. State and random states are rank 0's. An earlier
        checkpoint is written to its end before, because both have the same copies.

        Raises:
            EnvironmentFault: a weight is not float32, the folder cannot be written, or the earlier checkpoint could
                not be.
        """
        checkpoint.require_float32(model)
        self.has_ended(None)
        with ExitStack() as opened:
            if self._ranks.rank == 0:
                folder.parent.mkdir(parents=True, exist_ok=True)
                # An error before the thread has taken over removes the folder.
                temp = opened.enter_context(atomic_folder(folder))
                checkpoint.write_unsharded_files(temp, model, state, tokenizer)
                self._ranks.broadcast(str(temp))
            else:
                temp = Path(self._ranks.broadcast())
            tensors = self._copies.of(checkpoint.tensors_of(model, optimizer))
            # The folder stays temporary until the thread closes ``opened``.
            self._write = self._thread.submit(self._finish, temp, tensors, opened.pop_all())

    def has_ended(self, seconds: float | None) -> bool:
        """Whether this rank's part of the last checkpoint is done, and on rank 0 the checkpoint complete.

        Waits for at most ``seconds``; None: until it has ended.

        Raises:
            EnvironmentFault: it could not be written; nothing is left of it.
        """
        if self._write is None:
            return True
        ended, _ = wait([self._write], timeout=seconds)
        if not ended:
            return False
        write, self._write = self._write, None
        # Raises what went wrong in the thread.
        write.result()
        return True

    def _finish(self, temp: Path, tensors: Mapping[str, Tensor], opened: ExitStack) -> None:
        """Write this rank's shards and, on rank 0, the manifest; then ``opened`` gives the folder its name."""
        with opened:
            shards = self._write_shards(temp, tensors)
            if self._ranks.rank == 0:
                checkpoint.write_manifest(temp, shards)

    def _write_shards(self, temp: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Returns, on rank 0, the digest of every file in the folder of shards, computed by its writer."""
        folder = temp / checkpoint.SHARDS
        # The tensors are in host memory already: nothing to copy ahead, on a stream that would be that of training.
        writer = IndexWriter(folder, per_thread_copy_ahead=0)
        with checkpoint.one_line_errors(f"cannot write {folder}"):
            save_shards(dict(tensors), storage_writer=writer, process_group=self._group)
        written = list(folder.glob(f"__{self._ranks.rank}_*"))  # named by rank: ``__0_0.distcp``
        if self._ranks.rank == 0:
            written.append(folder / INDEX)
        # Each rank digests what it has written: the files are still in its page cache.
        own_digests = {file.relative_to(temp).as_posix(): checkpoint.digest(file) for file in written}
        digests: dict[str, Any] = {}
        for digests_of_rank in self._ranks.gather(own_digests, group=self._group):
            digests |= digests_of_rank
        return digests


class HostCopies:
    """This rank's copies of tensors in host memory; those of one checkpoint are overwritten by the next.

    Of a GPU they are pinned, so that it copies at the full speed of its bus.
    """

    def __init__(self, ranks: Ranks) -> None:
        assert ranks.mesh is not None, "a single process writes its checkpoints itself"
        self._device = ranks.device
        # A copy of a shard says which part of the whole it is, and a tensor in host memory needs a mesh of CPUs for it.
        self._mesh = ranks.mesh if self._device.type == "cpu" else mesh_of("cpu", ranks.size, ranks.sharing)
        self._buffers: dict[str, Tensor] = {}

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of tensors, sharded as they are, once all work on them so far is done."""
        copies: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            part = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            buffer = self._buffer(name, part)
            # All copies are on their way before the first is waited for.
            buffer.copy_(part, non_blocking=True)
            copies[name] = self._sharded_like(tensor, buffer)
        wait_for(self._device)
        return copies

    def _buffer(self, name: str, part: Tensor) -> Tensor:
        if name not in self._buffers:
            buffer = torch.empty(part.shape, dtype=part.dtype)
            if self._device.type == "cuda" and buffer.nbytes >= PINNED_FROM:
                _pin(buffer)
            self._buffers[name] = buffer
        return self._buffers[name]

    def _sharded_like(self, tensor: Tensor, buffer: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor):
            return buffer
        # No check among the ranks: it would be a collective for each tensor.
        return DTensor.from_local(
            buffer, self._mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
        )


def _pin(buffer: Tensor) -> None:
    """Pin the memory of a tensor that lives as long as the process.

    PyTorch's own pinned memory takes up to twice as much, because it rounds sizes up to powers of two.

    Raises:
        EnvironmentFault: CUDA refuses.
    """
    cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    error = int(cudart.cudaHostRegister(buffer.data_ptr(), buffer.nbytes, 0))
    if error:
        raise EnvironmentFault(
            f"cannot pin {buffer.nbytes:,} bytes of host memory for a checkpoint: CUDA error {error}"
        )
