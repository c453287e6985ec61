"""Chat messages to token ids with the tokenizer's chat template, and the loss mask for SFT.

SFT and RL must use the same prompt: the ids before an assistant turn in ``tokenize_with_mask`` are those of
``prompt_tokens``. A template is untrusted code that runs in this process, so each rendering has a ``Deadline``.
"""

import ctypes
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from jinja2 import TemplateError

from magcli.errors import DataError, EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedTokenizerBase

    Message = Mapping[str, str]

T = TypeVar("T")

_PREFILL = re.compile(r"<think>\s*(?:</think>\s*)?\Z")
"""The start of the completion that chat templates of reasoning models put at the end of the prompt."""
_PREFILL_TOKENS = 32
"""Tokens at a prompt's end that contain it, even if each character is a token."""


class TokensWithMask(NamedTuple):
    """A conversation's token ids, and for each token whether it is a target."""

    tokens: list[int]
    mask: list[bool]


def system_prompt(path: Path | None) -> str:
    """The system prompt in a file, or magcli's own (format and language rules of section 2 of the recipe)."""
    source = files("magcli.model").joinpath("system.txt") if path is None else path
    try:
        return source.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise EnvironmentFault(f"cannot read the system prompt {path}: {error.strerror}") from error


def to_messages(prompt: str, system: str | None) -> list[dict[str, str]]:
    """A problem as chat messages: the system prompt, if there is one, and the user's turn."""
    user = {"role": "user", "content": prompt}
    return [{"role": "system", "content": system}, user] if system else [user]


def prompt_tokens(tokenizer: "PreTrainedTokenizerBase", messages: "Sequence[Message]") -> list[int]:
    """Token ids of the messages and the generation prompt."""
    return _render(tokenizer, messages, add_generation_prompt=True)


def check_vocabulary(tokens: Sequence[int], size: int) -> None:
    """Raise DataError if a token id is outside of a model's vocabulary of ``size`` ids."""
    outside = [token for token in tokens if token >= size]
    if outside:
        raise DataError(
            f"token id {min(outside)} is outside of the model's vocabulary of {size}: its tokenizer has tokens that "
            "its embeddings lack; resize the embeddings, or use the model's own tokenizer and chat template"
        )


def completion_text(
    tokenizer: "PreTrainedTokenizerBase", prompt: Sequence[int], tokens: Sequence[int], ends: Collection[int]
) -> str:
    """The completion's text without its end token; other special tokens are kept.

    If the chat template puts ``<think>`` at the prompt's end, the text begins with it.
    """
    body = tokens[:-1] if tokens and tokens[-1] in ends else tokens
    prefill = _PREFILL.search(str(tokenizer.decode(list(prompt[-_PREFILL_TOKENS:]), skip_special_tokens=False)))
    return (prefill[0] if prefill else "") + str(tokenizer.decode(list(body), skip_special_tokens=False))


def tokenize_with_mask(tokenizer: "PreTrainedTokenizerBase", messages: "Sequence[Message]") -> TokensWithMask:
    """Token ids of a conversation, with the assistant's turns, including end-of-turn tokens, as targets.

    Each assistant turn is found by rendering the messages before it, as ``prompt_tokens`` does, and those up to it:
    both must be prefixes of the full conversation, in tokens. Raises DataError if they are not, if a turn has no
    end-of-turn token, and if no token or every token would be a target.
    """
    tokens = _render(tokenizer, messages)
    mask = [False] * len(tokens)
    special = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    special |= set(tokenizer.all_special_ids)
    for start, end in _assistant_spans(tokenizer, messages, tokens):
        stop = _end_of_turn(tokens, start, end, special)
        mask[start:stop] = [True] * (stop - start)
    if not any(mask):
        raise DataError("no token would be trained on: the conversation has no assistant turn")
    if all(mask):
        raise DataError("every token would be trained on: the chat template puts nothing before the assistant's turn")
    return TokensWithMask(tokens, mask)


def show_mask(tokenizer: "PreTrainedTokenizerBase", conversation: TokensWithMask) -> str:
    """The conversation for people to read: line breaks are shown as ``↵``, lines of targets begin with ``target``."""
    runs = groupby(zip(conversation.tokens, conversation.mask, strict=True), key=lambda pair: pair[1])
    return "\n".join(_gutter(tokenizer.decode([token for token, _ in run]), target) for target, run in runs)


def _gutter(text: str, target: bool) -> str:
    label = "target" if target else "      "
    lines = text.replace("\n", "↵\n").removesuffix("\n").split("\n")
    return "\n".join(f"{label} | {line}" for line in lines)


