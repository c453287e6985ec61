"""Supervised fine-tuning on traces, or training from scratch.

Rows are conversations (messages) or problems with a completion. Sequences are packed without padding; weights
are float32 with bf16 matrix products; the run's folder holds metrics, checkpoints and the resulting model. The
same command resumes exactly.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.config import opt
from magcli.run import options
from magcli.stages import setup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.run.job import Job
    from magcli.run.rundir import RunDir
    from magcli.train.supervised import Example

INPUTS = "Traces: column messages, or prompt and completion; - is stdin."
OUTPUT = "metrics, one row a step: file, folder or -; they are in the run's folder anyway."
DEFAULT_OUTPUT = None
EXAMPLE = "magcli sft examples/traces.jsonl --model examples/model --run runs/sft --epochs 2 --step-tokens 512"

TRAIN = "Training"


@dataclass(frozen=True)
class Config:
    """Options of `magcli sft`."""

    model: str = options.model()
    run: Path = opt(Path("runs/sft"), "Folder of the run; the same command goes on with it.")
    from_scratch: bool = opt(False, "Draw the weights anew; the model folder needs only config and tokenizer.")
    held_out: Path | None = opt(None, "Traces to evaluate on; the best checkpoint by their loss is the result.")
    evaluate_every: int = opt(50, "Steps between two evaluations on the held-out traces.")
    epochs: int = opt(4, "Times that every trace is seen.", panel=TRAIN)
    max_steps: int = opt(0, "Stop after so many steps; 0 does all epochs.", panel=TRAIN)
    lr: float = opt(1e-5, "Peak learning rate; cosine schedule.", panel=TRAIN)
    warmup: float = opt(0.05, "Share of the steps over which the learning rate rises.", panel=TRAIN)
    floor: float = opt(0.1, "Share of the peak learning rate at the end.", panel=TRAIN)
    weight_decay: float = opt(0.0, "AdamW weight decay.", panel=TRAIN)
    max_norm: float = opt(1.0, "Gradient norm to clip to.", panel=TRAIN)
    step_tokens: int = opt(16384, "Tokens of one optimizer step.", panel=TRAIN)
    micro_tokens: int = opt(8192, "Tokens of one micro-batch.", panel=TRAIN)
    max_length: int = opt(32768, "Longer traces are left out.", panel=TRAIN)
    bf16: bool = opt(True, "Matrix products in bf16; the weights are float32 always.", panel=TRAIN)
    system: Path | None = options.system()
    checkpoint_every: int = opt(100, "Steps between two checkpoints.", panel=TRAIN)
    keep_checkpoints: int = opt(2, "Checkpoints to keep.", panel=TRAIN)
    show_mask: int = opt(0, "With --dry-run: show so many traces as the model will learn them.")
    device: str = options.device()
    seed: int = opt(0, "Seed of the order of the traces and of new weights.", panel=TRAIN)


PLACES = ("run", "held_out", "show_mask", "keep_checkpoints", "checkpoint_every", "device")
"""Options that do not decide the weights."""


def reads(config: Config) -> tuple[str, ...]:
    """Nothing by name: either of two sets of columns will do, which ``run`` checks."""
    return ()


def looks(config: Config) -> bool:
    """Whether a dry run must read its table."""
    return config.show_mask > 0


def check(config: Config) -> None:
    """Refuse options that make no sense."""
    from magcli.run.job import usage

    usage(bool(config.model), "sft: --model is missing: a local folder or a hub id")
    usage(not config.model.startswith("http"), "sft: a server's weights cannot be trained; give a folder or a hub id")
    for name in ("epochs", "lr", "step_tokens", "micro_tokens", "evaluate_every", "checkpoint_every"):
        usage(getattr(config, name) > 0, f"sft.{name}: {getattr(config, name)} is not positive")
    usage(0 <= config.warmup < 1, f"sft.warmup: {config.warmup} is not in [0, 1)")
    usage(0 <= config.floor <= 1, f"sft.floor: {config.floor} is not in [0, 1]")


METRICS = ("loss", "lr", "grad_norm", "held_out_loss", "tokens", "target_tokens", "skipped")


def settings(config: Config) -> dict[str, Any]:
    """What else decides the weights: the bits of the model, of the system prompt and of the held-out traces."""
    told = setup.model_bits(config.model, config.system, weights=not config.from_scratch)
    return told | setup.table_bits("held_out", config.held_out)


def beside(config: Config) -> tuple[Path, ...]:
    """The trained model."""
    return (config.run / "model",)


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """One row a step."""
    import pyarrow as pa

    return pa.schema([pa.field("step", pa.int64()), *[pa.field(name, pa.float64()) for name in METRICS]])


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Train and give the metrics out."""
    import pyarrow as pa

    from magcli.model.load import load_tokenizer
    from magcli.run.job import usage

    tokenizer = load_tokenizer(config.model)
    assert job.schema is not None
    where = ", ".join(source.name for source in job.sources)
    examples = list(_examples(config, rows, job.schema, tokenizer, job, where))
    if config.show_mask:
        _show(examples[: config.show_mask], tokenizer)
        return
    usage(bool(examples), "sft: no usable trace in the input")
    for metrics in _train(config, examples, tokenizer, job):
        yield pa.RecordBatch.from_pylist([metrics], schema(config, pa.schema([])))


