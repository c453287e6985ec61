"""The checks of --tensor-parallel, which splits the engine of a stage over several devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from magcli.config import is_url
from magcli.errors import usage
from magcli.plan.engines import policy_engine
from magcli.plan.machine import gpu_number, gpus


def check_split_engine(stage: str, config: Any) -> None:
    """Refuse an engine that cannot be split. GPUs of a cluster are counted when it is joined."""
    model = str(getattr(config, "model", ""))
    check_ranks(
        stage,
        config.tensor_parallel,
        engine=config.engine,
        device=config.device,
        deterministic=config.deterministic,
        model=model,
    )
    # A local Ray has this machine's GPUs.
    if getattr(config, "cluster", "") in ("", "local"):
        check_cards(stage, config.tensor_parallel, config.device)


def check_ranks(stage: str, ranks: int, *, engine: str, device: str, deterministic: bool, model: str) -> None:
    """Refuse ranks that are not vLLM's, or over which a model cannot be split.

    ``model`` is a folder, hub id or URL; one that is not there yet is checked when the engine is opened.

    Raises:
        UsageError: one line that says which option to change.
    """
    if ranks == 1:
        return
    flag = f"{stage}: --tensor-parallel {ranks}"
    usage(not is_url(model), f"{flag} needs a model folder or hub id, not a URL: a server splits its model itself")
    usage(not deterministic, f"{flag} is not deterministic: sums of ranks are rounded differently; omit it")
    sampler = policy_engine(engine, device)  # type: ignore[arg-type]
    usage(sampler == "vllm", f"{flag} needs --engine vllm: the embedded engine computes on one device")
    # Whether a model can be split follows from its configuration.
    if model and Path(model).is_dir():
        from magcli.generate.parallel import check_split_of

        check_split_of(model, ranks)


def check_cards(stage: str, ranks: int, device: str) -> None:
    """Refuse an engine of several ranks for which this machine has too few GPUs from ``device`` on.

    Raises:
        UsageError: the message says how many GPUs there are.
    """
    if ranks == 1 or not device.startswith("cuda"):
        return
    number = gpus()
    # The ranks take the GPUs from the first one on.
    first = gpu_number(device)
    text = f"{stage}: --tensor-parallel {ranks} takes {ranks} GPUs, from {device} on; PyTorch finds {number} in all"
    usage(first + ranks <= number, text)
