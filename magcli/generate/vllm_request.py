"""One sequence as vLLM is asked for it and as it comes back."""

from collections.abc import Collection, Sequence
from typing import Any

from magcli.errors import EnvironmentFault, UsageError
from magcli.generate.types import Rollout, Sampling

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


def request_settings(sampling: Sampling, limit: int, seed: int, ends: Collection[int]) -> Any:
    """vLLM's ``SamplingParams``. Greedy decoding is a top-k of 1; our end tokens take the place of vLLM's own."""
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
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        stream_interval=FIRST_AND_LAST,
    )


def assembled(index: int, prompt: tuple[int, ...], seed: int, parts: Sequence[Any]) -> Rollout:
    """A rollout from the outputs of its request (vLLM's ``CompletionOutput``), of which the last tells the versions.

    Raises:
        EnvironmentFault: vLLM ended the request by itself, or does not account for every token.
    """
    tokens = tuple(token for part in parts for token in part.token_ids)
    logprobs = tuple(part.logprobs.logprobs[start] for part in parts for start in part.logprobs.start_indices)
    last = parts[-1]
    if last.finish_reason not in ("stop", "length") or len(logprobs) != len(tokens) or not last.weight_versions:
        raise EnvironmentFault(f"vLLM ended a sequence of {len(tokens)} tokens with finish {last.finish_reason!r}")
    return Rollout(
        index=index,
        prompt=prompt,
        tokens=tokens,
        logprobs=logprobs,
        versions=tuple((span.start, _version(span.version)) for span in last.weight_versions),
        finish="stop" if last.finish_reason == "stop" else "length",
        seed=seed,
    )


def _version(label: str) -> int:
    return 0 if label == FIRST_LABEL else int(label)
