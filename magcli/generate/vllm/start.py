"""Starting vLLM's engine process: its arguments, its environment, and one-line errors."""

import logging
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.metadata import entry_points
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from warnings import catch_warnings, simplefilter

import torch

from magcli.console import Console, copied_stderr
from magcli.errors import EnvironmentFault, first_line
from magcli.generate.parallel import kv_heads_per_rank
from magcli.generate.spec import Spec
from magcli.generate.vllm.adapter import engine_settings
from magcli.generate.vllm.phases import CAPTURING, COMPILING, StartWatch

STARTED_BY = "MAGCLI_VLLM_STARTED_BY"
"""Environment variable with the id of the process that starts an engine, for ``magcli.generate.vllm.worker``."""

EXCEPTION = re.compile(r"(?:^|\] )((?:[A-Za-z_]+\.)*[A-Za-z]*(?:Error|Exception): \S.*)$")
"""A line of a log that ends a traceback, after vLLM's prefix if any."""

HARMLESS = re.compile(r"^\(.* pid=\d+\) (?:DEBUG|INFO|WARNING) ")
"""The beginning of a line of vLLM's log that is no error, although it may quote one."""

MAX_CAUSE = 300
"""Characters of such a line that a message has."""

QUIET = "ERROR"
"""What this process logs of vLLM, unless the user asks for more."""

SOCKETS = "magcli-vllm-"
"""Prefix of the folders of engines' sockets; the id of the process that started the engine follows."""

PLUGINS, PLUGIN = "vllm.general_plugins", "magcli"
"""vLLM's group of entry points, and ours in it."""

CPU_BLOCK = 32
"""Positions per block of the cache, the minimum of the CPU's attention: prompts are shared in whole blocks."""

CPU_PREFILL = 2048
"""Prompt tokens computed in one step on a CPU, unless the context is longer."""

CPU_MEMORY_SHARE = 0.25
"""The largest share of a machine's free memory for the cache: a trainer and verifiers run on it too."""

GPU_STEP_TOKENS = 8192
"""Tokens computed in one step on a GPU; vLLM's default for an engine that it takes for a library is 2,048."""

AUTO_FIT = -1
"""vLLM's ``max_model_len`` for the longest sequence whose cache fits into the memory, at most the model's context."""


class VllmProcess(NamedTuple):
    """A running engine: vLLM's ``AsyncLLM`` in this process, the engine process, and the folder of their sockets."""

    llm: Any
    process: BaseProcess
    sockets: Path


def start(spec: Spec, *, backend: str, console: Console | None = None) -> VllmProcess:
    """Start the engine process of ``spec``, which takes half a minute and more; says meanwhile what it does.

    ``backend`` is vLLM's weight-transfer backend for new weights. A phase of the start may take ``spec.deadline``
    seconds. If the user has set ``VLLM_LOGGING_LEVEL``, vLLM's messages are shown instead, and there is no such limit.

    Raises:
        EnvironmentFault: vLLM cannot be imported, does not know magcli, cannot run this model here, or hangs.
    """
    if PLUGIN not in entry_points(group=PLUGINS).names:
        raise EnvironmentFault("vLLM would not find magcli's plugin in its processes; reinstall magcli")
    console = console or Console(quiet=True)
    # What is started from here on belongs to this engine.
    before = set(active_children())
    sockets = socket_folder()
    log_of(sockets).touch()
    silence_triton()
    with ExitStack() as stack:
        terminal = stack.enter_context(stderr_into(log_of(sockets)))
        stack.enter_context(console.writing_to(terminal))
        stack.enter_context(_environment(spec, sockets))
        stack.enter_context(catch_warnings())
        # Warnings of vLLM's imports in this process.
        simplefilter("ignore")
        show = stack.enter_context(console.waiting()).show if terminal else _ignore
        limit = spec.deadline if terminal else math.inf
        watch = stack.enter_context(StartWatch(log_of(sockets), limit, show, partial(_end_children, before)))
        try:
            from magcli.generate.vllm.engine import engine_of

            llm = engine_of(spec, sockets, backend, _settings(spec), logs=terminal is not None)
        except Exception as error:  # whatever vLLM raises, the engine did not start
            cause = cause_in(log_of(sockets)) or first_line(error)
            if watch.hung:
                cause = _hang(watch.hung, spec)
            shutil.rmtree(sockets, ignore_errors=True)
            raise EnvironmentFault(
                f"vLLM cannot run {spec.model.folder} on {spec.device}: {cause} (all messages: VLLM_LOGGING_LEVEL=INFO)"
            ) from error
    if terminal:
        text = f"vLLM started in {watch.summary()}"
        if spec.eager and spec.device.startswith("cuda"):
            text += "; without compilation (--vllm-eager)"
        console.say(text, event="engine")
    # With several ranks there are workers, too.
    process = next(child for child in active_children() if child not in before and "Engine" in child.name)
    return VllmProcess(llm, process, sockets)


