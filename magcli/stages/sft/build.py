"""From the options of `magcli sft` to what trains: the trainer, the state of a rank, the evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from magcli.stages.shared import engines, grading

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

    from magcli.stages.sft.config import Config
    from magcli.stages.sft.evaluation import Evaluator
    from magcli.train.controller import OpenState, RankController, RankState
    from magcli.train.distributed import Ranks
    from magcli.train.sft import Example, SFTTrainer


@contextmanager
def evaluator(config: Config) -> Iterator[Evaluator | None]:
    """What samples and grades the problems of --eval-table, with its verifier workers; None without that option."""
    from magcli.curate.sampling import SamplingPlan
    from magcli.generate.types import Sampling
    from magcli.stages.sft import evaluation

    if config.eval_table is None:
        yield None
        return
    sampling = Sampling(config.eval_max_tokens, config.eval_temperature, 1.0)
    asking = SamplingPlan(engines.system_text(config.system), sampling, config.eval_samples, config.seed)
    with grading.open_grader(config) as grader:
        problems = evaluation.problems_of(config.eval_table, grader)
        yield evaluation.Evaluator(problems, asking, grader, config.eval_slots, config.device)


def trainer(
    config: Config, examples: Sequence[Example], held_out: Sequence[Example], controller: RankController
) -> SFTTrainer:
    """The weights to train, over all ranks that torchrun has started, and the schedule of steps."""
    from magcli.model.compute import use_threads
    from magcli.train import sft

    use_threads(config.model, min(config.micro_tokens, config.step_tokens))
    controller.open(open_state(config), bf16=config.bf16 == "yes")
    lengths = [len(example.tokens) for example in examples]
    steps = sft.plan_steps(lengths, epochs=config.epochs, step_tokens=config.step_tokens, seed=config.seed)
    steps = steps[: config.max_steps or None]
    return sft.SFTTrainer(
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
    """The function that loads a rank's state: float32 weights, LoRA adapters with --lora, and the optimizer."""
    import torch

    from magcli.model.load import load_model, load_tokenizer
    from magcli.train import optim
    from magcli.train.attention import use_packed_attention
    from magcli.train.controller import RankState
    from magcli.train.shard import shard

    def opened(ranks: Ranks, bf16: bool) -> RankState:
        device, scratch = str(ranks.device), config.from_scratch
        model = load_model(config.model, dtype=torch.float32, device=device, from_scratch=scratch, seed=config.seed)
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
