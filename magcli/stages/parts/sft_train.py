"""What `magcli sft` does between the examples and the finished model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from magcli.stages.parts import setup

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

    from magcli.run.job import Job
    from magcli.run.rundir import RunDir
    from magcli.stages.sft import Config
    from magcli.train.controller import OpenState, RankController, RankState
    from magcli.train.distributed import Ranks
    from magcli.train.finetune import Exam, Trainer
    from magcli.train.supervised import Example


def train(
    config: Config,
    examples: Sequence[Example],
    held_out: Sequence[Example],
    controller: RankController,
    job: Job,
    folder: RunDir,
) -> None:
    """Train from the last checkpoint that the folder holds to the end, and leave the model in it.

    Raises:
        Stopped: several steps in a row had no finite gradient.
    """
    from magcli.train import finetune

    with _exam(config) as exam:
        every = (config.evaluate_every, config.checkpoint_every, config.keep_checkpoints)
        records = finetune.Records(folder, *every, exam)
        trainer = _trainer(config, examples, held_out, controller)
        if config.from_scratch:
            records.keep_start(trainer)
        records.resume(trainer)
        total, done = len(trainer.steps), trainer.done
        if done:
            job.console.say(f"sft: going on from step {done} of {total}", event="resume", step=done)
        with job.console.progress(total, "steps", "sft") as bar:
            bar.advance(done, reused=True)
            finetune.train(trainer, records, lambda line: bar.advance(note=_note(line)))
    if trainer.best_step:
        of = f"accuracy {trainer.best:.1%}" if exam else f"held-out loss {-trainer.best:.4f}"
        job.console.say(f"sft: best {of} at step {trainer.best_step}", event="best", step=trainer.best_step)
    job.console.say(f"sft: model in {folder.model}", event="model", path=str(folder.model))


@contextmanager
def _exam(config: Config) -> Iterator[Exam | None]:
    """How models of this run are evaluated on problems, while its verifiers live; None where they are not."""
    from magcli.curate.sampling import Ask
    from magcli.generate.types import Sampling
    from magcli.stages.parts import sft_exam

    if config.eval_table is None:
        yield None
        return
    sampling = Sampling(config.eval_max_tokens, config.eval_temperature, 1.0)
    asking = Ask(setup.system_text(config.system), sampling, config.eval_samples, config.seed)
    with setup.open_grader(config) as grader:
        problems = sft_exam.problems_of(config.eval_table, grader)
        yield sft_exam.Exam(problems, asking, grader, config.eval_slots, config.device)


def _trainer(
    config: Config, examples: Sequence[Example], held_out: Sequence[Example], controller: RankController
) -> Trainer:
    from magcli.model.compute import use_threads
    from magcli.train import supervised
    from magcli.train.finetune import Trainer

    use_threads(config.model, min(config.micro_tokens, config.step_tokens))
    controller.open(open_state(config), bf16=config.bf16 == "yes")
    lengths = [len(example.tokens) for example in examples]
    steps = supervised.plan(lengths, epochs=config.epochs, step_tokens=config.step_tokens, seed=config.seed)
    steps = steps[: config.max_steps or None]
    return Trainer(
        controller,
        examples,
        steps,
        held_out,
        lr=config.lr,
        warmup=round(config.warmup * len(steps)),
        floor=config.floor,
        micro_tokens=config.micro_tokens,
        max_norm=config.max_norm,
        bf16=config.bf16 == "yes",
    )


def open_state(config: Config) -> OpenState:
    """The function that loads a rank's state: float32 weights, LoRA adapters if asked for, and the optimizer."""
    import torch

    from magcli.model.load import load_model, load_tokenizer
    from magcli.train import optim
    from magcli.train.attention import use_packed_attention
    from magcli.train.controller import RankState
    from magcli.train.shard import shard

    def opened(ranks: Ranks, bf16: bool) -> RankState:
        anew, seed = config.from_scratch, config.seed
        model = load_model(config.model, dtype=torch.float32, device=str(ranks.device), from_scratch=anew, seed=seed)
        use_packed_attention(model)
        adapters = _adapters(config, model)
        model.train()
        return RankState(
            ranks,
            shard(model, ranks, bf16=bf16, checkpoint_activations=config.recompute),
            optim.adamw(model, lr=config.lr, weight_decay=config.weight_decay),
            load_tokenizer(config.model),
            adapters=adapters,
        )

    return opened


def _adapters(config: Config, model: PreTrainedModel) -> PeftModel | None:
    from magcli.train import lora

    if not config.lora:
        return None
    return lora.add_lora(model, rank=config.lora, alpha=config.lora_alpha, seed=config.seed)


def _note(line: dict[str, Any]) -> str:
    rate = line["tokens"] / max(line["seconds"], 1e-9)
    held = f" held-out {line['held_out_loss']:.3f}" if "held_out_loss" in line else ""
    right = f" accuracy {line['accuracy']:.1%}" if "accuracy" in line else ""
    return f"loss {line['loss']:.3f}{held}{right} {rate:,.0f} tokens/s"
