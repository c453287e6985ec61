"""The contract of every Policy. To test another engine, add it to ``ENGINES``."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from transformers import PreTrainedModel

from magcli.errors import DataError, MagError, UsageError
from magcli.generate.open import open_policy
from magcli.generate.spec import Spec
from magcli.generate.types import Policy, Rollout, Sampling
from magcli.model.load import load_model, load_tokenizer
from magcli.model.model import Model

T = TypeVar("T")
PROMPT = [3, 40, 41, 42, 1, 4]
SLOTS = 16


@dataclass(frozen=True)
class Kind:
    """An engine under test.

    ``model`` is the fixture of its model's folder, ``pause`` the seconds that it gets for a step, 0 for one turn of the
    event loop. ``kept``: it starts so slowly that all tests share one, with ``SLOTS`` slots.
    """

    open: Callable[[Path, int], Policy]
    model: str = "tiny_model_dir"
    pause: float = 0.0
    kept: bool = False


ENGINES = {
    "torch": Kind(lambda folder, slots: open_policy(Spec(Model.open(folder), dtype="fp32", slots=slots))),
    "torch-deterministic": Kind(
        lambda folder, slots: open_policy(Spec(Model.open(folder), slots=slots, deterministic=True))
    ),
    "vllm": Kind(
        lambda folder, _: open_policy(Spec(Model.open(folder), engine="vllm", dtype="fp32", slots=SLOTS)),
        model="wide_model_dir",
        pause=0.01,
        kept=True,
    ),
}


class Bench:
    """One kind of engine with its model, in one event loop for all tests."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.runner = asyncio.Runner()
        self.kept: Policy | None = None

    def run(self, scenario: Coroutine[None, None, T]) -> T:
        return self.runner.run(scenario)

    @asynccontextmanager
    async def open(self, slots: int = SLOTS) -> AsyncIterator[Policy]:
        """The engine at version 0 of its weights, closed at the end unless it is shared."""
        policy = await self._as_new() or self.kind.open(self.folder, slots)
        self.kept = policy if self.kind.kept else None
        try:
            yield policy
        finally:
            if not self.kind.kept:
                await policy.close()

    async def _as_new(self) -> Policy | None:
        if self.kept is None:
            return None
        try:
            await self.kept.load(load_model(str(self.folder), dtype=torch.float32).state_dict(), 0)
        except MagError:
            return None
        return self.kept

    async def steps(self, count: int) -> None:
        """Let the engine run for a while."""
        for _ in range(count):
            await asyncio.sleep(self.kind.pause)

    def close(self) -> None:
        if self.kept is not None:
            self.run(self.kept.close())
        self.runner.close()


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] if kind.kept else []) for name, kind in ENGINES.items()],
)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    kind = ENGINES[request.param]
    made = Bench(kind, request.getfixturevalue(kind.model))
    yield made
    made.close()


@pytest.fixture(scope="module")
def plain(bench: Bench) -> PreTrainedModel:
    """The same weights in transformers' own model."""
    return load_model(str(bench.folder), dtype=torch.float32)


@pytest.fixture(scope="module")
def other(bench: Bench) -> PreTrainedModel:
    """Other weights of the same shapes."""
    return load_model(str(bench.folder), dtype=torch.float32, from_scratch=True, seed=7)


async def collect(policy: Policy, prompt: Sequence[int], sampling: Sampling, seeds: Sequence[int]) -> list[Rollout]:
    rollouts = [rollout async for rollout in policy.sample(prompt, sampling, seeds=seeds)]
    return sorted(rollouts, key=lambda rollout: rollout.index)


@torch.inference_mode()
def recomputed(model: PreTrainedModel, rollout: Rollout, temperature: float) -> torch.Tensor:
    """Log-probs of a rollout's tokens by one plain forward pass."""
    logits = model(torch.tensor([rollout.prompt + rollout.tokens])).logits[0, len(rollout.prompt) - 1 : -1]
    return torch.log_softmax(logits.float() / temperature, -1).gather(1, torch.tensor(rollout.tokens)[:, None])[:, 0]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_the_plain_model(bench, plain, temperature):
    async def scenario():
        async with bench.open() as policy:
            sampling = Sampling(max_tokens=40, temperature=temperature)
            groups = [collect(policy, [3, *range(20, 20 + n), 4], sampling, range(n, n + 5)) for n in range(1, 12)]
            return [rollout for group in await asyncio.gather(*groups) for rollout in group]

    for rollout in bench.run(scenario()):
        expected = recomputed(plain, rollout, temperature)
        torch.testing.assert_close(torch.tensor(rollout.logprobs), expected, atol=1e-4, rtol=0)


def test_a_rollout_has_its_prompt_and_finish_reason(bench):
    async def scenario():
        async with bench.open() as policy:
            return await collect(policy, PROMPT, Sampling(max_tokens=60), range(40))

    rollouts = bench.run(scenario())
    assert [(r.index, r.seed, r.prompt) for r in rollouts] == [(i, i, tuple(PROMPT)) for i in range(40)]
    assert {r.finish for r in rollouts} == {"stop", "length"}
    for r in rollouts:
        assert len(r.logprobs) == len(r.tokens)
        assert r.versions == ((0, 0),)
        assert (r.tokens[-1] == 1) == (r.finish == "stop")
        assert 1 not in r.tokens[:-1]
        assert r.finish == "stop" or len(r.tokens) == 60


