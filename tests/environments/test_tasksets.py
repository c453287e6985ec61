"""Tasksets of verifiers 0.4: their tasks as a table, their tools, and their own weighted rewards."""

import asyncio

import pytest

from magcli.data import table
from magcli.data.values import to_rows
from magcli.environments.environment import in_workers
from magcli.errors import DataError, UsageError
from magcli.verify.environment import Reply, terms_of
from magcli.verify.reward import Reward

pytest.importorskip("verifiers.v1", reason="needs verifiers")

SUMS = '''
import verifiers.v1 as vf

__all__ = ["SumsTaskset"]


class Notes(vf.State):
    written: list[int] = []


class Pad(vf.Toolset[vf.ToolsetConfig, Notes]):
    TOOL_PREFIX = "pad"

    @vf.tool
    def add(self, number: int) -> str:
        """Add a number to the pad; returns the sum of all."""
        self.state.written.append(number)
        return str(sum(self.state.written))


class SumData(vf.TaskData):
    answer: str


class SumConfig(vf.TaskConfig):
    tools: vf.ToolsetConfig = vf.ToolsetConfig()
    bonus: float = 1.0


class SumTask(vf.Task[SumData, Notes, SumConfig]):
    @classmethod
    def toolsets(cls, config):
        return [Pad(config.tools)]

    @vf.stop
    async def enough(self, trace: vf.Trace) -> bool:
        return trace.num_turns >= 3

    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(self.data.answer in trace.last_reply)

    @vf.reward(weight=0.5)
    async def used(self, trace: vf.Trace) -> float:
        return self.config.bonus * (sum(trace.state.written) == int(self.data.answer))

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


class SumsConfig(vf.TasksetConfig):
    task: SumConfig = SumConfig()
    largest: int = 3


class SumsTaskset(vf.Taskset[SumTask, SumsConfig]):
    def load(self):
        for n in range(1, self.config.largest + 1):
            data = SumData(prompt=f"What is {n} + {n}?", system_prompt="Be short.", answer=str(2 * n))
            yield SumTask(data, self.config.task)
'''
OTHERS = {
    "endless": ("    INFINITE = True\n", ""),
    "boxed": ("", "    async def setup(self, trace, runtime):\n        pass\n"),
    "failing": ("", "    @vf.reward\n    async def fails(self, trace):\n        raise KeyError('no such column')\n"),
}


@pytest.fixture(autouse=True)
def sums(tmp_path, monkeypatch):
    """Modules in the working directory; each test has names of its own, since modules are loaded once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "sums_taskset.py").write_text(SUMS)
    for name, (of_taskset, of_task) in OTHERS.items():
        text = SUMS.replace("    def load", f"{of_taskset}\n    def load").replace(
            "    @vf.metric", f"{of_task}\n    @vf.metric"
        )
        (tmp_path / f"{name}_taskset.py").write_text(text)


def rows_of(name):
    return [row for batch in table.read(f"verifiers:{name}").rows for row in to_rows(batch)]


def asked(name, what, row, *said):
    messages = [{"role": "user", "content": row["prompt"]}, *said]
    with in_workers(f"verifiers:{name}", sandbox="none") as environment:
        return asyncio.run(getattr(environment, what)(row, messages))


def call(number):
    body = f'<tool_call>{{"name": "pad_add", "arguments": {{"number": {number}}}}}</tool_call>'
    return {"role": "assistant", "content": body}


def test_a_task_is_a_row_with_its_data_and_options():
    rows = rows_of("sums_taskset?size=2&task.bonus=0.25")
    assert [row["prompt"] for row in rows] == ["Be short.\n\nWhat is 1 + 1?", "Be short.\n\nWhat is 2 + 2?"]
    assert [row["answer"] for row in rows] == ["2", "4"]
    assert rows[0]["verifiers"]["options"] == {"task.bonus": 0.25}
    assert len(rows_of("sums_taskset?largest=5")) == 5


def test_tools_run_with_the_state_of_the_conversation_and_the_rewards_are_weighted():
    terms = terms_of("verifiers:sums_taskset")
    assert (terms.roles, terms.judges, terms.tools[0]["function"]["name"]) == (("tool",), True, "pad_add")
    (row, *_) = rows_of("sums_taskset?size=1&task.bonus=0.5")
    reply = asked("sums_taskset", "reply", row, call(1), {"role": "tool", "content": "1"}, call(1))
    assert isinstance(reply, Reply)
    assert [(turn["role"], turn["content"]) for turn in reply.messages] == [("tool", "2")]
    end = [call(1), {"role": "tool", "content": "1"}, call(1), *reply.messages]
    reward = asked("sums_taskset", "reward", row, *end, {"role": "assistant", "content": "<think>2</think>It is 2."})
    assert isinstance(reward, Reward)
    assert (reward.total, reward.parts) == (1.25, {"right": 1.0, "used": 0.5, "turns": 3.0})


def test_a_stop_ends_the_episode_and_a_wrong_call_gets_a_message():
    (row, *_) = rows_of("sums_taskset?size=1")
    result = {"role": "tool", "content": "1"}
    assert asked("sums_taskset", "reply", row, call(1), result, call(1), result, call(1)) == Reply(())
    reply = asked("sums_taskset", "reply", row, call('"x"'))
    assert isinstance(reply, Reply)
    assert reply.messages[0]["content"].startswith("error: Error executing tool add")


def test_what_magcli_does_not_run_is_refused_by_name():
    with pytest.raises(UsageError, match="setup of its tasks need a runtime"):
        terms_of("verifiers:boxed_taskset")
    with pytest.raises(UsageError, match="the taskset has no end; add"):
        rows_of("endless_taskset")
    with pytest.raises(UsageError, match="no taskset of this name is installed; verifiers has harbor"):
        rows_of("nowhere_taskset")
    with pytest.raises(UsageError, match="option largest: Input should be a valid integer"):
        rows_of("sums_taskset?largest=many")


def test_a_reward_that_raises_and_a_row_of_another_table_are_verdicts():
    (row, *_) = rows_of("failing_taskset?size=1")
    failed = asked("failing_taskset", "reward", row, {"role": "assistant", "content": "2"})
    assert failed.reason == "reward-error"
    assert "no such column" in failed.detail
    other = asked("sums_taskset", "reward", {"id": "p", "prompt": "?"}, {"role": "assistant", "content": "2"})
    assert "make the table with magcli convert verifiers:sums_taskset" in other.detail


def test_a_task_without_a_text_is_refused(tmp_path):
    (tmp_path / "silent_taskset.py").write_text(SUMS.replace('prompt=f"What is {n} + {n}?"', "prompt=None"))
    with pytest.raises(DataError, match="task 0 has no prompt: its user opens the conversation"):
        rows_of("silent_taskset")
