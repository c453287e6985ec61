"""Write the sample of verifiers' traces: python verifiers_traces.py FILE, with verifiers 0.4.0 installed.

Tasks, rewards, traces and the file are those of the library itself; what the model said is written here.
"""

import asyncio
import sys
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.utils.trace_store import TRACES_FILE, write_episode


class SumData(vf.TaskData):
    """A task with an answer."""

    answer: str


class SumTask(vf.Task[SumData]):
    """Two weighted rewards and a metric."""

    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        """Whether the last reply has the answer."""
        return float(self.data.answer in trace.last_reply)

    @vf.reward(weight=0.5)
    async def boxed(self, trace: vf.Trace) -> float:
        """Whether it is in a box."""
        return float("boxed" in trace.last_reply)

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        """Number of turns."""
        return float(trace.num_turns)


CALL = vf.ToolCall(id="call_1", name="facts_lookup", arguments='{"name": "Ada"}')
SPOKEN = {
    "What is 2 + 2?": [vf.AssistantMessage(content="It is \\boxed{4}.", reasoning_content="Two and two.")],
    "What is 3 + 4?": [vf.AssistantMessage(content="It is 8.")],
    "How many letters has Ada?": [
        vf.AssistantMessage(content="", tool_calls=[CALL]),
        vf.ToolMessage(tool_call_id="call_1", content="Ada has 3 letters."),
        vf.AssistantMessage(content="\\boxed{3}"),
    ],
}
ANSWERS = ("4", "7", "3")


async def episode(number: int, prompt: str, spoken: list[vf.Message]) -> vf.Episode:
    """An episode in which this was said, scored by its task."""
    system = "Answer in a box."
    data = SumData(idx=number, name=f"sum-{number}", prompt=prompt, system_prompt=system, answer=ANSWERS[number])
    task = SumTask(data)
    recorded = vf.TraceTask(type="SumTask", data=data, key=task.key, hash=task.hash)
    trace = vf.Trace(task=recorded, agent=vf.AgentInfo(config=vf.AgentConfig()))
    for message in (vf.SystemMessage(content=system), vf.UserMessage(content=prompt), *spoken):
        parent = len(trace.nodes) - 1 if trace.nodes else None
        trace.nodes.append(vf.MessageNode(parent=parent, message=message, sampled=message.role == "assistant"))
    await task.score(trace)
    trace.ok = True
    trace.stop("agent_completed")
    return vf.Episode(env=vf.EnvInfo(id="sums"), task=recorded, traces=[trace], ok=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1]).parent
    (folder / TRACES_FILE).unlink(missing_ok=True)
    for number, (prompt, spoken) in enumerate(SPOKEN.items()):
        write_episode(folder, asyncio.run(episode(number, prompt, spoken)))
    (folder / TRACES_FILE).rename(sys.argv[1])
