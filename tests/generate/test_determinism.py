"""Deterministic mode: a sample's bits depend only on its prompt, sampling, seed and the weights."""

import random
from pathlib import Path

import pytest
import torch

from magcli.errors import UsageError
from magcli.generate.torch.engine import Engine
from magcli.generate.types import Rollout, Sampling
from magcli.model.load import load_model

Job = tuple[list[int], Sampling, list[int]]


@pytest.fixture
def threads():
    """Restore torch's number of threads after a test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def engine(folder: Path, slots: int = 32) -> Engine:
    model = load_model(str(folder), dtype=torch.float32)
    return Engine(model, slots=slots, ends=[1], deterministic=True)


def jobs(rng: random.Random, count: int) -> list[Job]:
    """Random requests: prompts of 1 to 450 tokens, completions up to 60, several temperatures, one or more seeds."""
    made = []
    for _ in range(count):
        prompt = [
            rng.randrange(2, 104) for _ in range(rng.choice([1, 3, 17, rng.randrange(1, 150), rng.randrange(150, 450)]))
        ]
        sampling = Sampling(rng.randrange(1, 60), temperature=rng.choice([0.7, 1.0]), top_p=rng.choice([1.0, 0.9]))
        made.append((prompt, sampling, [rng.getrandbits(63) for _ in range(rng.choice([1, 4, 9]))]))
    return made


def bits(rollout: Rollout) -> tuple[object, ...]:
    return rollout.tokens, tuple(map(float.hex, rollout.logprobs)), rollout.finish


def run(engine: Engine, work: list[Job], rng: random.Random) -> dict[tuple[tuple[int, ...], int], tuple[object, ...]]:
    """Bits by prompt and seed; jobs arrive in a random order at random steps."""
    waiting, found = rng.sample(work, len(work)), {}
    while waiting or engine.busy:
        for _ in range(rng.choice([0, 0, 0, 1, 5])):
            if waiting:
                engine.submit(*waiting.pop())
        found |= {(rollout.prompt, rollout.seed): bits(rollout) for _, rollout in engine.step()}
    return found


def test_bits_do_not_depend_on_other_sequences_slot_or_arrival(tiny_model_dir):
    rng = random.Random(0)
    watched = jobs(rng, 8)
    alone = {}
    for job in watched:
        alone |= run(engine(tiny_model_dir), [job], rng)
    for _ in range(5):
        together = run(engine(tiny_model_dir), watched + jobs(rng, rng.randrange(1, 20)), rng)
        assert {key: together[key] for key in alone} == alone


def test_bits_do_not_depend_on_the_number_of_threads(tiny_model_dir, threads):
    rng = random.Random(1)
    watched = jobs(rng, 12)
    found = []
    for count in (1, 2, 3):
        threads(count)
        found.append(run(engine(tiny_model_dir), watched, random.Random(count)))
    assert found[0] == found[1] == found[2]


def test_bits_do_not_depend_on_aborts_of_other_sequences(tiny_model_dir):
    rng = random.Random(2)
    work = jobs(rng, 6)
    expected = run(engine(tiny_model_dir), work, rng)
    busy = engine(tiny_model_dir)
    doomed = busy.submit([7] * 40, Sampling(200), range(20))
    for _ in range(9):
        busy.step()
    found = {}
    for job in work:
        busy.submit(*job)
    for step in range(10_000):
        found |= {(rollout.prompt, rollout.seed): bits(rollout) for _, rollout in busy.step()}
        if step == 4:
            busy.abort(doomed)
        if not busy.busy:
            break
    assert {key: found[key] for key in expected} == expected


def test_deterministic_needs_float32(tiny_model_dir):
    model = load_model(str(tiny_model_dir), dtype=torch.bfloat16)
    with pytest.raises(UsageError, match="float32"):
        Engine(model, slots=4, ends=[1], deterministic=True)
