"""The work of `magcli sft`, once its options are checked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magcli.console import put
from magcli.data import table
from magcli.data.schema import require
from magcli.data.values import to_rows
from magcli.errors import DataError
from magcli.generate.open import open_generator
from magcli.generate.spec import Spec
from magcli.layouts.texts import with_texts
from magcli.model.chat import targets
from magcli.model.chat.prompts import check_vocabulary
from magcli.model.chat.targets import TokensWithMask, show_mask
from magcli.model.compute import use_threads
from magcli.model.model import Model
from magcli.plan.engines import starts_eager
from magcli.plan.machine import Machine
from magcli.run.job import Drops
from magcli.run.rundir import HELD_OUT
from magcli.stages.sft import Config
from magcli.stages.sft.plan import RunPlan
from magcli.stages.shared import engines, forms, graders, heldout, sft_progress, tables, templates, trainers, training
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
    from magcli.stages.shared.heldout import HeldOut
    from magcli.train.commands import OpenState
    from magcli.train.controller import RankController
    from magcli.train.distributed import Ranks
    from magcli.train.sft import EvaluateModel, SFTTrainer

LENGTHS = ("epochs", "max_steps")
"""Options of which a larger value prolongs a run."""

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
    trainers.check_room("sft", config, job.console)
    model = previews.open_readable(config, job)
    where = ", ".join(source.name for source in job.sources)
    if model is None:  # it is not on this machine: only the columns can be checked
        _require_traces(job.schema, where)
        usable: int = sum(batch.num_rows for batch in rows)
        _announce_memory(config, templates.open_model(config), job.console)
    else:
        examples = list(_examples(config, model, rows, job.schema, job, where))
        _require_examples(examples, job.drops.summary(), where)
        # Rows, not examples: a conversation may have several.
        usable = job.rows_in - job.drops.counts.total()
        _held_out(config, model, job)
        longest = max((len(example.tokens) for example in examples), default=0)
        _announce_memory(config, model, job.console, longest)
    if config.eval_table is not None:
        with graders.open_grader(config) as grader:
            heldout.check_table("sft", config.eval_table, config.system, model, grader)
    return usable


def forecast(config: Config, console: Console) -> None:
    """Announce the memory and devices that a run needs, as far as they are known without its traces."""
    trainers.check_room("sft", config, console)
    _announce_memory(config, templates.open_model(config), console)


def _announce_memory(config: Config, model: Model, console: Console, longest: int = 0) -> None:
    """Announce the plan of a run whose longest trace has this many tokens; 0: all fit the micro-batches."""
    plan_on = partial(RunPlan.of, config, model, longest=longest)
    forecasts.announce(plan_on, config, model, console, stage="sft")


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Train; the output is the metrics of each step."""
    earlier = "" if job.restart else training.recorded(config.run, "date")
    opened = templates.open_model(config)
    # A resumed run renders its prompts with the date of its start.
    model = templates.with_date(opened, job, [], system=config.system, date=earlier)
    forms.record(model.thoughts, job, [])
    where = ", ".join(source.name for source in job.sources)
    examples = list(_examples(config, model, rows, job.schema, job, where))
    if config.show_mask:
        _show(examples[: config.show_mask], model, job, where)
        return

    with ExitStack() as stack:
        _require_examples(examples, job.drops.summary(), where)
        tokens = sum(len(example.tokens) for example in examples)
        step_tokens = config.step_tokens or default_step_tokens(tokens)
        folder = stack.enter_context(training.run_folder("sft", config, job, LENGTHS))
        names = ("bf16", "dtype") if config.eval_table else ("bf16",)  # dtype is that of the evaluating engine
        formats = training.resolve_formats(config, model, folder, job, names)
        # A run that goes on renders its prompts with the same date and form of thoughts.
        if model.template.date:
            folder.note("date", model.template.date)
        folder.note(forms.THOUGHTS, model.thoughts.name)
        log_lines = stack.enter_context(training.tracked("sft", config, folder, job))
        if folder.finished:
            log_lines(folder.metrics())
            job.console.say(f"sft: {folder.model} is finished", event="up-to-date")
        else:
            held_out = _held_out(config, model, job)
            inputs = Inputs(config, model, formats, examples, held_out, step_tokens, folder, log_lines)
            train = partial(_train, inputs, job.console)
            trainers.again_when_lost("sft", train, folder, job.console)
        # Read back from the folder, with the steps of earlier processes.
        lines = [{name: line.get(name) for name in ("step", *METRICS)} for line in folder.metrics()]
    yield pa.RecordBatch.from_pylist(lines, job.output_schema)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run starts from, the first time and when its ranks were lost."""

    config: Config
    model: Model
    formats: Formats
    examples: Sequence[Example]
    held_out: Sequence[Example]
    step_tokens: int
    folder: RunDir
    log_lines: LogLines


def _train(inputs: Inputs, console: Console, after_loss: bool) -> None:
    """Train from the folder's last checkpoint to the end, and write the model to it.

    ``after_loss``: as ``opened`` of ``trainers``.

    Raises:
        Stopped: several steps in a row had no finite gradient.
    """
    config, model, folder = inputs.config, inputs.model, inputs.folder
    # Micro-batches are not smaller than this.
    longest = max(len(example.tokens) for example in inputs.examples)
    planned = partial(
        RunPlan.of,
        config,
        model,
        Machine.ask(config.device, config.card),
        formats=inputs.formats,
        longest=longest,
        step_tokens=inputs.step_tokens,
    )
    with ExitStack() as stack:
        # Before the ranks start: it refuses problems that cannot be graded.
        evaluator = stack.enter_context(_open_evaluator(config, inputs.formats.dtype, model, console))
        opened = trainers.opened("sft", config, console, after_loss=after_loss, planned=planned)
        _, controller = stack.enter_context(opened)
        run = sft.SFTRun(folder, config.evaluate_every, config.checkpoint_every, config.keep_checkpoints, evaluator)
        plan = planned(ranks=controller.size)
        forecasts.check(plan, folder, console)
        with console.waiting_for("sft: loading the model"):
            trainer = _make_trainer(inputs, plan, controller)
        trainer.controller.try_saving(folder.model)
        if config.from_scratch:
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
    config = inputs.config
    total = len(trainer.steps)
    done = trainer.done
    if not config.lr:
        console.say(f"sft: lr {trainer.lr:.1e} for a model of this size", event="lr", lr=trainer.lr)
    if done:
        console.say(f"sft: resuming from step {done} of {total}", event="resume", step=done)
    sizes = {"epochs": config.epochs, "traces": len(inputs.examples), "max_steps": config.max_steps}
    sft_progress.say_steps(total, step_tokens=inputs.step_tokens, console=console, **sizes)
    with console.progress(total, "steps", "sft") as bar:
        bar.advance(done, reused=True)
        lines = run.folder.metrics()

        def report(line: dict[str, Any]) -> None:
            sft_progress.report_step(bar, console, done + 1, total, line)
            lines.append(line)
            inputs.log_lines(lines)

        sft.train(trainer, run, report, partial(sft_progress.say_saved, console))


def _examples(config: Config, model: Model, rows: Rows, schema: pa.Schema, job: Job, where: str) -> Iterator[Example]:
    """Tokenized conversations with their loss masks; unusable ones are dropped with a reason.

    A conversation whose earlier turns the template rewrites has several examples; how many is said at the end.
    """
    _require_traces(schema, where)
    system = engines.system_text(config.system, model.thoughts)
    longest = min(config.max_length, model.context)
    vocabulary_size = int(model.text_config.vocab_size)
    split_rows = split_examples = 0
    for batch in rows:
        for row in to_rows(batch):
            try:
                sequences = targets.examples(model.tokenizer, tables.conversation(row, system))
            except DataError as error:
                job.drops.row(str(row.get("id") or ""), "unusable-trace", row, error=str(error))
                continue
            for sequence in sequences:
                # An id beyond the embedding would fail in the middle of training.
                check_vocabulary(sequence.tokens, vocabulary_size)
            weight = _weight(row)
            if weight is None:
                job.drops.row(str(row.get("id") or ""), "no-weight", row)
                continue
            # All or nothing: the examples of a conversation are parts of one.
            if any(len(sequence.tokens) > longest for sequence in sequences):
                job.drops.row(str(row.get("id") or ""), "too-long", row)
                continue
            if len(sequences) > 1:
                split_rows += 1
                split_examples += len(sequences)
            for tokens, mask in sequences:
                yield Example(tuple(tokens), tuple(mask), weight)
    if split_rows:
        text = f"{split_rows:,} conversations make {split_examples:,} examples"
        why = "the chat template rewrites earlier turns"
        job.console.say(f"sft: {text}: {why}", event="split", conversations=split_rows, examples=split_examples)


def _require_traces(schema: pa.Schema, where: str) -> None:
    """Raise DataError if a table has neither messages nor prompts with completions."""
    if "messages" not in schema.names:
        require(schema, ("prompt", "completion"), stage="sft", where=where)


def _show(examples: Sequence[Example], model: Model, job: Job, where: str) -> None:
    """Print examples with their loss masks."""
    _require_examples(examples, job.drops.summary(), where)
    for example in examples:
        sequence = TokensWithMask(list(example.tokens), list(example.mask))
        put(show_mask(model.tokenizer, sequence) + "\n\n")


def _require_examples(examples: Sequence[Example], reasons: str, where: str) -> None:
    """Raise DataError if a table has no usable trace; ``reasons`` are those of dropped rows."""
    if not examples:
        dropped = f" (dropped {reasons})" if reasons else ""
        raise DataError(f"sft: no usable trace in {where}{dropped}")


def _weight(row: dict[str, Any]) -> float | None:
    """The weight of a trace, 1 by default; None if it is not a number above 0."""
    weight = row.get("weight")
    if weight is None:
        return 1.0
    is_number = isinstance(weight, int | float) and isfinite(weight)
    return float(weight) if is_number and weight > 0 else None


def _held_out(config: Config, model: Model, job: Job) -> list[Example]:
    if config.held_out is None:
        return []
    source = table.read(str(config.held_out))
    # They are no rows of the input, among which its drops are counted.
    apart = replace(job, drops=Drops(keep=False))
    examples = list(_examples(config, model, source.rows, source.schema, apart, source.name))
    reasons = apart.drops.summary()
    # Without any the last model would silently be the result, not the best.
    _require_examples(examples, reasons, source.name)
    if reasons:
        dropped = apart.drops.counts
        text = f"sft: {dropped.total():,} held-out traces of {source.name} are not used ({reasons})"
        job.console.say(text, event="held-out-dropped", dropped=dict(dropped))
    return examples


@contextmanager
def _open_evaluator(config: Config, dtype: Format, model: Model, console: Console) -> Iterator[EvaluateModel | None]:
    """The function that evaluates the model of a folder on --eval-table; None without that option.

    The seeds and the order of the samples are the same each time, and those of a float32 model in the embedded engine
    are deterministic: checkpoints differ by their weights alone, and a resumed run selects the same one.
    """
    if config.eval_table is None:
        yield None
        return
    with graders.open_grader(config) as grader:
        held_out = heldout.open_held_out("sft", config, model, grader)
        yield lambda folder: asyncio.run(_accuracy(config, dtype, model, held_out, folder, console))


async def _accuracy(
    config: Config, dtype: Format, model: Model, held_out: HeldOut, folder: Path, console: Console
) -> dict[str, float | None]:
    """The accuracy of the model in a folder, which the run's engine loads for it."""
    spec = Spec(
        # With the form of thoughts of the run: the saved model's own may be taken for another.
        Model.open(folder, replace(model.template, thoughts=model.thoughts.name)),
        config.engine,
        dtype,
        slots=config.eval_slots,
        deterministic=config.engine == "torch" and dtype == "fp32",
        device=config.device,
        eager=starts_eager("auto", [held_out.expected], slots=config.eval_slots),
    )
    generator = open_generator(spec, console)
    try:
        return await held_out.accuracy(generator)
    finally:
        await generator.close()