def test_the_seed_determines_the_tokens(bench):
    async def scenario():
        async with bench.open() as policy:
            first = await collect(policy, PROMPT, Sampling(max_tokens=20), [5, 6, 5])
            await collect(policy, PROMPT[:3], Sampling(max_tokens=9), range(7))
            return first, await collect(policy, PROMPT, Sampling(max_tokens=20), [6, 5])

    (a, b, c), (d, e) = bench.run(scenario())
    assert a.tokens == c.tokens == e.tokens
    assert b.tokens == d.tokens
    assert a.tokens != b.tokens


def test_the_first_token_follows_the_softmax(bench, plain):
    draws = 4000

    async def scenario():
        async with bench.open(slots=64) as policy:
            return await collect(policy, PROMPT, Sampling(max_tokens=1, temperature=0.7), range(draws))

    counts = torch.bincount(torch.tensor([r.tokens[0] for r in bench.run(scenario())]), minlength=104)
    with torch.inference_mode():
        expected = draws * torch.softmax(plain(torch.tensor([PROMPT])).logits[0, -1] / 0.7, -1)
    common = expected >= 5
    rest = torch.stack([counts[~common].sum() - expected[~common].sum()]) ** 2 / expected[~common].sum()
    statistic = ((counts - expected)[common] ** 2 / expected[common]).sum() + rest.sum()
    freedom = int(common.sum())
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


def test_text_in_and_out(bench):
    messages = [{"role": "user", "content": "What is 1+2?"}]

    async def scenario():
        async with bench.open() as policy:
            completions = await policy.complete(messages, Sampling(max_tokens=30), seeds=[3, 4, 5])
            tokenizer = load_tokenizer(str(bench.folder))
            prompt = tokenizer.encode("<|user|>What is 1+2?<|end|><|assistant|>")
            return completions, await collect(policy, prompt, Sampling(max_tokens=30), [3, 4, 5]), tokenizer

    completions, rollouts, tokenizer = bench.run(scenario())
    for completion, rollout in zip(completions, rollouts, strict=True):
        ended = "<|end|>" if rollout.finish == "stop" else ""
        assert completion.text + ended == tokenizer.decode(list(rollout.tokens))
        assert (completion.num_tokens, completion.finish) == (len(rollout.tokens), rollout.finish)


def test_running_sequences_continue_with_new_weights_and_record_versions(bench, plain, other):
    async def scenario():
        async with bench.open() as policy:
            sampling = Sampling(max_tokens=200)
            running = asyncio.ensure_future(collect(policy, PROMPT, sampling, range(10)))
            await bench.steps(10)
            await policy.load(other.state_dict(), 1)
            assert policy.version == 1
            late = asyncio.ensure_future(collect(policy, PROMPT, sampling, range(100, 104)))
            return await running, await late

    running, late = bench.run(scenario())
    assert all(rollout.versions == ((0, 1),) for rollout in late)
    crossed = [rollout for rollout in running if len(rollout.versions) == 2]
    assert crossed
    for rollout in crossed:
        (zero, before), (start, after) = rollout.versions
        assert (zero, before, after) == (0, 0, 1)
        assert 0 < start < len(rollout.tokens)
        expected = across_versions({0: plain, 1: other}, rollout)
        torch.testing.assert_close(torch.tensor(rollout.logprobs), expected, atol=1e-4, rtol=0)
        shifted = across_versions({0: plain, 1: other}, replace(rollout, versions=((0, 0), (start - 1, 1))))
        assert (shifted - expected).abs().max() > 1e-3


@torch.inference_mode()
def across_versions(models: dict[int, PreTrainedModel], rollout: Rollout) -> torch.Tensor:
    """Log-probs where each version's weights continue from the KV cache of the previous versions."""
    ids, prompt = torch.tensor([rollout.prompt + rollout.tokens]), len(rollout.prompt)
    cuts = [0, *(prompt + start - 1 for start, _ in rollout.versions[1:]), ids.shape[1]]
    cache, logits = None, []
    for (_, version), begin, end in zip(rollout.versions, cuts, cuts[1:], strict=False):
        made = models[version](ids[:, begin:end], past_key_values=cache, use_cache=True)
        cache = made.past_key_values
        logits.append(made.logits)
    return torch.log_softmax(torch.cat(logits, 1)[0, prompt - 1 : -1], -1).gather(1, ids[0, prompt:, None])[:, 0]


def test_queued_samples_recompute_their_prompt_with_new_weights(bench, other):
    async def scenario():
        async with bench.open(slots=16) as policy:
            running = asyncio.ensure_future(collect(policy, PROMPT, Sampling(max_tokens=8), range(40)))
            await bench.steps(3)
            await policy.load(other.state_dict(), 1)
            return await running

    late = [rollout for rollout in bench.run(scenario()) if rollout.versions == ((0, 1),)]
    assert late
    for rollout in late:
        torch.testing.assert_close(torch.tensor(rollout.logprobs), recomputed(other, rollout, 1.0), atol=1e-4, rtol=0)


