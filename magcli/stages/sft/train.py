"""`magcli sft` from the traces to the finished model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from math import isfinite
from typing import TYPE_CHECKING, Any

from magcli.console import put
from magcli.errors import DataError
from magcli.stages.sft import build
from magcli.stages.sft.config import Config, settings
from magcli.stages.shared import engines, tables, training

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.run.job import Job
    from magcli.run.rundir import RunDir
    from magcli.train.controller import RankController
    from magcli.train.sft import Example

EVALUATION_METRICS = ("accuracy", "accuracy_low", "accuracy_high", "answer_tokens")
METRICS = ("loss", "lr", "grad_norm", "held_out_loss", *EVALUATION_METRICS, "tokens", "target_tokens", "skipped")


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """One row a step."""
    import pyarrow as pa

    return pa.schema([pa.field("step", pa.int64()), *[pa.field(name, pa.float64()) for name in METRICS]])


def serve_rank(config: Config) -> bool:
    """Run as a non-zero torchrun rank; False where this process is the first rank."""
    return training.serve_rank(config.device, lambda: build.open_state(config), needed=not config.show_mask)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Train; the output is the metrics of each step."""
    import pyarrow as pa

    from magcli.model.load import load_tokenizer
    from magcli.train.controller import RankController
    from magcli.train.distributed import open_ranks

    tokenizer = load_tokenizer(config.model)
    assert job.schema is not None
    where = ", ".join(source.name for source in job.sources)
    found = _examples(config, rows, job.schema, tokenizer, job, where)
    if config.show_mask:
        _show(list(found)[: config.show_mask], tokenizer)
        return
    with ExitStack() as stack:
        controller = RankController(open_ranks(config.device))
        stack.callback(controller.stop)
        examples = list(found)
        if not examples:
            reasons = ", ".join(f"{reason} {count}" for reason, count in job.drops.counts.items())
            raise DataError(f"sft: no usable trace in {where}" + (f" (dropped {reasons})" if reasons else ""))
        folder = stack.enter_context(training.run_folder("sft", config, settings(config), job))
        config = training.resolve_formats(config, folder, job)
        if folder.finished:
            job.console.say(f"sft: {folder.model} is finished", event="up-to-date")
        else:
            _train(config, examples, _held_out(config, tokenizer, job), controller, job, folder)
        lines = [{"step": line["step"], **{k: line.get(k) for k in METRICS}} for line in folder.metrics()]
    yield pa.RecordBatch.from_pylist(lines, schema(config, pa.schema([])))


def _train(
    config: Config,
    examples: Sequence[Example],
    held_out: Sequence[Example],
    controller: RankController,
    job: Job,
    folder: RunDir,
) -> None:
    """Train from the folder's last checkpoint to the end, and write the model to it.

    Raises:
        Stopped: several steps in a row had no finite gradient.
    """
    from magcli.train import sft

    with build.evaluator(config) as evaluator:
        every = (config.evaluate_every, config.checkpoint_every, config.keep_checkpoints)
        run = sft.SFTRun(folder, *every, evaluator)
        trainer = build.trainer(config, examples, held_out, controller)
        if config.from_scratch:
            run.save_initial_model(trainer)
        run.resume(trainer)
        total, done = len(trainer.steps), trainer.done
        if done:
            job.console.say(f"sft: resuming from step {done} of {total}", event="resume", step=done)
        with job.console.progress(total, "steps", "sft") as bar:
            bar.advance(done, reused=True)
            sft.train(trainer, run, lambda line: bar.advance(note=_note(line)))
    if trainer.best_step:
        best = f"accuracy {trainer.best:.1%}" if evaluator else f"held-out loss {-trainer.best:.4f}"
        job.console.say(f"sft: best {best} at step {trainer.best_step}", event="best", step=trainer.best_step)
    job.console.say(f"sft: model in {folder.model}", event="model", path=str(folder.model))


def _note(line: dict[str, Any]) -> str:
    rate = line["tokens"] / max(line["seconds"], 1e-9)
    held_out = f" held-out {line['held_out_loss']:.3f}" if "held_out_loss" in line else ""
    accuracy = f" accuracy {line['accuracy']:.1%}" if "accuracy" in line else ""
    return f"loss {line['loss']:.3f}{held_out}{accuracy} {rate:,.0f} tokens/s"


def _show(examples: Sequence[Example], tokenizer: Any) -> None:
    from magcli.model.chat import Masked, show_mask

    for example in examples:
        put(show_mask(tokenizer, Masked(list(example.tokens), list(example.mask))) + "\n\n")


def _examples(config: Config, rows: Rows, schema: pa.Schema, tokenizer: Any, job: Job, where: str) -> Iterator[Example]:
    """Tokenized conversations with their loss masks; unusable ones are dropped with a reason."""
    from magcli.data.schema import require
    from magcli.data.types import to_rows
    from magcli.model.chat import masked
    from magcli.model.load import load_config
    from magcli.train.sft import Example

    if "messages" not in schema.names:
        require(schema, ("prompt", "completion"), stage="sft", where=where)
    system = engines.system_text(config.system)
    longest = min(config.max_length, load_config(config.model).get_text_config().max_position_embeddings)
    for batch in rows:
        for row in to_rows(batch):
            try:
                tokens, mask = masked(tokenizer, tables.conversation(row, system))
            except DataError as error:
                job.drops.row(str(row.get("id", "")), "unusable-trace", {**row, "error": str(error)})
                continue
            weight = _weight(row)
            if len(tokens) > longest or weight is None:
                job.drops.row(str(row.get("id", "")), "too-long" if weight else "no-weight", row)
                continue
            yield Example(tuple(tokens), tuple(mask), weight)


def _weight(row: dict[str, Any]) -> float | None:
    """The weight of a trace, 1 by default; None if it is not a number above 0."""
    weight = 1.0 if row.get("weight") is None else row["weight"]
    return float(weight) if isinstance(weight, int | float) and isfinite(weight) and weight > 0 else None


def _held_out(config: Config, tokenizer: Any, job: Job) -> list[Example]:
    from magcli.data import table

    if config.held_out is None:
        return []
    source = table.read(str(config.held_out))
    return list(_examples(config, source.rows, source.schema, tokenizer, job, source.name))
