"""Greedy collation and the packed layout."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from magcli.train.packing import greedy_collate, pack, pack_completions, padding_share

some_lengths = st.lists(st.integers(1, 50), max_size=40)


@given(some_lengths, st.integers(1, 60))
def test_every_sequence_is_in_one_micro_batch_within_the_budget(lengths, budget):
    batches = greedy_collate(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or sum(lengths[i] for i in batch) <= budget for batch in batches)


@given(some_lengths, st.integers(1, 60))
def test_each_sequence_is_in_the_first_micro_batch_with_space(lengths, budget):
    batches = greedy_collate(lengths, budget)
    rank = {index: place for place, index in enumerate(sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)))}
    for place, batch in enumerate(batches):
        assert [rank[i] for i in batch] == sorted(rank[i] for i in batch)
        for index in batch:
            for earlier in batches[:place]:
                held = sum(lengths[i] for i in earlier if rank[i] < rank[index])
                assert held + lengths[index] > budget


def test_collation_of_a_known_case():
    assert greedy_collate([2, 7, 5, 3, 9, 2], budget=10) == [[4], [1, 3], [2, 0, 5]]


def test_greedy_collation_of_heavy_tailed_lengths_needs_less_padding_than_arrival_order():
    draw = random.Random(0)
    lengths = [min(int(draw.lognormvariate(4, 0.8)) + 1, 512) for _ in range(256)]
    arrival = [list(range(start, start + 8)) for start in range(0, 256, 8)]
    greedy = greedy_collate(lengths, budget=1024)
    assert padding_share(lengths, greedy) < 0.8 * padding_share(lengths, arrival)


def test_the_padding_share_is_that_of_micro_batches_padded_to_their_longest():
    assert padding_share([4, 2, 3], [[0, 1], [2]]) == pytest.approx(2 / 11)
    assert padding_share([5, 5], [[0, 1]]) == 0.0
    assert padding_share([], []) == 0.0


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=9))
def test_a_pack_contains_every_sequence_with_its_own_positions(sequences):
    packed = pack(sequences)
    for start, length, sequence in zip(packed.starts, packed.lengths, sequences, strict=True):
        assert packed.input_ids[0, start : start + length].tolist() == sequence
        assert packed.position_ids[0, start : start + length].tolist() == list(range(length))
    assert packed.num_tokens == sum(map(len, sequences))


def test_spread_gives_each_token_its_sequences_value():
    spread = pack([[1, 2, 3], [4], [5, 6]]).spread([0.5, -1.0, 2.0])
    assert spread.dtype == torch.float32
    assert spread.tolist() == [0.5, 0.5, 0.5, -1.0, 2.0, 2.0]


def test_a_shared_prompt_is_stored_once_before_its_first_completion():
    packed = pack_completions([((7, 8), (1, 2)), ((9,), (3,)), ((7, 8), (4, 5, 6)), ((7, 8), ())])
    assert packed.input_ids.tolist() == [[7, 8, 1, 2, 9, 3, 4, 5, 6]]
    assert packed.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2, 3, 4]]
    assert (packed.starts, packed.lengths) == ((2, 5, 6, 9), (2, 1, 3, 0))
    assert packed.prefixes == ((0, 2), (4, 1), (0, 2), (0, 2))
    assert packed.full_lengths == (4, 2, 5, 2)
    assert packed.before().tolist() == [-1, 0, 1, 2, -1, 4, 1, 6, 7]
    assert packed.spread([0.5, 2.0, 3.0, 4.0]).tolist() == [0, 0, 0.5, 0.5, 0, 2, 3, 3, 3]


def test_without_prefixes_the_previous_token_is_adjacent():
    assert pack([[1, 2, 3], [], [4], [5, 6]]).before().tolist() == [-1, 0, 1, -1, -1, 4]