def _make_trainer(inputs: Inputs, plan: RunPlan, controller: RankController) -> SFTTrainer:
    """The weights to train, over all ranks, and the schedule of steps."""
    config, examples, step_tokens = inputs.config, inputs.examples, inputs.step_tokens
    # A step smaller than a micro-batch has fewer rows.
    use_threads(inputs.model, min(plan.trainer.micro_tokens, step_tokens))
    controller.open(_open_state(config, inputs.model, plan.trainer), bf16=plan.trainer.bf16)
    lengths = [len(example.tokens) for example in examples]
    steps = sft.plan_steps(lengths, epochs=config.epochs, step_tokens=step_tokens, seed=config.seed)
    # 0 is no limit.
    steps = steps[: config.max_steps or None]
    return sft.SFTTrainer(
        controller,
        examples,
        steps,
        inputs.held_out,
        lr=config.lr or default_lr(controller.facts.weights, at_24b=SFT_LR, lora=bool(config.lora)),
        warmup=round(config.warmup * len(steps)),
        floor=config.floor,
        micro_tokens=plan.trainer.micro_tokens,
        max_norm=config.max_norm,
        bf16=plan.trainer.bf16,
    )


def _open_state(config: Config, model: Model, plan: TrainerPlan) -> OpenState:
    """The function that loads a rank's state: its weights, LoRA adapters with --lora, and the optimizer."""

    def opened(ranks: Ranks, bf16: bool) -> RankState:
        sharded = training.sharded_model(plan, model, ranks, from_scratch=config.from_scratch, seed=config.seed)
        sharded.train()
        # After the weights are loaded, which may draw random numbers.
        optim.seed_all(config.seed)
        original = None
        if ranks.rank == 0:  # the rank that writes the model
            original = training.original(model, config.save_dtype, from_scratch=config.from_scratch)
        return RankState(
            ranks,
            sharded,
            training.optimizer(config, plan, sharded),
            model.tokenizer,
            original=original,
        )

    return opened
