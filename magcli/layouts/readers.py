"""How the values of a layout become those of a role: prompts, answers, choices and completions.

A reader gets the values at the paths of its ``Place``. It raises ``Unreadable`` for a row that is ambiguous or lacks
what it needs.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from magcli.errors import DataError
from magcli.layouts.names import PROBLEM
from magcli.layouts.responses import role_of
from magcli.layouts.types import Unreadable, json_or_none
from magcli.model.chat.messages import text_of
from magcli.verify.format import boxed_answer

SYSTEM = ("system", "developer")
"""Roles of system prompts."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# The answer after #### at the end of a solution of GSM8K.
_FINAL = re.compile(r"(?:\A|\n)\s*#{4}\s*(?P<answer>[^\n]+?)\s*\Z")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")

# ---- prompts ----


def asked(prompt: Any, instructions: Any = None) -> dict[str, Any]:
    """The prompt, and the system prompt if there is one, of a text or of messages.

    ``instructions`` are a system prompt beside it.

    Raises:
        Unreadable: the messages have several turns besides the system prompt.
    """
    if not isinstance(instructions, str) or not instructions.strip():
        instructions = None
    if not isinstance(prompt, list):
        return {"prompt": prompt, "system": instructions}
    turns = [turn for turn in prompt if isinstance(turn, Mapping)]
    if prompt and not turns:
        raise Unreadable("not-text", f"the prompt is a list without messages: {as_text(prompt)}")
    systems = [instructions]
    systems += [_content(turn) for turn in turns if role_of(turn) in SYSTEM]
    # Earlier turns of an assistant make it a conversation, which has no single question.
    others = [turn for turn in turns if role_of(turn) not in SYSTEM]
    if len(others) != 1 or role_of(others[0]) != "user":
        roles = ", ".join(role_of(turn) for turn in turns) or "none"
        raise Unreadable("several-turns", f"the prompt has turns of {roles}; one question is expected")
    system = "\n\n".join(filter(None, systems))
    return {"prompt": _content(others[0]), "system": system or None}


def opened(messages: Any) -> dict[str, Any]:
    """The prompt of a conversation: its turns without the assistant's at the end.

    Raises:
        Unreadable: there are several turns before it.
    """
    if not isinstance(messages, list) or not messages:
        return asked(messages)
    *before, last = messages
    is_answer = isinstance(last, Mapping) and role_of(last) == "assistant"
    return asked(before if is_answer else messages)


def asked_of_log(question: Any, messages: Any) -> dict[str, Any]:
    """The prompt of a sample of a log, whose system prompt is in the messages that the model got."""
    turns = [turn for turn in messages or () if isinstance(turn, Mapping)]
    systems = [_content(turn) for turn in turns if role_of(turn) in SYSTEM]
    if isinstance(question, list):
        return asked(question)
    return asked(question, "\n\n".join(filter(None, systems)))


def asked_of_task(data: Any, episode: Any = None) -> dict[str, Any]:
    """The prompt of a task of verifiers; ``episode``, the id of a rollout, is not that of the problem."""
    fields = data if isinstance(data, Mapping) else {}
    return asked(fields.get("prompt"), fields.get("system_prompt"))


def answer_of_task(data: Any) -> Any:
    """The answer of a task of verifiers, under the name that its task set gives it.

    Raises:
        Unreadable: there are several, or one is a list of several.
    """
    fields = data if isinstance(data, Mapping) else {}
    # Task sets choose the name themselves.
    present = [name for name in ("answer", *PROBLEM["answer"]) if fields.get(name) is not None]
    if len(present) > 1:
        raise Unreadable("several-answers", f"the task has {' and '.join(present)}; one answer is expected")
    return answer_or_final(fields[present[0]]) if present else None


def stored_question(question: Any) -> Any:
    """A question; OpenCodeReasoning has a dash where another data set has it.

    Raises:
        Unreadable: it is a dash.
    """
    if isinstance(question, str) and question.strip() == "-":
        raise Unreadable("empty-prompt", "the question is not stored here; join it from the data set that it names")
    return question


def _content(turn: Mapping[str, Any]) -> Any:
    content = turn.get("content", turn.get("value"))
    try:
        return text_of(content)
    except DataError as error:
        raise Unreadable("not-text", str(error)) from None


def with_starter(question: Any, starter: Any) -> Any:
    """A question followed by the code that it starts from, if any."""
    if not isinstance(question, str) or not isinstance(starter, str) or not starter.strip():
        return question
    return f"{question.rstrip()}\n\n```python\n{starter.rstrip()}\n```"


def with_input(instruction: Any, context: Any) -> Any:
    """An instruction followed by its input, if any (Alpaca)."""
    if not isinstance(instruction, str) or not isinstance(context, str) or not context.strip():
        return instruction
    return f"{instruction}\n\n{context}"


