"""Memory and collectives of a rank, counted with fake tensors, against real ranks and the documentation."""

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_ranks import on_ranks
from transformers import AutoConfig

from benchmarks.rank_memory import table
from benchmarks.rank_memory.live import GRADIENTS, MOMENTS, WEIGHTS
from benchmarks.rank_memory.models import config_of
from benchmarks.rank_memory.step import Setting, count_fake_step, count_step, micro_batch

DOCS = Path(__file__).parents[2] / "docs" / "cluster.md"
GATHER, REDUCE, SUM_OF_COPIES = table.GATHER, table.REDUCE, "allreduce_"
LAYERS = 3


def small(*, tied=False, width=64, inner=160, layers=LAYERS, vocabulary=1000):
    """A small Llama whose rows divide by 8 ranks."""
    return AutoConfig.for_model(
        "llama", vocab_size=vocabulary, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=tied,
    )  # fmt: skip


def sizes_of(config):
    """Weights in one layer, in embedding or head, and outside of both."""
    width, inner = config.hidden_size, config.intermediate_size
    keys = width * config.num_key_value_heads // config.num_attention_heads
    layer = 2 * width * width + 2 * width * keys + 3 * width * inner + 2 * width
    return layer, config.vocab_size * width, width


@pytest.mark.parametrize("bf16", [False, True])
def test_a_rank_of_eight_has_an_eighth_of_the_states_and_gathers_each_unit_when_it_is_used(bf16):
    config = small()
    layer, end, norm = sizes_of(config)
    weights = LAYERS * layer + 2 * end + norm
    counted = count_fake_step(config, 8, Setting(tokens=1024, bf16=bf16, micro_batches=2))
    assert sum(counted.parts.values()) == counted.peak
    assert counted.parts[WEIGHTS] == pytest.approx(weights / 8 * 4, rel=0.01)  # and rotary frequencies
    assert counted.parts[GRADIENTS] <= weights / 8 * 4
    assert counted.parts[MOMENTS] == pytest.approx(2 * weights / 8 * 4, rel=0.01)
    # Layers, head and norm are gathered for both passes, the embedding for the forward pass only.
    of_layers = (2 if bf16 else 4) * LAYERS * layer
    assert counted.sent[GATHER] == 2 * (2 * of_layers + 4 * (end + 2 * end + 2 * norm))
    assert counted.calls[GATHER] == 2 * (2 * LAYERS + 1 + 2 + 2)
    assert counted.sent[REDUCE] == 2 * 4 * weights
    assert counted.calls[REDUCE] == 2 * (LAYERS + 3)


def test_gradients_that_stay_whole_are_reduced_once_and_take_the_memory_of_all_weights():
    config = small(vocabulary=8000)
    layer, end, norm = sizes_of(config)
    whole = 4 * (LAYERS * layer + 2 * end + norm)
    reduced = count_fake_step(config, 8, Setting(tokens=1024, micro_batches=3))
    kept = count_fake_step(config, 8, Setting(tokens=1024, micro_batches=3, keeps_whole_gradients=True))
    assert kept.sent[REDUCE] == whole == reduced.sent[REDUCE] / 3
    assert kept.peak - reduced.peak > 0.5 * whole


def test_copies_add_up_their_gradients_once_a_step():
    config = small()
    layer, end, norm = sizes_of(config)
    weights = LAYERS * layer + 2 * end + norm
    setting = Setting(tokens=1024, micro_batches=3, fsdp_size=4)
    counted = count_fake_step(config, 8, setting)
    of_one_copy = count_fake_step(config, 4, replace(setting, fsdp_size=0))
    assert counted.calls[REDUCE] == of_one_copy.calls[REDUCE] == 3 * (LAYERS + 3)
    assert counted.calls[SUM_OF_COPIES] == LAYERS + 3
    assert counted.sent[SUM_OF_COPIES] == 4 * weights / 4
    assert SUM_OF_COPIES not in of_one_copy.calls
    assert counted.peak == pytest.approx(of_one_copy.peak, rel=0.02)


def test_a_tied_head_is_gathered_with_the_embedding_for_the_whole_step():
    config = small(tied=True)
    layer, end, norm = sizes_of(config)
    counted = count_fake_step(config, 8, Setting(tokens=1024, micro_batches=1))
    assert counted.calls[GATHER] == 2 * (LAYERS + 1)
    assert counted.sent[GATHER] == 2 * (2 * LAYERS * layer + 4 * (end + norm))


def counted_on_real_ranks(ranks, setting):
    torch.manual_seed(0)
    config = small()
    return count_step(config, ranks, micro_batch(setting.tokens, config.vocab_size), setting)


def test_two_real_ranks_take_what_is_counted_with_fake_tensors():
    setting = Setting(tokens=1024)
    pretended = count_fake_step(small(), 2, setting, on_gpu=False)
    for counted in on_ranks(counted_on_real_ranks, setting):
        assert counted.peak == pytest.approx(pretended.peak, rel=0.02)
        assert (counted.calls, counted.sent) == (pretended.calls, pretended.sent)


RESIDENT = {
    "balanced": {"width": 512, "inner": 1408, "layers": 6, "vocabulary": 8000},
    "large vocabulary": {"width": 384, "inner": 1024, "layers": 4, "vocabulary": 32000},
    "deep": {"width": 384, "inner": 1024, "layers": 12, "vocabulary": 4000},
}
"""Shapes of 24M to 30M weights."""


def resident_on_real_ranks(ranks, shape, setting):
    """The resident memory that a step adds at its peak, after a small one that loads what is loaded on first use."""
    mmap_threshold, bytes_of_own_pages = -3, 1 << 16
    ctypes.CDLL(None).mallopt(mmap_threshold, bytes_of_own_pages)  # freed tensors leave the process
    warm, config = small(), small(**shape)
    count_step(warm, ranks, micro_batch(1024, warm.vocab_size), Setting(tokens=1024, bf16=setting.bf16))
    batch = micro_batch(setting.tokens, config.vocab_size)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts from here
    before = memory_of_process("VmRSS")
    count_step(config, ranks, batch, setting)
    return memory_of_process("VmHWM") - before


def memory_of_process(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


@pytest.mark.slow
@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("name", RESIDENT)
def test_the_resident_memory_of_two_ranks_is_what_is_counted(name, bf16):
    setting = Setting(tokens=2048, bf16=bf16)
    counted = count_fake_step(small(**RESIDENT[name]), 2, setting, on_gpu=False).peak
    measured = max(on_ranks(resident_on_real_ranks, RESIDENT[name], setting))
    print(f"{name}, bf16 {bf16}: counted {counted / 1e6:.0f} MB, measured {measured / 1e6:.0f} MB")
    assert counted == pytest.approx(measured, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", table.RANKS)
@pytest.mark.parametrize("name", ["1.5B", "7B", "24B"])
def test_the_documentation_has_what_is_counted(name, ranks):
    counted = count_fake_step(config_of(name), ranks, table.SETTING)
    assert table.line(name, ranks, counted) in DOCS.read_text()
    assert ranks < 256 or counted.peak <= 20e9
