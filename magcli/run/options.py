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
        "auto", "What samples: auto takes server for a URL, vllm on a GPU if it is there, else torch.", panel=MODEL
    )


def dtype() -> Any:
    """Number format of the sampling weights."""
    return opt("auto", "Weights for sampling: auto takes bf16 where this machine is faster in it.", panel=MODEL)


def bf16() -> Any:
    """Number format of the matrix products of training."""
    return opt(
        "auto",
        "Matrix products of training in bf16; auto: where this machine is faster in it. Master weights are float32.",
        panel=TRAIN,
    )


def slots(default: int = 64) -> Any:
    """How many sequences run at once."""
    return opt(default, "Sequences sampled at once.", panel=MODEL)


def deterministic() -> Any:
    """Bits that do not depend on neighbours."""
    return opt(False, "fp32, and a row's bits do not depend on what is sampled beside it.", panel=MODEL)


def device() -> Any:
    """Where the model lives."""
    return opt("cpu", "Device of the model: cpu, cuda, cuda:1.", panel=MODEL)


def deadline() -> Any:
    """How long a server or vLLM may take."""
    return opt(600.0, "Seconds for one request to a server, retries included, and for vLLM to answer.", panel=MODEL)


def samples(default: int) -> Any:
    """How many samples a problem gets."""
    return opt(default, "Samples of each problem.", panel=MODEL)


def max_tokens(default: int = 1024) -> Any:
    """Where a sample is cut."""
    return opt(default, "Longest completion in tokens.", panel=MODEL)


def temperature(default: float = 1.0, *, greedy: bool = True) -> Any:
    """Sampling temperature; ``greedy``: it may be 0."""
    told = "Sampling temperature" + ("; 0 takes the likeliest token." if greedy else ", above 0.")
    return opt(default, told, panel=MODEL)


def top_p() -> Any:
    """Nucleus sampling."""
    return opt(1.0, "Sample only from the likeliest tokens that hold this probability together.", panel=MODEL)


def system() -> Any:
    """The system prompt."""
    return opt(
        None, "File with the system prompt (default: the one of magcli; 'none' for no system prompt).", panel=MODEL
    )


def seed() -> Any:
    """The run's seed."""
    return opt(
        0, "Seed of the run; each sample's own is a hash of it, the row's id and the sample's number.", panel=MODEL
    )


def workers() -> Any:
    """Verdicts that are worked out at once."""
    return opt(1, "Answers graded and programs judged at once.", panel=REWARD)


def verify_deadline() -> Any:
    """Deadline of one verdict."""
    return opt(
        2.0, "Seconds for one verdict; a worker that overruns is killed and the reason is timeout.", panel=REWARD
    )


def reward() -> Any:
    """The user's own reward."""
    return opt("", "Your own reward in place of the recipe's: module:function or file.py:function.", panel=REWARD)


def num_tests(default: int = 20) -> Any:
    """Tests of one program."""
    return opt(default, "Tests drawn for a program, the same for a whole group; 0 takes all.", panel=REWARD)


def partial() -> Any:
    """The reward of the ablation."""
    return opt(False, "Pay a program for the fraction of tests it passes, not all or nothing.", panel=REWARD)


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
    return opt(default, "Length in tokens from which the length penalty is full (l_max); 0 turns it off.", panel=REWARD)


def cache_length() -> Any:
    """l_cache of the length penalty."""
    return opt(0, "Tokens before --max-length over which the length penalty grows (l_cache).", panel=REWARD)


def language() -> Any:
    """The language part of the reward."""
    return opt(True, "Reward one language in question, thoughts and answer.", panel=REWARD)


def recompute() -> Any:
    """Less memory for more work in training."""
    return opt(
        False, "Keep only the inputs of layers and compute them again: less memory, a third more work.", panel=TRAIN
    )