def statement(description: Any, input: Any, output: Any, interaction: Any, examples: Any, note: Any) -> str:
    """A statement from its parts, under the headings of Codeforces."""
    parts = {
        "": description,
        "Input": input,
        "Output": output,
        "Interaction": interaction,
        "Examples": _examples(examples),
        "Note": note,
    }
    paragraphs = []
    for heading, text in parts.items():
        if isinstance(text, str) and text.strip():
            paragraphs += [heading, text.strip()]
    return "\n\n".join(filter(None, paragraphs))


def _examples(examples: Any) -> str:
    """Inputs and outputs in turn, each in a fence."""
    fenced = []
    for pair in examples if isinstance(examples, list) else ():
        if isinstance(pair, Mapping):
            for name in ("input", "output"):
                text = str(pair.get(name) or "").strip()
                fenced.append(f"```\n{text}\n```")
    return "\n".join(fenced)


# ---- answers ----


def final_answer(solution: Any) -> str:
    """The answer at which a worked solution arrives: in its box, or after ``####`` at its end.

    Raises:
        Unreadable: it has neither.
    """
    text = solution if isinstance(solution, str) else ""
    final = _FINAL.search(text)
    if final is not None:
        return final["answer"]
    box = boxed_answer(text)
    if box is None or not box.strip():
        raise Unreadable("missing-answer", "the solution has no final answer in a box")
    return box


def short_or_final(answer: Any) -> Any:
    """The final answer of a worked solution; a text of one line that names none is the answer itself.

    Raises:
        Unreadable: a solution of several lines names none.
    """
    if isinstance(answer, str) and "\n" in answer.strip():
        return final_answer(answer)
    return answer_or_final(answer)


def answer_or_final(answer: Any) -> Any:
    """A short answer as it is; of a worked solution its final answer."""
    if isinstance(answer, str) and (boxed_answer(answer) is not None or _FINAL.search(answer)):
        return final_answer(answer)
    return only(answer)


def only(answer: Any) -> str | None:
    """The only answer of a value, of a list or of the JSON text of a list.

    Raises:
        Unreadable: there are several.
    """
    # An interval such as [0, 1] is no list of texts, and stays as it is.
    if isinstance(answer, str) and answer.lstrip().startswith("["):
        listed = json_or_none(answer)
        if isinstance(listed, list) and all(isinstance(entry, str) for entry in listed):
            answer = listed
    if isinstance(answer, list):
        if len(answer) != 1:
            raise Unreadable("several-answers", f"{len(answer)} answers are given, one is expected: {answer}")
        answer = answer[0]
    return as_text(answer)


def as_text(value: Any) -> str | None:
    """A value as text: whole numbers without a point, objects as JSON."""
    if value is None or isinstance(value, str):
        return value
    # pandas stores whole numbers beside nulls as floats.
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False, default=str)


# ---- choices ----


def chosen_by_index(index: Any, choices: Any) -> dict[str, Any]:
    """The option at an index from 0, and all options.

    Raises:
        Unreadable: the index is outside of the options.
    """
    options = option_texts(choices)
    if not options:
        return {"answer": as_text(index), "choices": None}
    if not isinstance(index, int) or not 0 <= index < len(options):
        raise Unreadable("ambiguous-choice", f"answer {index} is no index from 0 of {len(options)} choices")
    return {"answer": options[index], "choices": options}


def chosen_by_label(key: Any, choices: Any) -> dict[str, Any]:
    """The option with a label, and all options; a value that is no label is the answer itself.

    Raises:
        Unreadable: the key is the label of one option and the text of another.
    """
    options = option_texts(choices)
    labels = option_labels(choices)
    key = as_text(key)
    if not options or key not in labels:
        return {"answer": key, "choices": options or None}
    text = options[labels.index(key)]
    # Such as options 2, 1 and 0 with the labels 0, 1 and 2.
    if key in options and text != key:
        raise Unreadable("ambiguous-choice", f"answer {key} is the label of {text!r} and the text of another choice")
    return {"answer": text, "choices": options}


def chosen_or_written(key: Any, choices: Any, answer: Any) -> dict[str, Any]:
    """The option with a label, or the written answer where there is no label.

    Raises:
        Unreadable: as ``chosen_by_label``.
    """
    return {"answer": answer, "choices": None} if key is None else chosen_by_label(key, choices)


def chosen_among(correct: Any, *others: Any) -> dict[str, Any]:
    """The right option and the wrong ones of columns of their own."""
    texts = [as_text(option) for option in (correct, *others)]
    return {"answer": texts[0], "choices": [text for text in texts if text]}


