"""What `sft` and `rl` share: number formats, the weights to train and their optimizer, the run's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from magcli.data import checksum
from magcli.data.manifest import Input
from magcli.errors import usage
from magcli.model import compute
from magcli.model.save import open_original
from magcli.model.slices import has_slices
from magcli.run.rundir import RunDir
from magcli.run.settings import CHOSEN
from magcli.train import lora
from magcli.train.load_shards import load_shards
from magcli.train.lora import keep_stream_in_float32
from magcli.train.optim import adamw
from magcli.train.packing import use_packed_attention
from magcli.train.shard import shard

if TYPE_CHECKING:
    from torch.optim import AdamW
    from transformers import PreTrainedModel

    from magcli.model.model import Model
    from magcli.model.save import Original
    from magcli.plan.fit import Plan
    from magcli.run.job import Job
    from magcli.stages.shared.options import TrainingOptions
    from magcli.train.distributed import Ranks
    from magcli.train.packing import AttentionName
    from magcli.train.shard import ShardedModel

FORMATS: Mapping[str, tuple[compute.Purpose, Mapping[str, str]]] = {
    "bf16": ("training", {"bf16": "yes", "fp32": "no"}),
    "dtype": ("sampling", {"bf16": "bf16", "fp32": "fp32"}),
}
"""Options of training runs that are number formats: their purpose, and their spelling of bf16 and float32."""

RunConfig = TypeVar("RunConfig", bound=Any)


def resolve_formats(
    config: RunConfig,
    model: Model,
    folder: RunDir,
    job: Job,
    names: Sequence[str] = tuple(FORMATS),
    *,
    exact: bool = False,
) -> RunConfig:
    """The options of a training run with number formats in place of ``auto``, recorded in its folder.

    A resumed run keeps its formats, on whatever machine, unless an option names another. ``exact`` runs default to
    float32.

    Raises:
        UsageError: the run is finished, and the options ask for another format.
    """
    asked = {option: getattr(config, option) for option in names}
    if folder.finished:
        formats = {option: folder.notes.get(option, value) for option, value in asked.items()}
        for option, value in asked.items():
            text = f"{folder.path} holds a run with {option} {formats[option]!r} (now {value!r})"
            usage(value in ("auto", formats[option]), text)
        job.chosen |= formats
        return replace(config, **formats)

    def decide(option: str) -> tuple[str, str]:
        purpose, values = FORMATS[option]
        choice = compute.choose(model, config.device, purpose)
        return values[choice.format], choice.reason

    if exact:
        for option in names:
            if asked[option] == "auto":
                asked[option] = FORMATS[option][1]["fp32"]
    return replace(config, **job.choose(asked, decide, [folder]))


def recorded(run: Path, name: str) -> str:
    """What an unfinished run in a folder recorded under a name; empty if there is none."""
    try:
        chosen = checksum.read_object(run / "run.json").get(CHOSEN)
    except (OSError, ValueError):  # opening the run's folder says what is wrong with it
        return ""
    return str(chosen.get(name, "")) if isinstance(chosen, dict) else ""


def attention_of(config: TrainingOptions, *, bf16: bool) -> AttentionName:
    """The attention to use; FlashAttention computes in bf16, so without it ``auto`` leaves it out."""
    return "sdpa" if config.attention == "auto" and not bf16 else config.attention


def with_checkpointing_as_planned(config: RunConfig, plan: Plan) -> RunConfig:
    """The options with activation checkpointing as in the forecast, which decides what ``auto`` is on a GPU."""
    recomputes = plan.training.activation_checkpointing
    return replace(config, activation_checkpointing="yes" if recomputes else "no")


def checkpoints_activations(config: TrainingOptions, *, on_gpu: bool) -> bool:
    """Whether layer activations are recomputed in the backward pass instead of kept, if nothing is planned."""
    if config.activation_checkpointing == "auto":
        return on_gpu
    return config.activation_checkpointing == "yes"


def base_dtype(config: TrainingOptions, model: Model, *, bf16: bool) -> torch.dtype:
    """The dtype of the model's weights in memory.

    Trained weights are float32. With LoRA they are frozen: in bf16 if they are stored and multiplied so, which is a
    third of the memory of float32 weights and their copies in bf16.
    """
    return torch.bfloat16 if has_bf16_base(config, model, bf16=bf16) else torch.float32


def has_bf16_base(config: TrainingOptions, model: Model, *, bf16: bool) -> bool:
    """Whether the frozen weights under LoRA adapters are in bf16."""
    return config.lora > 0 and frozen_in_bf16(model, bf16=bf16)


def frozen_in_bf16(model: Model, *, bf16: bool) -> bool:
    """Whether weights that are not trained are in bf16: if they are stored and multiplied so."""
    return bf16 and bool(model.config.dtype == torch.bfloat16)


def frozen_model(config: TrainingOptions, model: Model, ranks: Ranks, *, bf16: bool) -> PreTrainedModel:
    """A whole model on a rank's device that only scores the policy's tokens."""
    dtype = torch.bfloat16 if frozen_in_bf16(model, bf16=bf16) else torch.float32
    loaded = model.load(dtype=dtype, device=str(ranks.device))
    use_packed_attention(loaded, attention_of(config, bf16=bf16))
    keep_stream_in_float32(loaded)
    return loaded.requires_grad_(False)


def loads_whole(model: Model, ranks: int, *, from_scratch: bool = False) -> bool:
    """Whether each of several ranks loads the whole model before it keeps its shard."""
    return ranks > 1 and (from_scratch or not has_slices(model))


def sharded_model(
    config: TrainingOptions, model: Model, ranks: Ranks, *, bf16: bool, from_scratch: bool = False, seed: int = 0
) -> ShardedModel:
    """A rank's shards of the weights in evaluation mode, with packed attention and the adapters of --lora.

    Of several ranks each reads its own slices of the files, if the model can be read so.
    """
    recomputed = checkpoints_activations(config, on_gpu=ranks.device.type != "cpu")
    attention = attention_of(config, bf16=bf16)
    if ranks.size > 1 and not from_scratch:
        sharded = load_shards(model, ranks, bf16=bf16, checkpoint_activations=recomputed, attention=attention)
        if sharded is not None:
            return sharded
    dtype = base_dtype(config, model, bf16=bf16)
    weights = model.load(dtype=dtype, device=str(ranks.device), from_scratch=from_scratch, seed=seed)
    use_packed_attention(weights, attention)
    if config.lora:
        lora.add_lora(weights, rank=config.lora, alpha=config.lora_alpha, seed=seed)
    return shard(weights, ranks, bf16=bf16, checkpoint_activations=recomputed)


def optimizer(config: Any, model: PreTrainedModel) -> AdamW:
    """AdamW over the trained parameters, with its moments in host memory if the options ask for it."""
    offloads = config.offload == "moments"
    return adamw(model, lr=config.lr, weight_decay=config.weight_decay, offload_moments=offloads)


def original(config: Any, model: Model) -> Original:
    """What the saved model takes over from the one that training starts from, with all tokens that end a turn.

    Raises:
        UsageError: --stop does not name single tokens.
    """
    from_scratch = getattr(config, "from_scratch", False)
    return open_original(
        model.name,
        dtype=config.save_dtype,
        ends=model.ends,
        chat_template=model.template.source,
        from_scratch=from_scratch,
        text_places={} if from_scratch else model.text_places,
    )


@contextmanager
def run_folder(stage: str, config: Any, job: Job, lengths: Sequence[str]) -> Iterator[RunDir]:
    """The folder of a training run, which belongs to the settings of one job and its inputs.

    With larger values of the options ``lengths``, an earlier run is prolonged.

    Open it after the last row was read: only then is the digest of a pipe known.
    """
    settings = {key: value for key, value in job.settings.items() if key not in FORMATS}
    wanted = {**settings, "inputs": [source.sha256 for source in job.sources]}
    with RunDir.open(config.run, stage, wanted, restart=job.restart, lengths=lengths) as folder:
        inputs = [Input(Path(source.name).name, source.sha256, source.total or 0) for source in job.sources]
        folder.store_inputs(inputs, job.past())
        yield folder
