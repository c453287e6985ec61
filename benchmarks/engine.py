"""The embedded engine beside transformers' ``generate``: 64 requests on a model of SmolLM2-135M's shape, bf16.

The peer gets all requests as one left-padded batch with a KV cache, its best case on a CPU; the engine has a slot for
each. Both draw from the whole vocabulary at temperature 1 and never see an end token. The engine's log-probs, which
``generate`` does not give here, are part of its time. Where lengths differ ``generate`` runs to the longest and only
the tokens that a request asked for count.
"""

import math
import random
from collections.abc import Sequence
from copy import deepcopy
from functools import cache

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from benchmarks.pairs import Result, compare, report, timed
from magcli.generate.engine import Engine
from magcli.generate.types import Sampling

REQUESTS = 64
NEW_TOKENS = 32
MEDIAN, SIGMA, LONGEST = 8, 1.0, 64
"""A log-normal list of lengths, cut at the longest: mean about 12, as answers before and during RL are spread."""
PAD = 0

Prompts = Sequence[list[int]]


def equal_lengths() -> Result:
    """Every request takes the same number of tokens: ``generate`` wastes nothing."""
    return _race("engine-equal-vs-generate", [NEW_TOKENS] * REQUESTS)


def heavy_tail() -> Result:
    """Each request has a length of its own."""
    choose = random.Random(0)
    lengths = [min(LONGEST, max(1, round(MEDIAN * math.exp(choose.gauss(0, SIGMA))))) for _ in range(REQUESTS)]
    return _race("engine-heavy-vs-generate", lengths)


def _race(name: str, lengths: Sequence[int]) -> Result:
    prompts = _prompts()
    engine = Engine(deepcopy(_model()), slots=REQUESTS, ends=())
    _sample(engine, prompts, [2] * REQUESTS)
    _generate(_model(), prompts, [2] * REQUESTS)
    print(f"{name}: {REQUESTS} requests, {sum(lengths)} tokens, longest {max(lengths)}", flush=True)
    return compare(
        name,
        timed(lambda: _sample(engine, prompts, lengths)),
        timed(lambda: _generate(_model(), prompts, lengths)),
        amount=sum(lengths),
        unit="tokens",
    )


@cache
def _model() -> PreTrainedModel:
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=PAD,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def _prompts() -> Prompts:
    choose = random.Random(1)
    return [[choose.randrange(1, 49152) for _ in range(choose.randint(8, 16))] for _ in range(REQUESTS)]


def _sample(engine: Engine, prompts: Prompts, lengths: Sequence[int]) -> None:
    for seed, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        engine.submit(prompt, Sampling(max_tokens=length), [seed])
    made = 0
    while engine.busy:
        made += sum(len(rollout.tokens) for _, rollout in engine.step())
    assert made == sum(lengths)


@torch.no_grad()
def _generate(model: PreTrainedModel, prompts: Prompts, lengths: Sequence[int]) -> None:
    widest, longest = max(map(len, prompts)), max(lengths)
    tokens = torch.tensor([[PAD] * (widest - len(prompt)) + prompt for prompt in prompts])
    output = model.generate(
        input_ids=tokens,
        attention_mask=(tokens != PAD).long(),
        max_new_tokens=longest,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        use_cache=True,
    )
    assert output.shape == (len(prompts), widest + longest)


if __name__ == "__main__":
    report(equal_lengths, heavy_tail)