def option_texts(choices: Any) -> list[str]:
    """The options of a list, of ``{text, label}``, or of a mapping by letter."""
    # ARC: {text: [..], label: [..]}
    if isinstance(choices, Mapping) and isinstance(choices.get("text"), list):
        choices = choices["text"]
    elif isinstance(choices, Mapping):
        choices = [option for option in choices.values() if option is not None]
    return [str(option) for option in choices] if isinstance(choices, list) else []


def option_labels(choices: Any) -> list[str]:
    """The labels of the options: given, the keys of a mapping, or the letters."""
    if isinstance(choices, Mapping) and isinstance(choices.get("label"), list):
        return [str(label) for label in choices["label"]]
    # {A: .., B: ..}, with nulls for letters that the row lacks
    if isinstance(choices, Mapping) and "text" not in choices:
        return [str(key) for key, option in choices.items() if option is not None]
    return list(LETTERS[: len(option_texts(choices))])


# ---- completions ----


def samples_of(samples: Any) -> list[Any]:
    """Several samples, of which each is a text or a message, as texts."""
    return list(samples) if isinstance(samples, list) else [samples]


def harness_samples(resps: Any) -> list[Any]:
    """The texts that a model generated in lm-evaluation-harness: one request with one or more repeats.

    Raises:
        Unreadable: the task has several requests a row, such as multiple choice by likelihood.
    """
    requests = resps if isinstance(resps, list) else []
    # [[TEXT, ...]]; tasks by likelihood have a pair of numbers for each choice.
    repeats = requests[0] if len(requests) == 1 and isinstance(requests[0], list) else []
    if not repeats or not all(isinstance(text, str) for text in repeats):
        raise Unreadable("missing-completion", "the row has no generated text: its task compares likelihoods")
    return list(repeats)


def harness_prompt(doc: Any, arguments: Any) -> Any:
    """The question of a row of lm-evaluation-harness, else the whole text that the model got."""
    fields = doc if isinstance(doc, Mapping) else {}
    # Not the task's own template, which may show examples before the question.
    for name in ("question", "problem", "prompt", "Question", "Problem"):
        question = fields.get(name)
        if isinstance(question, str) and question.strip():
            return question
    # {"gen_args_0": {"arg_0": TEXT, "arg_1": SETTINGS}}, or nested lists that begin with the text.
    first = arguments.get("gen_args_0") if isinstance(arguments, Mapping) else None
    if isinstance(first, Mapping):
        return first.get("arg_0")
    return _first_text(arguments)


def _first_text(value: Any) -> Any:
    while isinstance(value, Sequence) and not isinstance(value, str) and value:
        value = value[0]
    return value if isinstance(value, str) else None


def without_mode(completion: Any, mode: Any) -> dict[str, Any]:
    """A completion with its thoughts in it; ``mode`` (on or off) beside it says whether it has some."""
    return {"completion": completion, "thoughts": None}


def with_output(turns: Any, output: Any, system: Any, mode: Any = None) -> list[dict[str, Any]] | None:
    """A conversation from the turns before an answer, the answer, and a system prompt beside them (Nemotron)."""
    messages = conversation(turns, output)
    if messages and isinstance(system, str) and system.strip() and role_of(messages[0]) not in SYSTEM:
        return [{"role": "system", "content": system}, *messages]
    return messages


def turns(raw_turns: Any, system: Any) -> list[dict[str, Any]] | None:
    """Turns of ``from`` and ``value`` as messages, after the system prompt of a column of its own."""
    if not isinstance(raw_turns, list):
        return None
    messages = []
    for turn in raw_turns:
        message = {**turn, "role": role_of(turn), "content": turn.get("content", turn.get("value"))}
        message.pop("from", None)
        message.pop("value", None)
        messages.append(message)
    if isinstance(system, str) and system.strip() and messages and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return messages


def conversation(prompt: Any, completion: Any) -> list[dict[str, Any]] | None:
    """A conversation from the messages of a prompt and of a completion, which may each be text."""
    if prompt is None or completion is None:
        return None
    before = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    after = completion if isinstance(completion, list) else [{"role": "assistant", "content": completion}]
    return [*before, *after]


# ---- limits ----


def seconds(limit: Any) -> float | None:
    """A time limit in seconds: a number, ``2.0 seconds``, or CodeContests' mapping."""
    if isinstance(limit, Mapping):
        # A protobuf duration, whose parts are 0 if there is no limit.
        whole_seconds = float(limit.get("seconds") or 0)
        nanoseconds = float(limit.get("nanos") or 0)
        return whole_seconds + nanoseconds / 1e9 or None
    return _first_number(limit)


def megabytes(limit: Any) -> float | None:
    """A memory limit in MB: a number, or such as ``256.0 megabytes``."""
    return _first_number(limit)


def _first_number(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) or None
    if not isinstance(value, str):
        return None
    number = _NUMBER.search(value)
    return None if number is None else float(number[0])
