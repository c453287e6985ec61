"""Verifiers on the nodes of a cluster: they judge as this process does, and lost ones are replaced."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from calling import quiet
from forking import Running
from ray_machines import workers_on

from magcli.cluster.open import open_cluster
from magcli.cluster.types import LOCAL
from magcli.data import table
from magcli.errors import EnvironmentFault
from magcli.stages.rl.config import Config
from magcli.stages.rl.verifiers import Judging, Verifiers, open_verifiers
from magcli.stages.shared import environments
from magcli.verify.grader import Grader
from magcli.verify.reward import RewardRule

TOYS = Path(__file__).parents[1] / "environments" / "toys.py"
RULE = RewardRule(use_language=False)
PROGRAM = {
    "id": "double",
    "kind": "code",
    "prompt": "Read a number and print its double.",
    "tests": [{"input": "3\n", "output": "6\n"}, {"input": "-4\n", "output": "-8\n"}],
}


class Messages:
    """A console that keeps warnings."""

    def __init__(self):
        self.warnings = []

    def warn(self, text, **event):
        self.warnings.append((text, event["event"]))

    def say(self, text, **event):
        pass


def jobs(count):
    """Answers, every third of which is wrong."""
    for number in range(count):
        answer = number + (number % 3 == 0)
        row = {"id": str(number), "prompt": "?", "answer": str(number)}
        yield f"<think>so</think>It is \\boxed{{{answer}}}.", 10, row, RULE


async def graded(judging, console, cluster, grade):
    """The rewards of a grader of this process, and of verifiers on the cluster, by ``grade``."""
    grader = judging.open_grader()
    try:
        expected = await grade(grader)
        async with open_verifiers(judging, Verifiers(grader, None), [PROGRAM], cluster, console) as verifiers:
            return expected, await grade(verifiers.grader)
    finally:
        await grader.close()


@pytest.mark.timeout(120)
def test_answers_and_programs_are_graded_as_in_this_process(machines):
    right = "```python\nprint(2 * int(input()))\n```"
    wrong = "```python\nprint(abs(2 * int(input())))\n```"
    programs = [(f"<think>so</think>\n{text}", 10, PROGRAM, RULE) for text in (right, wrong)]

    async def grade(grader):
        return await asyncio.gather(*(grader.reward(*job) for job in [*programs, *jobs(12)]))

    judging = Judging.of(Config(verifiers=1, sandbox="auto"))
    with open_cluster(machines.address) as cluster:
        expected, rewards = asyncio.run(graded(judging, Messages(), cluster, grade))
    assert rewards == expected
    assert [reward.correct for reward in rewards[:5]] == [True, False, False, True, True]


@pytest.mark.timeout(120)
def test_a_killed_verifier_is_replaced_and_what_it_had_not_graded_is_asked_again(machines, tmp_path):
    pid_file = tmp_path / "pid"
    reward_file = tmp_path / "judge.py"
    reward_file.write_text(
        f"FILE = {str(pid_file)!r}\n"
        "import os, pathlib, time\n"
        "def judge(completion, row):\n"
        "    own = pathlib.Path(f'{FILE}.{os.getpid()}')\n"
        "    own.write_text(str(os.getppid()))\n"
        "    own.replace(FILE)\n"
        "    time.sleep(0.02)\n"
        "    return 1.0 if row['answer'] in completion else 0.0\n"
    )
    own_process = os.getpid()
    killed = []

    async def grade(grader):
        asks = [asyncio.create_task(grader.reward(*job)) for job in jobs(40)]
        await asks[0]
        verifier = int(pid_file.read_text())  # the parent of the worker in which the custom reward runs
        if verifier != own_process:
            os.kill(verifier, signal.SIGKILL)
            killed.append(verifier)
        return await asyncio.gather(*asks)

    judging = Judging.of(Config(verifiers=2, reward=f"{reward_file}:judge"))
    console = Messages()
    with open_cluster(machines.address) as cluster:
        expected, rewards = asyncio.run(graded(judging, console, cluster, grade))
    assert rewards == expected
    assert len(killed) == 1
    ((text, event),) = console.warnings
    assert event == "verifier-lost"
    assert f"verifier process {killed[0]} on" in text


@pytest.mark.timeout(120)
def test_an_environment_answers_as_in_this_process_also_when_its_verifier_was_killed(machines, tmp_path):
    flag = tmp_path / "asked"
    row = {"id": "p1", "prompt": "a?", "answer": "3", "flag": str(flag)}
    turn = [{"role": "user", "content": "a?"}, {"role": "assistant", "content": "look"}]
    end = [*turn, {"role": "user", "content": "It is 3."}, {"role": "assistant", "content": "3"}]

    async def asked(environment):
        turns = [asyncio.create_task(environment.reply(row, turn)) for _ in range(40)]
        return [*await asyncio.gather(*turns), await environment.reply(row, end)]

    async def kill_one():
        while not flag.exists():
            await asyncio.sleep(0.01)
        verifiers = [pid for node in machines.nodes for pid in workers_on(node)]
        os.kill(verifiers[0], signal.SIGKILL)

    async def scenario(judging, cluster, here, console):
        grader = judging.open_grader()
        try:
            expected = await asked(here)
            flag.unlink()
            async with open_verifiers(judging, Verifiers(grader, here), [], cluster, console) as verifiers:
                there, _ = await asyncio.gather(asked(verifiers.environment), kill_one())
            return expected, there
        finally:
            await grader.close()

    judging = Judging.of(Config(verifiers=2, workers=1, environment=f"{TOYS}:Slow", sandbox="auto"))
    console = Messages()
    with (
        open_cluster(machines.address) as cluster,
        environments.open_environment(judging.grading, judging.environment) as here,
    ):
        expected, there = asyncio.run(scenario(judging, cluster, here, console))
    assert there == expected
    assert there[0].messages == ({"role": "user", "content": "Again?"},)
    assert there[-1].messages == ()
    assert [event for _, event in console.warnings] == ["verifier-lost"]


@pytest.mark.timeout(300)
def test_episodes_of_a_run_are_judged_by_its_verifiers(machines, guesser, problems, tmp_path):
    run = tmp_path / "run"
    processes = ["--verifiers", 1, "--workers", 1, "--cluster", machines.address]
    options = [*processes, "--environment", f"{TOYS}:Cup", "--max-tokens", 60]
    with Running(*rl(problems, guesser, tmp_path), *options, env={**quiet(), **machines.environment}) as process:
        said = process.communicate(timeout=400)[1].decode()
    assert process.returncode == 0, said
    stored = sorted((run / "rollouts").iterdir())
    rows = [row for path in stored for batch in table.read(str(path)).rows for row in batch.to_pylist()]
    assert rows
    assert all(row["reward"] == len([turn for turn in row["messages"] if turn["role"] == "assistant"]) for row in rows)


def test_a_node_that_cannot_isolate_programs_serves_an_environment_that_judges_itself(monkeypatch):
    def refuse(self):
        raise EnvironmentFault("no sandbox")

    monkeypatch.setattr(Grader, "_code_programs", refuse)
    judges = Judging.of(Config(environment=f"{TOYS}:Cup"))
    opened = judges.opener([PROGRAM])()
    for workers in (opened._grader, opened._environment):
        workers.shutdown()
    with pytest.raises(EnvironmentFault, match="no sandbox"):
        Judging.of(Config()).opener([PROGRAM])()


@pytest.mark.timeout(300)
def test_a_reward_named_like_a_module_stands_for_no_other_in_a_verifier(tmp_path):
    (tmp_path / "beside.py").write_text("import json, random\nVALUE = random.Random(0).random() * json.loads('1')\n")

    async def grade(grader):
        return await asyncio.gather(*(grader.reward(*job) for job in jobs(4)))

    with open_cluster(LOCAL) as cluster:
        for name in ("json.py", "torch.py", "random.py"):
            (tmp_path / name).write_text("import beside\ndef judge(completion, row):\n    return beside.VALUE\n")
            judging = Judging.of(Config(verifiers=1, reward=f"{tmp_path / name}:judge"))
            expected, rewards = asyncio.run(graded(judging, Messages(), cluster, grade))
            assert rewards == expected
            assert [reward.total for reward in rewards] == [pytest.approx(0.8444218515250481)] * 4


def test_verifiers_for_which_there_is_no_room_are_refused_before_the_work(machines, guesser, problems, tmp_path):
    processes = ["--generators", 1, "--verifiers", 2, "--cluster", machines.address]
    with Running(*rl(problems, guesser, tmp_path), *processes, env={**quiet(), **machines.environment}) as process:
        said = process.communicate(timeout=400)[1].decode()
    assert process.returncode == 4
    assert "room for 1 of 2 verifiers, each with 1 CPUs on one node, beside 1 generators with 1 CPUs each" in said
    assert "Traceback" not in said


def test_verifiers_need_a_cluster(guesser, problems, tmp_path):
    with Running(*rl(problems, guesser, tmp_path), "--verifiers", 1, env=quiet()) as process:
        said = process.communicate(timeout=400)[1].decode()
    assert process.returncode == 2
    assert "--verifiers needs a --cluster; on this machine use --workers" in said


@pytest.fixture
def problems(tmp_path):
    path = tmp_path / "problems.jsonl"
    path.write_text('{"id": "a", "prompt": "a?", "answer": "3"}\n')
    return path


def rl(problems, model, folder):
    sizes = ["--updates", 2, "--group-size", 8, "--n-async", 8, "--n-batch", 8, "--n-mini", 8, "--max-tokens", 8]
    return ["rl", problems, "--model", model, "--run", folder / "run", "--system", "none", *sizes]