def test_consecutive_loads_leave_no_empty_version_span(bench, plain, other):
    """An engine in this process generates none in between; one in its own process may."""

    async def scenario():
        async with bench.open() as policy:
            running = asyncio.ensure_future(collect(policy, PROMPT, Sampling(max_tokens=200), range(8)))
            await bench.steps(5)
            await policy.load(other.state_dict(), 1)
            await policy.load(plain.state_dict(), 2)
            return await running

    rollouts = [rollout for rollout in bench.run(scenario()) if len(rollout.versions) > 1]
    assert rollouts
    for rollout in rollouts:
        starts, versions = zip(*rollout.versions, strict=True)
        assert list(starts) == sorted(set(starts))
        assert starts[-1] < len(rollout.tokens)
        assert versions == (0, 2) or (bench.kind.kept and versions in {(0, 1), (0, 1, 2)})
        expected = across_versions({0: plain, 1: other, 2: plain}, rollout)
        torch.testing.assert_close(torch.tensor(rollout.logprobs), expected, atol=1e-4, rtol=0)


def test_weights_that_do_not_fit_are_rejected_and_change_nothing(bench, other):
    lacking = {name: tensor for name, tensor in other.state_dict().items() if "q_proj" not in name}
    bent = {name: tensor[:1] for name, tensor in other.state_dict().items()}

    async def scenario():
        async with bench.open() as policy:
            before = await collect(policy, PROMPT, Sampling(max_tokens=12), [1, 2])
            for weights in (lacking, bent):
                with pytest.raises(MagError, match="new weights"):
                    await policy.load(weights, 1)
            assert policy.version == 0
            assert await collect(policy, PROMPT, Sampling(max_tokens=12), [1, 2]) == before

    bench.run(scenario())


def test_closing_the_stream_frees_its_slots(bench):
    async def scenario():
        async with bench.open(slots=16) as policy:
            long = Sampling(max_tokens=400)
            async with aclosing(policy.sample(PROMPT, long, seeds=range(64))) as stream:
                async for _ in stream:
                    break
            assert policy.num_running == 0
            return await collect(policy, PROMPT, Sampling(max_tokens=5), range(3))

    assert len(bench.run(scenario())) == 3


def test_invalid_requests_are_rejected_at_once(bench):
    async def scenario():
        async with bench.open() as policy:
            with pytest.raises(DataError, match=r"600 tokens.*512"):
                await collect(policy, [5] * 600, Sampling(max_tokens=4), [1])
            with pytest.raises(DataError):
                await collect(policy, [], Sampling(max_tokens=4), [1])
            with pytest.raises(UsageError, match="temperature"):
                await collect(policy, PROMPT, Sampling(max_tokens=4, temperature=-1.0), [1])
            assert await collect(policy, PROMPT, Sampling(max_tokens=4), []) == []

    bench.run(scenario())


def test_a_sequence_ends_at_the_context(bench):
    async def scenario():
        async with bench.open() as policy:
            return await collect(policy, [5] * 505, Sampling(max_tokens=100), range(8))

    rollouts = bench.run(scenario())
    assert {len(r.tokens) for r in rollouts if r.finish == "length"} == {7}


def test_greedy_and_truncated_sampling(bench, plain):
    async def scenario():
        async with bench.open() as policy:
            greedy = await collect(policy, PROMPT, Sampling(max_tokens=12, temperature=0.0), [1, 2])
            top = await collect(policy, PROMPT, Sampling(max_tokens=1, top_k=3), range(60))
            return greedy, top, await collect(policy, PROMPT, Sampling(max_tokens=1, top_p=0.3), range(60))

    greedy, top_k, top_p = bench.run(scenario())
    with torch.inference_mode():
        probs = torch.softmax(plain(torch.tensor([PROMPT])).logits[0, -1], -1)
    assert greedy[0].tokens == greedy[1].tokens
    assert greedy[0].tokens[0] == int(probs.argmax())
    assert set(greedy[0].logprobs) == {0.0}
    three = probs.topk(3)
    assert {r.tokens[0] for r in top_k} == set(three.indices.tolist())
    for r in top_k:
        expected = (probs[r.tokens[0]] / three.values.sum()).log()
        assert r.logprobs[0] == pytest.approx(float(expected), abs=1e-4)
    ordered, order = probs.sort(descending=True)
    nucleus = order[: int((ordered.cumsum(0) < 0.3).sum()) + 1].tolist()
    assert {r.tokens[0] for r in top_p} <= set(nucleus)


def test_closing_raises_to_current_and_later_callers(bench):
    async def scenario():
        async with bench.open() as policy:
            waiting = asyncio.ensure_future(collect(policy, PROMPT, Sampling(max_tokens=400), range(64)))
            await bench.steps(3)
            await policy.close()
            with pytest.raises(MagError, match="closed"):
                await waiting
            with pytest.raises(MagError, match="closed"):
                await collect(policy, PROMPT, Sampling(max_tokens=4), [1])

    bench.run(scenario())
