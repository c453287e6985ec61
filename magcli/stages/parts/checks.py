"""Options that contradict themselves or make no sense are refused before anything is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from magcli.errors import usage

if TYPE_CHECKING:
    from magcli.stages.parts.setup import AskOptions, EngineOptions, GraderOptions, RewardOptions

DEVICE = re.compile(r"cpu|cuda(:\d+)?")
KINDS = re.compile(r"(cpu|mps|(cuda|xpu)(:\d+)?)")
"""The devices that a model can be put on by their form; whether one is there, torch says."""


def engine(stage: str, config: EngineOptions) -> None:
    """Refuse engine options that contradict themselves.

    Raises:
        UsageError: which one and why.
    """
    device(stage, config.device)
    url = config.model.startswith(("http://", "https://"))
    usage(bool(config.model), f"{stage}: --model is missing: a local folder, a hub id or the URL of a server")
    usage(
        not url or _is_address(config.model), f"{stage}: --model {config.model} is no URL such as http://host:8000/v1"
    )
    usage(config.slots > 0, f"{stage}.slots: {config.slots} is not positive")
    usage(config.deadline > 0, f"{stage}.deadline: {config.deadline} is not positive")
    usage(not (config.deterministic and config.dtype == "bf16"), f"{stage}: --deterministic needs --dtype fp32")
    usage(not (config.deterministic and url), f"{stage}: a server cannot be --deterministic")
    usage(not (config.engine in ("torch", "vllm") and url), f"{stage}: --engine {config.engine} cannot run a URL")
    usage(not (config.engine == "server" and not url), f"{stage}: --engine server needs a URL as --model")
    vllm(stage, config.engine, deterministic=config.deterministic)


def _is_address(url: str) -> bool:
    """Whether a URL names a host, and a port by its number if any."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def device(stage: str, name: str) -> None:
    """Refuse what is no name of a device.

    Raises:
        UsageError: with the names that are.
    """
    usage(bool(KINDS.fullmatch(name)), f"{stage}: --device is cpu, cuda, cuda:1 and the like, not {name}")


def trained_model(stage: str, model: str, on: str, *, needed: bool = True) -> None:
    """Refuse a model that cannot be trained, and a device that is none.

    Raises:
        UsageError: there is none, or it is behind a URL.
    """
    device(stage, on)
    usage(bool(model) or not needed, f"{stage}: --model is missing: a local folder or a hub id")
    usage(not model.startswith("http"), f"{stage}: a server's weights cannot be trained; give a folder or a hub id")


def vllm(stage: str, engine: str, *, deterministic: bool) -> None:
    """Refuse vLLM for bits that must be the same, and where it is not installed.

    Raises:
        UsageError: it was asked for together with deterministic bits.
        EnvironmentFault: it is not installed.
    """
    from magcli.generate.open import require_vllm

    if engine == "vllm":
        usage(not deterministic, f"{stage}: --deterministic needs --engine torch")
        require_vllm()


def generator_devices(stage: str, devices: Sequence[str], generators: int) -> None:
    """Refuse devices that are none, or that no generator would have.

    Raises:
        UsageError: which one and why.
    """
    for device in devices:
        usage(bool(DEVICE.fullmatch(device)), f"{stage}: --generator-devices are cpu, cuda or cuda:N, not {device}")
    told = f"{stage}: {len(devices)} --generator-devices need as many --generators at least, not {generators}"
    usage(len(devices) <= generators, told)


def broadcast(stage: str, source: str, targets: Sequence[str]) -> None:
    """Refuse devices between which weights cannot be broadcast.

    Raises:
        UsageError: which one and why.
    """
    for target in targets:
        alike = target.partition(":")[0] == source.partition(":")[0]
        usage(alike, f"{stage}: {source} cannot broadcast to {target}; use --transfer file")
        apart = target.startswith("cpu") or _number(target) != _number(source)
        usage(apart, f"{stage}: a GPU cannot broadcast to itself ({target}); use --transfer file, or other devices")


def _number(device: str) -> str:
    """Of a GPU; the first goes without."""
    return device.partition(":")[2] or "0"


def ask(stage: str, config: AskOptions) -> None:
    """Refuse sampling options that make no sense.

    Raises:
        UsageError: which one and why.
    """
    usage(config.samples > 0, f"{stage}.samples: {config.samples} is not positive")
    usage(config.max_tokens > 0, f"{stage}.max_tokens: {config.max_tokens} is not positive")
    usage(config.temperature >= 0, f"{stage}.temperature: {config.temperature} is negative")
    usage(0 < config.top_p <= 1, f"{stage}.top_p: {config.top_p} is not in (0, 1]")


def grader(stage: str, config: GraderOptions) -> None:
    """Refuse verifier options that make no sense.

    Raises:
        UsageError: which one and why.
    """
    usage(config.workers > 0, f"{stage}.workers: {config.workers} is not positive")
    usage(config.verify_deadline > 0, f"{stage}.verify_deadline: {config.verify_deadline} is not positive")


def reward(stage: str, config: RewardOptions) -> None:
    """Refuse reward options that contradict themselves.

    Raises:
        UsageError: which one and why.
    """
    grader(stage, config)
    usage(config.num_tests >= 0, f"{stage}.num_tests: {config.num_tests} is negative")
    if config.reward:
        from magcli.verify import custom

        custom.load(config.reward)
    usage(config.max_length >= 0, f"{stage}.max_length: {config.max_length} is negative")
    usage(
        0 <= config.cache_length <= (config.max_length or config.cache_length),
        f"{stage}.cache_length: {config.cache_length} is not between 0 and max_length {config.max_length}",
    )
