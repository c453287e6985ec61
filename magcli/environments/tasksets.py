"""Tasksets of Prime Intellect's ``verifiers`` (0.4) as environments: their tools, and their own weighted rewards.

A conversation becomes the library's own ``Trace``, and its task scores that, as ``verifiers replay`` does. Tools run in
the process of the environment, each call by the library's own server class.

A task with a runtime, such as a container, is refused: its rewards run what a model wrote. So are tasksets whose
``Env`` plays several agents or a user, and hooks that change requests.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

from magcli.data.tasksets import LIBRARY, taskset_of
from magcli.errors import UsageError
from magcli.verify import custom
from magcli.verify.environment import Message
from magcli.verify.loading import loading

MAX_TURNS = 8
"""Turns of the model in an episode with tools."""


@cache
def environment_class(name: str) -> type:
    """The class of an environment that runs a taskset.

    Raises:
        UsageError: there is no such taskset, or it needs what magcli does not run.
        EnvironmentFault: ``verifiers``, or a package that the taskset needs, is not installed.
    """
    with loading():
        taskset = taskset_of(name)
        from magcli.environments import taskset_episodes as episodes

        if reason := episodes.not_run(name, taskset):
            raise UsageError(f"environment verifiers:{name}: {reason}")
        tools_of_all = custom.result_of(episodes.schemas(episodes.toolsets(taskset)))

    class Environment:
        """A taskset of ``verifiers``."""

        # Without tools an episode ends with the model's first turn.
        roles = ("tool",) if tools_of_all else ("user",)
        tools = tools_of_all
        max_turns = MAX_TURNS if tools_of_all else 1
        seconds = 60.0

        @staticmethod
        def identity() -> dict[str, Any]:
            """What determines rewards besides this file: the versions and sources of the library and the taskset."""
            # A row's reward may change with either, so results say which they were.
            source = custom.digests(f"{type(taskset).__module__}:{type(taskset).__name__}", "taskset")
            return {"verifiers": version(LIBRARY), **source}

        async def reply(self, row: Mapping[str, Any], messages: Sequence[Message]) -> list[dict[str, str]] | None:
            """The results of the calls of the last turn; None at the end."""
            with loading():
                episode = episodes.Episode(name, row, messages)
            return await episode.reply()

        async def reward(self, row: Mapping[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
            """The task's rewards, weighted, and each as a part."""
            with loading():
                episode = episodes.Episode(name, row, messages)
            return await episode.reward()

    return Environment
