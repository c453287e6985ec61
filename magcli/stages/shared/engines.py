"""From options to engines and sampling plans, and the digests of the models that they name."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.errors import usage

if TYPE_CHECKING:
    from magcli.curate.sampling import SamplingPlan
    from magcli.generate.types import Generator
    from magcli.run.job import Job, Notes
    from magcli.stages.shared.options import DType, EngineOptions, LocalEngineOptions, SamplingOptions
    from magcli.verify.grader import Grader


def open_engine(config: EngineOptions, job: Job, unfinished: Sequence[Notes] | None = None) -> Generator:
    """The engine that a stage's options describe; ``unfinished`` as in ``Job.choose``."""
    from magcli.generate.open import open_generator

    return open_generator(
        config.model,
        engine=config.engine,
        dtype=sampling_format(config.model, config, job, unfinished),
        slots=config.slots,
        deterministic=config.deterministic,
        device=config.device,
        deadline=config.deadline,
    )


def sampling_format(
    model: str, config: LocalEngineOptions, job: Job, unfinished: Sequence[Notes] | None = None
) -> DType:
    """The number format of a local engine, one for all rows, those of unfinished work included; a server has its own.

    ``unfinished`` as in ``Job.choose``.
    """
    if model.startswith(("http://", "https://")):
        return config.dtype
    from magcli.model import compute

    compute.use_threads(model, config.slots)
    asked = "fp32" if config.deterministic else config.dtype
    found = job.choose({"dtype": asked}, lambda _: compute.choose(model, config.device, "sampling"), unfinished)
    return "bf16" if found["dtype"] == "bf16" else "fp32"


def sampling_plan(config: SamplingOptions) -> SamplingPlan:
    """How a stage's options sample a problem."""
    from magcli.curate.sampling import SamplingPlan
    from magcli.generate.types import Sampling

    sampling = Sampling(config.max_tokens, config.temperature, config.top_p)
    return SamplingPlan(system_text(config.system), sampling, config.samples, config.seed)


def system_text(path: Path | None) -> str | None:
    """The system prompt that an option names; ``none`` means no system prompt."""
    from magcli.model.chat import system_prompt

    return None if path is not None and str(path) == "none" else system_prompt(path)


def model_identity(model: str, system: Path | None, *, weights: bool = True) -> dict[str, Any]:
    """Digests of a local model and of the system prompt, which determine the rows as any option does.

    ``weights`` False leaves a model's weights out, for training from scratch.
    """
    digests = {"system_sha256": hashlib.sha256((system_text(system) or "").encode()).hexdigest()}
    if not model or not Path(model).is_dir():
        return digests
    from magcli.model.load import fingerprint

    return digests | {"model_sha256": fingerprint(Path(model), weights=weights)}


def answerable(
    problems: Sequence[dict[str, Any]], model: str, system: str | None, grader: Grader, job: Job
) -> list[dict[str, Any]]:
    """The problems whose prompt fits into a model's context; the others are dropped as ``prompt-too-long``.

    Raises:
        DataError: a problem is of a kind that cannot be graded.
        EnvironmentFault: a problem asks for a program, and programs cannot be isolated on this machine.
        UsageError: no problem is left.
    """
    from magcli.model.chat import prompt_tokens, to_messages
    from magcli.model.load import load_config, load_tokenizer

    tokenizer, context = load_tokenizer(model), load_config(model).max_position_embeddings
    found = []
    for row in problems:
        grader.check(row)
        if len(prompt_tokens(tokenizer, to_messages(row["prompt"], system))) < context:
            found.append(row)
        else:
            job.drops.row(row["id"], "prompt-too-long", row)
    usage(len(found) > 0, f"{job.stage}: no usable problem in the input")
    return found
