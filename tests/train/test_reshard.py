"""Sharded checkpoints: loaded by another number of ranks, rejected when damaged, complete whatever is killed."""

import itertools
import json
import os
import pickle
import random
import shutil
import signal
import time

import pytest
import torch
from training_ranks import on_ranks, started
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from magcli.errors import DataError
from magcli.train import checkpoint
from magcli.train.attention import use_packed_attention
from magcli.train.background_save import BackgroundSaver
from magcli.train.distributed import Ranks
from magcli.train.logprobs import token_logprobs
from magcli.train.optim import adamw, clip_and_step
from magcli.train.packing import pack
from magcli.train.shard import full_weights, shard
from magcli.train.shard_index import INDEX


def shared(ranks, model_dir):
    """The tiny model and an optimizer, sharded over the ranks."""
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    use_packed_attention(model)
    whole = shard(model, ranks)
    return whole, adamw(model, lr=1e-3, weight_decay=0.1)


def alone(model_dir):
    """The tiny model and an optimizer in this process."""
    whole, optimizer = shared(Ranks(), model_dir)
    return whole.model, optimizer


def learn(ranks, whole, optimizer, steps):
    """Optimizer steps of six sequences, split over the ranks; returns the losses."""
    losses = []
    for step in steps:
        draw = random.Random(step)
        everything = [[draw.randrange(104) for _ in range(draw.randint(2, 30))] for _ in range(6)]
        mine = everything[ranks.rank :: ranks.size]
        loss = whole(lambda model, mine=mine: -token_logprobs(model, pack(mine)).values.sum() / 100)
        loss.backward()
        losses.append(ranks.sum(loss.item()))
        clip_and_step(optimizer, whole.model.parameters(), max_norm=1.0)
    return losses


def moments(model, optimizer):
    """The optimizer's full state by parameter and key."""
    return {
        (name, key): getattr(tensor, "full_tensor", lambda tensor=tensor: tensor)().clone()
        for name, parameter in model.named_parameters()
        for key, tensor in optimizer.state[parameter].items()
    }


def begin(ranks, model_dir, folder):
    """Three steps, a checkpoint, two more steps: the checkpoint's content and the later losses."""
    whole, optimizer = shared(ranks, model_dir)
    learn(ranks, whole, optimizer, range(3))
    held = full_weights(whole.model, ranks), moments(whole.model, optimizer)
    held = ({name: tensor.clone() for name, tensor in held[0].items()}, held[1])
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    parts = {"model": whole.model, "optimizer": optimizer, "state": {"step": 3}, "tokenizer": tokenizer}
    if ranks.size == 1:
        checkpoint.save(folder, **parts)
    else:
        saver = BackgroundSaver(ranks)
        saver.start(folder, **parts)
        assert saver.has_ended(None)
    return *held, learn(ranks, whole, optimizer, range(3, 5))


def go_on(ranks, model_dir, folder):
    """A checkpoint's content after loading, and the losses of two more steps."""
    whole, optimizer = shared(ranks, model_dir)
    state = checkpoint.load(folder, whole.model, optimizer)
    held = full_weights(whole.model, ranks), moments(whole.model, optimizer)
    held = ({name: tensor.clone() for name, tensor in held[0].items()}, held[1])
    return state, *held, learn(ranks, whole, optimizer, range(3, 5))


def of_rank_0(function, *arguments, size):
    return function(Ranks(), *arguments) if size == 1 else on_ranks(function, *arguments, size=size)[0]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3), (2, 2)])
def test_a_checkpoint_resumes_with_another_number_of_ranks(tiny_model_dir, tmp_path, before, after):
    folder = checkpoint.step_folder(tmp_path, 3)
    weights, kept, losses = of_rank_0(begin, tiny_model_dir, folder, size=before)
    state, found, found_kept, found_losses = of_rank_0(go_on, tiny_model_dir, folder, size=after)
    assert state == {"step": 3}
    assert weights.keys() == found.keys()
    assert all(torch.equal(weights[name], found[name]) for name in weights)
    assert kept.keys() == found_kept.keys()
    assert all(torch.equal(kept[key], found_kept[key]) for key in kept)
    assert found_losses == pytest.approx(losses, rel=1e-6)
    assert after != before or found_losses == losses


