"""Chat messages to token ids with the tokenizer's chat template: the one place where prompts are rendered.

A template is untrusted code that runs in this process, so each rendering has a ``Deadline``.
"""

import ctypes
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial, wraps
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from jinja2 import TemplateError

from magcli.errors import DataError, EnvironmentFault
from magcli.model.chat.thoughts import THINK, ThoughtForm, find, form_named

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    Message = Mapping[str, str]

T = TypeVar("T")

REJECTIONS = (TemplateError, TypeError, ValueError, LookupError, AttributeError)
"""How templates reject a conversation: on purpose, or because they cannot handle it."""
_SPACES = 17
"""Characters of whitespace around the tags at a prompt's end that are looked at."""


@dataclass(frozen=True)
class ChatTemplate:
    """How a run renders its prompts.

    ``source`` replaces the tokenizer's template unless it is empty; ``args`` are variables of the template;
    ``date`` (ISO) is what ``strftime_now`` formats, today if it is empty. ``thoughts`` names the model's form of
    thoughts; if it is empty, the form is found from template and tokenizer.
    """

    source: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    date: str = ""
    thoughts: str = ""

    def variables(self) -> dict[str, Any]:
        """What the template gets besides the messages."""
        if not self.date:
            return dict(self.args)
        return {**self.args, "strftime_now": datetime.fromisoformat(self.date).strftime}


_TEMPLATES: "WeakKeyDictionary[PreTrainedTokenizerBase, ChatTemplate]" = WeakKeyDictionary()
"""The template of each tokenizer, for those that have been given one."""

PROBES = ("probe7391system", "probe5284question", "probe6173answer", "probe8462more", "probe9051thoughts")
"""Texts that no template contains: a system prompt, a question, an answer, another question, thoughts."""


def use_template(tokenizer: "PreTrainedTokenizerBase", template: ChatTemplate) -> None:
    """Render all later prompts of a tokenizer with this template; it is saved with the tokenizer."""
    if template.source:
        tokenizer.chat_template = template.source
    _TEMPLATES[tokenizer] = template


def template_variables(tokenizer: "PreTrainedTokenizerBase") -> dict[str, Any]:
    """The variables that the tokenizer's template gets besides the messages."""
    template = _TEMPLATES.get(tokenizer)
    return template.variables() if template else {}


def template_state(tokenizer: "PreTrainedTokenizerBase") -> tuple[object, object]:
    """What determines renderings: it changes when the tokenizer gets another template."""
    return repr(tokenizer.chat_template), _TEMPLATES.get(tokenizer)


def once_a_template(
    compute: "Callable[[PreTrainedTokenizerBase], T]",
) -> "Callable[[PreTrainedTokenizerBase], T]":
    """A function of a tokenizer, computed once for each of its templates; its errors are not kept."""
    # A tokenizer that is gone takes its entry with it.
    cache: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[object, T]] = WeakKeyDictionary()

    @wraps(compute)
    def cached(tokenizer: "PreTrainedTokenizerBase") -> T:
        state = template_state(tokenizer)
        entry = cache.get(tokenizer)
        if entry is None or entry[0] != state:
            entry = state, compute(tokenizer)
            cache[tokenizer] = entry
        return entry[1]

    return cached


@once_a_template
def thought_form(tokenizer: "PreTrainedTokenizerBase") -> ThoughtForm:
    """The form in which a tokenizer's model writes its thoughts: the chosen one, else found by template and tokens."""
    chosen = _TEMPLATES.get(tokenizer)
    if chosen is not None and chosen.thoughts:
        return form_named(chosen.thoughts)
    added = {token.content for token in tokenizer.added_tokens_decoder.values()}
    return find(str(tokenizer.chat_template), added)


