"""One sequence as vLLM is asked for it and as it comes back."""

from collections.abc import Collection, Sequence
from typing import Any

from magcli.errors import EnvironmentFault, UsageError
from magcli.generate.types import Finish, Rollout, Sampling

FIRST_AND_LAST = 1 << 30
"""vLLM tells of a request's first token at once, then only after this many more, which is to say at its end."""

COLDEST, HOTTEST = 0.01, 2.0
"""Temperatures that vLLM takes, besides 0; it would replace lower ones without a word."""

FIRST_LABEL = "default"
"""What vLLM calls the weights that it starts with, our version 0."""


def check_temperature(temperature: float) -> None:
    """Refuse temperatures that vLLM would not use as they are.

    Raises:
        UsageError: it is neither 0 nor in vLLM's range.
    """
    if temperature and not COLDEST <= temperature <= HOTTEST:
        raise UsageError(f"temperature {temperature:g}: vLLM takes 0, and {COLDEST:g} to {HOTTEST:g}")


def request_settings(sampling: Sampling, limit: int, seed: int, ends: Collection[int], *, logprobs: bool) -> Any:
    """vLLM's ``SamplingParams``. Greedy decoding is a top-k of 1; our end tokens take the place of vLLM's own.

    ``logprobs``: tell the sampled tokens' log-probabilities, which text has no use for.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    greedy = sampling.temperature == 0
    return SamplingParams(
        max_tokens=limit,
        temperature=1.0 if greedy else sampling.temperature,
        top_p=1.0 if greedy else sampling.top_p,
        top_k=1 if greedy else sampling.top_k,
        seed=seed,
        stop_token_ids=sorted(ends),
        ignore_eos=True,
        logprobs=0 if logprobs else None,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        stream_interval=FIRST_AND_LAST,
    )


def tokens_of(parts: Sequence[Any]) -> tuple[int, ...]:
    """Token ids of a request from its outputs (vLLM's ``CompletionOutput``), first token and rest."""
    return tuple(token for part in parts for token in part.token_ids)


def finish_of(parts: Sequence[Any]) -> Finish:
    """How a request ended.

    Raises:
        EnvironmentFault: vLLM ended it by itself.
    """
    reason = parts[-1].finish_reason
    if reason not in ("stop", "length"):
        raise EnvironmentFault(f"vLLM ended a sequence of {len(tokens_of(parts))} tokens with finish {reason!r}")
    return "stop" if reason == "stop" else "length"


def rollout_of(index: int, prompt: tuple[int, ...], seed: int, parts: Sequence[Any]) -> Rollout:
    """A rollout from the outputs of its request, of which the last tells the versions.

    Raises:
        EnvironmentFault: vLLM ended the request by itself, or does not account for every token.
    """
    tokens, finish, spans = tokens_of(parts), finish_of(parts), parts[-1].weight_versions
    logprobs = tuple(part.logprobs.logprobs[start] for part in parts for start in part.logprobs.start_indices)
    if len(logprobs) != len(tokens) or not spans or spans[0].start != 0:
        raise EnvironmentFault(f"vLLM tells {len(logprobs)} log-probs and versions {spans} for {len(tokens)} tokens")
    versions = tuple((span.start, _version(span.version)) for span in spans)
    return Rollout(index, prompt, tokens, logprobs, versions, finish, seed)


def _version(label: str) -> int:
    return 0 if label == FIRST_LABEL else int(label)