def _show(examples: Sequence[Example], tokenizer: Any) -> None:
    import sys

    from magcli.model.chat import Masked, show_mask

    for example in examples:
        sys.stdout.write(show_mask(tokenizer, Masked(list(example.tokens), list(example.mask))) + "\n\n")


def _examples(config: Config, rows: Rows, schema: pa.Schema, tokenizer: Any, job: Job, where: str) -> Iterator[Example]:
    """Conversations as tokens and targets; those that cannot be learned are dropped with a reason."""
    from magcli.data.schema import require
    from magcli.errors import DataError
    from magcli.model.chat import masked
    from magcli.train.supervised import Example

    if "messages" not in schema.names:
        require(schema, ("prompt", "completion"), stage="sft", where=where)
    system = setup.system_text(config.system)
    for batch in rows:
        for row in batch.to_pylist():
            try:
                tokens, mask = masked(tokenizer, setup.conversation(row, system))
            except DataError as error:
                job.drops.row(str(row.get("id", "")), "unusable-trace", {**row, "error": str(error)})
                continue
            if len(tokens) > config.max_length:
                job.drops.row(str(row.get("id", "")), "too-long", row)
                continue
            yield Example(tuple(tokens), tuple(mask), row.get("weight") or 1.0)


def _train(config: Config, examples: list[Example], tokenizer: Any, job: Job) -> Iterator[dict[str, Any]]:
    with setup.run_folder("sft", config, settings(config), PLACES, job) as folder:
        if folder.finished:
            job.console.say(f"sft: {folder.model} is finished", event="up-to-date")
        else:
            _loop(config, examples, tokenizer, job, folder)
        yield from ({"step": line["step"], **{k: line.get(k) for k in METRICS}} for line in folder.metrics())


@dataclass
class Training:
    """What a run has in memory: the model being trained and where it stands."""

    model: Any
    optimizer: Any
    tokenizer: Any
    steps: list[list[int]]
    held_out: list[Example]
    done: int = 0
    best_loss: float = float("inf")
    best_step: int = 0
    bad_steps: int = 0


MAX_BAD_STEPS = 5
"""Steps in a row whose gradient is not finite before the run stops."""


def _loop(config: Config, examples: list[Example], tokenizer: Any, job: Job, folder: RunDir) -> None:
    state = _begin(config, examples, tokenizer, job)
    if config.from_scratch:
        _keep_start(state, folder)
    _resume(state, folder, job)
    with job.console.progress(len(state.steps), "steps", "sft") as bar:
        bar.advance(state.done, reused=True)
        while state.done < len(state.steps):
            line = _step(config, state, [examples[index] for index in state.steps[state.done]])
            if state.held_out and (state.done % config.evaluate_every == 0 or state.done == len(state.steps)):
                line["held_out_loss"] = _evaluate(config, state, folder)
            folder.log(line)
            if state.done % config.checkpoint_every == 0:
                _checkpoint(config, state, folder)
            bar.advance(note=_note(line))
    _finish(state, folder, job)


def _begin(config: Config, examples: list[Example], tokenizer: Any, job: Job) -> Training:
    import torch

    from magcli.model.load import load_model
    from magcli.train import optim, supervised
    from magcli.train.attention import use_packed_attention

    model = load_model(
        config.model, dtype=torch.float32, device=config.device, from_scratch=config.from_scratch, seed=config.seed
    )
    use_packed_attention(model)
    model.train()
    optimizer = optim.adamw(model, lr=config.lr, weight_decay=config.weight_decay)
    lengths = [len(example.tokens) for example in examples]
    steps = supervised.plan(lengths, epochs=config.epochs, step_tokens=config.step_tokens, seed=config.seed)
    return Training(model, optimizer, tokenizer, steps[: config.max_steps or None], _held_out(config, tokenizer, job))


