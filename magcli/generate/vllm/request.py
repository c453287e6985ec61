"""What goes to vLLM for one sequence and what comes back: its ``SamplingParams``, and a ``Rollout`` of its outputs."""

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any

from magcli.errors import EnvironmentFault
from magcli.generate.types import Finish, Rollout, Sampling

FIRST_AND_LAST = 1 << 30
"""Stream interval: vLLM outputs a request's first token at once, then only after this many more, that is at its end."""

INITIAL_LABEL = "default"
"""vLLM's label for the weights it starts with, our version 0."""

Outputs = Sequence[Any]
"""vLLM's outputs for one request, its first token and then the rest, as ``CompletionOutput``."""


def sampling_params(sampling: Sampling, limit: int, seed: int, ends: Collection[int], *, logprobs: bool) -> Any:
    """vLLM's ``SamplingParams``. Greedy decoding is a top-k of 1; our end tokens replace vLLM's own."""
    greedy = sampling.temperature == 0
    return _params(
        "DELTA",
        max_tokens=limit,
        temperature=1.0 if greedy else sampling.temperature,
        top_p=1.0 if greedy else sampling.top_p,
        top_k=1 if greedy else sampling.top_k,
        seed=seed,
        stop_token_ids=sorted(ends),
        ignore_eos=True,
        logprobs=0 if logprobs else None,
        stream_interval=FIRST_AND_LAST,
    )


def scoring_params() -> Any:
    """vLLM's ``SamplingParams`` for the log-probs of a prompt's tokens; it generates one token, which is ignored."""
    return _params(
        "FINAL_ONLY",
        max_tokens=1,
        temperature=0.0,
        prompt_logprobs=0,
        skip_reading_prefix_cache=True,  # vLLM gives no log-probs of cached tokens
    )


def _params(outputs: str, **settings: Any) -> Any:
    """``SamplingParams`` of which ``outputs`` come, as token ids with flat log-probs."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    kind = RequestOutputKind[outputs]
    return SamplingParams(**settings, flat_logprobs=True, detokenize=False, output_kind=kind)


def output_tokens(outputs: Outputs) -> tuple[int, ...]:
    """The tokens of a request."""
    return tuple(chain.from_iterable(output.token_ids for output in outputs))


def finish_of(outputs: Outputs) -> Finish:
    """How a request ended; raises EnvironmentFault if vLLM aborted it."""
    reason = outputs[-1].finish_reason
    if reason not in ("stop", "length"):
        raise EnvironmentFault(f"vLLM ended a sequence of {len(output_tokens(outputs))} tokens with finish {reason!r}")
    return "stop" if reason == "stop" else "length"


def rollout_of(index: int, prompt: tuple[int, ...], seed: int, outputs: Outputs) -> Rollout:
    """A rollout from the outputs of its request, the last of which has the versions."""
    tokens = output_tokens(outputs)
    finish = finish_of(outputs)
    logprobs: list[float] = []
    for output in outputs:
        # A flat list, where the first log-prob of each position is the sampled token's.
        flat = output.logprobs
        logprobs += [flat.logprobs[start] for start in flat.start_indices]
    # Without a span from the first token on, it is not known which weights generated it.
    spans = outputs[-1].weight_versions
    covers_all = bool(spans) and spans[0].start == 0
    if len(logprobs) != len(tokens) or not covers_all:
        raise EnvironmentFault(f"vLLM returned {len(logprobs)} log-probs and versions {spans} for {len(tokens)} tokens")
    versions = []
    for span in spans:
        version = 0 if span.version == INITIAL_LABEL else int(span.version)
        versions.append((span.start, version))
    return Rollout(index, prompt, tokens, tuple(logprobs), tuple(versions), finish, seed)
