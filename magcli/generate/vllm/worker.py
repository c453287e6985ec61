"""magcli inside vLLM's own processes: reads nested text models, receives new weights, ends with its parent.

vLLM calls ``register`` in each of its processes (entry point ``vllm.general_plugins``). In processes that magcli did
not start it only registers the loader and the weight transfers.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import connection, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from torch import Tensor
from vllm.config.load import LoadConfig
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from magcli.generate.types import Digests, Weights
from magcli.generate.vllm.adapter import ID as ADAPTER_ID
from magcli.generate.vllm.adapter import adapter_request
from magcli.generate.vllm.start import STARTED_BY
from magcli.generate.vllm.transfer import FILE_TRANSFER, GLOO_TRANSFER, IPC_TRANSFER, NCCL_TRANSFER, TEXT_LOADER
from magcli.generate.weights.digest import PendingDigests, digest, digests
from magcli.generate.weights.gloo import GlooGroup
from magcli.generate.weights.matching import WeightFile
from magcli.generate.weights.packed import PackedWeights, open_handle
from magcli.model.weights.nested import read_tensors
from magcli.run.tasks import in_thread


def register() -> None:
    """Register what we add to vLLM; in an engine process of magcli also redirect stdout and watch the parent."""
    register_model_loader(TEXT_LOADER)(TextModelLoader)
    with suppress(ValueError):  # they are registered already
        WeightTransferEngineFactory.register_engine(FILE_TRANSFER, FileTransfer)
        WeightTransferEngineFactory.register_engine(GLOO_TRANSFER, GlooTransfer)
        WeightTransferEngineFactory.register_engine(NCCL_TRANSFER, NcclTransfer)
        WeightTransferEngineFactory.register_engine(IPC_TRANSFER, IpcTransfer)
    parent = parent_process()
    if parent is not None and os.environ.get(STARTED_BY) == str(parent.pid):
        os.dup2(2, 1)  # what vLLM prints is no data of ours
        threading.Thread(target=_exit_with, args=(parent,), name="magcli-parent", daemon=True).start()


def _exit_with(parent: BaseProcess) -> None:
    """Exit when the parent has ended, killed or not: an orphaned engine would hold its memory forever."""
    connection.wait([parent.sentinel])
    os._exit(1)


class TextModelLoader(DefaultModelLoader):  # type: ignore[misc]
    """Loads a text model inside a larger one: the tensors ``names`` (parameter -> name in the checkpoint) of a folder.

    The other tensors, such as the vision encoder's, are not read. A subclass because vLLM's registry requires one.
    """

    def __init__(self, load_config: LoadConfig) -> None:
        super().__init__(replace(load_config, load_format="safetensors", model_loader_extra_config={}))
        self._folder = Path(load_config.model_loader_extra_config["folder"])
        self._names: dict[str, str] = load_config.model_loader_extra_config["names"]

    def get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, Tensor]]:
        """The text tensors by the names of the text model's parameters."""
        yield from read_tensors(self._folder, self._names).items()

    def download_model(self, model_config: Any) -> None:
        """Nothing to do: the folder is on this machine."""


class DigestReporter:
    """What magcli adds to vLLM's worker."""

    weight_transfer_engine: Any
    model_runner: Any
    add_lora: Callable[[Any], bool]

    def weights_have_arrived(self) -> bool:
        """Whether the newest weights are all there, loaded or not, or cannot arrive any more."""
        return getattr(self.weight_transfer_engine, "has_arrived", True)

    def arrived_digests(self) -> Digests:
        """The digests of the newest weights as they arrived, under the names under which they were sent."""
        arrived: Digests = self.weight_transfer_engine.arrived
        return arrived

    def load_adapter(self, folder: str) -> Digests:
        """Replace the LoRA adapter by the one in a folder; returns the digests of its matrices as they arrived.

        Raises:
            ValueError: vLLM would not apply a part of it.
        """
        manager = self.model_runner.lora_manager
        with digesting_adapter(manager) as arrived:
            self.add_lora(adapter_request(Path(folder), replaces=True))
        _check_applied(manager)
        return arrived


@contextmanager
def digesting_adapter(manager: Any) -> Iterator[dict[str, int]]:
    """Digest the matrices of an adapter that vLLM reads in the block, by their names in the file."""
    arrived: dict[str, int] = {}
    model_class: Any = manager._lora_model_cls

    class Digesting(model_class):  # type: ignore[misc]
        @classmethod
        def from_lora_tensors(cls, lora_model_id: int, tensors: dict[str, Tensor], *others: Any, **named: Any) -> Any:
            arrived.update({name: digest(tensor) for name, tensor in tensors.items()})
            return model_class.from_lora_tensors(lora_model_id, tensors, *others, **named)

    # vLLM reads the file itself; this is the only place where its tensors pass by.
    manager._lora_model_cls = Digesting
    try:
        yield arrived
    finally:
        manager._lora_model_cls = model_class


def _check_applied(manager: Any) -> None:
    """Raise ValueError if a layer of the adapter has no place in vLLM's model, which vLLM would not say."""
    adapters = manager._adapter_manager
    unused = sorted(adapters.get_adapter(ADAPTER_ID).loras.keys() - adapters.modules.keys())
    if unused:
        raise ValueError(f"vLLM's model has no layer {unused[0]} for the adapter")