def _keep_start(state: Training, folder: RunDir) -> None:
    """Weights drawn anew are kept as they began, so that what training gained can be measured."""
    import torch

    from magcli.model.load import save_model

    start = folder.path / "start"
    if not start.exists():
        save_model(state.model, state.tokenizer, start, dtype=torch.float32)


def _held_out(config: Config, tokenizer: Any, job: Job) -> list[Example]:
    from magcli.data import table

    if config.held_out is None:
        return []
    source = table.read(str(config.held_out))
    return list(_examples(config, source.rows, source.schema, tokenizer, job, source.name))


def _resume(state: Training, folder: RunDir, job: Job) -> None:
    """Go on from the newest whole checkpoint; what came after it is made again, equal."""
    from magcli.train import checkpoint

    if last := checkpoint.latest(folder.checkpoints):
        told = checkpoint.load(last, state.model, state.optimizer)
        state.done, state.best_step = told["step"], told["best_step"]
        state.best_loss = float(told["best_loss"])
        job.console.say(f"sft: going on from step {state.done} of {len(state.steps)}", event="resume", step=state.done)
    folder.rewind(state.done)


def _step(config: Config, state: Training, chosen: Sequence[Example]) -> dict[str, Any]:
    """One optimizer step and its line of metrics."""
    from magcli.errors import Stopped
    from magcli.train import optim, supervised

    begun, total = time.monotonic(), len(state.steps)
    warmup = round(config.warmup * total)
    lr = config.lr * optim.cosine(state.done, total=total, warmup=warmup, floor=config.floor)
    optim.set_lr(state.optimizer, lr)
    loss, norm = supervised.step(
        state.model,
        state.optimizer,
        chosen,
        micro_tokens=config.micro_tokens,
        max_norm=config.max_norm,
        bf16=config.bf16,
    )
    state.done += 1
    state.bad_steps = 0 if norm is not None else state.bad_steps + 1
    if state.bad_steps == MAX_BAD_STEPS:
        raise Stopped(f"sft: no finite gradient in {MAX_BAD_STEPS} steps up to {state.done}; try a lower --lr")
    return {
        "step": state.done,
        "loss": loss,
        "lr": lr,
        "grad_norm": norm,
        "tokens": sum(len(example.tokens) for example in chosen),
        "target_tokens": sum(sum(example.mask) for example in chosen),
        "skipped": float(norm is None),
        "seconds": time.monotonic() - begun,
    }


def _evaluate(config: Config, state: Training, folder: RunDir) -> float:
    """Loss on the held-out traces; the best model so far is kept."""
    import torch

    from magcli.model.load import save_model
    from magcli.train import supervised

    state.model.eval()
    loss = supervised.held_out_loss(state.model, state.held_out, micro_tokens=config.micro_tokens, bf16=config.bf16)
    state.model.train()
    if loss < state.best_loss:
        state.best_loss, state.best_step = loss, state.done
        save_model(state.model, state.tokenizer, folder.path / "best", dtype=torch.float32)
    return loss


def _checkpoint(config: Config, state: Training, folder: RunDir) -> None:
    from magcli.train import checkpoint

    checkpoint.save(
        checkpoint.step_folder(folder.checkpoints, state.done),
        model=state.model,
        optimizer=state.optimizer,
        state={"step": state.done, "best_loss": str(state.best_loss), "best_step": state.best_step},
        tokenizer=state.tokenizer,
    )
    checkpoint.prune(folder.checkpoints, keep=config.keep_checkpoints)


def _finish(state: Training, folder: RunDir, job: Job) -> None:
    """The result: the best model by held-out loss, or the last one where nothing is held out."""
    import torch

    from magcli.data.durable import rename
    from magcli.model.load import save_model

    best = folder.path / "best"
    if best.exists():
        rename(best, folder.model)
        job.console.say(f"sft: best held-out loss {state.best_loss:.4f} at step {state.best_step}", event="best")
    else:
        save_model(state.model, state.tokenizer, folder.model, dtype=torch.float32)
    job.console.say(f"sft: model in {folder.model}", event="model", path=str(folder.model))


def _note(line: dict[str, Any]) -> str:
    rate = line["tokens"] / max(line["seconds"], 1e-9)
    held = f" held-out {line['held_out_loss']:.3f}" if "held_out_loss" in line else ""
    return f"loss {line['loss']:.3f}{held} {rate:,.0f} tokens/s"