def _ignore(text: str) -> None:
    """Where vLLM's own messages are seen."""


def _end_children(others: Set[BaseProcess]) -> bool:
    """Kill this process's children except ``others``; returns whether there were any."""
    started = [child for child in active_children() if child not in others]
    for child in started:
        child.kill()
    return bool(started)


def _hang(phase: str, spec: Spec) -> str:
    """The cause where a phase of the start took too long."""
    advice = "; --vllm-eager yes does without" if phase in (COMPILING, CAPTURING) and not spec.eager else ""
    return f"it hung: {phase} took more than {spec.deadline:g} s{advice}"


def log_of(sockets: Path) -> Path:
    """The file into which an engine's processes write what they would print to stderr."""
    return sockets / "stderr.log"


@contextmanager
def stderr_into(path: Path) -> Iterator[TextIO | None]:
    """Let the processes that are started meanwhile write their stderr to a file, for one line about a failure.

    Yields the stderr from before. Not if the user asks for vLLM's messages by ``VLLM_LOGGING_LEVEL``: then it is None.
    """
    if "VLLM_LOGGING_LEVEL" in os.environ:
        yield None
        return
    sys.stderr.flush()
    with copied_stderr() as before:
        try:
            with open(path, "ab") as file:
                # By its number: processes that are started inherit it, unlike ``sys.stderr``.
                os.dup2(file.fileno(), 2)
            yield before
        finally:
            sys.stderr.flush()
            os.dup2(before.fileno(), 2)


