"""The embedded engine against transformers' ``generate``: 64 requests to a model of SmolLM2-135M's shape, bf16.

``generate`` gets all requests as one left-padded batch with a KV cache, its best case on a CPU; the engine has a slot
for each request. Both sample from the whole vocabulary at temperature 1 without an end token. The engine also computes
log-probs. Where lengths differ, ``generate`` runs to the longest; only the tokens that a request asked for count.
"""

import math
import random
from collections.abc import Sequence
from copy import deepcopy
from functools import cache

import torch
from transformers import PreTrainedModel

from benchmarks.models import SMOLLM2_135M, random_llama
from benchmarks.pairs import Result, compare, timed
from magcli.generate.torch.engine import Engine
from magcli.generate.types import Sampling

REQUESTS = 64
NEW_TOKENS = 32
MEDIAN = 8
SIGMA = 1.0
LONGEST = 64
"""Log-normal lengths, truncated: mean about 12, as heavy-tailed as completions in RL."""
PAD = 0

Prompts = Sequence[list[int]]


def equal_lengths() -> Result:
    """All requests want the same number of tokens, so ``generate`` wastes nothing."""
    return _compare("engine-equal-vs-generate", [NEW_TOKENS] * REQUESTS)


def heavy_tail() -> Result:
    """Requests want different numbers of tokens."""
    choose = random.Random(0)
    lengths = [min(LONGEST, max(1, round(MEDIAN * math.exp(choose.gauss(0, SIGMA))))) for _ in range(REQUESTS)]
    return _compare("engine-heavy-vs-generate", lengths)


def _compare(name: str, lengths: Sequence[int]) -> Result:
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
    return random_llama(**SMOLLM2_135M, max_position_embeddings=2048, pad_token_id=PAD).to(torch.bfloat16)


def _prompts() -> Prompts:
    choose = random.Random(1)
    return [[choose.randrange(1, 49152) for _ in range(choose.randint(8, 16))] for _ in range(REQUESTS)]


def _sample(engine: Engine, prompts: Prompts, lengths: Sequence[int]) -> None:
    for seed, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        engine.submit(prompt, Sampling(max_tokens=length), [seed])
    generated = 0
    while engine.busy:
        generated += sum(len(rollout.tokens) for _, rollout in engine.step())
    assert generated == sum(lengths)


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
