"""A replay: train a model on the stored rollouts of an earlier run, without engines, generators and verifiers."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from magcli.errors import DataError
from magcli.rl.layout import note_layout
from magcli.rl.ledger import Ledger
from magcli.rl.replay import replay
from magcli.rl.stored import StoredRollouts
from magcli.run.settings import differences
from magcli.stages.rl.display import say_results
from magcli.stages.rl.parts import Inputs, build_checkpointing, build_trainer, shown, stages_for
from magcli.stages.rl.replayed import options_of_replayed
from magcli.stages.shared import forecast, forms, trainer_ranks

if TYPE_CHECKING:
    from magcli.console import Console
    from magcli.model.model import Model
    from magcli.rl.stored import Extent
    from magcli.rl.types import Group
    from magcli.stages.rl.plan import RunPlan
    from magcli.stages.rl.spec import RunSpec
    from magcli.train.controller import RankController


def train_replay(inputs: Inputs, after_loss: bool) -> None:
    """Train on the stored rollouts from the last update in the folder to the end, and write the model.

    ``after_loss``: as in ``trainer_ranks.opened``.

    Raises:
        DataError: the rollouts cannot be replayed with this model.
        Stopped: several updates in a row had no finite gradient.
    """
    spec, model, folder, console = inputs.spec, inputs.model, inputs.folder, inputs.job.console
    extent = check_stored(spec, model)
    machine = spec.ranks.machine()
    prompt = extent.longest_prompt
    planned = partial(spec.plan_on, model, machine, formats=inputs.formats, longest_prompt=prompt)
    forms.record(model.thoughts, inputs.job, [folder])
    _say_differences(spec, console)
    with trainer_ranks.opened(spec.ranks, console, after_loss=after_loss, planned=planned) as (_, controller):
        note_layout(folder, trainers=controller.size, tensor_parallel=1, fsdp_size=spec.ranks.copy_size)
        plan = planned(ranks=controller.size)
        forecast.check(plan, folder, console)
        _replay_all(inputs, plan, controller)
    say_results(folder, console)


def _replay_all(inputs: Inputs, plan: RunPlan, controller: RankController) -> None:
    """Train on the updates that are left, and write the model."""
    spec, model, folder = inputs.spec, inputs.model, inputs.folder
    assert spec.replay is not None
    trainer = build_trainer(spec, model, plan, controller)
    trainer.is_replay = True
    # A disk that cannot take the model is found before the training, not after it.
    controller.try_saving(folder.model)
    with closing(Ledger(folder.ledger)) as ledger:
        checkpointing = build_checkpointing(inputs, ledger, model, evaluates=False)
        checkpointing.resume(trainer)
        stages = stages_for(spec.stages, model.thoughts)
        with shown(inputs, trainer, checkpointing) as display:
            replay(trainer, StoredRollouts(spec.replay), stages, checkpointing, display, spec.diverse_by)
        checkpointing.finish(trainer)


def check_stored(spec: RunSpec, model: Model) -> Extent:
    """Look through the rollouts for what a replay would fail on, before anything is trained.

    Raises:
        DataError: they are not those of a run, not whole, fewer than --updates, or of another tokenizer.
    """
    assert spec.replay is not None
    stored = StoredRollouts(spec.replay)
    extent = stored.check(spec.group_size, spec.diverse_by)
    if extent.updates < spec.updates:
        raise DataError(f"rl: {spec.replay} has {extent.updates} updates to replay, not --updates {spec.updates}")
    # A larger id would index outside the embedding.
    size = int(model.text_config.vocab_size)
    # Ids within the vocabulary may still be those of another tokenizer.
    first = next(stored.updates()).groups[0]
    if extent.largest_id >= size or not _has_text(model, first):
        raise DataError(
            f"rl: {spec.replay} cannot be replayed with {model.name}, which has another tokenizer than the model "
            "that sampled it; give that one, or one that was trained from it"
        )
    return extent


def _has_text(model: Model, group: Group) -> bool:
    """Whether the tokens of a group's completions are their text, in this model's tokenizer."""
    has_text = False
    for rollout, text in zip(group.rollouts, group.texts, strict=True):
        if text:
            has_text = True
            decoded = model.tokenizer.decode([*rollout.prompt, *rollout.tokens])
            # One match is enough; not each text comes back exactly from its tokens.
            if text in decoded:
                return True
    return not has_text  # without any text there is nothing to compare


def _say_differences(spec: RunSpec, console: Console) -> None:
    """Say what is replayed, and which options differ from those of its run."""
    assert spec.replay is not None
    earlier = options_of_replayed(spec.replay)
    now = {name: value for name, value in spec.folder.options.items() if name in earlier}
    for name in ("reward", "environment"):  # a replay has neither, and trains on what they gave
        if name in earlier:
            now[name] = earlier[name]
    changed = differences(earlier, now)
    options = f"other than there: {changed}" if changed else "with the same options"
    text = f"rl: replaying {spec.updates} updates of {spec.replay}, off-policy and without an engine; {options}"
    console.say(text, event="replay", replay=str(spec.replay), updates=spec.updates)
