"""Forecasts of memory against runs with real tensors of small models and fake tensors of large ones."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from calling import others_slow
from tracking import fake_tensors, tracked_peak
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from magcli.errors import UsageError
from magcli.model.shape import ModelShape, shape_of
from magcli.plan import fit, machine, memory
from magcli.plan.memory import EnginePlan, Line, TrainingPlan
from magcli.train import logprobs, padded
from magcli.train.lora import add_lora

SMALL = {
    "wide": LlamaConfig(
        hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4,
        vocab_size=4000,
    ),
    "grouped": Qwen2Config(
        hidden_size=256, intermediate_size=1280, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2,
        vocab_size=8000, tie_word_embeddings=True,
    ),
    "deep": LlamaConfig(
        hidden_size=128, intermediate_size=384, num_hidden_layers=12, num_attention_heads=4, num_key_value_heads=1,
        vocab_size=1000, tie_word_embeddings=True,
    ),
}  # fmt: skip
"""Three shapes whose memory is dominated by different parts."""

LARGE = {
    "1.5B": Qwen2Config(
        hidden_size=1536, intermediate_size=8960, num_hidden_layers=4, num_attention_heads=12, num_key_value_heads=2,
        vocab_size=151936, tie_word_embeddings=True,
    ),
    "7B": Qwen2Config(
        hidden_size=3584, intermediate_size=18944, num_hidden_layers=2, num_attention_heads=28, num_key_value_heads=4,
        vocab_size=152064, tie_word_embeddings=False,
    ),
}  # fmt: skip
"""The widths of Qwen2.5, with fewer layers."""

QWEN_1_5B = ModelShape(1536, 8960, 28, 12, 2, 128, 151936, 1_543_714_304, 1_310_195_712, True)


def shape_of_config(config) -> ModelShape:
    with torch.device("meta"):
        outline = AutoModelForCausalLM.from_config(config)
    return shape_of(SimpleNamespace(text_config=config, outline=outline))


@pytest.mark.parametrize(
    ("name", "bf16", "recompute"),
    others_slow(product(SMALL, (False, True), (False, True)), kept=[("wide", True, False), ("deep", False, True)]),
)
def test_the_forecast_is_within_15_percent_of_real_runs(name, bf16, recompute):
    config, tokens = SMALL[name], 1024
    measured = tracked_peak(config, [tokens // 4] * 4, bf16=bf16, recompute=recompute)
    plan = TrainingPlan(
        shape_of_config(config), tokens, on_gpu=False, bf16=bf16, activation_checkpointing=recompute, padding=1.0
    )
    forecast = memory.peak_bytes(memory.training_lines(plan))
    assert 0.95 * measured < forecast < 1.15 * measured


@pytest.mark.parametrize(
    ("name", "tokens", "recompute"),
    others_slow(
        [(name, *run) for name in LARGE for run in ((1024, False), (8192, False), (8192, True))],
        kept=[("7B", 1024, False)],
    ),
)
def test_the_forecast_of_a_gpu_is_within_15_percent_of_fake_runs(monkeypatch, name, tokens, recompute):
    monkeypatch.setattr(logprobs, "_is_cpu", lambda _: False)
    monkeypatch.setitem(logprobs.BLOCK_BYTES, "cpu", memory.GPU_BLOCK_BYTES)
    monkeypatch.setattr(padded, "_kernel_dtype", lambda values: values.dtype)
    config, lengths = LARGE[name], [tokens // 8] * 8
    with fake_tensors(monkeypatch, lengths):
        measured = tracked_peak(config, lengths, bf16=True, recompute=recompute)
    plan = TrainingPlan(
        shape_of_config(config), tokens, on_gpu=True, bf16=True, activation_checkpointing=recompute, padding=1.0
    )
    forecast = memory.peak_bytes(memory.training_lines(plan))
    assert 0.95 * measured < forecast < 1.15 * measured


@pytest.mark.parametrize(
    ("name", "base", "recompute"),
    others_slow(
        product(SMALL, (torch.float32, torch.bfloat16), (False, True)), kept=[("grouped", torch.bfloat16, False)]
    ),
)
def test_the_forecast_of_adapters_is_within_15_percent_of_real_runs(name, base, recompute):
    config, tokens, in_bf16 = SMALL[name], 1024, base == torch.bfloat16
    measured = tracked_peak(config, [tokens // 4] * 4, bf16=in_bf16, recompute=recompute, lora=8, base=base)
    plan = TrainingPlan(
        shape_of_config(config), tokens, on_gpu=False, bf16=in_bf16, lora_rank=8, bf16_base=in_bf16,
        activation_checkpointing=recompute, padding=1.0,
    )  # fmt: skip
    forecast = memory.peak_bytes(memory.training_lines(plan))
    assert 0.85 * measured < forecast < 1.15 * measured


def test_the_size_of_a_model_is_that_of_its_weights():
    shape = shape_of_config(LARGE["1.5B"])
    layer = 2 * 1536 * 1536 + 2 * 1536 * 256 + 3 * 1536 * 8960
    assert shape.linear == 4 * layer
    assert shape.parameters == shape.linear + shape.head + 4 * (2 * 1536 + 1536 + 2 * 256) + 1536


def test_adapters_have_the_size_of_lora():
    config = SMALL["grouped"]
    model = AutoModelForCausalLM.from_config(config)
    add_lora(model, rank=8, alpha=16, seed=0)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert memory.lora_parameters(shape_of_config(config), 8) == trained


def test_options_take_parts_off_the_card():
    full = TrainingPlan(QWEN_1_5B, 2048, on_gpu=True, bf16=True)
    offloaded = TrainingPlan(QWEN_1_5B, 2048, on_gpu=True, bf16=True, offload_moments=True)
    lora = TrainingPlan(QWEN_1_5B, 2048, on_gpu=True, bf16=True, lora_rank=16, bf16_base=True)
    peaks = [memory.peak_bytes(memory.training_lines(plan)) for plan in (full, offloaded, lora)]
    assert peaks[0] - peaks[1] == memory.moment_bytes(full) == 8 * QWEN_1_5B.parameters
    adapters = memory.lora_parameters(QWEN_1_5B, 16)
    assert memory.weight_bytes(lora) == 2 * QWEN_1_5B.parameters + 4 * adapters
    assert memory.cast_bytes(lora) == 0


def test_ranks_share_the_states_and_gather_the_embedding():
    alone = TrainingPlan(QWEN_1_5B, 2048, on_gpu=True, bf16=True)
    four = TrainingPlan(QWEN_1_5B, 2048, on_gpu=True, bf16=True, ranks=4)
    assert memory.gradient_bytes(four) == memory.gradient_bytes(alone) // 4
    assert memory.gathered_head_bytes(four) == 4 * QWEN_1_5B.head
    assert "backward" in memory.gathered_head_phases(four)
    untied = replace(four, shape=replace(QWEN_1_5B, tied=False))
    assert "backward" not in memory.gathered_head_phases(untied)
    loading = memory.phase_bytes(memory.training_lines(four))["loading"]
    assert loading == 4 * QWEN_1_5B.parameters


@pytest.mark.parametrize("on_gpu", [False, True])
def test_ranks_copy_their_checkpoints_to_host_memory(on_gpu):
    alone = TrainingPlan(QWEN_1_5B, 2048, on_gpu=on_gpu, bf16=True)
    four = replace(alone, ranks=4)
    copies = [
        sum(line.size for line in lines if line.name == "copy of a rank's checkpoint")
        for lines in (
            memory.training_lines(alone),
            memory.host_lines(alone),
            memory.training_lines(four),
            memory.host_lines(four),
        )
    ]
    share = 3 * QWEN_1_5B.parameters
    assert copies == ([0, 0, 0, share] if on_gpu else [0, 0, share, 0])


def test_the_peak_is_that_of_the_largest_phase():
    lines = [Line("a", 10), Line("b", 5, ("sampling",)), Line("c", 7, ("forward", "backward"))]
    assert memory.peak_bytes(lines) == 17


def test_a_bounded_cache_holds_fewer_sequences_instead_of_more_memory():
    weights = memory.engine_weight_bytes(EnginePlan(QWEN_1_5B, 512, 1324, True, True))
    share = weights + (4 << 30)
    bounded = EnginePlan(QWEN_1_5B, 512, 1324, True, True, share=share)
    assert weights + memory.cache_bytes(bounded) <= share
    tiny = EnginePlan(QWEN_1_5B, 512, 1324, True, True, share=1)
    assert memory.cache_bytes(tiny) == 1536 * memory.token_cache_bytes(QWEN_1_5B, bf16=True)


def test_the_smallest_change_is_the_cheapest_that_fits():
    plan = fit.Plan(TrainingPlan(QWEN_1_5B, 16384, on_gpu=True, bf16=True))
    kinds = [
        fit.recomputation(plan),
        fit.smaller_micro_batches(plan, longest=1300),
        fit.adapters(plan, bf16_base=True),
    ]
    for usable in range(12, 100, 4):
        changes = fit.smallest(plan, kinds, usable << 30)
        if changes is None:
            continue
        assert fit.changed(plan, changes).peak <= usable << 30
        for left_out in range(len(changes)):
            fewer = [change for number, change in enumerate(changes) if number != left_out]
            assert fit.changed(plan, fewer).peak > usable << 30
    assert fit.smallest(plan, kinds, 100 << 30) == ()
    assert fit.smallest(plan, kinds, 1 << 30) is None


def test_activations_are_kept_where_that_surely_fits():
    plan = fit.Plan(TrainingPlan(QWEN_1_5B, 8192, on_gpu=True, bf16=True, activation_checkpointing=True))
    kept = fit.without_recomputation(plan, 80 << 30, fewest=8192)
    assert not kept.training.activation_checkpointing
    assert kept.peak > plan.peak
    nearly = round(1.1 * kept.peak)
    assert fit.without_recomputation(plan, nearly, fewest=8192) == plan, "forecasts are not that exact"
    assert fit.without_recomputation(plan, 24 << 30, fewest=8192) == plan
    halved = fit.without_recomputation(plan, nearly, fewest=4096)
    assert (halved.training.micro_tokens, halved.training.activation_checkpointing) == (4096, False)


@pytest.mark.parametrize(
    ("gibibytes", "step_tokens", "kept", "tokens"),
    [
        (80, 0, True, 8192),
        (200, 0, True, 32768),
        (200, 20_000, True, 32768),
        (200, 10_000, True, 16384),
        (40, 0, False, 16384),
        (29, 0, False, 8192),
    ],
)
def test_micro_batches_are_as_large_as_surely_fit(gibibytes, step_tokens, kept, tokens):
    training = TrainingPlan(
        QWEN_1_5B, 16384, on_gpu=True, bf16=True, activation_checkpointing=True, step_tokens=step_tokens
    )
    free = fit.Free(recomputation=True, micro_tokens=True, longest=2048)
    chosen = fit.as_fast_as_fits(fit.Plan(training), free, gibibytes << 30).training
    assert (not chosen.activation_checkpointing, chosen.micro_tokens) == (kept, tokens)


def test_micro_batches_of_options_stay():
    training = TrainingPlan(QWEN_1_5B, 16384, on_gpu=True, bf16=True, activation_checkpointing=True)
    free = fit.Free(recomputation=True, micro_tokens=False, longest=2048)
    chosen = fit.as_fast_as_fits(fit.Plan(training), free, 80 << 30).training
    assert (chosen.micro_tokens, chosen.activation_checkpointing) == (16384, True), "kept, they would not surely fit"


def test_where_nothing_fits_micro_batches_are_the_smallest_and_the_rest_is_proposed():
    training = TrainingPlan(QWEN_1_5B, 16384, on_gpu=True, bf16=True, activation_checkpointing=True)
    free = fit.Free(recomputation=True, micro_tokens=True, longest=3000)
    plan = fit.as_fast_as_fits(fit.Plan(training), free, 24 << 30)
    assert plan.training.micro_tokens == 4096
    assert fit.smaller_micro_batches(plan, longest=3000) == []
    assert [change.flags for change in fit.smallest(plan, [fit.offloaded_moments(plan)], 24 << 30)] == [
        "--offload moments"
    ]


def test_held_copies_of_weights_are_there_while_sampling_too():
    kept = TrainingPlan(QWEN_1_5B, 2048, on_gpu=True, bf16=True)
    recomputed = replace(kept, activation_checkpointing=True)
    phases = [memory.phase_bytes(memory.training_lines(plan))["sampling"] for plan in (kept, recomputed)]
    assert phases[0] - phases[1] == memory.cast_bytes(kept) == 2 * QWEN_1_5B.linear


def test_vllm_is_proposed_a_smaller_share_in_which_its_weights_fit():
    total = 24 << 30
    plan = fit.Plan(TrainingPlan(QWEN_1_5B, 1024, on_gpu=True, bf16=True), share=total * 35 // 100)
    changes = fit.smaller_share(plan, total=total, longest=1300)
    assert [change.flags for change in changes] == [f"--gpu-memory {share}" for share in (0.3, 0.25, 0.2, 0.15)]
    assert fit.changed(plan, changes[-1:]).share == total * 15 // 100
    assert fit.smaller_share(plan, total=8 << 30, longest=1300) == []


def test_an_engine_on_the_frozen_weights_is_proposed_where_vllm_does_not_fit():
    training = TrainingPlan(QWEN_1_5B, 1024, on_gpu=True, bf16=True, lora_rank=32, bf16_base=True)
    plan = fit.Plan(training, share=12 << 30)
    engine = EnginePlan(QWEN_1_5B, 64, 1324, bf16=True, on_gpu=True)
    changes = fit.shared_base(plan, engine, group=16)
    assert [change.flags for change in changes] == [
        "--engine torch",
        "--engine torch --n-async 32",
        "--engine torch --n-async 16",
    ]
    shared = fit.changed(plan, changes[:1])
    own = memory.engine_weight_bytes(shared.engine)
    adapters = memory.lora_parameters(QWEN_1_5B, 32)
    assert own == 2 * adapters + 4 * QWEN_1_5B.head
    assert shared.share == 0
    all_weights = fit.Plan(TrainingPlan(QWEN_1_5B, 1024, on_gpu=True, bf16=True), share=12 << 30)
    assert fit.changed(all_weights, changes[:1]) == all_weights, "without LoRA the trainer changes its weights"
    assert fit.shared_base(fit.Plan(training), engine, group=16) == []


def test_micro_batches_are_not_smaller_than_the_longest_sequence():
    plan = fit.Plan(TrainingPlan(QWEN_1_5B, 16384, on_gpu=True, bf16=True))
    assert [change.flags for change in fit.smaller_micro_batches(plan, longest=3000)] == [
        "--micro-tokens 8192",
        "--micro-tokens 4096",
    ]


def test_a_model_that_is_too_large_for_a_card_is_split():
    plan = fit.Plan(TrainingPlan(QWEN_1_5B, 16384, on_gpu=True, bf16=True), share=8 << 30)
    ranks, changes = fit.sharded(plan, [fit.recomputation(plan)], 22 << 30)
    assert ranks == 2
    assert [change.flags for change in changes] == ["--activation-checkpointing yes"]
    assert fit.sharded(plan, [], 1 << 30) is None


@pytest.mark.parametrize(("text", "gibibytes"), [("24G", 24), ("80 GiB", 80), ("512M", 0.5), ("23.5g", 23.5)])
def test_a_card_is_named_by_its_size(text, gibibytes):
    named = machine.named_card(text)
    assert named.total == round(gibibytes * 2**30 * machine.VISIBLE)
    assert named.usable < named.total


@pytest.mark.parametrize("text", ["24", "G", "-1G", "0G", "24T", "H100"])
def test_what_is_no_size_is_no_card(text):
    with pytest.raises(UsageError, match="--card must be a size such as 24G"):
        machine.named_card(text)


def test_the_memory_of_this_machine_is_not_more_than_it_has():
    here = machine.host()
    assert 0 < here.usable <= here.total
