"""From the name of a model to an engine that runs it; the engine's packages are imported only then."""

import os
from typing import TYPE_CHECKING, Literal

from magcli.errors import UsageError
from magcli.generate.types import Generator

if TYPE_CHECKING:
    import torch

    from magcli.generate.torch import TorchPolicy

EngineName = Literal["auto", "torch", "server"]
DTypeName = Literal["auto", "bf16", "fp32"]


def open_generator(
    model: str,
    *,
    engine: EngineName = "auto",
    dtype: DTypeName = "auto",
    slots: int = 64,
    deterministic: bool = False,
    device: str = "cpu",
    deadline: float = 600.0,
) -> Generator:
    """Open what generates text: a server for a URL, the embedded engine for a folder or hub id.

    Args:
        model: local folder, hub id, or URL of an OpenAI-compatible server; ``#name`` after the URL picks a model.
        engine: ``auto`` goes by the form of ``model``.
        dtype: type of the weights; ``auto`` is bfloat16 where the device computes in it, else float32.
        slots: sequences at once: the engine's slots, or requests to the server under way.
        deterministic: bits of a sample independent of its neighbours; the embedded engine in float32 only.
        device: torch's name of the device for the embedded engine.
        deadline: seconds that a server has for one sample.

    Raises:
        UsageError: the choices contradict each other.
        EnvironmentFault: the model or the device is not there.
    """
    is_url = model.startswith(("http://", "https://"))
    if engine == "server" and not is_url:
        raise UsageError(f"engine server needs a URL such as http://localhost:8000/v1 as model, not {model}")
    if engine == "torch" and is_url:
        raise UsageError(f"engine torch needs a model folder or hub id, not the URL {model}")
    if not is_url:
        return open_policy(model, dtype=dtype, slots=slots, deterministic=deterministic, device=device)
    if deterministic:
        raise UsageError(f"{model}: a server cannot promise deterministic generation; use a model folder")
    return _open_server(model, slots, deadline)


def open_policy(
    model: str, *, dtype: DTypeName = "auto", slots: int = 64, deterministic: bool = False, device: str = "cpu"
) -> "TorchPolicy":
    """Open the embedded engine, for RL or for text; arguments and errors as in ``open_generator``."""
    from magcli.generate.torch import TorchPolicy
    from magcli.model.load import load_model, load_tokenizer

    if deterministic and dtype == "bf16":
        raise UsageError("deterministic generation needs dtype fp32, not bf16")
    tokenizer = load_tokenizer(model)
    weights = load_model(model, dtype=engine_dtype("fp32" if deterministic else dtype, device), device=device)
    return TorchPolicy(weights, tokenizer, slots=slots, deterministic=deterministic)


def engine_dtype(name: DTypeName, device: str) -> "torch.dtype":
    """The weights' type: ``auto`` is bfloat16 on GPUs and on CPUs with instructions for it (AVX-512 BF16, AMX)."""
    import torch

    if name != "auto":
        return {"bf16": torch.bfloat16, "fp32": torch.float32}[name]
    fast = not device.startswith("cpu") or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if fast else torch.float32


def _open_server(model: str, concurrency: int, deadline: float) -> Generator:
    from magcli.generate.server import ServerGenerator

    url, _, name = model.partition("#")
    key = os.environ.get("OPENAI_API_KEY", "")
    return ServerGenerator(url, model=name, deadline=deadline, concurrency=concurrency, api_key=key)
