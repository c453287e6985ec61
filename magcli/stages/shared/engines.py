"""From options to engines and sampling plans, what determines their rows, and the problems that they can sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.choices import AskedFormat
from magcli.curate.sampling import SamplingPlan
from magcli.data.seal import hash_text
from magcli.errors import DataError
from magcli.generate.open import open_generator
from magcli.generate.spec import Spec
from magcli.generate.types import Sampling
from magcli.model.chat.prompts import prompt_tokens, system_prompt, to_messages
from magcli.model.chat.thoughts import THINK, ThoughtForm
from magcli.model.model import Model
from magcli.plan.engines import Expected, starts_eager
from magcli.plan.ranks import ALONE
from magcli.stages.shared import forms, templates
from magcli.stages.shared.options import SamplingOptions

if TYPE_CHECKING:
    from magcli.environments.text import TextEpisodes
    from magcli.generate.types import Generator
    from magcli.run.job import Job
    from magcli.run.types import Notes
    from magcli.stages.shared.options import EngineOptions, LocalEngineOptions
    from magcli.verify.grader import Grader


def open_engine(
    config: EngineOptions,
    job: Job,
    unfinished: Sequence[Notes] | None = None,
    expected: Sequence[Expected] | None = None,
) -> Generator:
    """The engine that a stage's options describe, or that a shard shares; ``unfinished`` as in ``Job.choose``.

    ``expected`` is what will be sampled, by default each row as often as the options say, if they do.
    """
    if job.whole is not None and job.whole.open_engine is not None:
        # The driver has opened the engines and resolved ``auto``.
        job.record(job.whole.chosen, unfinished)
        shared: Generator = job.whole.open_engine()
        return shared
    model = templates.open_model(config)
    dtype = sampling_format(model, config, job, unfinished)
    model = templates.with_date(model, job, unfinished, system=getattr(config, "system", templates.NO_SYSTEM))
    at_once = job.whole.at_once if job.whole is not None else 1
    slots = -(-config.num_slots // at_once)  # shards share the requests to a server
    spec = spec_of(model, config, dtype, expected or _expected(config, job))
    spec = replace(spec, slots=slots, deadline=config.deadline)
    generator = open_generator(spec, job.console)
    forms.record(generator.thoughts, job, unfinished)
    return generator


def spec_of(model: Model, config: LocalEngineOptions, dtype: AskedFormat, expected: Sequence[Expected] | None) -> Spec:
    """The engine that options describe, as it starts for what is ``expected``; auto is the server of a URL."""
    engine = "auto" if config.engine == "server" else config.engine
    return Spec(
        model,
        engine,
        dtype,
        config.num_slots,
        config.deterministic,
        config.device,
        # A stage that samples has the card to itself.
        gpu_memory=config.gpu_memory or ALONE,
        tensor_parallel=config.tensor_parallel,
        eager=starts_eager(config.vllm_eager, expected, slots=config.num_slots),
    )


def require_model(model: Model) -> None:
    """Look a model up, where other work would come before its first use; that of a server is not asked for.

    Raises:
        EnvironmentFault: it is neither a folder nor available from the hub.
    """
    if not model.is_url:
        _ = model.context


def _expected(config: EngineOptions, job: Job) -> Sequence[Expected] | None:
    """What a stage samples that has a number of samples a row; None if the number of rows is not known."""
    if job.total is None or not isinstance(config, SamplingOptions):
        return None
    return [(job.total * config.samples, config.max_tokens)]


def sampling_format(
    model: Model, config: LocalEngineOptions, job: Job, unfinished: Sequence[Notes] | None = None
) -> AskedFormat:
    """The number format of a local engine, one for all rows, those of unfinished work included; a URL's has its own.

    ``unfinished`` as in ``Job.choose``.
    """
    if model.is_url:
        return config.dtype
    from magcli.model import compute

    compute.use_threads(model, config.num_slots)
    # Deterministic engines compute in float32 alone.
    asked = "fp32" if config.deterministic else config.dtype
    chosen = job.choose({"dtype": asked}, lambda _: compute.choose(model, config.device, "sampling"), unfinished)
    return "bf16" if chosen["dtype"] == "bf16" else "fp32"


def sampling_plan(
    config: SamplingOptions, thoughts: ThoughtForm = THINK, episodes: TextEpisodes | None = None
) -> SamplingPlan:
    """How a stage's options sample a problem of a model with this form of thoughts, perhaps in an environment."""
    sampling = Sampling(config.max_tokens, config.temperature, config.top_p)
    return SamplingPlan(system_text(config.system, thoughts), sampling, config.samples, config.seed, episodes)


