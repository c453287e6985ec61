"""Starting vLLM's engine process: what it is told, the environment it starts in, and its failures in one line."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import torch

from magcli.errors import EnvironmentFault

STARTED_BY = "MAGCLI_VLLM_STARTED_BY"
"""Environment variable with the number of the process that starts an engine for magcli; see ``vllm_worker``."""

SOCKETS = "magcli-vllm-"
"""How the folders of engines' sockets begin; the number of the process that started the engine follows."""

PLUGINS, PLUGIN = "vllm.general_plugins", "magcli"
"""vLLM's group of entry points, and ours in it."""

CPU_BLOCK = 32
"""Positions in a block of the cache, the least that the CPU's attention takes: whole blocks of prompts are shared."""

CPU_PREFILL = 2048
"""Prompt tokens computed in one step on a CPU, if the context is not longer."""

MEMORY_SHARE = 0.25
"""The most that the cache takes of the memory that is free: a trainer and verifiers live beside it."""


class Engine(NamedTuple):
    """A running engine: vLLM's ``AsyncLLM`` in this process, the process that does its work, their sockets' folder."""

    llm: Any
    process: BaseProcess
    sockets: Path


def start(
    folder: Path,
    config: Any,
    *,
    backend: str,
    dtype: torch.dtype,
    head: torch.dtype,
    slots: int,
    context: int,
    device: str,
    deadline: float,
) -> Engine:
    """Start an engine process that runs the model of a folder; takes half a minute.

    Args:
        folder: the model in Hugging Face layout.
        config: its settings as transformers reads them.
        backend: which of vLLM's weight transfers will bring new weights.
        dtype: type of the weights.
        head: type in which the output head works; training has float32, text can do without.
        slots: sequences at once.
        context: longest sequence, prompt included.
        device: cpu, cuda, cuda:1.
        deadline: seconds that it may take.

    Raises:
        EnvironmentFault: vLLM cannot be imported, does not know magcli, or cannot run this model here.
    """
    if PLUGIN not in entry_points(group=PLUGINS).names:
        raise EnvironmentFault("vLLM would not find magcli in its processes; install magcli again")
    before, sockets = set(active_children()), socket_folder()
    with _environment(device, deadline, sockets), catch_warnings():
        simplefilter("ignore")
        try:
            from vllm import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            settings = _settings(config, dtype=dtype, head=head, slots=slots, context=context, device=device)
            llm = AsyncLLM.from_engine_args(AsyncEngineArgs(model=str(folder), **settings, **_transfer(backend)))
        except Exception as error:  # whatever vLLM raises means that this engine cannot be had
            shutil.rmtree(sockets, ignore_errors=True)
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise EnvironmentFault(
                f"vLLM cannot run {folder} on {device}: {reason} (its own words stand above)"
            ) from error
    process = next(child for child in active_children() if child not in before and "Engine" in child.name)
    return Engine(llm, process, sockets)


def socket_folder() -> Path:
    """A folder for the sockets of one engine; those of processes that were killed go, since vLLM leaves them."""
    place = Path(os.environ.get("VLLM_RPC_BASE_PATH") or tempfile.gettempdir())
    for left in place.glob(f"{SOCKETS}*"):
        if not Path(f"/proc/{left.name.removeprefix(SOCKETS).split('-')[0]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{SOCKETS}{os.getpid()}-", dir=place))


def _transfer(backend: str) -> dict[str, Any]:
    from vllm.config import WeightTransferConfig

    return {"weight_transfer_config": WeightTransferConfig(backend=backend)}


def _settings(
    config: Any, *, dtype: torch.dtype, head: torch.dtype, slots: int, context: int, device: str
) -> dict[str, Any]:
    """The arguments of the engine, but for model and transfer.

    Log-probs are those of the distribution really sampled, after temperature; vLLM's default are not. Only token ids go
    in and out, so it needs no tokenizer.
    """
    on_gpu = device.startswith("cuda")
    where = {"device_ids": [torch.device(device).index or 0]} if on_gpu else cpu_settings(slots, context)
    return where | {
        "skip_tokenizer_init": True,
        "dtype": str(dtype).removeprefix("torch."),
        "hf_overrides": {} if head == dtype else {"head_dtype": str(head).removeprefix("torch.")},
        "max_model_len": context,
        "max_num_seqs": slots,
        "kv_cache_memory_bytes": cache_bytes(config, dtype, slots * context, context, _free_memory(device)),
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "use_tqdm_on_load": False,
        "disable_log_stats": True,
        "enable_log_requests": False,
    }


def cpu_settings(slots: int, context: int) -> dict[str, Any]:
    """What is other on a CPU: one process, no compilation, and prompts that are never computed in parts.

    vLLM 0.32 dies on a CPU of a request with a seed whose prompt is: it wants to turn the random generator back, which
    a CPU's cannot.
    """
    return {
        "distributed_executor_backend": "uni",
        "enforce_eager": True,
        "block_size": CPU_BLOCK,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(context, slots, CPU_PREFILL),
    }


def cache_bytes(config: Any, dtype: torch.dtype, wanted: int, least: int, free: int) -> int:
    """Memory for keys and values of ``wanted`` tokens, within a share of what is free but for ``least`` tokens."""
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    token = 2 * config.num_hidden_layers * kv_heads * head_dim * dtype.itemsize
    spare = 2 * CPU_BLOCK * token  # vLLM keeps one block to itself, and the last one of a sequence is rarely full
    size: int = max(min(wanted * token, int(MEMORY_SHARE * free)), least * token) + spare
    return size


def _free_memory(device: str) -> int:
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    import psutil  # vLLM brings it

    return int(psutil.virtual_memory().available)


@contextmanager
def _environment(device: str, deadline: float, sockets: Path) -> Iterator[None]:
    """``os.environ`` as vLLM's processes shall find it, while they start; what vLLM itself puts there goes as well.

    They speak on stderr only, and only of errors, and report nothing to vLLM's makers.
    """
    before = dict(os.environ)
    os.environ |= {
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "VLLM_LOGGING_LEVEL": before.get("VLLM_LOGGING_LEVEL", "ERROR"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_RPC_BASE_PATH": str(sockets),
        "VLLM_ENGINE_READY_TIMEOUT_S": str(max(1, round(deadline))),
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "PYTHONWARNINGS": "ignore",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "TORCH_LOGS": before.get("TORCH_LOGS", "-torch._library.triton"),
        STARTED_BY: str(os.getpid()),
    }
    if "VLLM_PLUGINS" in before:
        os.environ["VLLM_PLUGINS"] = f"{before['VLLM_PLUGINS']},{PLUGIN}"
    if not device.startswith("cuda"):
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # one process, not an engine and a worker
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ |= before
