"""Checkpoints that ranks write while they train: of their step bit for bit, complete or absent, one at a time."""

import os
import resource
import signal
from pathlib import Path

import pytest
import torch
from test_reshard import alone, learn, moments, shared
from training_ranks import InStep, on_ranks, started, until
from transformers import AutoTokenizer

from magcli.errors import EnvironmentFault
from magcli.train import background_save, checkpoint
from magcli.train.background_save import BackgroundSaver
from magcli.train.commands import RankState
from magcli.train.controller import RankController
from magcli.train.shard import full_weights
from magcli.train.shard_index import IndexWriter


def hold_back_shards(ranks, gate: Path, writing: Path | None = None) -> None:
    """Have rank 1's shards wait for a file; rank 0 then waits for them in the writers' collective."""
    if ranks.rank == 0:
        return

    class HeldBack(IndexWriter):
        """Writes once the gate is open, and says before that it would."""

        def write_data(self, plan, planner):
            if writing is not None:
                writing.touch()
            until(gate.exists)
            return super().write_data(plan, planner)

    background_save.IndexWriter = HeldBack


def content(ranks, whole, optimizer):
    """Full weights and moments, copied."""
    weights = {name: tensor.clone() for name, tensor in full_weights(whole.model, ranks).items()}
    return weights, moments(whole.model, optimizer)


def parts_of(whole, optimizer, model_dir, step):
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    return {"model": whole.model, "optimizer": optimizer, "state": {"step": step}, "tokenizer": tokenizer}


def train_while_saving(ranks, model_dir, root, saves):
    """Six steps, with a checkpoint after the third that is written after the sixth, and one more after that."""
    gate = root / "gate"
    hold_back_shards(ranks, gate)
    whole, optimizer = shared(ranks, model_dir)
    losses = learn(ranks, whole, optimizer, range(3))
    if not saves:
        return losses + learn(ranks, whole, optimizer, range(3, 6))
    at_three = content(ranks, whole, optimizer)
    saver = BackgroundSaver(ranks)
    third = checkpoint.step_folder(root, 3)
    saver.start(third, **parts_of(whole, optimizer, model_dir, 3))
    losses += learn(ranks, whole, optimizer, range(3, 6))
    early = saver.has_ended(0.0), checkpoint.steps(root)
    at_six = content(ranks, whole, optimizer)
    gate.touch()
    saver.start(checkpoint.step_folder(root, 6), **parts_of(whole, optimizer, model_dir, 6))
    third_before_sixth = (third / checkpoint.MANIFEST).exists()
    saver.has_ended(None)
    return losses, early, third_before_sixth, at_three, at_six


def assert_holds(folder, expected, model_dir):
    model, optimizer = alone(model_dir)
    state = checkpoint.load(folder, model, optimizer)
    weights, kept = expected
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    stored = moments(model, optimizer)
    assert stored.keys() == kept.keys()
    assert all(torch.equal(tensor, kept[key]) for key, tensor in stored.items())
    return state


def test_training_goes_on_and_a_checkpoint_is_that_of_its_step(tiny_model_dir, tmp_path):
    first, _ = on_ranks(train_while_saving, tiny_model_dir, tmp_path, True)
    losses, early, third_before_sixth, at_three, at_six = first
    assert early == (False, [])
    assert third_before_sixth, "the next checkpoint is copied after the one before was written"
    assert assert_holds(checkpoint.step_folder(tmp_path, 3), at_three, tiny_model_dir) == {"step": 3}
    assert assert_holds(checkpoint.step_folder(tmp_path, 6), at_six, tiny_model_dir) == {"step": 6}
    assert any(not torch.equal(at_three[0][name], at_six[0][name]) for name in at_three[0])
    undisturbed, _ = on_ranks(train_while_saving, tiny_model_dir, tmp_path, False)
    assert losses == undisturbed


