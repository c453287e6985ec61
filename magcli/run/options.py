"""Options that several stages share: each is worded in one place; a stage may give its own default."""

from typing import Any, Literal

from magcli.config import opt

MODEL = "Model and sampling"
REWARD = "Reward"
TRAIN = "Training"


Engine = Literal["auto", "torch", "vllm", "server"]
DType = Literal["auto", "bf16", "fp32"]
Bf16 = Literal["auto", "yes", "no"]
Sandbox = Literal["full", "restricted", "auto", "dangerously-none"]


def model(default: str = "") -> Any:
    """The model that answers."""
    return opt(default, "A local folder, a hub id, or the URL of an OpenAI-compatible server.", panel=MODEL)


def trained_model() -> Any:
    """The model that learns."""
    return opt("", "A local folder or a hub id.", panel=MODEL)


def engine() -> Any:
    """Which engine runs it."""
    return opt(
        "auto", "Sampling engine; auto: server for a URL, vllm on a GPU if it is installed, else torch.", panel=MODEL
    )


def dtype() -> Any:
    """Number format of the sampling weights."""
    return opt(
        "auto", "Number format of the sampling weights; auto: bf16 where it is faster on this machine.", panel=MODEL
    )


def bf16() -> Any:
    """Number format of the matrix products of training."""
    return opt(
        "auto",
        "Training matrix products in bf16; auto: where it is faster on this machine. Master weights are float32.",
        panel=TRAIN,
    )


def slots(default: int = 64) -> Any:
    """How many sequences run at once."""
    return opt(default, "Maximum number of concurrent sequences.", panel=MODEL)


def deterministic() -> Any:
    """Bits that do not depend on neighbours."""
    return opt(False, "Use fp32, and make the bits of a row independent of what is sampled beside it.", panel=MODEL)


def device() -> Any:
    """Where the model lives."""
    return opt("cpu", "Device of the model: cpu, cuda, cuda:1.", panel=MODEL)


def deadline() -> Any:
    """How long a server or vLLM may take."""
    return opt(600.0, "Timeout in seconds of one request to a server (retries included) or to vLLM.", panel=MODEL)


def samples(default: int) -> Any:
    """How many samples a problem gets."""
    return opt(default, "Number of samples per problem.", panel=MODEL)


def max_tokens(default: int = 1024) -> Any:
    """Where a sample is cut."""
    return opt(default, "Maximum new tokens per completion.", panel=MODEL)


def temperature(default: float = 1.0, *, greedy: bool = True) -> Any:
    """Sampling temperature; ``greedy``: it may be 0."""
    told = "Sampling temperature" + ("; 0 is greedy decoding." if greedy else ", above 0.")
    return opt(default, told, panel=MODEL)


def top_p() -> Any:
    """Nucleus sampling."""
    return opt(1.0, "Nucleus sampling: only the most likely tokens with this total probability.", panel=MODEL)


def system() -> Any:
    """The system prompt."""
    return opt(None, "File with the system prompt (default: magcli's; 'none' for no system prompt).", panel=MODEL)


def seed() -> Any:
    """The run's seed."""
    return opt(
        0, "Seed of the run; the seed of a sample is a hash of it, the row's id and the sample's number.", panel=MODEL
    )


def workers() -> Any:
    """Verdicts that are worked out at once."""
    return opt(1, "Number of verifier workers.", panel=REWARD)


def verify_deadline() -> Any:
    """Deadline of one verdict."""
    return opt(2.0, "Timeout in seconds of one verdict; the worker is killed and the reason is timeout.", panel=REWARD)


def reward() -> Any:
    """The user's own reward."""
    return opt("", "Your own reward in place of the recipe's: module:function or file.py:function.", panel=REWARD)


def num_tests(default: int = 20) -> Any:
    """Tests of one program."""
    return opt(default, "Number of tests drawn for a program, the same for a whole group; 0 uses all.", panel=REWARD)


def partial() -> Any:
    """The reward of the ablation."""
    return opt(
        False, "Partial reward: the fraction of tests that a program passes, instead of all or nothing.", panel=REWARD
    )


def sandbox() -> Any:
    """How programs are isolated."""
    return opt(
        "full",
        "How programs are isolated; auto takes restricted where full is not possible; dangerously-none lets what a "
        "model wrote do to this machine all that you can.",
        panel=REWARD,
    )


def max_length(default: int = 0) -> Any:
    """l_max of the length penalty."""
    return opt(
        default,
        "Length in tokens at which the length penalty reaches its maximum (l_max); 0 disables it.",
        panel=REWARD,
    )


def cache_length() -> Any:
    """l_cache of the length penalty."""
    return opt(0, "Number of tokens below --max-length over which the length penalty grows (l_cache).", panel=REWARD)


def language() -> Any:
    """The language part of the reward."""
    return opt(True, "Reward completions whose thoughts and answer are in the language of the question.", panel=REWARD)


def recompute() -> Any:
    """Less memory for more work in training."""
    return opt(
        False,
        "Activation checkpointing: recompute layer activations in the backward pass. Less memory, a third more work.",
        panel=TRAIN,
    )