@pytest.fixture(scope="module")
def shards(tiny_model_dir, tmp_path_factory):
    """A checkpoint of two ranks."""
    folder = checkpoint.step_folder(tmp_path_factory.mktemp("shards"), 3)
    on_ranks(begin, tiny_model_dir, folder)
    return folder


@pytest.mark.parametrize("name", ["shards/__0_0.distcp", "shards/__1_0.distcp", "shards/index.json", "state.json"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_a_damaged_shard_is_named(shards, tiny_model_dir, tmp_path, name, damage):
    folder = tmp_path / shards.name
    shutil.copytree(shards, folder)
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 3] ^= 1
    (folder / name).unlink()
    if damage != "missing":
        (folder / name).write_bytes(content if damage == "flipped" else content[: len(content) // 2])
    with pytest.raises(DataError, match=name):
        checkpoint.load(folder, *alone(tiny_model_dir))


def test_nothing_in_a_checkpoint_is_unpickled(shards, tiny_model_dir, tmp_path):
    """A folder in which the library's own index would run code when it is read."""
    folder = tmp_path / shards.name
    shutil.copytree(shards, folder)
    canary = tmp_path / "canary"
    (folder / "shards" / ".metadata").write_bytes(pickle.dumps(Runs(f"touch {canary}")))
    checkpoint.load(folder, *alone(tiny_model_dir))
    assert not canary.exists()


class Runs:
    """Its pickle runs a command."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("file", ["../../state.json", "/etc/passwd", "missing.distcp"])
def test_parts_outside_of_the_folder_are_refused(shards, tiny_model_dir, tmp_path, file):
    folder = tmp_path / shards.name
    shutil.copytree(shards, folder)
    index = json.loads((folder / "shards" / INDEX).read_text())
    index["parts"][0]["file"] = file
    (folder / "shards" / INDEX).write_text(json.dumps(index))
    with pytest.raises(DataError, match=r"index\.json is missing or damaged .*is not a file of the checkpoint"):
        checkpoint.load_verified(folder, *alone(tiny_model_dir))


def test_shards_of_another_model_are_rejected_and_change_nothing(shards):
    sizes = {"vocab_size": 104, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(DataError, match=r"does not fit LlamaForCausalLM: weights\.\S+ is "):
        checkpoint.load(shards, model)
    assert all(torch.equal(now, then) for now, then in zip(model.parameters(), before, strict=True))


def save_for_ever(ranks, model_dir, root):
    whole, optimizer = shared(ranks, model_dir)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    saver = BackgroundSaver(ranks)
    for step in itertools.count(1):
        learn(ranks, whole, optimizer, [step])
        saver.has_ended(None)
        if ranks.rank == 0:
            checkpoint.prune(root, keep=1)
        folder = checkpoint.step_folder(root, step)
        saver.start(folder, model=whole.model, optimizer=optimizer, state={"step": step}, tokenizer=tokenizer)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_killed_while_saving_leaves_the_newest_checkpoint_complete(tiny_model_dir, tmp_path, victim):
    with started(save_for_ever, tiny_model_dir, tmp_path, size=2) as ranks:
        while (newest := checkpoint.latest(tmp_path)) is None or newest.name < "step-000003":
            time.sleep(0.01)
        time.sleep(random.Random(victim).uniform(0.0, 0.2))
        os.kill(ranks[victim].process.pid, signal.SIGKILL)
        assert ranks[1 - victim].outcome()[0] == "raised"
    model, optimizer = alone(tiny_model_dir)
    assert checkpoint.load(checkpoint.latest(tmp_path), model, optimizer)["step"] >= 3
    checkpoint.prune(tmp_path, keep=1)
    assert len(list(tmp_path.iterdir())) == 1
