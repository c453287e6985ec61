"""Tasksets of ``verifiers`` with the library itself, which takes seconds to import: tools, traces and their scores."""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import verifiers.v1 as vf
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from verifiers.v1.session import hook_boundary
from verifiers.v1.state import state_cls

from magcli.data.tasksets import COLUMN, taskset_of
from magcli.environments.calls import Call, calls_in
from magcli.errors import first_line
from magcli.model.chat.thoughts import form_of_text
from magcli.model.chat.turns import call_id
from magcli.verify.environment import Message

MAX_RESULT = 8000
"""Characters of a tool's result that the model gets."""


def not_run(name: str, taskset: Any) -> str:
    """Why magcli does not run a taskset; empty if it does."""
    kind = type(taskset).task_type()
    environment = vf.environment_class(name)
    if environment is not vf.SingleAgentEnv:
        return f"its {environment.__name__} plays several agents or a user; magcli runs tasksets of one agent"
    if kind.NEEDS_CONTAINER:
        return "its tasks need a container, which magcli does not start"
    # A task without data, only to ask for its hooks.
    task = kind(kind.data_type().model_construct(), taskset.config.task)
    judges = [judge.score for judge in task.plugged_judges()]
    scoring = [*task.hooks("reward"), *task.hooks("metric"), *judges]
    needing = [function.__name__ for function in scoring if _needs_runtime(function)]
    # Both get the runtime, so a task with one of its own needs it.
    needing += [hook for hook in ("setup", "finalize") if getattr(kind, hook) is not getattr(vf.Task, hook)]
    if needing:
        return f"{', '.join(needing)} of its tasks need a runtime, where programs run; magcli runs rewards of a trace"
    boundaries = [hook_boundary(stop, allow_trace=True) for stop in task.hooks("stop")]
    are_on_trace = all(boundary is vf.Trace for boundary in boundaries)
    if _has_interceptors(kind) or not are_on_trace:
        return "its tasks have hooks on requests or responses; magcli runs those on a trace"
    for tools in toolsets(taskset):
        if tools.config.url:
            return f"its tools {tools.server_name} are on a server of their own"
    return ""


def _needs_runtime(function: Any) -> bool:
    parameter = inspect.signature(function).parameters.get("runtime")
    # With a default it also works without one.
    return parameter is not None and parameter.default is inspect.Parameter.empty


def _has_interceptors(kind: type) -> bool:
    """Whether the library's decorator has marked a method of a class, or of one that it inherits from."""
    members = [member for level in kind.__mro__ for member in vars(level).values()]
    return any(callable(member) and hasattr(member, "intercept") for member in members)


def toolsets(taskset: Any) -> list[Any]:
    """The tool servers of each task, and those that all tasks share."""
    kind = type(taskset).task_type()
    return [*kind.toolsets(taskset.config.task), *taskset.toolsets(taskset.config)]