def full_disk(ranks, model_dir, folder):
    """A save when rank 1 cannot write more than 4 KiB per file, and training after it."""
    whole, optimizer = shared(ranks, model_dir)
    learn(ranks, whole, optimizer, range(1))
    if ranks.rank == 1:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    saver = BackgroundSaver(ranks)
    saver.start(folder, **parts_of(whole, optimizer, model_dir, 1))
    learn(ranks, whole, optimizer, range(1, 2))
    with pytest.raises(EnvironmentFault) as fault:
        saver.has_ended(None)
    assert saver.has_ended(None), "an error is told once"
    return str(fault.value)


def test_a_rank_that_cannot_write_is_named_and_leaves_no_checkpoint(tiny_model_dir, tmp_path):
    for text in on_ranks(full_disk, tiny_model_dir, checkpoint.step_folder(tmp_path, 1)):
        assert text.startswith("cannot write")
        assert "rank 1" in text
        assert "\n" not in text
    assert list(tmp_path.iterdir()) == []


def save_twice(ranks, model_dir, root, gate, writing):
    """A complete checkpoint, and one that is never written to its end."""
    whole, optimizer = shared(ranks, model_dir)
    learn(ranks, whole, optimizer, range(1))
    saver = BackgroundSaver(ranks)
    saver.start(checkpoint.step_folder(root, 1), **parts_of(whole, optimizer, model_dir, 1))
    saver.has_ended(None)
    ranks.sum(0.0)  # rank 0 has ended too
    hold_back_shards(ranks, gate, writing)
    learn(ranks, whole, optimizer, range(1, 2))
    saver.start(checkpoint.step_folder(root, 2), **parts_of(whole, optimizer, model_dir, 2))
    saver.has_ended(None)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_half_written_checkpoint_of_lost_ranks_is_never_one(tiny_model_dir, tmp_path, victim):
    root, writing = tmp_path / "checkpoints", tmp_path / "writing"
    with started(save_twice, tiny_model_dir, root, tmp_path / "gate", writing, size=2) as ranks:
        until(writing.exists)
        os.kill(ranks[victim].process.pid, signal.SIGKILL)
        assert ranks[victim].outcome() == ("died", None)
        if victim == 1:
            assert ranks[0].outcome()[0] == "raised"
    # Rank 0 removes what it cannot finish; if it is gone itself, that is left.
    assert len(list(root.iterdir())) == (2 if victim == 0 else 1)
    assert checkpoint.steps(root) == [checkpoint.step_folder(root, 1)]
    assert checkpoint.load(checkpoint.step_folder(root, 1), *alone(tiny_model_dir)) == {"step": 1}
    checkpoint.remove_unfinished(root)
    assert list(root.iterdir()) == [checkpoint.step_folder(root, 1)]


def save_with_a_controller(ranks, model_dir, root):
    """Which checkpoints there are before and after the end of the second, of which one is kept."""
    whole, optimizer = shared(ranks, model_dir)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    controller = RankController(InStep(ranks))
    controller.open(lambda ranks, _: RankState(ranks, whole, optimizer, tokenizer))
    written = []

    def when_written(step):
        written.append(step)
        if ranks.rank == 0:
            checkpoint.prune(root, keep=1)

    controller.save(checkpoint.step_folder(root, 1), {"step": 1}, lambda: when_written(1))
    controller.finish_save()
    hold_back_shards(ranks, root / "gate")
    controller.save(checkpoint.step_folder(root, 2), {"step": 2}, lambda: when_written(2))
    controller.check_save()
    before = list(written), checkpoint.steps(root)
    (root / "gate").touch()
    controller.finish_save()
    ranks.sum(0.0)  # rank 0 has pruned
    return before, list(written), checkpoint.steps(root)


def test_old_checkpoints_are_removed_once_the_next_is_complete(tiny_model_dir, tmp_path):
    first, second = (checkpoint.step_folder(tmp_path, step) for step in (1, 2))
    for before, written, after in on_ranks(save_with_a_controller, tiny_model_dir, tmp_path):
        assert before == ([1], [first])
        assert (written, after) == ([1, 2], [second])
