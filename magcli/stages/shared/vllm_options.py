"""Options of vLLM, of stages that sample and of `magcli rl`; each is in a ``panel`` of ``--help``."""

from typing import Any

from magcli.config import opt


def gpu_memory(panel: str, default: str) -> Any:
    """The share of a GPU's memory for vLLM; ``default`` says what 0 stands for."""
    text = f"Share of the GPU's memory that vLLM may take; {default}."
    return opt(0.0, text, panel=panel, affects_rows=False, ge=0, le=1)


def tensor_parallel(panel: str) -> Any:
    """Over how many devices vLLM splits the model."""
    text = "Number of GPUs (on CPUs processes) of one machine over which vLLM splits the model."
    return opt(1, text, panel=panel, affects_rows=False, ge=1)


def vllm_eager(panel: str) -> Any:
    """Whether vLLM starts without compilation."""
    text = "Start vLLM on a GPU without compilation and CUDA graphs: sooner, but slower steps; auto: for few tokens."
    return opt("auto", text, panel=panel, affects_rows=False)
