"""A model on two ranks against one: gradients, decisions, weights; and the assignment of micro-batches."""

import math
import random
import resource

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_ranks import on_ranks
from transformers import AutoConfig, AutoModelForCausalLM

from magcli.errors import EnvironmentFault
from magcli.model.load import load_model
from magcli.train.attention import use_packed_attention
from magcli.train.distributed import Ranks
from magcli.train.logprobs import token_logprobs
from magcli.train.optim import adamw, autocast, clip_and_step
from magcli.train.packing import greedy_collate, pack
from magcli.train.shard import full_weights, micro_batches_by_rank, shard

ALONE = Ranks()


def sequences(lengths, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(104) for _ in range(length)] for length in lengths]


LENGTHS = (31, 5, 17, 2, 44, 9, 12)


def opened(folder, ranks, **options):
    """The tiny model, or one of two other kinds with random weights, sharded."""
    if folder in ("qwen3", "llama"):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(other(folder))
    else:
        model = load_model(str(folder), dtype=torch.float32)
    use_packed_attention(model)
    return shard(model, ranks, **options)


def other(kind):
    """A small model whose sizes do not divide by two; its head is not tied."""
    sizes = {"vocab_size": 105, "hidden_size": 24, "intermediate_size": 33, "num_hidden_layers": 3, "head_dim": 8}
    heads = {"num_attention_heads": 3, "num_key_value_heads": 1}
    return AutoConfig.for_model(kind, **sizes, **heads, tie_word_embeddings=False, attention_bias=True)


def loss_of(whole, mine, *, bf16=False, chunk=16):
    """A sum over tokens of some sequences, scored in several chunks, with weights independent of the rank."""

    def compute(model):
        with autocast(torch.device("cpu"), bf16):
            return -token_logprobs(model, pack(mine), chunk=chunk).values.sum() / sum(LENGTHS)

    return whole(compute)


def gradients(whole):
    """Full gradients by name."""
    found = {name: parameter.grad for name, parameter in whole.model.named_parameters()}
    return {name: getattr(grad, "full_tensor", lambda grad=grad: grad)() for name, grad in found.items()}


def learned(ranks, folder, options, bf16=False):
    """Loss and gradient of all sequences, split over the ranks in micro-batches of at most 40 tokens."""
    whole = opened(folder, ranks, **options)
    everything = sequences(LENGTHS)
    mine = micro_batches_by_rank(LENGTHS, budget=50, size=ranks.size, hidden=48)[ranks.rank]
    total = 0.0
    for indices in mine:
        loss = loss_of(whole, [everything[index] for index in indices] or [[0]], bf16=bf16)
        loss.backward()
        total += loss.item()
    return ranks.sum(total), gradients(whole), len(mine)


def difference(ours, theirs):
    """The relative size of the difference of two gradients."""
    assert ours.keys() == theirs.keys()
    off = math.sqrt(sum((ours[name] - theirs[name]).square().sum().item() for name in ours))
    return off / math.sqrt(sum(tensor.square().sum().item() for tensor in theirs.values()))


def learned_twice(ranks, folder):
    """With and without activation checkpointing."""
    return [learned(ranks, folder, {"checkpoint_activations": again}) for again in (False, True)]


@pytest.mark.parametrize("kind", ["tied", "qwen3"])
def test_two_ranks_have_the_gradient_of_one(tiny_model_dir, kind):
    folder = tiny_model_dir if kind == "tied" else kind
    loss, expected, _ = learned(ALONE, folder, {})
    for rank_loss, found, micro_batches in (each for rank in on_ranks(learned_twice, folder) for each in rank):
        assert rank_loss == pytest.approx(loss, rel=1e-6)
        assert difference(found, expected) < 1e-5
        assert micro_batches == 2


def test_in_bf16_two_ranks_deviate_from_float32_no_more_than_one(tiny_model_dir):
    _, exact, _ = learned(ALONE, tiny_model_dir, {})
    _, one, _ = learned(ALONE, tiny_model_dir, {"bf16": True}, bf16=True)
    (_, two, _), _ = on_ranks(learned, tiny_model_dir, {"bf16": True}, True)
    assert all(gradient.dtype == torch.float32 for gradient in two.values())
    assert 1e-4 < difference(two, exact) < 2 * difference(one, exact)


def poisoned_step(ranks, folder, where):
    """A step with a gradient or loss that is not finite on rank 1 only."""
    whole = opened(folder, ranks)
    optimizer = adamw(whole.model, lr=0.1, weight_decay=0.1)
    before = {name: tensor.clone() for name, tensor in full_weights(whole.model, ranks).items()}
    loss = loss_of(whole, sequences(LENGTHS[ranks.rank :: 2]))
    loss.backward()
    value = loss.item()
    if ranks.rank == 1 and where == "gradient":
        whole.model.model.norm.weight.grad.to_local()[0] = math.nan
    if ranks.rank == 1 and where == "loss":
        value = math.nan
    norm = clip_and_step(optimizer, whole.model.parameters(), max_norm=1.0, loss=ranks.sum(value))
    after = full_weights(whole.model, ranks)
    same = all(torch.equal(before[name], after[name]) for name in before)
    return norm, same, len(optimizer.state), len(after)


