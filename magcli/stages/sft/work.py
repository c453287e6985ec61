"""The work of `magcli sft`, once its options are checked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magcli.errors import DataError
from magcli.generate.open import open_generator
from magcli.generate.spec import Spec
from magcli.layouts.texts import with_texts
from magcli.model.compute import use_threads
from magcli.model.model import Model
from magcli.plan.engines import starts_eager
from magcli.run.rundir import HELD_OUT
from magcli.stages.sft import Config, display
from magcli.stages.sft.examples import examples_of, held_out_examples, require_examples, require_traces, show
from magcli.stages.sft.spec import RunSpec
from magcli.stages.shared import engines, forms, graders, rank_weights, run_folder, tables, templates, trainer_ranks
from magcli.stages.shared import forecast as forecasts
from magcli.stages.shared import preview as previews
from magcli.train import optim, sft
from magcli.train.commands import RankState
from magcli.train.optim import SFT_LR, default_lr
from magcli.train.sft import Example, default_step_tokens

if TYPE_CHECKING:
    from magcli.choices import Format
    from magcli.console import Console
    from magcli.data.source import Rows
    from magcli.plan.formats import Formats, TrainerPlan
    from magcli.run.job import Job
    from magcli.run.layout import Converted
    from magcli.run.rundir import RunDir
    from magcli.run.trackers import LogLines
    from magcli.stages.sft.plan import RunPlan
    from magcli.stages.sft.spec import EvaluationSpec, PolicySpec
    from magcli.stages.shared.heldout import HeldOut
    from magcli.train.commands import OpenState
    from magcli.train.controller import RankController
    from magcli.train.distributed import Ranks
    from magcli.train.sft import EvaluateModel, SFTTrainer

METRICS = ("loss", "lr", "grad_norm", "held_out_loss", *HELD_OUT, "tokens", "target_tokens", "skipped")


def settings(config: Config) -> dict[str, Any]:
    """Digests of the model, of the system prompt and of the evaluation tables."""
    weights = not config.from_scratch and not config.show_mask
    identity = engines.model_identity(templates.open_model(config), config.system, weights=weights)
    identity |= tables.table_identity("held_out", config.held_out)
    identity |= tables.table_identity("eval_table", config.eval_table)
    if config.eval_table:
        identity |= graders.grader_identity(config)
    return identity


def layouts(config: Config, input_schemas: Sequence[pa.Schema]) -> list[Converted | DataError | None]:
    """How tables that have neither messages nor a prompt and a completion are converted from other layouts."""
    return [_layout(table) for table in input_schemas]


def _layout(table: pa.Schema) -> Converted | DataError | None:
    return with_texts(None, table) if _is_own(table) else tables.layout_of(table, tables.TRACE_ROLES[:-1])


def _is_own(table: pa.Schema) -> bool:
    return "messages" in table.names or {"prompt", "completion"} <= set(table.names)


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """One row a step."""
    metrics = [pa.field(name, pa.float64()) for name in METRICS]
    return pa.schema([pa.field("step", pa.int64()), *metrics])


def preview(config: Config, rows: Rows, job: Job) -> int:
    """The number of usable traces of the input, for --dry-run; held-out traces and problems are checked too."""
    spec = RunSpec.of(config)
    trainer_ranks.check_room(spec.ranks, job.console)
    model = previews.open_readable(config, job)
    where = ", ".join(source.name for source in job.sources)
    if model is None:  # it is not on this machine: only the columns can be checked
        require_traces(job.schema, where)
        usable: int = sum(batch.num_rows for batch in rows)
        _announce_memory(spec, spec.model.open(), job.console)
    else:
        examples = list(examples_of(spec.traces, model, rows, job.schema, job, where))
        require_examples(examples, job.drops.summary(), where)
        # Rows, not examples: a conversation may have several.
        usable = job.rows_in - job.drops.counts.total()
        held_out_examples(spec.traces, model, job)
        longest = max((len(example.tokens) for example in examples), default=0)
        _announce_memory(spec, model, job.console, longest)
    if spec.evaluation is not None:
        with graders.open_grader(spec.evaluation.grading) as grader:
            spec.evaluation.problems.check(model, grader)
    return usable


def forecast(config: Config, console: Console) -> None:
    """Announce the memory and devices that a run needs, as far as they are known without its traces."""
    spec = RunSpec.of(config)
    trainer_ranks.check_room(spec.ranks, console)
    _announce_memory(spec, spec.model.open(), console)


def _announce_memory(spec: RunSpec, model: Model, console: Console, longest: int = 0) -> None:
    """Announce the plan of a run whose longest trace has this many tokens; 0: all fit the micro-batches."""

    def planned() -> RunPlan:
        return spec.plan_on(model, spec.ranks.machine(planned=True), longest=longest)

    forecasts.announce(planned, model, spec.folder.path, console, stage="sft")


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Train; the output is the metrics of each step."""
    spec = RunSpec.of(config)
    earlier = "" if job.restart else run_folder.recorded(spec.folder.path, "date")
    # A resumed run renders its prompts with the date of its start.
    model = templates.with_date(spec.model.open(), job, [], system=spec.traces.system, date=earlier)
    forms.record(model.thoughts, job, [])
    where = ", ".join(source.name for source in job.sources)
    examples = list(examples_of(spec.traces, model, rows, job.schema, job, where))
    if config.show_mask:
        show(examples[: config.show_mask], model, job, where)
        return

    require_examples(examples, job.drops.summary(), where)
    tokens = sum(len(example.tokens) for example in examples)
    step_tokens = spec.step_tokens or default_step_tokens(tokens)
    with ExitStack() as stack:
        folder, formats = stack.enter_context(spec.folder.opened(model, job))
        # A run that goes on renders its prompts with the same date and form of thoughts.
        if model.template.date:
            folder.note("date", model.template.date)
        folder.note(forms.THOUGHTS, model.thoughts.name)
        log_lines = stack.enter_context(spec.folder.tracked(folder, job))
        if folder.finished:
            log_lines(folder.metrics())
            job.console.say(f"sft: {folder.model} is finished", event="up-to-date")
        else:
            held_out = held_out_examples(spec.traces, model, job)
            inputs = Inputs(spec, model, formats, examples, held_out, step_tokens, folder, log_lines)
            train = partial(_train, inputs, job.console)
            trainer_ranks.again_when_lost("sft", train, folder, job.console)
        # Read back from the folder, with the steps of earlier processes.
        lines = [{name: line.get(name) for name in ("step", *METRICS)} for line in folder.metrics()]
    yield pa.RecordBatch.from_pylist(lines, job.output_schema)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run starts from, the first time and when its ranks were lost."""

    spec: RunSpec
    model: Model
    formats: Formats
    examples: Sequence[Example]
    held_out: Sequence[Example]
    step_tokens: int
    folder: RunDir
    log_lines: LogLines


def _train(inputs: Inputs, console: Console, after_loss: bool) -> None:
    """Train from the folder's last checkpoint to the end, and write the model to it.

    ``after_loss``: as in ``trainer_ranks.opened``.

    Raises:
        Stopped: several steps in a row had no finite gradient.
    """
    spec, model, folder = inputs.spec, inputs.model, inputs.folder
    # Micro-batches are not smaller than this.
    longest = max(len(example.tokens) for example in inputs.examples)
    planned = partial(
        spec.plan_on,
        model,
        spec.ranks.machine(),
        formats=inputs.formats,
        longest=longest,
        step_tokens=inputs.step_tokens,
    )
    with ExitStack() as stack:
        # Before the ranks start: it refuses problems that cannot be graded.
        evaluator = stack.enter_context(_open_evaluator(spec.evaluation, inputs.formats.dtype, model, console))
        opened = trainer_ranks.opened(spec.ranks, console, after_loss=after_loss, planned=planned)
        _, controller = stack.enter_context(opened)
        run = sft.SFTRun(folder, spec.evaluate_every, spec.checkpoint_every, spec.keep_checkpoints, evaluator)
        plan = planned(ranks=controller.size)
        forecasts.check(plan, folder, console)
        with console.waiting_for("sft: loading the model"):
            trainer = _make_trainer(inputs, plan, controller)
        trainer.controller.try_saving(folder.model)
        if spec.policy.from_scratch:
            run.save_initial_model(trainer)
        run.resume(trainer)
        _run_steps(trainer, run, inputs, console)
    if trainer.best_step:
        # Of losses the trainer keeps the negative: more is better.
        best = f"accuracy {trainer.best:.1%}" if evaluator else f"held-out loss {-trainer.best:.4f}"
        console.result(f"sft: best {best} at step {trainer.best_step}", event="best", step=trainer.best_step)
    console.result(f"sft: model in {folder.model}", event="model", path=str(folder.model))


def _run_steps(trainer: SFTTrainer, run: sft.SFTRun, inputs: Inputs, console: Console) -> None:
    """Say how many steps there are, run those that are left, and write the model."""
    policy = inputs.spec.policy
    total = len(trainer.steps)
    done = trainer.done
    if policy.lr is None:
        console.say(f"sft: lr {trainer.lr:.1e} for a model of this size", event="lr", lr=trainer.lr)
    if done:
        console.say(f"sft: resuming from step {done} of {total}", event="resume", step=done)
    sizes = {"epochs": policy.epochs, "traces": len(inputs.examples), "max_steps": policy.max_steps or 0}
    display.say_steps(total, step_tokens=inputs.step_tokens, console=console, **sizes)
    with console.progress(total, "steps", "sft") as bar:
        bar.advance(done, reused=True)
        lines = run.folder.metrics()

        def report(line: dict[str, Any]) -> None:
            display.report_step(bar, console, done + 1, total, line)
            lines.append(line)
            inputs.log_lines(lines)

        sft.train(trainer, run, report, partial(display.say_saved, console))


@contextmanager
def _open_evaluator(
    spec: EvaluationSpec | None, dtype: Format, model: Model, console: Console
) -> Iterator[EvaluateModel | None]:
    """The function that evaluates the model of a folder on held-out problems; None without any.

    The seeds and the order of the samples are the same each time, and those of a float32 model in the embedded engine
    are deterministic: checkpoints differ by their weights alone, and a resumed run selects the same one.
    """
    if spec is None:
        yield None
        return
    with graders.open_grader(spec.grading) as grader:
        held_out = spec.problems.open(model, grader)
        yield lambda folder: asyncio.run(_accuracy(spec, dtype, model, held_out, folder, console))


async def _accuracy(
    evaluation: EvaluationSpec, dtype: Format, model: Model, held_out: HeldOut, folder: Path, console: Console
) -> dict[str, float | None]:
    """The accuracy of the model in a folder, which the run's engine loads for it."""
    spec = Spec(
        # With the form of thoughts of the run: the saved model's own may be taken for another.
        Model.open(folder, replace(model.template, thoughts=model.thoughts.name)),
        evaluation.engine,
        dtype,
        slots=held_out.slots,
        deterministic=evaluation.engine == "torch" and dtype == "fp32",
        device=evaluation.device,
        eager=starts_eager("auto", [held_out.expected], slots=held_out.slots),
    )
    generator = open_generator(spec, console)
    try:
        return await held_out.accuracy(generator)
    finally:
        await generator.close()