def _render(
    tokenizer: "PreTrainedTokenizerBase", messages: "Iterable[Message]", *, add_generation_prompt: bool = False
) -> list[int]:
    turns = [dict(message) for message in messages]
    if not turns:
        raise DataError("no message before the assistant's turn: a conversation starts with a prompt")
    if tokenizer.chat_template is None:
        raise EnvironmentFault(f"the tokenizer {tokenizer.name_or_path} has no chat template; use an instruct model")
    text = rendered(
        tokenizer.name_or_path,
        lambda: str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=add_generation_prompt)),
    )
    # verbose: else it warns of prompts longer than the context, which are dropped with a reason later
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def rendered(model: str, render: Callable[[], T]) -> T:
    """The result of ``render``, which runs a model's chat template.

    Raises:
        DataError: the template rejects the conversation.
        EnvironmentFault: it takes too long or too much memory, or recurses too deeply.
    """
    try:
        return RENDERING.run(render)
    except TemplateError as error:
        raise DataError(f"the chat template rejects the conversation: {error}") from error
    except TimeoutError as error:
        raise EnvironmentFault(f"the chat template of {model} does not terminate ({error}); fix it") from error
    except (MemoryError, OverflowError, RecursionError) as error:
        what = "recurses endlessly" if isinstance(error, RecursionError) else "needs too much memory"
        raise EnvironmentFault(f"the chat template of {model} {what}; fix it") from error


def _assistant_spans(
    tokenizer: "PreTrainedTokenizerBase", messages: "Sequence[Message]", tokens: Sequence[int]
) -> Iterator[tuple[int, int]]:
    for turn, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = prompt_tokens(tokenizer, messages[:turn])
        through = tokens if turn == len(messages) - 1 else _render(tokenizer, messages[: turn + 1])
        for prefix in (before, through):
            if list(tokens[: len(prefix)]) != prefix:
                raise DataError(
                    f"message {turn}: the assistant's turn changes the tokens before it (the template rewrites earlier "
                    "turns, or the completion's start merges with the prompt), so targets cannot be determined"
                )
        yield len(before), len(through)


def _end_of_turn(tokens: Sequence[int], start: int, end: int, special: set[int]) -> int:
    """One past the last special token of a turn: templates often add a line break, which is never sampled."""
    for index in range(end - 1, start - 1, -1):
        if tokens[index] in special:
            return index + 1
    raise DataError(
        "the chat template does not end the assistant's turn with a special token: the model could not stop"
    )


POLL_SECONDS = 0.25
"""How often the watchdog checks running work."""


class _Overdue(BaseException):
    """Raised asynchronously in a thread whose work is overdue; not an ``Exception``, which the work may catch."""


class _Work:
    """Work running in the thread that creates this object."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.clock = _cpu_clock(self.thread)
        self.started: float | None = None
        """The thread's CPU seconds at the first check."""
        self.stopped = threading.Lock()
        """Released once the exception has been raised."""
        self.stopped.acquire()


class Deadline:
    """Interrupts work that takes more than ``seconds`` of its thread's CPU time, at its next Python bytecode.

    A watchdog thread checks running work, so work that ends in time costs almost nothing. Whichever removes the work
    from ``_running`` first decides: its own thread when it ends, or the watchdog when it is overdue.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._running: dict[_Work, bool] = {}
        self._watchdog = threading.Thread()

    def run(self, work: Callable[[], T]) -> T:
        """The result of ``work``.

        Raises:
            TimeoutError: it did not finish in time.
        """
        if not self._watchdog.is_alive():  # never started, or not in this fork
            self._watchdog = threading.Thread(target=self._watch, name="magcli-deadline", daemon=True)
            self._watchdog.start()
        this = _Work()
        try:
            self._running[this] = True
            try:
                return work()
            finally:
                if not self._remove(this):
                    this.stopped.acquire()
                    _raise_in(this.thread, None)
                    raise _Overdue
        except _Overdue:
            raise TimeoutError(f"not finished in {self.seconds:g} s of CPU time") from None

    def _watch(self) -> None:
        while True:
            time.sleep(POLL_SECONDS)
            for work in list(self._running):
                with suppress(OSError):  # its thread has ended
                    if self._overdue(work) and self._remove(work):
                        _raise_in(work.thread, _Overdue)
                        work.stopped.release()

    def _remove(self, work: _Work) -> bool:
        """Whether this call, and no other, removed the work."""
        return self._running.pop(work, False)

    def _overdue(self, work: _Work) -> bool:
        now = time.clock_gettime(work.clock)
        work.started = now if work.started is None else work.started
        return now - work.started > self.seconds


def _cpu_clock(thread: int) -> int:
    """The CPU-time clock of a running thread, or the wall clock on systems without one."""
    find = getattr(time, "pthread_getcpuclockid", None)
    return find(thread) if find else time.CLOCK_MONOTONIC


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Raise an exception in a thread at its next bytecode; None cancels one that has not been raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), kind and ctypes.py_object(kind))


RENDERING = Deadline(5.0)
"""CPU seconds for one rendering, which normally takes milliseconds."""