@pytest.mark.parametrize("where", ["gradient", "loss"])
def test_a_non_finite_loss_on_one_rank_is_skipped_on_all(tiny_model_dir, where):
    (norm, same, kept, names), (other_norm, _, other_kept, other_names) = on_ranks(poisoned_step, tiny_model_dir, where)
    assert (norm, same, kept) == (None, True, 0)
    assert (other_norm, other_kept) == (None, 0)
    assert names > 0
    assert other_names == 0


def stepped(ranks, folder):
    """Optimizer steps; returns gradient norms, and the weights on rank 0."""
    whole = opened(folder, ranks)
    optimizer = adamw(whole.model, lr=1e-3, weight_decay=0.1)
    norms = []
    for _ in range(3):
        for part in range(ranks.rank, 2, ranks.size):
            loss_of(whole, sequences(LENGTHS[part::2])).backward()
        norms.append(clip_and_step(optimizer, whole.model.parameters(), max_norm=0.05))
    weights = full_weights(whole.model, ranks)
    tied = "lm_head.weight" in weights and weights["lm_head.weight"] is weights["model.embed_tokens.weight"]
    return norms, tied, weights


def test_optimizer_steps_of_two_ranks_are_those_of_one(tiny_model_dir):
    norms, _, expected = stepped(ALONE, tiny_model_dir)
    (found, tied, weights), (others, _, nothing) = on_ranks(stepped, tiny_model_dir)
    assert found == others == pytest.approx(norms, rel=1e-5)
    assert all(norm > 0.05 for norm in norms)
    assert nothing == {}
    assert tied
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-4, atol=1e-5)


def test_a_model_without_layers_is_rejected(model):
    model.model.layers = torch.nn.ModuleDict()
    with pytest.raises(EnvironmentFault, match="no list of layers"):
        shard(model, ALONE)


def peak(ranks, again):
    """Peak memory in MiB of a training step with many activations, and its gradient."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 8}
    config = AutoConfig.for_model("llama", **sizes, num_attention_heads=4, num_key_value_heads=2)
    model = AutoModelForCausalLM.from_config(config)
    use_packed_attention(model)
    whole = shard(model, ranks, checkpoint_activations=again)
    for lengths in ((30, 20), (300, 400, 500, 600)):
        packed = pack([[token % 64 for token in range(length)] for length in lengths])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        whole(lambda model, packed=packed: token_logprobs(model, packed).values.sum()).backward()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (after - before) / 1024, gradients(whole)


def test_activation_checkpointing_needs_less_memory_and_gives_the_same_gradient():
    ((kept, expected),) = on_ranks(peak, False, size=1)
    ((again, found),) = on_ranks(peak, True, size=1)
    assert again < 0.5 * kept
    assert difference(found, expected) < 1e-6


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=60),
    st.integers(1, 600),
    st.integers(1, 9),
    st.sampled_from([16, 1024]),
)
@settings(deadline=None)
def test_every_sequence_is_assigned_once_and_ranks_have_equally_many_micro_batches(lengths, budget, size, hidden):
    dealt = micro_batches_by_rank(lengths, budget=budget, size=size, hidden=hidden)
    assert len(dealt) == size
    assert len({len(own) for own in dealt}) == 1
    batches = [batch for own in dealt for batch in own]
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= 1 or sum(lengths[index] for index in batch) <= budget
    assert all(own[place] or not any(own[place:]) for own in dealt for place in range(len(own)))
    assert dealt == micro_batches_by_rank(lengths, budget=budget, size=size, hidden=hidden)


@given(st.lists(st.integers(1, 400), max_size=60), st.integers(1, 600))
def test_a_single_rank_gets_the_greedy_collation(lengths, budget):
    assert micro_batches_by_rank(lengths, budget=budget, size=1, hidden=64) == [greedy_collate(lengths, budget)]


@given(st.lists(st.integers(1, 400), min_size=16, max_size=200), st.integers(2, 8), st.integers(400, 3000))
@settings(deadline=None)
def test_the_work_of_ranks_differs_by_at_most_one_sequence(lengths, size, budget):
    """The imbalance of ranks and of simultaneous micro-batches, if every rank has sequences."""
    costs = [length + length * length / (12 * 64) for length in lengths]
    dealt = micro_batches_by_rank(lengths, budget=budget, size=size, hidden=64)
    slots = [[sum(costs[index] for index in batch) for batch in at_once] for at_once in zip(*dealt, strict=True)]
    loads = [sum(work) for work in zip(*slots, strict=True)]
    assert max(loads) - min(loads) <= max(costs) * 1.001 + max(max(slot) - min(slot) for slot in slots)


def test_heavy_tailed_lengths_keep_all_ranks_busy():
    draw = random.Random(0)
    lengths = [min(int(draw.lognormvariate(5.5, 0.9)), 4000) for _ in range(256)]
    costs = [length + length * length / (12 * 576) for length in lengths]
    dealt = micro_batches_by_rank(lengths, budget=8192, size=8, hidden=576)
    slots = [[sum(costs[index] for index in batch) for batch in at_once] for at_once in zip(*dealt, strict=True)]
    busy = sum(map(sum, slots)) / (8 * sum(map(max, slots)))
    assert busy > 0.95