def system_prompt(path: Path | None, form: ThoughtForm = THINK) -> str:
    """The system prompt in a file, or magcli's own (format and language rules of section 2 of the recipe).

    magcli's own names the tags of ``form``; for channels it speaks of these, as their markers never stand in a prompt.
    """
    # The package may be inside a zip file.
    own = files("magcli.model").joinpath("system-channels.txt" if form.answer_opening else "system.txt")
    source = own if path is None else path
    try:
        text = source.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise EnvironmentFault(f"cannot read the system prompt {path}: {error.strerror}") from error
    # The user's own prompt is not changed.
    return text if path else text.replace(THINK.opening, form.opening).replace(THINK.closing, form.closing)


def to_messages(prompt: str, system: str | None) -> list[dict[str, str]]:
    """A problem as chat messages: the system prompt, if there is one, and the user's turn."""
    user = {"role": "user", "content": prompt}
    return [{"role": "system", "content": system}, user] if system else [user]


def prompt_tokens(tokenizer: "PreTrainedTokenizerBase", messages: "Sequence[Message]") -> list[int]:
    """Token ids of the messages and the generation prompt."""
    return token_ids(tokenizer, render_text(tokenizer, messages, add_generation_prompt=True))


def check_vocabulary(tokens: Sequence[int], size: int) -> None:
    """Raise DataError if a token id is outside of a model's vocabulary of ``size`` ids."""
    # On a GPU such an id would end the process with an error that names nothing.
    outside = [token for token in tokens if token >= size]
    if outside:
        raise DataError(
            f"token id {min(outside)} is outside of the model's vocabulary of {size}: its tokenizer has tokens that "
            "its embeddings lack; resize the embeddings, or use the model's own tokenizer and chat template"
        )


def completion_text(
    tokenizer: "PreTrainedTokenizerBase",
    prompt: Sequence[int],
    tokens: Sequence[int],
    ends: Collection[int],
    form: ThoughtForm,
) -> str:
    """The completion's text without its end token; other special tokens are kept, tags of thoughts among them.

    If the chat template opens thoughts in this form at the prompt's end, the text begins with their opening tag.
    """
    body = tokens[:-1] if tokens and tokens[-1] in ends else tokens
    most = len(form.opening) + len(form.ending) + _SPACES  # even if each character is a token
    # Only the end of the prompt is decoded: it may have many thousand tokens.
    prefill = _prefill(form).search(str(tokenizer.decode(list(prompt[-most:]), skip_special_tokens=False)))
    return (prefill[0] if prefill else "") + str(tokenizer.decode(list(body), skip_special_tokens=False))


@lru_cache
def _prefill(form: ThoughtForm) -> re.Pattern[str]:
    """The start of a completion that chat templates of reasoning models put at the end of the prompt."""
    return re.compile(rf"{re.escape(form.opening)}\s*(?:{re.escape(form.ending)}\s*)?\Z")


def render_text(
    tokenizer: "PreTrainedTokenizerBase", messages: "Iterable[Message]", *, add_generation_prompt: bool = False
) -> str:
    """The text of a conversation; a system prompt that the template does not take is in the first user turn.

    Raises:
        DataError: there is no message, or the template rejects the conversation.
        EnvironmentFault: the tokenizer has no template, or it does not end.
    """
    turns = [dict(message) for message in messages]
    if not turns:
        raise DataError("no message before the assistant's turn: a conversation starts with a prompt")
    if tokenizer.chat_template is None:
        raise EnvironmentFault(f"the tokenizer {tokenizer.name_or_path} has no chat template; use an instruct model")
    # A template that drops the system prompt would change the task without a word.
    if turns[0]["role"] == "system" and not takes_system(tokenizer):
        turns = _with_system_in_question(turns)
    return _apply(tokenizer, turns, add_generation_prompt)


