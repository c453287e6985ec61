"""Checkpoints: exact resume in a new process, Hugging Face layout, and detection of damage."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from magcli.errors import DataError, EnvironmentFault
from magcli.train import checkpoint
from magcli.train.attention import use_packed_attention
from magcli.train.logprobs import token_logprobs
from magcli.train.optim import adamw, clip_and_step
from magcli.train.packing import pack

FILES = ["model.safetensors", "config.json", "tokenizer.json", "trainer.pt", "state.json", "checkpoint.json"]


def start(model_dir):
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    use_packed_attention(model)
    return model, adamw(model, lr=1e-3, weight_decay=0.1)


def train(model, optimizer, num_steps):
    """Steps with data from all three random generators, so that a lost random state is detected."""
    for _ in range(num_steps):
        lengths = [random.randint(2, 20), int(np.random.randint(2, 20)), 9]
        sequences = [torch.randint(104, (length,)).tolist() for length in lengths]
        (-token_logprobs(model, pack(sequences)).values.mean()).backward()
        clip_and_step(optimizer, model.parameters(), max_norm=1.0)


def seed_all():
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)


@pytest.fixture
def saved(tiny_model_dir, tmp_path):
    """A checkpoint after three steps, with its model and optimizer."""
    seed_all()
    model, optimizer = start(tiny_model_dir)
    train(model, optimizer, 3)
    folder = checkpoint.step_folder(tmp_path, 3)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    checkpoint.save(folder, model=model, optimizer=optimizer, state={"step": 3, "best": 0.5}, tokenizer=tokenizer)
    return folder, model, optimizer


def resume_and_train(model_dir, folder, num_steps, out):
    """The new process of the resume test."""
    torch.set_num_threads(1)
    model, optimizer = start(model_dir)
    state = checkpoint.load(Path(folder), model, optimizer)
    train(model, optimizer, int(num_steps))
    torch.save({"state": state, "weights": model.state_dict(), "optimizer": optimizer.state_dict()}, out)


def test_a_new_process_resumes_bit_for_bit(saved, tiny_model_dir, tmp_path):
    folder, model, optimizer = saved
    train(model, optimizer, 3)
    out = tmp_path / "resumed.pt"
    command = [sys.executable, __file__, tiny_model_dir, folder, "3", out]
    subprocess.run([str(part) for part in command], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    resumed = torch.load(out, weights_only=True)
    assert resumed["state"] == {"step": 3, "best": 0.5}
    for name, tensor in model.state_dict().items():
        assert torch.equal(resumed["weights"][name], tensor), name
    for index, moments in optimizer.state_dict()["state"].items():
        for name, tensor in moments.items():
            assert torch.equal(resumed["optimizer"]["state"][index][name], tensor), (index, name)


def test_transformers_loads_a_checkpoint(saved):
    folder, model, _ = saved
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert loaded.dtype == torch.float32
    assert loaded.config._attn_implementation != model.config._attn_implementation
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert AutoTokenizer.from_pretrained(folder).chat_template


def test_loading_only_weights_leaves_random_states_unchanged(saved, tiny_model_dir):
    folder, trained, _ = saved
    model, _ = start(tiny_model_dir)
    before = torch.get_rng_state()
    checkpoint.load(folder, model)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), trained.parameters(), strict=True))


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_detected(saved, tiny_model_dir, name):
    folder, _, _ = saved
    content = bytearray((folder / name).read_bytes())
    content[random.Random(name).randrange(len(content))] ^= 1 << 4
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=str(folder)):
        checkpoint.load(folder, *start(tiny_model_dir))


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_named(saved, tiny_model_dir, name):
    folder, _, _ = saved
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=name):
        checkpoint.load(folder, *start(tiny_model_dir))


def test_a_manifest_that_is_nested_too_deeply_is_named(saved, tiny_model_dir):
    folder, _, _ = saved
    (folder / checkpoint.MANIFEST).write_text("[" * 100_000)
    with pytest.raises(DataError, match=rf"{checkpoint.MANIFEST} is damaged; remove "):
        checkpoint.load(folder, *start(tiny_model_dir))


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(saved, tiny_model_dir, name):
    folder, _, _ = saved
    (folder / name).unlink()
    with pytest.raises(DataError, match=name):
        checkpoint.load(folder, *start(tiny_model_dir))


def test_a_rejected_checkpoint_does_not_change_the_model(saved, tiny_model_dir):
    folder, _, _ = saved
    (folder / "trainer.pt").write_bytes(b"")
    model, optimizer = start(tiny_model_dir)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(DataError):
        checkpoint.load(folder, model, optimizer)
    assert all(torch.equal(now, then) for now, then in zip(model.parameters(), before, strict=True))


def test_a_checkpoint_of_another_model_is_rejected(saved):
    from transformers import LlamaConfig, LlamaForCausalLM

    folder, _, _ = saved
    config = LlamaConfig(
        vocab_size=104, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    with pytest.raises(DataError, match="does not fit LlamaForCausalLM"):
        checkpoint.load(folder, LlamaForCausalLM(config))


def test_saving_again_replaces_the_checkpoint(saved, tiny_model_dir):
    folder, model, optimizer = saved
    train(model, optimizer, 1)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    checkpoint.save(folder, model=model, optimizer=optimizer, state={"step": 4}, tokenizer=tokenizer)
    assert checkpoint.load(folder, model, optimizer) == {"step": 4}
    assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]


def test_weights_other_than_float32_are_rejected(saved, tiny_model_dir, tmp_path):
    _, model, optimizer = saved
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    with pytest.raises(EnvironmentFault, match="float32 master weights"):
        checkpoint.save(
            tmp_path / "step-000009", model=model.bfloat16(), optimizer=optimizer, state={}, tokenizer=tokenizer
        )
    assert not (tmp_path / "step-000009").exists()


def empty_checkpoint(root, step):
    folder = checkpoint.step_folder(root, step)
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").write_text(json.dumps({"files": {}}))
    return folder


def test_the_latest_is_the_newest_complete_step(tmp_path):
    assert checkpoint.latest(tmp_path / "nowhere") is None
    for step in (5, 1_000_000, 40):
        empty_checkpoint(tmp_path, step)
    (tmp_path / "step-2000000").mkdir()
    empty_checkpoint(tmp_path / "elsewhere", 3_000_000).rename(tmp_path / ".step-3000000.1.tmp")
    assert checkpoint.latest(tmp_path) == tmp_path / "step-1000000"
    assert [folder.name for folder in checkpoint.steps(tmp_path)] == ["step-000005", "step-000040", "step-1000000"]


def test_pruning_keeps_the_newest_and_protected_checkpoints(tmp_path):
    folders = [empty_checkpoint(tmp_path, step) for step in range(5)]
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (tmp_path / f".step-000009.{int(dead.stdout)}.tmp").mkdir()
    checkpoint.prune(tmp_path, keep=2, protect=[folders[1]])
    assert sorted(tmp_path.iterdir()) == [folders[1], folders[3], folders[4]]
    checkpoint.prune(tmp_path, keep=9)
    assert sorted(tmp_path.iterdir()) == [folders[1], folders[3], folders[4]]


@pytest.mark.faults
def test_a_process_killed_while_saving_and_pruning_leaves_the_newest_checkpoint_complete(saved, tiny_model_dir):
    folder, model, optimizer = saved
    root, reached = folder.parent, 3
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    draw = random.Random(0)
    for kills in itertools.count(1):
        child = os.fork()
        if not child:
            for step in itertools.count(reached + 1):
                own = checkpoint.step_folder(root, step)
                checkpoint.save(own, model=model, optimizer=optimizer, state={"step": step}, tokenizer=tokenizer)
                checkpoint.prune(root, keep=1)
        time.sleep(draw.uniform(0.0, 0.3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        newest = checkpoint.load(checkpoint.latest(root), model, optimizer)["step"]
        assert newest >= reached
        reached = newest
        if kills >= 30 and reached > 30:
            return
    checkpoint.prune(root, keep=1)
    assert [entry.name for entry in root.iterdir()] == [checkpoint.step_folder(root, reached).name]


if __name__ == "__main__":
    resume_and_train(*sys.argv[1:])