async def schemas(toolsets: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """The tools as chat templates read them, under the names that the library's harnesses give them."""
    described = []
    for toolset in toolsets:
        # The library's own server describes them, without being started.
        for tool in await _server(toolset).list_tools():
            function = {
                "name": _full_name(toolset, tool.name),
                "description": tool.description or "",
                "parameters": tool.input_schema,
            }
            described.append({"type": "function", "function": function})
    return tuple(described)


def _server(toolset: Any) -> Any:
    server = MCPServer(toolset.server_name or type(toolset).__name__)
    toolset.register(server)
    return server


def _full_name(toolset: Any, tool: str) -> str:
    return f"{toolset.server_name}_{tool}" if toolset.server_name else tool


@dataclass
class Tools:
    """The tools of an episode: the servers by the full names of their tools, and the state that they share."""

    servers: dict[str, tuple[Any, str]]
    state: Any

    @property
    def keeps_state(self) -> bool:
        """Whether a call may depend on those before it."""
        return type(self.state) is not vf.State

    async def result(self, call: Call) -> str:
        """The result of a call, or what is wrong with it."""
        if call.fault:
            return f"error: {call.fault}"
        if call.name not in self.servers:
            return f"error: there is no tool {call.name!r}, only {', '.join(self.servers)}"
        # Tools of several servers may have the same short name.
        server, tool = self.servers[call.name]
        try:
            result = await server.call_tool(tool, dict(call.arguments))
        except ToolError as error:
            return f"error: {error}"[:MAX_RESULT]
        # Blocks of other types, such as images, as the library prints them.
        texts = [block.text if block.type == "text" else str(block) for block in result.content]
        return "\n".join(texts)[:MAX_RESULT]


async def opened_tools(taskset: Any, task: Any, state: Any) -> Tools:
    """The tools of a task, whose calls share a state."""
    kind = type(taskset).task_type()
    of_task = kind.toolsets(taskset.config.task)
    of_taskset = taskset.toolsets(taskset.config)
    servers: dict[str, tuple[Any, str]] = {}
    for toolset in (*of_task, *of_taskset):
        _share(toolset, state)
        await toolset.setup()
        if toolset in of_task:
            await toolset.setup_task(task)
        server = _server(toolset)
        for tool in await server.list_tools():
            servers[_full_name(toolset, tool.name)] = server, tool.name
    return Tools(servers, state)


def _share(toolset: Any, state: Any) -> None:
    """Let a tool server read and change a state directly; the library sends it over HTTP, between processes."""

    async def pull() -> Any:
        return state

    async def push(before: bytes) -> None:
        pass

    # The library calls these around each call of a tool.
    toolset._pull_state, toolset._push_state = pull, push


class Episode:
    """A conversation about a row's task.

    Raises:
        ValueError: the row is not one of the taskset.
    """

    def __init__(self, name: str, row: Mapping[str, Any], messages: Sequence[Message]) -> None:
        saved = row.get(COLUMN)
        if not isinstance(saved, Mapping) or saved.get("taskset") != name:
            raise ValueError(f"the row has no task of {name}; make the table with magcli convert verifiers:{name}")
        # Sorted, as the taskset is cached by this text.
        options = json.dumps(saved.get("options") or {}, sort_keys=True)
        self.taskset = taskset_of(name, options)
        kind = type(self.taskset).task_type()
        data = kind.data_type().model_validate(saved["data"])
        self.task = kind(data, self.taskset.config.task)
        self.messages = messages
        self.state = state_cls(kind)()

    async def reply(self) -> list[dict[str, str]] | None:
        """The results of the calls of the last turn; None at the end."""
        calls = calls_in(self.messages[-1]["content"])
        trace = self._trace()
        if not calls or await self._stops(trace):
            return None
        tools = await opened_tools(self.taskset, self.task.data, self.state)
        # The turn looks like a call, but there is nothing to call: it is an answer.
        if not tools.servers:
            return None
        # An environment keeps nothing between turns, so the state is that after the calls before.
        calls_before = await self._replayed(tools, self.messages[:-1])
        replies = []
        for number, call in enumerate(calls, calls_before):
            content = await tools.result(call)
            replies.append({"role": "tool", "content": content, "name": call.name, "tool_call_id": call_id(number)})
        return replies

    async def reward(self) -> dict[str, Any]:
        """The task's rewards, weighted, and each as a part, as well as its metrics.

        Raises:
            ValueError: it has no rewards.
            Exception: whatever a reward raises.
        """
        tools = await opened_tools(self.taskset, self.task.data, self.state)
        await self._replayed(tools, self.messages)
        trace = self._trace()
        try:
            await self.task.score(trace)
        except Exception as error:
            # The library wraps what a reward raises.
            cause = error.__cause__ or error
            raise type(error)(f"{type(cause).__name__}: {first_line(cause)}") from cause
        rewards = {name: reward for name, reward in trace.rewards.items() if reward is not None}
        if not rewards:
            raise ValueError(f"the tasks of {self.taskset.config.id} have no rewards")
        scores = {name: float(reward.score) for name, reward in rewards.items()}
        metrics = {name: float(value) for name, value in trace.metrics.items() if value is not None}
        # The total if each reward were 1, and each penalty 0: only that is correct.
        most = sum(max(0.0, reward.weight) for reward in rewards.values())
        total = float(trace.reward)
        is_correct = total >= most > 0
        return {"total": total, "correct": is_correct, "parts": {**metrics, **scores}}

    async def _replayed(self, tools: Tools, messages: Sequence[Message]) -> int:
        """How many calls a conversation has; those of tools that keep a state are made again, as it is not kept."""
        calls: list[Call] = []
        for turn in messages:
            if turn["role"] == "assistant":
                calls += calls_in(turn["content"])
        if tools.keeps_state:
            for call in calls:
                await tools.result(call)
        return len(calls)

    async def _stops(self, trace: Any) -> bool:
        """Whether one of the task's stops ends the episode."""
        for stop in self.task.hooks("stop"):
            stopped = stop(trace)
            if inspect.isawaitable(stopped):
                stopped = await stopped
            if stopped:
                return True
        return False

    def _trace(self) -> Any:
        """The conversation as the library's record."""
        task = self.task
        num_calls = 0  # before the turn, by which calls are numbered
        trace = vf.Trace(
            task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
            state=self.state,
        )
        for turn in self.messages:
            is_sampled = turn["role"] == "assistant"
            calls = calls_in(turn["content"]) if is_sampled else []
            message = _message(turn, calls, num_calls)
            # A trace is a tree; this one has a single branch.
            parent = len(trace.nodes) - 1 if trace.nodes else None
            trace.nodes.append(vf.MessageNode(parent=parent, message=message, sampled=is_sampled))
            num_calls += len(calls)
        trace.is_completed = trace.ok = True
        return trace


def _message(turn: Message, calls: Sequence[Call], number: int) -> Any:
    """A turn as the library's message; of the model's the thoughts, the answer and the calls are apart."""
    role, content = turn["role"], turn["content"]
    if role == "assistant":
        form = form_of_text(content)
        thoughts, answer = form.split(content) if form else ("", content)
        tool_calls = []
        for number_of_call, call in enumerate(calls, number):
            arguments = json.dumps(dict(call.arguments))
            tool_calls.append(vf.ToolCall(id=call_id(number_of_call), name=call.name, arguments=arguments))
        return vf.AssistantMessage(content=answer, reasoning_content=thoughts or None, tool_calls=tool_calls or None)
    if role == "tool":
        return vf.ToolMessage(tool_call_id=turn.get("tool_call_id") or call_id(number), content=content)
    kinds = {"system": vf.SystemMessage, "user": vf.UserMessage}
    return kinds[role](content=content)