def token_ids(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    """The tokens of a rendered text."""
    # verbose: else it warns of prompts longer than the context, which are dropped with a reason later
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


@once_a_template
def takes_system(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether the template renders a system prompt: neither ignores nor rejects it."""
    system = {"role": "system", "content": PROBES[0]}
    question = {"role": "user", "content": PROBES[1]}
    try:
        return PROBES[0] in _apply(tokenizer, [system, question], True)
    except DataError:
        pass
    try:
        _apply(tokenizer, [question], True)
    except DataError:
        return True  # it rejects any conversation: that is not about the system prompt
    return False


def _with_system_in_question(turns: "Sequence[Message]") -> list[dict[str, Any]]:
    """The turns without the system prompt, which comes before the text of the first user turn."""
    system, *others = (dict(turn) for turn in turns)
    question = next((turn for turn in others if turn["role"] == "user"), None)
    if question is None:
        raise DataError("the template takes no system prompt, and there is no user turn to put it into")
    question["content"] = f"{system['content']}\n\n{question['content']}"
    return others


def common_prefix(one: str, other: str) -> str:
    """The longest text with which both begin."""
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return one[:length]


def as_read(tokenizer: "PreTrainedTokenizerBase", turns: "Sequence[Message]") -> list[dict[str, Any]]:
    """A copy of the turns in the form that the tokenizer's template reads.

    Templates of some vision-language models loop over the parts of a content and lose one that is a text.
    """
    return _in_parts(turns) if _needs_parts(tokenizer) else [dict(turn) for turn in turns]


@once_a_template
def _needs_parts(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether the template renders a question in parts, but not one that is a text."""
    question = [{"role": "user", "content": PROBES[1]}]
    return not _shows_question(tokenizer, question) and _shows_question(tokenizer, _in_parts(question))


def _shows_question(tokenizer: "PreTrainedTokenizerBase", turns: Sequence[dict[str, Any]]) -> bool:
    try:
        return PROBES[1] in _rendered_turns(tokenizer, turns, True)
    except DataError:
        return False


def _in_parts(turns: "Sequence[Message]") -> list[dict[str, Any]]:
    return [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in turns]


def _apply(tokenizer: "PreTrainedTokenizerBase", turns: "Sequence[Message]", add_generation_prompt: bool) -> str:
    return _rendered_turns(tokenizer, as_read(tokenizer, turns), add_generation_prompt)


def _rendered_turns(
    tokenizer: "PreTrainedTokenizerBase", turns: Sequence[dict[str, Any]], add_generation_prompt: bool
) -> str:
    variables = template_variables(tokenizer)
    apply = partial(tokenizer.apply_chat_template, tokenize=False, add_generation_prompt=add_generation_prompt)
    # Copies, since a template may change the turns that it is given.
    return rendered(tokenizer.name_or_path, lambda: str(apply([dict(turn) for turn in turns], **variables)))


def rendered(model: str, render: Callable[[], T]) -> T:
    """The result of ``render``, which runs a model's chat template.

    Raises:
        DataError: the template rejects the conversation.
        EnvironmentFault: it takes too long or too much memory, or recurses too deeply.
    """
    try:
        return RENDERING.run(render)
    # On purpose or not, the row is dropped and the run goes on.
    except REJECTIONS as error:
        raise DataError(f"the chat template rejects the conversation: {error}") from error
    except TimeoutError as error:
        raise EnvironmentFault(f"the chat template of {model} does not terminate ({error}); fix it") from error
    except (MemoryError, OverflowError, RecursionError) as error:
        what = "recurses endlessly" if isinstance(error, RecursionError) else "needs too much memory"
        raise EnvironmentFault(f"the chat template of {model} {what}; fix it") from error


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
            # Inside of ``try``: an exception may come as soon as the watchdog can see the work.
            self._running[this] = True
            try:
                return work()
            finally:
                # The watchdog has removed it, so its exception is on the way to this thread or has come.
                if not self._remove(this):
                    # Released once the exception is pending; then it can be taken back.
                    this.stopped.acquire()
                    _raise_in(this.thread, None)
                    raise _Overdue
        except _Overdue:
            raise TimeoutError(f"not finished in {self.seconds:g} s of CPU time") from None

    def _watch(self) -> None:
        while True:
            time.sleep(POLL_SECONDS)
            # A copy: other threads add and remove work meanwhile.
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