class FileTransfer(WeightTransferEngine):  # type: ignore[misc]
    """vLLM's end of a weight update through a safetensors file that the worker maps; for any device of this machine.

    Weights arrive in memory of their own while sequences run; the engine is paused only for ``finish_weight_update``,
    which loads them. Its layerwise calls around ``load_weights`` undo and redo the processing of weights after loading,
    such as the CPU's packing for matrix products. A subclass because vLLM's registry requires one.
    """

    supports_draft_weight_update = False

    def _arrive(self, update_info: dict[str, Any]) -> tuple[Weights, Digests]:
        """The weights by their names in the checkpoint, and the digest of each; called in a thread of its own.

        They are ``names`` (name in the checkpoint -> name in the file) of the file at ``path``.
        """
        file = WeightFile(Path(update_info["path"]))
        weights = {name: file[source] for name, source in update_info["names"].items()}
        return weights, digests(weights)

    def init_transfer_engine(self, init_info: Any) -> None:
        """Nothing to do: each update says where it comes from."""

    def start_weight_update(self) -> None:
        """Nothing has arrived yet."""
        self.arrived: Digests = {}

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Begin to receive weights, as ``_arrive`` says.

        Unlike the base class's, it does not synchronize an accelerator, which a CPU lacks.
        """
        self.receive_weights(update_info)

    def receive_weights(self, update_info: dict[str, Any]) -> None:
        """As ``update_weights``."""
        self._announced = set(update_info["names"])
        # A sender that is gone may leave it waiting.
        self._arriving = in_thread(partial(self._arrive, update_info), "magcli-weights")

    @property
    def has_arrived(self) -> bool:
        """Whether the weights of this update are all there, or cannot arrive any more."""
        return self._arriving.done()

    def finish_weight_update(self) -> None:
        """Wait until all have arrived, load them, and process the weights.

        An output head that is tied to the embedding gets no weights of its own, so vLLM does not repack it on a CPU; it
        is repacked here.

        If tensors that were announced did not arrive, whoever compares the digests will say so.

        Raises:
            ValueError: parameters of vLLM's model got no weights, although all arrived.
        """
        weights, self.arrived = self._arriving.result()
        del self._arriving  # it holds the weights
        initialize_layerwise_reload(self.model)
        loaded = set(self.model.load_weights(weights.items()))
        finalize_layerwise_reload(self.model, self.model_config)
        # Parameters without weights are then a consequence.
        if self._announced - self.arrived.keys():
            return
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        # Tied parameters are one tensor under several names.
        got_weights = {id(parameters[name]) for name in loaded if name in parameters}
        for name in parameters.keys() - loaded:
            if id(parameters[name]) not in got_weights:
                raise ValueError(f"vLLM's model has a parameter {name} that got no weights")
            module_name, _, _ = name.rpartition(".")
            module = self.model.get_submodule(module_name)
            module.quant_method.process_weights_after_loading(module)

    def shutdown(self) -> None:
        """Nothing is held between updates."""


class IpcTransfer(FileTransfer):
    """Weights in buffers of another process, by ``handles``: no tensor is copied before it is loaded."""

    def _arrive(self, update_info: dict[str, Any]) -> tuple[Weights, Digests]:
        buffers = [open_handle(handle, self.device) for handle in update_info["handles"]]
        packed = PackedWeights.opened(buffers, update_info["places"])
        arrived = packed.digests()
        weights: dict[str, Tensor] = {}
        digests_of: dict[str, int] = {}
        for name, source in update_info["names"].items():  # by vLLM's names, from ours
            weights[name] = packed[source]
            digests_of[name] = arrived[source]
        return weights, digests_of


@dataclass
class GlooInit(WeightTransferInitInfo):  # type: ignore[misc]
    """Where the trainer listens, and the group that it opens: its own rank, then those of the engine."""

    host: str
    port: int
    rank_offset: int
    world_size: int


class GlooTransfer(FileTransfer):
    """Weights that come from the trainer over gloo, one by one."""

    init_info_cls = GlooInit

    def init_transfer_engine(self, init_info: GlooInit) -> None:
        """Connect this rank of the engine to the trainer."""
        rank = init_info.rank_offset + self.parallel_config.rank
        self._group = GlooGroup.join(init_info.host, init_info.port, rank, init_info.world_size)

    def _arrive(self, update_info: dict[str, Any]) -> tuple[Weights, Digests]:
        weights = dict(self._group.receive(update_info))
        return weights, digests(weights)


class NcclTransfer(NCCLWeightTransferEngine):  # type: ignore[misc]
    """vLLM's end of a broadcast by NCCL, with digests of what arrives. Not tested on GPUs."""

    def start_weight_update(self) -> None:
        """As vLLM's."""
        self._digests = PendingDigests()
        super().start_weight_update()

    def receive_weights(self, update_info: Any) -> None:
        """As vLLM's."""
        with digesting(self, self._digests):
            super().receive_weights(update_info)

    def finish_weight_update(self) -> None:
        """As vLLM's."""
        super().finish_weight_update()
        self.arrived = self._digests.fetch()


class DigestingModel:
    """A model for the time of a transfer: digests each tensor that it loads."""

    def __init__(self, model: Any, digests: PendingDigests) -> None:
        self._model, self._digests = model, digests

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> Any:
        """Load them as the model does."""
        return self._model.load_weights(self._digested(weights))

    def _digested(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in weights:
            self._digests.add(name, tensor)
            yield name, tensor


@contextmanager
def digesting(transfer: Any, digests: PendingDigests) -> Iterator[None]:
    """Digest what a transfer gives to its model in the block."""
    model = transfer.model
    transfer.model = DigestingModel(model, digests)
    try:
        yield
    finally:
        transfer.model = model
