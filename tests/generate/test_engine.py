"""The engine on several model families and types, and what it rejects."""

import asyncio
from copy import deepcopy

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    DeepseekV3Config,
    Gemma2Config,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    StableLmConfig,
)

from magcli.errors import EnvironmentFault, MagError, UsageError
from magcli.generate.spec import Spec
from magcli.generate.torch.ended import EndedSequences
from magcli.generate.torch.engine import Engine
from magcli.generate.torch.policy import TorchPolicy
from magcli.generate.types import Rollout, Sampling
from magcli.model.load import load_model
from magcli.model.model import Model

SIZES = {
    "vocab_size": 104,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "llama-all-heads": LlamaConfig(**SIZES | {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "mistral": MistralConfig(**SIZES, sliding_window=None),
    "windows": MistralConfig(**SIZES, sliding_window=8),
    "windows, soft caps": Gemma2Config(**SIZES, head_dim=16, sliding_window=70, attn_logit_softcapping=2.0),
    "windows, sinks": GptOssConfig(**SIZES, head_dim=16, sliding_window=20, num_local_experts=2, num_experts_per_tok=1),
    "keys wider than values": DeepseekV3Config(
        **SIZES | {"num_key_value_heads": 4},
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=16,
        v_head_dim=8,
        first_k_dense_replace=2,
    ),
}


def build(config, seed: int = 0):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(deepcopy(config), dtype=torch.float32, attn_implementation="eager").eval()


def drain(engine: Engine) -> list[Rollout]:
    found = []
    while engine.busy:
        found += [rollout for _, rollout in engine.step()]
    return found


@torch.inference_mode()
def worst_difference(model, rollouts: list[Rollout]) -> float:
    worst = 0.0
    for rollout in rollouts:
        logits = model(torch.tensor([rollout.prompt + rollout.tokens])).logits[0, len(rollout.prompt) - 1 : -1].float()
        expected = logits.log_softmax(-1).gather(1, torch.tensor(rollout.tokens)[:, None])[:, 0]
        worst = max(worst, float((expected - torch.tensor(rollout.logprobs)).abs().max()))
    return worst


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_logprobs_match_the_plain_model_of_each_family(name, deterministic):
    engine = Engine(build(CONFIGS[name]), slots=5, ends=[1], deterministic=deterministic)
    for length in (1, 2, 16, 33, 100):
        engine.submit([2 + i % 100 for i in range(length)], Sampling(60), [length, length + 1])
    rollouts = drain(engine)
    assert len(rollouts) == 10
    assert worst_difference(build(CONFIGS[name]), rollouts) < 1e-4


ENDS = range(1, 40)
"""So many that turns are short."""


def next_turns(rollouts: list[Rollout], known: list[int], engine: Engine) -> list[Rollout]:
    """The turns that follow after three tokens of an environment; ``known`` gets what was computed of each prompt."""
    forward = engine._model.forward

    def watched(tokens, positions, span, prompts):
        known.extend(prompt.num_past for prompt in prompts)
        return forward(tokens, positions, span, prompts)

    engine._model.forward = watched
    for rollout in rollouts:
        engine.submit([*rollout.prompt, *rollout.tokens, 50, 51, 52], Sampling(60, continues=True), [rollout.seed])
    return drain(engine)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_next_turn_of_an_episode_computes_only_what_is_new(name):
    engine = Engine(build(CONFIGS[name]), slots=8, ends=ENDS)
    for length in (1, 16, 33, 100):
        engine.submit([2 + i % 100 for i in range(length)], Sampling(60, continues=True), [length, length + 1])
    first = drain(engine)
    known: list[int] = []
    second = next_turns(first, known, engine)
    assert sorted(known) == sorted(len(rollout.prompt) + len(rollout.tokens) - 1 for rollout in first)
    assert worst_difference(build(CONFIGS[name]), second) < 1e-4


@pytest.mark.parametrize(("continues", "loads"), [(False, False), (True, True)])
def test_single_completions_and_new_weights_leave_nothing_to_continue(continues, loads):
    engine = Engine(build(CONFIGS["llama"]), slots=8, ends=ENDS)
    engine.submit(range(2, 35), Sampling(60, continues=continues), range(4))
    first = drain(engine)
    if loads:
        engine.load(dict(build(CONFIGS["llama"], seed=1).named_parameters()), 1)
    known: list[int] = []
    second = next_turns(first, known, engine)
    assert known == [0] * len(first)
    assert worst_difference(build(CONFIGS["llama"], seed=int(loads)), second) < 1e-4


def test_a_turn_whose_tokens_two_versions_computed_is_computed_again():
    engine = Engine(build(CONFIGS["llama"]), slots=4, ends=[1])
    engine.submit([5, 6, 7], Sampling(8, continues=True), [3])
    engine.step()
    engine.load(dict(build(CONFIGS["llama"], seed=1).named_parameters()), 1)
    known: list[int] = []
    next_turns(drain(engine), known, engine)
    assert known == [0]


def test_of_more_sequences_than_slots_the_newest_can_be_continued():
    kept = EndedSequences(2)
    pasts = [(torch.zeros(1), torch.zeros(1)) for _ in range(3)]
    for number, past in enumerate(pasts):
        kept.keep((7, number), past)
    assert kept.longest((7, 0, 1)) is None
    assert kept.longest((7, 2, 1)) is pasts[2]
    assert kept.longest((7, 2)) is None, "at least one token is computed, for its logits"


def test_more_prompts_than_slots_and_a_prefill_budget_lose_nothing(monkeypatch):
    monkeypatch.setattr("magcli.generate.torch.engine.PREFILL_TOKENS", 20)
    engine = Engine(build(CONFIGS["llama"]), slots=7, ends=[1])
    wanted = {engine.submit([5 + n, 6, 7], Sampling(1 + n % 9), range(n, n + 1 + n % 4)): 1 + n % 4 for n in range(40)}
    found = dict.fromkeys(wanted, 0)
    rollouts = []
    while engine.busy:
        assert engine.num_running <= 7
        for request, rollout in engine.step():
            found[request] += 1
            rollouts.append(rollout)
    assert found == wanted
    assert worst_difference(build(CONFIGS["llama"]), rollouts) < 1e-4


def test_a_bounded_cache_runs_fewer_sequences_at_once_and_loses_nothing():
    token_bytes = 2 * 2 * 2 * 12 * 4
    engine = Engine(build(CONFIGS["llama"]), slots=8, ends=[1], cache_bytes=3 * 256 * token_bytes)
    wanted = {engine.submit([5 + n, 6, 7], Sampling(9), range(n, n + 4)): 4 for n in range(5)}
    found, rollouts, largest = dict.fromkeys(wanted, 0), [], 0
    while engine.busy:
        for request, rollout in engine.step():
            found[request] += 1
            rollouts.append(rollout)
        cache = engine._model.cache
        largest = max(largest, cache.keys.nbytes + cache.values.nbytes)
        assert engine.num_running <= 3
    assert found == wanted
    assert largest == 3 * 256 * token_bytes
    assert worst_difference(build(CONFIGS["llama"]), rollouts) < 1e-4


def test_a_bounded_cache_is_replaced_for_longer_sequences_when_none_runs():
    config = LlamaConfig(**SIZES | {"max_position_embeddings": 1024})
    token_bytes = 2 * 2 * 2 * 12 * 4
    engine = Engine(build(config), slots=4, ends=[], cache_bytes=4 * 256 * token_bytes)
    first = engine.submit([5, 6, 7], Sampling(20), [0])
    engine.step()
    longer = engine.submit([5 + n % 90 for n in range(300)], Sampling(20), [1, 2, 3])
    assert engine._model.cache.capacity == 256
    ended = []
    while engine.busy:
        ended += engine.step()
        assert engine._model.cache.slots * engine._model.cache.capacity <= 4 * 256
    assert sorted(request for request, _ in ended) == [first, longer, longer, longer]
    assert engine._model.cache.capacity == 512
    assert worst_difference(build(config), [rollout for _, rollout in ended]) < 1e-4


def test_bfloat16_weights_keep_a_float32_head():
    plain = build(CONFIGS["llama-all-heads"]).bfloat16()
    engine = Engine(build(CONFIGS["llama-all-heads"]).bfloat16(), slots=8, ends=[1])
    engine.load(build(CONFIGS["llama-all-heads"]).state_dict(), 3)
    engine.submit([5, 6, 7], Sampling(40), range(8))
    rollouts = drain(engine)
    assert all(rollout.versions == ((0, 3),) for rollout in rollouts)
    assert any(logprob != float(torch.tensor(logprob).bfloat16()) for r in rollouts for logprob in r.logprobs)
    rounded_head = worst_difference(plain, rollouts)
    body = {name: tensor.bfloat16().float() for name, tensor in build(CONFIGS["llama-all-heads"]).state_dict().items()}
    exact = build(CONFIGS["llama-all-heads"])
    exact.load_state_dict(body)
    assert worst_difference(exact, rollouts) < max(0.06, rounded_head)


def test_one_name_of_tied_weights_is_enough():
    config = CONFIGS["llama-all-heads"]
    weights = {name: tensor for name, tensor in build(config, 1).state_dict().items() if name != "lm_head.weight"}
    for dtype in (torch.float32, torch.bfloat16):
        engine = Engine(build(config).to(dtype), slots=2, ends=[1])
        engine.load(weights, 1)
        engine.submit([5, 6, 7], Sampling(20), [1, 2])
        assert worst_difference(build(config, 1), drain(engine)) < (1e-4 if dtype == torch.float32 else 0.1)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (StableLmConfig, "it passes no arguments on"),
        (BloomConfig, "it does not call transformers' attention interface"),
    ],
)
def test_a_model_without_the_attention_interface_is_rejected(config, reason):
    model = build(config(**SIZES | {"hidden_size": 64}))
    with pytest.raises(EnvironmentFault, match=f"is not supported: {reason}.*use --engine vllm"):
        Engine(model, slots=2, ends=[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_that_mixes_tokens_outside_of_attention_is_rejected(dtype):
    model = build(CONFIGS["llama"]).to(dtype)
    model.model.layers[0].mlp.register_forward_pre_hook(lambda _, inputs: (inputs[0] + inputs[0].roll(1, 1),))
    with pytest.raises(EnvironmentFault, match="embedded engine would not compute what it computes: logits are off"):
        Engine(model, slots=2, ends=[1])


def test_a_model_that_reads_the_weights_of_a_called_layer_is_rejected():
    """Packing leaves no weights to read."""
    model = build(CONFIGS["llama"])
    layer = model.model.layers[0]
    layer.mlp.register_forward_pre_hook(lambda _, inputs: (inputs[0] @ layer.self_attn.o_proj.weight.float().T,))
    with pytest.raises(EnvironmentFault, match="LlamaForCausalLM is not supported"):
        Engine(model, slots=2, ends=[1])


def test_a_model_whose_16_bit_logits_are_off_by_rounding_alone_runs(monkeypatch):
    monkeypatch.setattr("magcli.model.probe.ROUNDED_TOLERANCE", 0.0)
    monkeypatch.setattr("magcli.generate.torch.slot_model.pack_linears", lambda model, names: {})
    engine = Engine(build(CONFIGS["windows"]).bfloat16(), slots=2, ends=[1])
    engine.submit([5] * 20, Sampling(4), [1])
    assert len(drain(engine)) == 1


def test_an_engine_needs_slots():
    with pytest.raises(UsageError, match="slot"):
        Engine(build(CONFIGS["llama"]), slots=0, ends=[1])


def test_an_error_in_a_step_reaches_all_callers(tiny_model_dir):
    """Weights of another shape, set without ``load``, make the next step fail."""
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    policy = TorchPolicy(Spec(Model.open(tiny_model_dir), slots=4), model)

    async def collect() -> list[Rollout]:
        return [rollout async for rollout in policy.sample([5, 6], Sampling(100), seeds=range(4))]

    async def scenario() -> None:
        waiting = [asyncio.ensure_future(collect()) for _ in range(3)]
        await asyncio.sleep(0)
        model.model.norm.weight.data = torch.zeros(3)
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, RuntimeError)
        with pytest.raises(MagError, match="stopped"):
            await collect()
        await policy.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))