def _make_trainer(inputs: Inputs, plan: RunPlan, controller: RankController) -> SFTTrainer:
    """The weights to train, over all ranks, and the schedule of steps."""
    policy, examples, step_tokens = inputs.spec.policy, inputs.examples, inputs.step_tokens
    # A step smaller than a micro-batch has fewer rows.
    use_threads(inputs.model, min(plan.trainer.micro_tokens, step_tokens))
    controller.open(_open_state(policy, inputs.model, plan.trainer), bf16=plan.trainer.bf16)
    lengths = [len(example.tokens) for example in examples]
    steps = sft.plan_steps(lengths, epochs=policy.epochs, step_tokens=step_tokens, seed=policy.seed)
    steps = steps[: policy.max_steps]
    return sft.SFTTrainer(
        controller,
        examples,
        steps,
        inputs.held_out,
        lr=policy.lr or default_lr(controller.facts.weights, at_24b=SFT_LR, lora=plan.trainer.lora_rank > 0),
        warmup=round(policy.warmup * len(steps)),
        floor=policy.floor,
        micro_tokens=plan.trainer.micro_tokens,
        max_norm=policy.max_norm,
        bf16=plan.trainer.bf16,
    )


def _open_state(policy: PolicySpec, model: Model, plan: TrainerPlan) -> OpenState:
    """The function that loads a rank's state: its weights, LoRA adapters with --lora, and the optimizer."""

    def opened(ranks: Ranks, bf16: bool) -> RankState:
        sharded = rank_weights.sharded_model(plan, model, ranks, from_scratch=policy.from_scratch, seed=policy.seed)
        sharded.train()
        # After the weights are loaded, which may draw random numbers.
        optim.seed_all(policy.seed)
        original = None
        if ranks.rank == 0:  # the rank that writes the model
            original = rank_weights.original(model, policy.save_dtype, from_scratch=policy.from_scratch)
        return RankState(
            ranks,
            sharded,
            rank_weights.optimizer(plan, sharded),
            model.tokenizer,
            original=original,
        )

    return opened
