"""From a stage's options to what it works with: the engine, the question, the reward rule."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from magcli.errors import DataError, usage
from magcli.run import options

if TYPE_CHECKING:
    from magcli.curate.sampling import Ask
    from magcli.generate.types import Generator
    from magcli.model import compute
    from magcli.run.job import Job, Notes
    from magcli.run.rundir import RunDir
    from magcli.train.controller import OpenState
    from magcli.verify.grader import Grader
    from magcli.verify.reward import RewardRule
    from magcli.verify.sandbox import Choice, Sandbox

ALIASES = {
    "prompt": ("problem", "question", "Problem", "Question"),
    "answer": ("Answer", "ground_truth", "gold", "reference_answer", "final_answer", "expected_answer", "target"),
}
"""What other tools call the columns of problems; read so where one alone is there and the column itself is not."""
CODE_ALIASES = {
    "prompt": ("problem", "question", "statement", "description", "statement_md", "statement_tex", "statement_html",
               "content", "text"),
    "id": ("task_id", "slug"),
}  # fmt: skip
"""What other tools call the columns of code problems."""


FORMATS: Mapping[str, tuple[compute.Purpose, Mapping[str, str]]] = {
    "bf16": ("training", {"bf16": "yes", "fp32": "no"}),
    "dtype": ("sampling", {"bf16": "bf16", "fp32": "fp32"}),
}
"""Options of training runs that are number formats: for what, and how they say bf16 and float32."""

RunConfig = TypeVar("RunConfig", bound=Any)


class FormatOptions(Protocol):
    """The options of a stage that samples on this machine."""

    @property
    def dtype(self) -> options.DType: ...
    @property
    def slots(self) -> int: ...
    @property
    def deterministic(self) -> bool: ...
    @property
    def device(self) -> str: ...


class EngineOptions(FormatOptions, Protocol):
    """The options of a stage that runs a model."""

    @property
    def model(self) -> str: ...
    @property
    def engine(self) -> options.Engine: ...
    @property
    def deadline(self) -> float: ...


class AskOptions(Protocol):
    """The options of a stage that puts problems to a model."""

    @property
    def samples(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def system(self) -> Path | None: ...
    @property
    def seed(self) -> int: ...


class GraderOptions(Protocol):
    """The options of a stage that verifies."""

    @property
    def workers(self) -> int: ...
    @property
    def verify_deadline(self) -> float: ...
    @property
    def sandbox(self) -> options.Sandbox: ...


class RewardOptions(GraderOptions, Protocol):
    """The options of a stage that rewards."""

    @property
    def max_length(self) -> int: ...
    @property
    def cache_length(self) -> int: ...
    @property
    def language(self) -> bool: ...
    @property
    def reward(self) -> str: ...
    @property
    def num_tests(self) -> int: ...
    @property
    def partial(self) -> bool: ...


def open_engine(config: EngineOptions, job: Job, kept: Sequence[Notes] | None = None) -> Generator:
    """The engine that a stage's options describe; ``kept`` as in ``Job.choose``."""
    from magcli.generate.open import open_generator

    return open_generator(
        config.model,
        engine=config.engine,
        dtype=sampling_format(config.model, config, job, kept),
        slots=config.slots,
        deterministic=config.deterministic,
        device=config.device,
        deadline=config.deadline,
    )


def sampling_format(model: str, config: FormatOptions, job: Job, kept: Sequence[Notes] | None = None) -> options.DType:
    """The number format that an engine of this machine samples in; a server has its own. ``kept`` as in ``Job.choose``.

    What samples in it is the same for all rows, those that unfinished work has already too.
    """
    if model.startswith(("http://", "https://")):
        return config.dtype
    from magcli.model import compute

    compute.use_threads(model, config.slots)
    asked = "fp32" if config.deterministic else config.dtype
    found = job.choose({"dtype": asked}, lambda _: compute.choose(model, config.device, "sampling"), kept)
    return "bf16" if found["dtype"] == "bf16" else "fp32"


def decided(config: RunConfig, folder: RunDir, job: Job, *, exact: bool = False) -> RunConfig:
    """The options of a training run with the number formats that ``auto`` comes to, kept in its folder.

    A run that goes on keeps its formats, on whatever machine, unless an option names another. ``exact`` runs are
    float32 unless told otherwise.

    Raises:
        UsageError: the run is finished, and the options ask for another format.
    """
    from magcli.model import compute

    asked = {option: getattr(config, option) for option in FORMATS if hasattr(config, option)}
    if folder.finished:
        found = {option: folder.notes.get(option, value) for option, value in asked.items()}
        for option, value in asked.items():
            text = f"{folder.path} holds a run with {option} {found[option]!r} (now {value!r})"
            usage(value in ("auto", found[option]), text)
        job.chosen |= found
        return replace(config, **found)

    def decide(option: str) -> tuple[str, str]:
        purpose, values = FORMATS[option]
        choice = compute.choose(config.model, config.device, purpose)
        return values[choice.format], choice.reason

    if exact:
        asked = {option: FORMATS[option][1]["fp32"] if value == "auto" else value for option, value in asked.items()}
    return replace(config, **job.choose(asked, decide, [folder]))


def ask(config: AskOptions) -> Ask:
    """How a stage's options put a problem to a model."""
    from magcli.curate.sampling import Ask
    from magcli.generate.types import Sampling

    sampling = Sampling(config.max_tokens, config.temperature, config.top_p)
    return Ask(system_text(config.system), sampling, config.samples, config.seed)


