"""vLLM's engine. Importing this module imports vLLM, in the environment that ``magcli.generate.vllm.start`` makes."""

import hashlib
import os
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from vllm import AsyncEngineArgs, envs
from vllm.config import WeightTransferConfig
from vllm.v1.engine.async_llm import AsyncLLM

from magcli.data import durable
from magcli.errors import EnvironmentFault
from magcli.generate.spec import Spec
from magcli.generate.vllm.transfer import TEXT_LOADER
from magcli.model.model import Model


def engine_of(spec: Spec, sockets: Path, backend: str, settings: Mapping[str, Any], *, logs: bool) -> Any:
    """vLLM's ``AsyncLLM`` with these ``settings``, once its processes are ready; ``logs``: they log what they do."""
    if logs:
        os.environ["VLLM_LOGGING_LEVEL"] = "INFO"  # this process keeps the level of the import
    transfer = WeightTransferConfig(backend=backend)
    weights = _weights(spec.model, sockets)
    arguments = AsyncEngineArgs(weight_transfer_config=transfer, trust_remote_code=False, **weights, **settings)
    return AsyncLLM.from_engine_args(arguments)


def _weights(model: Model, temporary: Path) -> dict[str, Any]:
    """The arguments of the engine that say where its model is.

    The format is given because vLLM prefers Mistral's own, which has other names, if a folder has both. A text model
    inside a larger one is given to vLLM as the causal model that it is, so vLLM needs no packages for images: its
    configuration is written to a folder, and our loader reads its tensors.
    """
    if not model.is_nested:
        return {"model": str(model.folder), "config_format": "hf", "load_format": "hf"}
    config = deepcopy(model.text_config)
    config.architectures = [type(model.outline).__name__]
    folder = _kept(config, temporary / "text")
    tensors = {"folder": str(model.folder), "names": dict(model.checkpoint_names)}
    return {"model": str(folder), "load_format": TEXT_LOADER, "model_loader_extra_config": tensors}


def _kept(config: Any, temporary: Path) -> Path:
    """The folder of a configuration beside vLLM's compile cache, which has no entry for a folder of another name.

    It is the ``temporary`` one if none can be written there.
    """
    config.save_pretrained(temporary)
    # Named by its content, so that equal configurations share a folder, and a compilation.
    digest = hashlib.sha256((temporary / "config.json").read_bytes()).hexdigest()[:16]
    folder = Path(envs.VLLM_CACHE_ROOT) / "magcli" / digest
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with durable.atomic_file(folder / "config.json") as file:
            file.write((temporary / "config.json").read_bytes())
    # Then every start compiles anew.
    except (OSError, EnvironmentFault):
        return temporary
    return folder
