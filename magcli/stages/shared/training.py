"""What `sft` and `rl` share: number formats, the weights to train, the run's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from magcli.data import checksum
from magcli.data.manifest import Input
from magcli.errors import usage
from magcli.model.weights.save import open_original
from magcli.model.weights.slices import has_slices
from magcli.plan import formats
from magcli.run.rundir import RunDir
from magcli.run.trackers import Source, no_samples, open_trackers
from magcli.stages.shared.forms import recorded_choice
from magcli.train import lora
from magcli.train.attention import use_packed_attention
from magcli.train.load_shards import load_shards
from magcli.train.lora import keep_stream_in_float32
from magcli.train.optim import adamw
from magcli.train.shard import shard

if TYPE_CHECKING:
    from torch.optim import AdamW
    from transformers import PreTrainedModel

    from magcli.choices import SaveDtype
    from magcli.model.model import Model
    from magcli.model.weights.save import Original
    from magcli.plan.formats import Formats, TrainerPlan
    from magcli.run.job import Job
    from magcli.run.trackers import LogLines, Name, SamplesOf
    from magcli.train.distributed import Ranks
    from magcli.train.shard import ShardedModel


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """The folder of a training run, its number formats, and what gives its metrics to trackers."""

    folder: RunDir
    formats: Formats
    log_lines: LogLines


@dataclass(frozen=True, slots=True)
class FolderSpec:
    """The folder that a training run asks for, and what is recorded in it.

    Attributes:
        stage: begins messages.
        path: that of the folder.
        options: all of the stage, as its history records them.
        lengths: options of which a larger value prolongs an earlier run.
        track: experiment trackers.
        formats: the options of ``SPELLINGS`` that matter to the run, perhaps ``auto``.
        device: that of the trainer.
        exact: ``auto`` is float32.
    """

    stage: str
    path: Path
    options: Mapping[str, Any]
    lengths: Sequence[str]
    track: Sequence[Name]
    formats: Mapping[str, str]
    device: str
    exact: bool = False

    @contextmanager
    def opened(self, model: Model, job: Job, samples_of: SamplesOf = no_samples) -> Iterator[OpenedRun]:
        """The folder for the duration of the block; it belongs to the settings of one job and its inputs.

        Open it after the last row was read: only then is the digest of a pipe known.

        Raises:
            UsageError: the folder is that of a run with other settings, or a finished one had another format.
        """
        # Formats are resolved in the folder: ``auto`` on another machine may mean another one.
        settings = {key: value for key, value in job.settings.items() if key not in formats.SPELLINGS}
        wanted = {**settings, "inputs": [source.sha256 for source in job.sources]}
        with RunDir.open(self.path, self.stage, wanted, restart=job.restart, lengths=self.lengths) as folder:
            inputs = [Input(Path(source.name).name, source.sha256, source.total or 0) for source in job.sources]
            folder.store_inputs(inputs, job.past())
            resolved = resolve_formats(self.formats, model, self.device, folder, job, exact=self.exact)
            tracked = Source(self.stage, folder.path, self.options, samples_of)
            # Trackers that have this run already go on with it.
            with open_trackers(self.track, tracked, job.console, resumed=bool(folder.metrics())) as log_lines:
                yield OpenedRun(folder, resolved, log_lines)


def resolve_formats(
    asked: Mapping[str, str],
    model: Model,
    device: str,
    folder: RunDir,
    job: Job,
    *,
    exact: bool = False,
) -> Formats:
    """The number formats of a training run, those that options leave to ``auto`` included, recorded in its folder.

    A resumed run keeps its formats, on whatever machine, unless an option names another. ``asked`` are the options of
    ``SPELLINGS`` that matter to the run; ``exact`` runs default to float32.

    Raises:
        UsageError: the run is finished, and the options ask for another format.
    """
    if folder.finished:
        return formats.formats_of(_formats_of_finished(folder, asked, job))
    if exact:
        # Only what is left to ``auto``: a format that the user names stays.
        asked = formats.float32_for_auto(asked)
    chosen = job.choose(asked, lambda option: formats.spelled(option, model, device), [folder])
    return formats.formats_of(chosen)


def _formats_of_finished(folder: RunDir, asked: Mapping[str, str], job: Job) -> dict[str, str]:
    """The formats of a finished run, if the options do not ask for others."""
    used = {option: folder.notes.get(option, value) for option, value in asked.items()}
    for option, value in asked.items():
        text = f"{folder.path} holds a run with {option} {used[option]!r} (now {value!r})"
        usage(not formats.contradicts(value, used[option]), text)
    # The history of the output names them, although nothing is trained.
    job.chosen |= used
    return used


def recorded(run: Path, name: str) -> str:
    """What an unfinished run in a folder recorded under a name; empty if there is none."""
    try:
        return recorded_choice(checksum.read_object(run / "run.json"), name)
    except (OSError, ValueError):  # opening the run's folder says what is wrong with it
        return ""


def frozen_model(plan: TrainerPlan, model: Model, ranks: Ranks) -> PreTrainedModel:
    """A whole model on a rank's device that only scores the policy's tokens."""
    dtype = torch.bfloat16 if formats.frozen_in_bf16(model, bf16=plan.bf16) else torch.float32
    loaded = model.load(dtype=dtype, device=str(ranks.device))
    use_packed_attention(loaded, plan.attention)
    keep_stream_in_float32(loaded)
    return loaded.requires_grad_(False)


def loads_whole(model: Model, ranks: int, *, from_scratch: bool = False) -> bool:
    """Whether each of several ranks loads the whole model before it keeps its shard."""
    return ranks > 1 and (from_scratch or not has_slices(model))


def sharded_model(
    plan: TrainerPlan, model: Model, ranks: Ranks, *, from_scratch: bool = False, seed: int = 0
) -> ShardedModel:
    """A rank's shards of the weights in evaluation mode, with packed attention and the adapters of the plan.

    Of several ranks each reads its own slices of the files, if the model can be read so.
    """
    computes = {"bf16": plan.bf16, "checkpoint_activations": plan.recomputes}
    # Random weights have no files, and must be the same on all ranks.
    if ranks.size > 1 and not from_scratch:
        # None if the model's files cannot be read in slices.
        sharded = load_shards(model, ranks, **computes, attention=plan.attention)
        if sharded is not None:
            return sharded
    # Weights that are trained are float32 masters; only a frozen base may be bf16.
    dtype = torch.bfloat16 if plan.bf16_base else torch.float32
    weights = model.load(dtype=dtype, device=str(ranks.device), from_scratch=from_scratch, seed=seed)
    use_packed_attention(weights, plan.attention)
    if plan.lora_rank:
        lora.add_lora(weights, rank=plan.lora_rank, alpha=plan.lora_alpha, seed=seed)
    return shard(weights, ranks, **computes)


def original(model: Model, save_dtype: SaveDtype, *, from_scratch: bool = False) -> Original:
    """What the saved model takes over from the one that training starts from, with all tokens that end a turn.

    Raises:
        UsageError: --stop does not name single tokens.
    """
    return open_original(
        model.name,
        dtype=save_dtype,
        ends=model.ends,
        chat_template=model.template.source,
        from_scratch=from_scratch,
        text_places={} if from_scratch else model.text_places,
    )


def optimizer(plan: TrainerPlan, sharded: ShardedModel) -> AdamW:
    """AdamW for a rank's shards of the weights."""
    # The schedule sets the rate before each step.
    return adamw(sharded.model, lr=0.0, weight_decay=plan.weight_decay, offload_moments=plan.offloads_moments)
