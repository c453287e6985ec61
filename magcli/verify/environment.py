"""Environments: a class that answers the turns of a model, named as ``file.py:Class``, ``module:Class`` or by a name.

    class GuessTheNumber:
        max_turns = 8

        def reply(self, row, messages):
            guess = messages[-1]["content"]
            if guess == row["answer"]:
                return None
            return "higher" if int(guess) < int(row["answer"]) else "lower"

        def reward(self, row, messages):
            return 1.0 if messages[-1]["content"] == row["answer"] else 0.0

``reply`` gets the row of the problem and the conversation so far, which ends with the model's turn. It returns None if
the episode ends, else what comes next: a text, which is a user's turn, a message (a mapping with ``role`` and
``content``), or several. ``reward`` gets the same at the end of the episode, however it ended, and returns what
``--reward`` does; without it the last turn is graded as a completion. Both may be asynchronous.

An environment keeps nothing between two calls: they may run in different processes, and again after a kill. Whatever
happened before is in the messages.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from magcli.errors import UsageError, first_line
from magcli.verify import custom
from magcli.verify.loading import loading
from magcli.verify.returned import as_reward
from magcli.verify.reward import Reward, ungraded
from magcli.verify.sandbox import open_sandbox

if TYPE_CHECKING:
    from magcli.verify.sandbox import Choice, Sandbox

OPTION = "environment"

Message = Mapping[str, str]
"""One turn of a conversation: ``role`` and ``content``; a tool's result may have ``name`` and ``tool_call_id``."""

Ask = Literal["reply", "reward"]
"""What an environment is asked for."""

SHIPPED = {
    "calculator": "magcli.environments.calculator:Calculator",
    "python": "magcli.environments.python:Python",
    "reasoning-gym": "magcli.environments.reasoning_gym:ReasoningGym",
}
"""The environments that have a name."""

TASKSETS = "verifiers:"
"""What the name of a taskset of ``verifiers`` follows."""
_TASKSET_CLASS = "magcli.environments.tasksets:environment_class"

KEYS = ("role", "content", "name", "tool_call_id")
"""What a message may have."""

SIGNATURE = (
    "magcli calls it as reply(row, messages), with the columns of the problem's row and the conversation so far; it "
    "returns None at the end of an episode, else the next turn: a text, a message or a list of messages"
)


class Reply(NamedTuple):
    """The turns after one of the model's; none if the episode has ended."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Terms:
    """What the attributes of an environment's class say.

    Attributes:
        roles: the roles of its turns.
        tools: schemas of its tools, which the chat template shows to the model.
        max_turns: turns of the model after which an episode ends.
        seconds: seconds that a call of the environment may take.
        judges: whether it has a reward of its own.
    """

    roles: tuple[str, ...] = ("user",)
    tools: tuple[Mapping[str, Any], ...] = ()
    max_turns: int = 8
    seconds: float = 10.0
    judges: bool = False


def located(spec: str) -> str:
    """Where the class of an environment is, by what the option names.

    Raises:
        UsageError: it is no such name.
    """
    if spec in SHIPPED:
        return SHIPPED[spec]
    if spec.startswith(TASKSETS):
        return _TASKSET_CLASS
    if ":" not in spec:
        names = ", ".join((*SHIPPED, f"{TASKSETS}NAME"))
        raise UsageError(f"environment {spec!r}: name it as file.py:Class or module:Class, or use one of {names}")
    return spec


def kind_of(spec: str) -> Callable[..., Any]:
    """The class of an environment.

    Raises:
        UsageError: there is none of this name.
        EnvironmentFault: the library that it belongs to is not installed.
    """
    kind = custom.load(located(spec), OPTION)
    if spec.startswith(TASKSETS):
        return kind(spec.removeprefix(TASKSETS))  # type: ignore[no-any-return]  # a class, made for the taskset
    if hasattr(kind, "check_installed"):
        kind.check_installed()
    return kind


def identity_of(spec: str) -> dict[str, Any]:
    """What determines an environment's replies and rewards besides its options: digests of sources, and versions."""
    own = getattr(kind_of(spec), "identity", dict)
    return custom.digests(located(spec), OPTION) | own()


def terms_of(spec: str) -> Terms:
    """What an environment's class says of itself.

    Raises:
        UsageError: there is no such class, it lacks its method, or an attribute has no such value.
    """
    kind = kind_of(spec)
    if not inspect.isclass(kind):
        raise UsageError(f"environment {spec!r} is a {type(kind).__name__}, not a class")
    for name in ("reply", "reward"):
        _check_method(kind, name, spec)
    usual = Terms()
    roles = getattr(kind, "roles", usual.roles)
    # A single text would be a sequence of letters.
    if isinstance(roles, str) or not all(isinstance(role, str) for role in roles):
        raise UsageError(f"environment {spec!r}: roles is {roles!r}, not names such as ('tool', 'user')")
    terms = Terms(
        tuple(roles),
        tuple(getattr(kind, "tools", ())),
        getattr(kind, "max_turns", usual.max_turns),
        getattr(kind, "seconds", usual.seconds),
        judges=hasattr(kind, "reward"),
    )
    if type(terms.max_turns) is not int or terms.max_turns < 1:
        raise UsageError(f"environment {spec!r}: max_turns is {terms.max_turns!r}, not a whole number from 1 on")
    if not isinstance(terms.seconds, int | float) or not terms.seconds > 0:
        raise UsageError(f"environment {spec!r}: seconds is {terms.seconds!r}, not a number above 0")
    return terms


