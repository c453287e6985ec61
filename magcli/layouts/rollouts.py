"""What dumps of trainers say about a completion besides its text: reward, how it ended, tokens and their log-probs."""

import re
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

from magcli.layouts import readers, responses
from magcli.layouts.types import Unreadable

CUT = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed")
"""Conditions by which verifiers stops a rollout at a limit."""
# Where common chat templates begin the model's turn, and what ends a turn.
_MODEL_TURN = re.compile(
    r"<\|im_start\|>assistant\n|<\|start_header_id\|>assistant<\|end_header_id\|>\n*|<start_of_turn>model\n"
    r"|<\|assistant\|>\n?|<｜Assistant｜>|\[/INST\]|(?:\A|\n)Assistant:[ \n]?"
)
_TURN_END = re.compile(r"(?:<\|im_end\|>|<\|eot_id\|>|<end_of_turn>|<｜end▁of▁sentence｜>|</s>|<\|endoftext\|>)\s*\Z")
MEASURED = ("trainer_reward", "finish", "num_tokens", "logprobs", "trainer_logprobs")

# ---- verifiers ----


def measured_in_traces(traces: Any) -> dict[str, Any]:
    """What was measured in the traces of an episode of verifiers; lists for several traces, which are samples."""
    measured = [_of_trace(trace) for trace in traces or () if isinstance(trace, Mapping)]
    if len(measured) == 1:
        return measured[0]
    return {name: [values[name] for values in measured] for name in MEASURED}


def _of_trace(trace: Mapping[str, Any]) -> dict[str, Any]:
    path = responses.path_of(trace)
    logprobs = _of_nodes(path, "logprobs")
    trainer_logprobs = _of_nodes(path, "trainer_logprobs")
    # The masks mark the tokens that the model sampled.
    num_sampled = sum(map(bool, _of_nodes(path, "mask")))
    return {
        "trainer_reward": _reward_of(trace.get("rewards")),
        "finish": _finish_of(trace),
        "num_tokens": num_sampled or trace.get("num_output_tokens") or None,
        "logprobs": logprobs or None,
        "trainer_logprobs": _paired(trainer_logprobs, logprobs),
    }


def _paired(trainer_logprobs: list[float], logprobs: list[float]) -> list[float] | None:
    """The trainer's log-probs, if there is one for each of the sampler's."""
    are_paired = len(trainer_logprobs) == len(logprobs)
    return trainer_logprobs if trainer_logprobs and are_paired else None


def _of_nodes(path: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [value for node in path for value in node.get(name) or ()]


def _reward_of(rewards: Any) -> float | None:
    """The sum of the weighted rewards; None if nothing was scored."""
    if not isinstance(rewards, Mapping):
        return None
    parts = [part for part in rewards.values() if isinstance(part, Mapping)]
    scored = [part for part in parts if part.get("score") is not None]
    if not scored:
        return None
    total: float = sum(part["score"] * part.get("weight", 1.0) for part in scored)
    return total


def _finish_of(trace: Mapping[str, Any]) -> str | None:
    """Why a trace ended: length if at a limit; None if it is not recorded."""
    if trace.get("stop_condition") in CUT:
        return "length"
    # Requests to the model, some of which may have failed.
    calls = [call for call in trace.get("calls") or () if isinstance(call, Mapping)]
    answered = [call for call in calls if not call.get("error")]
    reason = answered[-1].get("finish_reason") if answered else None
    if reason:
        return str(reason)
    return "stop" if trace.get("stop_condition") else None


# ---- NeMo-RL ----


def asked_of_log(content: Any) -> dict[str, Any]:
    """The prompt of a message log of NeMo-RL: messages, or only their texts, of which the first is the question.

    Raises:
        Unreadable: there are several turns.
    """
    turns = _turns(content)
    if not isinstance(turns[0], Mapping):
        return {"prompt": turns[0], "system": None}
    prompt = [turn for turn in turns if responses.role_of(turn) in (*readers.SYSTEM, "user")]
    return readers.asked(prompt)


def said_in_log(content: Any) -> dict[str, Any]:
    """What the model said in a message log: the second text, after which the environment may have answered.

    Raises:
        Unreadable: the model had several turns, or none.
    """
    turns = _turns(content)
    if not isinstance(turns[0], Mapping):
        return {"completion": turns[1], "thoughts": None}
    spoken = [turn for turn in turns if responses.role_of(turn) == "assistant"]
    if len(spoken) != 1:
        raise _several(len(spoken))
    return responses.turn(spoken[0])


def _turns(content: Any) -> list[Any]:
    """The messages of a log, which is alone in a list."""
    is_nested = isinstance(content, list) and content and isinstance(content[0], list)
    turns = content[0] if is_nested else content
    if not isinstance(turns, list) or len(turns) < 2:
        raise Unreadable("missing-completion", "the message log has no answer of the model")
    are_texts = all(isinstance(turn, str) for turn in turns)
    are_messages = all(isinstance(turn, Mapping) for turn in turns)
    if not are_texts and not are_messages:
        raise Unreadable("not-text", "the message log has neither texts nor messages")
    # Texts have no roles: a question, the answer, and perhaps what the environment says to it.
    if are_texts and len(turns) > 3:
        raise _several(len(turns) // 2)
    return turns


def _several(turns: int) -> Unreadable:
    return Unreadable("several-turns", f"the message log has {turns} turns of the model; one is expected")


def reward_in_log(rewards: Any) -> float | None:
    """The reward of a line, which is alone in a list."""
    value = _first(rewards)
    return float(value) if isinstance(value, int | float) else None


def tokens_of_log(mask: Any, sampler: Any, trainer: Any, tokens: Any = None) -> dict[str, Any]:
    """Number and log-probs of the tokens that are trained; the lists go over the whole padded sequence."""
    is_trained = [bool(value) for value in _inner(mask)]
    logprobs = list(compress(_inner(sampler), is_trained))
    trainer_logprobs = list(compress(_inner(trainer), is_trained))
    return {
        "num_tokens": sum(is_trained) or None,
        "logprobs": logprobs or None,
        "trainer_logprobs": _paired(trainer_logprobs, logprobs),
    }


def _first(values: Any) -> Any:
    """The only value of a list; any other value as it is."""
    return values[0] if isinstance(values, list) and values else values


def _inner(values: Any) -> list[Any]:
    """The only list in a list."""
    inner = _first(values)
    return inner if isinstance(inner, list) else []


# ---- OpenRLHF ----


def said_in_chat(text: Any) -> dict[str, Any]:
    """Prompt and completion in a text that has both: what is before the model's turn, and that turn.

    Raises:
        Unreadable: no chat template that is known begins a turn of the model in it, or several do.
    """
    turns = list(_MODEL_TURN.finditer(text)) if isinstance(text, str) else []
    if not turns:
        raise Unreadable("missing-completion", "the text has no turn of the model in a chat template that is known")
    if len(turns) > 1:
        raise _several(len(turns))
    (begin,) = turns
    return {"prompt": text[: begin.start()], "completion": without_turn_end(text[begin.end() :])}


def without_turn_end(text: str) -> str:
    """A turn of the model without the token that ends it in common chat templates."""
    return _TURN_END.sub("", text)