def system_text(path: Path | None, thoughts: ThoughtForm = THINK) -> str | None:
    """The system prompt that an option names; ``none`` means no system prompt. magcli's own names this form."""
    if path is not None and str(path) == "none":
        return None
    return system_prompt(path, thoughts)


def system_identity(system: Path | None) -> dict[str, Any]:
    """The digest of the system prompt."""
    return {"system_sha256": hash_text(system_text(system) or "")}


def model_identity(model: Model, system: Path | None, *, weights: bool = True) -> dict[str, Any]:
    """Digests of a local model, of the system prompt and the chat template, which determine the rows as options do.

    A hub id, the URL of a server and an empty name have no digest.
    ``weights`` False leaves a model's weights out, for training from scratch.
    """
    digests = system_identity(system)
    # Of --chat-template; a model's own template is part of its folder's digest.
    if model.template.source:
        digests["chat_template_sha256"] = hash_text(model.template.source)
    if model.is_local:
        digests["model_sha256"] = model.digest if weights else model.config_digest
    return digests


def teacher_identity(name: str) -> dict[str, Any]:
    """The digest of a local teacher; an empty name is none."""
    teacher = Model.open(name)
    # An empty name is not local either.
    return {"teacher_sha256": teacher.digest} if teacher.is_local else {}


def prompt_length(problem: Mapping[str, Any], model: Model, system: str | None) -> int:
    """The number of tokens of a problem's prompt as a model gets it."""
    return len(prompt_tokens(model.tokenizer, to_messages(problem["prompt"], system)))


def answerable(
    problems: Sequence[dict[str, Any]], model: Model, system: str | None, grader: Grader, job: Job
) -> list[dict[str, Any]]:
    """The problems whose prompt fits into a model's context and whose answer or tests can be read.

    The others are dropped as ``prompt-too-long`` and ``bad-gold``.

    Raises:
        DataError: a problem is of a kind that cannot be graded, or none is left.
        EnvironmentFault: a problem asks for a program, and programs cannot be isolated on this machine.
    """
    usable = list(fitting(gradable(problems, grader, job), model, system, job))
    require_usable(usable, job)
    return usable


def gradable(problems: Iterable[dict[str, Any]], grader: Grader, job: Job) -> Iterator[dict[str, Any]]:
    """The problems whose ground truth can be read; the others are dropped as ``bad-gold``. Errors as ``answerable``."""
    for row in problems:
        grader.check(row)
        if fault := grader.fault(row):
            job.drops.row(row["id"], "bad-gold", row, error=fault)
        else:
            yield row


def fitting(problems: Iterable[dict[str, Any]], model: Model, system: str | None, job: Job) -> Iterator[dict[str, Any]]:
    """The problems whose prompt leaves room in a model's context; the others are dropped as ``prompt-too-long``."""
    context = model.context
    for row in problems:
        if prompt_length(row, model, system) < context:
            yield row
        else:
            job.drops.row(row["id"], "prompt-too-long", row)


def require_usable(problems: Sequence[Mapping[str, Any]], job: Job) -> None:
    """Raises a DataError with the reasons of the dropped problems if none is left."""
    dropped = job.drops.summary()
    reasons = f" ({dropped})" if dropped else ""
    if not problems:
        raise DataError(f"{job.stage}: no usable problem in the input{reasons}")