def cause_in(path: Path) -> str:
    """The first exception in an engine's log, which is the cause of the others; empty if there is none."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        match = EXCEPTION.search(line)
        # Warnings may quote an exception that was handled.
        if match and not HARMLESS.match(line):
            return match[1][:MAX_CAUSE]
    return ""


def silence_triton() -> None:
    """Without Triton torch warns in every process; ``TORCH_LOGS`` is read only when torch is imported."""
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)


def socket_folder() -> Path:
    """A folder for the sockets of one engine; removes those of killed processes, which vLLM leaves behind."""
    base = Path(os.environ.get("VLLM_RPC_BASE_PATH") or tempfile.gettempdir())
    for left in base.glob(f"{SOCKETS}*"):
        owner = left.name.removeprefix(SOCKETS).partition("-")[0]
        # ``magcli-vllm-PID-...``: the process that started the engine.
        if not Path(f"/proc/{owner}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{SOCKETS}{os.getpid()}-", dir=base))


def _settings(spec: Spec) -> dict[str, Any]:
    """The arguments of the engine, except model, weights and transfer.

    Log-probs are those of the sampled distribution, after temperature, unlike vLLM's default. Only token ids go in and
    out, so it needs no tokenizer.
    """
    dtype = spec.torch_dtype
    # Rounded logits would change every log-prob.
    head = torch.float32 if spec.exact_head else dtype
    placement = gpu_settings(spec) if spec.device.startswith("cuda") else cpu_settings(spec)
    return (
        placement
        | rank_settings(spec)
        | engine_settings(spec)
        | {
            "skip_tokenizer_init": True,
            "worker_extension_cls": "magcli.generate.vllm.worker.DigestReporter",
            "dtype": str(dtype).removeprefix("torch."),
            "hf_overrides": {} if head == dtype else {"head_dtype": str(head).removeprefix("torch.")},
            "max_num_seqs": spec.slots,
            "enable_prefix_caching": True,
            "logprobs_mode": "processed_logprobs",
            "generation_config": "vllm",
            "disable_log_stats": True,
            "enable_log_requests": False,
        }
    )


def rank_settings(spec: Spec) -> dict[str, Any]:
    """Arguments for the processes that compute: the engine's own for one rank, several of this machine for more.

    vLLM's other backend for several ranks, Ray's, knows no CPUs. With one rank on a GPU the choice is vLLM's.
    """
    if spec.tensor_parallel > 1:
        return {"tensor_parallel_size": spec.tensor_parallel, "distributed_executor_backend": "mp"}
    return {} if spec.device.startswith("cuda") else {"distributed_executor_backend": "uni"}


def gpu_settings(spec: Spec) -> dict[str, Any]:
    """Arguments for a GPU: vLLM measures what its weights and scratch space take of its share, and caches in the rest.

    The longest sequence is what fits there, so a model with a context of 128k starts on a small card too.
    """
    return {
        "device_ids": spec.gpu_numbers,
        "gpu_memory_utilization": spec.gpu_memory,
        "enable_sleep_mode": spec.sleeps,
        "enforce_eager": spec.eager,
        "max_model_len": AUTO_FIT,
        "max_num_batched_tokens": max(GPU_STEP_TOKENS, spec.slots),
    }


def cpu_settings(spec: Spec) -> dict[str, Any]:
    """Arguments for a CPU: no compilation, no chunked prefill.

    vLLM 0.32 crashes on a CPU when the prompt of a request with a seed is computed in chunks: it rewinds the random
    generator, which a CPU's cannot do.
    """
    slots, context = spec.slots, spec.model.context
    config, ranks = spec.model.text_config, spec.tensor_parallel
    cache = cache_bytes(config, spec.torch_dtype, slots * context, context, _free_memory(), ranks=ranks)
    return {
        "max_model_len": context,
        "kv_cache_memory_bytes": cache,
        "enforce_eager": True,
        "block_size": CPU_BLOCK,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(context, slots, CPU_PREFILL),
    }


def cache_bytes(config: Any, dtype: torch.dtype, wanted: int, least: int, free: int, *, ranks: int = 1) -> int:
    """Bytes for the KV cache of ``wanted`` tokens, within a share of ``free`` memory, but at least ``least`` tokens.

    They are those of one of the ``ranks``, which has its own heads of all tokens; all together get the share.
    """
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    # Keys and values of all layers.
    token = 2 * config.num_hidden_layers * kv_heads_per_rank(config, ranks) * head_dim * dtype.itemsize
    spare = 2 * CPU_BLOCK * token  # vLLM reserves one block, and the last one of a sequence is rarely full
    share = int(CPU_MEMORY_SHARE * free) // ranks
    size: int = max(min(wanted * token, share), least * token) + spare
    return size


def cpu_variables(spec: Spec, environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of an engine on CPUs; ``environment`` has the user's.

    vLLM would bind each rank's threads to a NUMA node of its own, and refuse to start where there are fewer nodes.
    """
    if spec.tensor_parallel == 1:
        return {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}  # one process, not an engine and a worker
    # All ranks share the CPUs of this process.
    threads = (spec.threads or torch.get_num_threads()) // spec.tensor_parallel
    return {
        "VLLM_CPU_OMP_THREADS_BIND": environment.get("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
        "OMP_NUM_THREADS": str(max(1, threads)),
    }


def _free_memory() -> int:
    import psutil  # a dependency of vLLM

    return int(psutil.virtual_memory().available)


@contextmanager
def _environment(spec: Spec, sockets: Path) -> Iterator[None]:
    """Set ``os.environ`` for vLLM's processes while they start, and restore it, including what vLLM itself sets.

    They log to stderr, and send no usage statistics; this process logs errors only. A variable that vLLM does not know
    to be harmless is part of the key of its compile cache, so none of them differs from start to start.
    """
    before = dict(os.environ)
    os.environ |= {
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "VLLM_LOGGING_LEVEL": before.get("VLLM_LOGGING_LEVEL", QUIET),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_RPC_BASE_PATH": str(sockets),
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "PYTHONWARNINGS": "ignore",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "TORCH_LOGS": before.get("TORCH_LOGS", "-torch._library.triton"),
        STARTED_BY: str(os.getpid()),
    }
    # The variable names the only plugins that vLLM loads.
    if "VLLM_PLUGINS" in before:
        os.environ["VLLM_PLUGINS"] = f"{before['VLLM_PLUGINS']},{PLUGIN}"
    if not spec.device.startswith("cuda"):
        os.environ |= cpu_variables(spec, before)
    try:
        yield
    finally:
        # vLLM sets variables of its own in this process.
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ |= before
        if "VLLM_LOGGING_LEVEL" not in before:
            logging.getLogger("vllm").setLevel(QUIET)