def system_text(path: Path | None) -> str | None:
    """The system prompt that an option names; ``none`` means that there is none."""
    from magcli.model.chat import system_prompt

    return None if path is not None and str(path) == "none" else system_prompt(path)


def conversation(row: Mapping[str, Any], system: str | None) -> list[dict[str, str]]:
    """A trace as chat turns: its messages, or its prompt (after the system prompt) and completion.

    Raises:
        DataError: it has neither, or a turn lacks its role or its text.
    """
    from magcli.model.chat import to_messages

    turns: list[dict[str, str]] = row.get("messages") or []
    if not turns and row.get("prompt") and row.get("completion"):
        turns = [*to_messages(row["prompt"], system), {"role": "assistant", "content": row["completion"]}]
    if not turns:
        raise DataError("there are no messages, and no prompt with a completion")
    if not all(isinstance(turn, dict) and _has_text(turn) for turn in turns):
        raise DataError("a message lacks its role or its content")
    return turns


def _has_text(turn: Mapping[str, Any]) -> bool:
    return all(isinstance(turn.get(key), str) for key in ("role", "content"))


def reward_rule(config: RewardOptions) -> RewardRule:
    """The reward that a stage's options describe."""
    from magcli.verify.reward import ALL_TESTS, NO_LIMIT, RewardRule

    return RewardRule(
        config.max_length or NO_LIMIT,
        config.cache_length,
        use_language=config.language,
        num_tests=config.num_tests or ALL_TESTS,
        partial=config.partial,
    )


def open_grader(config: GraderOptions, function: str = "") -> Grader:
    """Who grades, as a stage's options describe it; ``function`` is a user's own reward."""
    from magcli.verify.grader import Grader

    choice, unsafe = _isolation(config.sandbox)
    return Grader(
        config.workers,
        deadline=config.verify_deadline,
        sandbox=choice,
        accept_unsandboxed=unsafe,
        function=function,
    )


def open_sandbox(choice: options.Sandbox) -> Sandbox:
    """Where programs run, as the option says."""
    from magcli.verify import sandbox

    level, unsafe = _isolation(choice)
    return sandbox.open_sandbox(level, accept_unsandboxed=unsafe)


def _isolation(choice: options.Sandbox) -> tuple[Choice, bool]:
    """The isolation that an option names, and whether the user accepts that there is none."""
    return ("none", True) if choice == "dangerously-none" else (choice, False)


def sandbox_identity(choice: options.Sandbox) -> dict[str, Any]:
    """What decides verdicts besides the option: the isolation that ``auto`` finds."""
    return {"sandbox": open_sandbox(choice).level} if choice == "auto" else {}


def grader_identity(config: GraderOptions, function: str = "") -> dict[str, Any]:
    """What decides verdicts besides the options: the isolation that ``auto`` finds, and a user's reward itself."""
    return sandbox_identity(config.sandbox) | function_identity(reward=function)


def function_identity(**functions: str) -> dict[str, Any]:
    """Digests of the sources of a user's own functions, by option; an empty text is none."""
    from magcli.verify import custom

    return {f"{option}_sha256": custom.digest(spec, option) for option, spec in functions.items() if spec}


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
    kept = []
    for row in problems:
        grader.check(row)
        if len(prompt_tokens(tokenizer, to_messages(row["prompt"], system))) < context:
            kept.append(row)
        else:
            job.drops.row(row["id"], "prompt-too-long", row)
    usage(len(kept) > 0, f"{job.stage}: no usable problem in the input")
    return kept


def table_identity(name: str, path: Path | None) -> dict[str, Any]:
    """The digest of a table that an option names: it decides rows as an input does."""
    from magcli.data import table

    if path is None:
        return {}
    source = table.read(str(path))
    for _ in source.rows:
        pass
    return {f"{name}_sha256": source.sha256}


def model_identity(model: str, system: Path | None, *, weights: bool = True) -> dict[str, Any]:
    """Digests of files that decide rows as much as any option does: a local model's, and the system prompt's.

    ``weights`` False leaves a model's weights out, for training from scratch.
    """
    told = {"system_sha256": hashlib.sha256((system_text(system) or "").encode()).hexdigest()}
    if not model or not Path(model).is_dir():
        return told
    from magcli.model.load import fingerprint

    return told | {"model_sha256": fingerprint(Path(model), weights=weights)}


def follow(device: str, open_state: Callable[[], OpenState], *, needed: bool) -> bool:
    """Run as a non-zero torchrun rank; False if this process is rank 0.

    If rank 0 does nothing that takes several ranks, the others are not ``needed`` and return at once.
    """
    if os.environ.get("RANK", "0") == "0":
        return False
    if needed:
        from magcli.train.controller import follow
        from magcli.train.distributed import open_ranks

        follow(open_ranks(device), open_state())
    return True


@contextmanager
def run_folder(
    stage: str, config: Any, identity: Mapping[str, Any], runtime: Collection[str], job: Job
) -> Iterator[RunDir]:
    """The folder of a training run, which belongs to one configuration (``runtime`` aside), ``identity`` and inputs.

    To be opened after the last row was read: a pipe's digest is known only then.
    """
    from magcli.config import as_json
    from magcli.data.manifest import Input
    from magcli.run.rundir import RunDir

    chosen = {key: value for key, value in as_json(config).items() if key not in (*runtime, *FORMATS)}
    inputs = [source.sha256 for source in job.sources]
    with RunDir.open(config.run, stage, {**chosen, **identity, "inputs": inputs}, restart=job.restart) as folder:
        given = [Input(Path(source.name).name, source.sha256, source.total or 0) for source in job.sources]
        folder.keep_inputs(given, job.past())
        yield folder
