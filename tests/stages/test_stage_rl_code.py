"""`magcli rl` on code: the reward is the sandbox's verdict on tests that a whole group shares."""

import json
import random
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from calling import call_stage

from magcli.data import table
from magcli.evaluation.metrics import estimate, gather
from magcli.run.rundir import RunDir

RECIPE = {
    "updates": 10,
    "group": 8,
    "n_async": 64,
    "n_batch": 32,
    "n_mini": 32,
    "max_tokens": 32,
    "lr": 1e-3,
    "bf16": "no",
    "dtype": "fp32",
    "system": Path("none"),
    "language": False,
    "schedule": "sync",
    "workers": 2,
}
MODEL = Path(__file__).parents[2] / "recipes" / "tiny" / "model-code"
LETTERS = "abcdefgh"
ARGUMENTS = range(-12, 12)
RIGHT = "def f(x):\n    return x+3\n"


def fenced(number):
    return f"```python\ndef f(x):\n    return x+{number}\n```"


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A small model after seconds of SFT: to `a!` it writes a program that adds 1 to 4, to `a?` it answers 1 to 4."""
    folder, choose = tmp_path_factory.mktemp("writer"), random.Random(0)
    shutil.copytree(MODEL, folder / "model")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config = json.loads((MODEL / "config.json").read_text()) | sizes
    (folder / "model" / "config.json").write_text(json.dumps(config))
    rows = []
    for index in range(400):
        number, asks_program = choose.choice("1234"), index % 2 == 0
        answer = fenced(number) if asks_program else f"\\boxed{{{number}}}"
        prompt = choose.choice(LETTERS) + ("!" if asks_program else "?")
        rows.append({"prompt": prompt, "completion": f"<think></think>{answer}"})
    options = {"epochs": 12, "step_tokens": 512, "lr": 5e-3, "bf16": "no", "system": Path("none")}
    place = {"model": str(folder / "model"), "from_scratch": True, "run": folder / "run"}
    call_stage("sft", written(folder / "traces.jsonl", rows), **place, **options)
    return folder / "run" / "model"


def code_problems(letters=LETTERS):
    tests = [{"call": f"f({x})", "output": str(x + 3)} for x in ARGUMENTS]
    return [
        {"id": f"code-{letter}", "kind": "code", "language": "python", "prompt": f"{letter}!", "tests": tests}
        for letter in letters
    ]


def math_problems(letters=LETTERS):
    return [{"id": f"math-{letter}", "kind": "math", "prompt": f"{letter}?", "answer": "3"} for letter in letters]


def trained(name, rows, writer, folder, **change):
    """A run on some problems: its rollouts, and its metrics line by line."""
    run = folder / name
    call_stage(
        "rl",
        written(folder / f"{name}.jsonl", rows),
        model=str(writer),
        run=run,
        output=folder / f"{name}.arrow",
        **RECIPE | change,
    )
    rollouts = [row for batch in table.read(str(folder / f"{name}.arrow")).rows for row in batch.to_pylist()]
    return rollouts, RunDir(run).metrics()


@pytest.fixture(scope="module")
def on_both(writer, tmp_path_factory):
    rows = [*code_problems(), *math_problems()]
    larger = {"updates": 8, "n_async": 128, "n_batch": 64, "n_mini": 64}
    return trained("both", rows, writer, tmp_path_factory.mktemp("both"), **larger)


@pytest.fixture(scope="module")
def on_code(on_both):
    return [row for row in on_both[0] if row["id"].startswith("code")]


def test_rollouts_have_all_columns_of_their_problems_and_can_be_graded_again(on_both, tmp_path):
    """Programs are graded by their tests; rewards are those of the run."""
    rollouts, lines = on_both
    for row in rollouts:
        is_code = row["id"].startswith("code")
        assert row["kind"] == ("code" if is_code else "math")
        assert row["language"] == ("python" if is_code else None)
        assert len(row["tests"] or []) == (len(ARGUMENTS) if is_code else 0)
    some = rollouts[:64]
    table_file = written(tmp_path / "rollouts.jsonl", some)
    call_stage("grade", table_file, output=tmp_path / "graded.arrow", language=False, workers=2, num_tests=0)
    graded = [row for batch in table.read(str(tmp_path / "graded.arrow")).rows for row in batch.to_pylist()]
    assert {row["kind"] for row in graded} == {"math", "code"}
    assert [row["correct"] for row in graded] == [row["correct"] for row in some]
    for number, line in enumerate(lines, 1):
        for kind in ("math", "code"):
            of_kind = [row for row in rollouts if row["step"] == number and row["kind"] == kind]
            assert line[f"reward_of_{kind}"] == pytest.approx(sum(row["reward"] for row in of_kind) / len(of_kind))
            assert line[f"length_of_{kind}"] == pytest.approx(sum(row["num_tokens"] for row in of_kind) / len(of_kind))


def share(rollouts):
    """Sampled accuracy with its 95% interval over problems."""
    return next(each for each in estimate(gather(rollouts), (1,), 0) if each.metric == "avg@n")


def adds_three(program):
    """Whether a program, such as `return x+3` or `return x++3`, does what was asked."""
    space = {}
    exec(program, space)
    return all(space["f"](x) == x + 3 for x in ARGUMENTS)


def test_a_rollout_contains_the_verdict_of_the_sandbox(on_code):
    assert {"accepted", "wrong-answer"} <= {row["reason"] for row in on_code}
    for row in on_code:
        assert row["correct"] == (row["reason"] == "accepted")
        if row["reason"] == "accepted":
            assert (row["reward"], row["detail"]) == (pytest.approx(1.0), "20 tests")
            assert adds_three(row["extracted"])
        if row["reason"] == "wrong-answer":
            assert row["reward"] == pytest.approx(0.1)
            assert row["detail"].startswith("test 1: f(")


def test_a_group_is_judged_on_the_same_twenty_tests(on_code):
    """Every program of a group that fails names the first of the tests that were drawn for the group."""
    named = defaultdict(set)
    for row in on_code:
        if row["reason"] == "wrong-answer":
            named[row["group"]].add(row["detail"].partition(":")[2].partition(":")[0])
    assert {len(calls) for calls in named.values()} == {1}
    assert len(set.union(*named.values())) > 1, "other groups have other tests"


def test_mathematics_and_code_train_in_one_run(on_both):
    rollouts, lines = on_both
    by_kind = {kind: [row for row in rollouts if row["id"].startswith(kind)] for kind in ("math", "code")}
    for rows in by_kind.values():
        before = share([row for row in rows if row["step"] <= 2])
        after = share([row for row in rows if row["step"] > 6])
        assert before.high < after.low, (before, after)
    assert {row["reason"] for row in by_kind["math"] if row["correct"]} == {"correct"}
    assert {row["reason"] for row in by_kind["code"] if row["correct"]} == {"accepted"}
    assert any({"correct", "accepted"} <= line["reasons"].keys() for line in lines)


def test_the_partial_reward_distinguishes_failing_programs(writer, tmp_path):
    """Half of the tests ask for x + 3, half for x + 4: no program is right, but two of them get paid."""
    rows = code_problems("ab")
    for row in rows:
        row["tests"] = [{"call": f"f({x})", "output": str(x + 3 + x % 2)} for x in ARGUMENTS]
    change = {"updates": 2, "partial": True, "diverse_by": "reward"}
    rollouts, _ = trained("partial", rows, writer, tmp_path, **change)
    assert not any(row["correct"] for row in rollouts)
    paid = {row["extracted"]: row["reward_correct"] for row in rollouts if row["reason"] == "wrong-answer"}
    assert paid[RIGHT.replace("3", "1")] == 0
    assert 0.3 < paid[RIGHT] < 0.6
    assert any(row["advantage"] for row in rollouts)