def _check_method(kind: type, name: str, spec: str) -> None:
    method = getattr(kind, name, None)
    if method is None and name == "reward":
        return
    if not callable(method):
        raise UsageError(f"environment {spec!r} has no method {name}; {SIGNATURE}")
    try:
        signature = inspect.signature(method)
        signature.bind(None, {}, [])  # self, row, messages
    except ValueError:
        return  # one without a readable signature
    except TypeError as error:
        raise UsageError(f"environment {spec!r}: {name} has the signature {signature} ({error}); {SIGNATURE}") from None


def asked(spec: str, isolation: str) -> Callable[[Ask, Mapping[str, Any], Sequence[Message]], Reply | Reward]:
    """What asks the environment of a worker: ``(ask, row, messages)`` -> its reply, or a reward.

    A class with a parameter ``sandbox`` gets one with this isolation. A failure is a verdict, not an error.

    Raises:
        UsageError: as ``terms_of``.
        EnvironmentFault: programs cannot be isolated on this machine.
    """
    if not spec.startswith(TASKSETS):
        return _asked(spec, isolation)
    # Opened at the first question, once.
    opened = cache(_asked)

    def ask(what: Ask, row: Mapping[str, Any], messages: Sequence[Message]) -> Reply | Reward:
        # The library takes long to import, for which a worker that starts has no time.
        with loading():
            ready = opened(spec, isolation)
        return ready(what, row, messages)

    return ask


def _asked(spec: str, isolation: str) -> Callable[[Ask, Mapping[str, Any], Sequence[Message]], Reply | Reward]:
    terms = terms_of(spec)
    kind = kind_of(spec)
    extra = {"sandbox": _sandbox(isolation)} if _takes_sandbox(kind) else {}
    try:
        environment = kind(**extra)
    # A worker that ended instead would be started again and again.
    except Exception as error:
        failure = ungraded("reward-error", f"{spec} cannot be created: {type(error).__name__}: {first_line(error)}")
        return lambda what, row, messages: failure

    def ask(what: Ask, row: Mapping[str, Any], messages: Sequence[Message]) -> Reply | Reward:
        method = getattr(environment, what)
        try:
            # Copies: what the environment changes in them is its own.
            value = custom.result_of(method(deepcopy(row), deepcopy(list(messages))))
            return as_reward(value) if what == "reward" else as_reply(value, terms.roles)
        except KeyboardInterrupt:
            raise
        # SystemExit and asyncio's CancelledError are no Exception, and end no worker either
        except BaseException as error:
            detail = f"{type(error).__name__}: {first_line(error)}{custom.location(method, error)}"
            return ungraded("reward-error", f"{what} of {spec}: {detail}")

    return ask


def runs_programs(spec: str) -> bool:
    """Whether an environment takes a sandbox for programs. Raises UsageError as ``terms_of``."""
    terms_of(spec)
    return _takes_sandbox(kind_of(spec))


def _takes_sandbox(kind: Callable[..., Any]) -> bool:
    try:
        return "sandbox" in inspect.signature(kind).parameters
    except (TypeError, ValueError):
        return False


def _sandbox(isolation: str) -> "Sandbox":
    choice: Choice = isolation  # type: ignore[assignment]  # an option's value
    return open_sandbox(choice, accept_unsandboxed=choice == "none")


def as_reply(value: Any, roles: Collection[str]) -> Reply:
    """What ``reply`` returned, as messages.

    Raises:
        TypeError: it is no message; the exception says what it is.
    """
    if value is None:
        return Reply(())
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not values:
        raise TypeError("reply returned an empty list; return None to end the episode")
    return Reply(tuple(_message(part, roles) for part in values))


def _message(value: Any, roles: Collection[str]) -> Message:
    if isinstance(value, str):
        value = {"role": "user", "content": value}
    if not isinstance(value, Mapping):
        raise TypeError(f"reply returned {value!r:.40}, not None, a text, a message or a list of messages")
    message = {key: value[key] for key in KEYS if value.get(key) is not None}
    for key in ("role", "content"):
        if not isinstance(message.get(key), str):
            raise TypeError(f"a message of reply lacks {key}, a text: {dict(value)!r:.80}")
    if message["role"] not in roles:
        allowed = ", ".join(roles)
        raise TypeError(f"a message of reply has the role {message['role']!r}, but the class has roles = ({allowed})")
    return message
