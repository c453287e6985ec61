"""One SFT step on packed sequences against padded batches in plain transformers: forward and backward.

128 sequences of heavy-tailed lengths, every token a target, bf16 autocast, the same token budget per micro-batch
(padding included, since it takes memory too). The peer batches the sequences in random order, as trainers do by
default, or sorted by length, its best case. magcli's output head runs in float32, the peer's in bf16; the losses must
agree.
"""

import math
import random
from collections.abc import Iterator, Sequence
from copy import deepcopy

import torch
from transformers import PreTrainedModel

from benchmarks.models import random_llama
from benchmarks.pairs import Result, compare, timed
from magcli.train.attention import use_packed_attention
from magcli.train.sft import Example, accumulate, num_targets, split_examples
from magcli.train.shard import ShardedModel

SEQUENCES = 128
MEDIAN = 40
SIGMA = 1.0
LONGEST = 512
MICRO_TOKENS = 2048
VOCABULARY = 4096
PAD, IGNORED = 0, -100


def in_random_order() -> Result:
    """The peer pads batches in random order."""
    return _compare("pack-vs-padded", _examples())


def sorted_by_length() -> Result:
    """The peer pads batches of sequences sorted by length."""
    return _compare("pack-vs-sorted", sorted(_examples(), key=lambda example: -len(example.tokens)))


def _compare(name: str, examples: Sequence[Example]) -> Result:
    plain = _model()
    packed = deepcopy(plain)
    use_packed_attention(packed)
    ours, theirs = _packed_step(packed, examples), _padded_step(plain, examples)
    assert math.isclose(ours, theirs, rel_tol=1e-2), f"{name}: losses {ours} and {theirs}"
    tokens = sum(len(e.tokens) for e in examples)
    padded = sum(_width(b) * len(b) for b in _batches(examples))
    print(f"{name}: {SEQUENCES} sequences, {tokens} tokens, {padded} with padding, loss {ours:.4f} and {theirs:.4f}")
    return compare(
        name,
        timed(lambda: _packed_step(packed, examples)),
        timed(lambda: _padded_step(plain, examples)),
        amount=tokens,
        unit="tokens",
    )


def _packed_step(model: PreTrainedModel, examples: Sequence[Example]) -> float:
    model.zero_grad(set_to_none=True)
    (batches,) = split_examples(examples, micro_tokens=MICRO_TOKENS)
    return accumulate(ShardedModel(model), batches, total=num_targets(examples), bf16=True)


def _padded_step(model: PreTrainedModel, examples: Sequence[Example]) -> float:
    model.zero_grad(set_to_none=True)
    targets = sum(len(example.tokens) - 1 for example in examples)
    loss = 0.0
    for batch in _batches(examples):
        tokens = torch.tensor([[*e.tokens, *[PAD] * (_width(batch) - len(e.tokens))] for e in batch])
        real = tokens != PAD
        with torch.autocast("cpu", dtype=torch.bfloat16):
            part = model(
                input_ids=tokens,
                attention_mask=real.long(),
                labels=tokens.where(real, IGNORED),
                num_items_in_batch=targets,
                use_cache=False,
            ).loss
        part.backward()
        loss += part.item()
    return loss


def _batches(examples: Sequence[Example]) -> Iterator[list[Example]]:
    """Consecutive sequences, as many as fit the budget when padded to the longest."""
    batch: list[Example] = []
    for example in examples:
        if batch and _width([*batch, example]) * (len(batch) + 1) > MICRO_TOKENS:
            yield batch
            batch = []
        batch.append(example)
    yield batch


def _width(batch: Sequence[Example]) -> int:
    return max(len(example.tokens) for example in batch)


def _examples() -> list[Example]:
    choose = random.Random(0)
    lengths = [min(LONGEST, max(8, round(MEDIAN * math.exp(choose.gauss(0, SIGMA))))) for _ in range(SEQUENCES)]
    return [
        Example(tuple(choose.randrange(1, VOCABULARY) for _ in range(length)), (False, *[True] * (length - 1)))
        for length in lengths
    ]


def _model() -> PreTrainedModel:
    return random_llama(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=LONGEST,
        pad_token_id=PAD,
    )
