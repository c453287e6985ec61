"""Sampled tokens follow the distribution whose log-probs are reported."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from magcli.generate.torch.sampler import draw, log_distribution, truncate, uniforms

VOCAB = 12
LOGITS = st.lists(st.floats(-8, 8, width=32), min_size=VOCAB, max_size=VOCAB)


def row(logits: list[float], temperature: float = 1.0) -> torch.Tensor:
    return log_distribution(torch.tensor([logits]), torch.tensor([temperature]))


@given(LOGITS, st.floats(0.1, 3))
def test_temperature_comes_before_the_softmax(logits, temperature):
    expected = torch.log_softmax(torch.tensor([logits], dtype=torch.float64) / temperature, -1)
    torch.testing.assert_close(row(logits, temperature).double(), expected, atol=1e-4, rtol=1e-5)


@given(LOGITS)
def test_evenly_spaced_numbers_sample_tokens_by_probability(logits):
    count = 4000
    uniform = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    logprobs = row(logits).expand(count, VOCAB)
    tokens, chosen = draw(logprobs, uniform)
    share = torch.bincount(tokens, minlength=VOCAB) / count
    assert (share - logprobs[0].exp()).abs().max() <= 1.5 / count
    assert torch.equal(chosen, logprobs[0][tokens])


@given(LOGITS, st.integers(1, VOCAB), st.floats(0.05, 1))
def test_truncation_keeps_the_most_likely_and_renormalises(logits, top_k, top_p):
    full = row(logits)
    kept = truncate(full, torch.tensor([top_p]), torch.tensor([top_k]))[0]
    alive = kept > -torch.inf
    assert 1 <= int(alive.sum()) <= top_k
    assert alive[full[0].argmax()]
    assert abs(float(kept.exp().sum()) - 1) < 1e-5
    assert full[0][alive].min() >= full[0][~alive].max() if not alive.all() else True
    of_top_k = full[0].topk(top_k).values.log_softmax(-1).exp()
    needed = of_top_k[of_top_k.cumsum(0) - of_top_k < top_p - 1e-5]
    assert int(alive.sum()) >= len(needed)


@given(LOGITS)
def test_rows_without_truncation_keep_their_bits(logits):
    pair = row(logits).expand(2, VOCAB)
    found = truncate(pair, torch.tensor([1.0, 0.5]), torch.tensor([0, 2]))
    assert torch.equal(found[0], pair[0])


@given(LOGITS, st.integers(1, VOCAB - 1), st.floats(0, 1, exclude_max=True))
def test_a_dropped_token_is_never_sampled(logits, top_k, uniform):
    kept = truncate(row(logits), torch.tensor([1.0]), torch.tensor([top_k]))
    _, chosen = draw(kept, torch.tensor([uniform], dtype=torch.float64))
    assert chosen.isfinite().all()


@given(st.integers(0, 2**63 - 1), st.integers(1, 40), st.integers(1, 40))
def test_a_seed_gives_the_same_numbers_for_any_count(seed, few, many):
    short, long = uniforms(seed, few), uniforms(seed, few + many)
    assert torch.equal(short, long[:few])
    assert ((long >= 0) & (long < 1)).all()


def test_seeds_give_independent_numbers():
    numbers = torch.stack([uniforms(seed, 50) for seed in range(400)])
    assert abs(float(numbers.mean()) - 0.5) < 0.01
    assert float(torch.corrcoef(numbers.T).fill_diagonal_(0).abs().max()) < 0.25


def test_greedy_rows_do_not_depend_on_sampled_rows():
    logits = torch.tensor([[0.5, 2.0, 2.0, -1.0], [3.0, 0.0, 1.0, 2.0]])
    logprobs = log_distribution(logits, torch.ones(2))
    greedy = truncate(logprobs, torch.ones(2), torch.tensor([1, 1]))
    mixed = truncate(logprobs, torch.ones(2), torch.tensor([1, 0]))
    assert greedy.tolist() == [[-torch.inf, 0.0, -torch.inf, -torch.inf], [0.0, -torch.inf, -torch.inf, -torch.inf]], (
        "of equal ones the first"
    )
    assert torch.equal(mixed[0], greedy[0])
