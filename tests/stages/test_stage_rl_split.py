"""RL with generators in processes of their own: nobody waits, nobody who dies takes the run along."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from calling import call_stage, flags_of, quiet
from forking import Running
from overlap import overlap

from magcli.data import table
from magcli.rl import ledger
from magcli.run.rundir import RunDir

SMALL = {
    "updates": 6,
    "group_size": 8,
    "n_async": 64,
    "n_batch": 32,
    "n_mini": 32,
    "max_tokens": 24,
    "lr": 1e-3,
    "bf16": "no",
    "dtype": "fp32",
    "system": Path("none"),
    "language": False,
    "checkpoint_every": 3,
}


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    path = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    rows = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": "3"} for i, letter in enumerate("abcdefgh")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(run):
    return [
        row
        for path in sorted((run / "rollouts").iterdir())
        for batch in table.read(str(path)).rows
        for row in batch.to_pylist()
    ]


def events(run):
    return ledger.read(run / "ledger.jsonl")


def idle_share(run):
    """Of the time of all updates but the first two, the share that trainer and generator stood still, both added up."""
    lines = metrics(run)[2:]
    idle = sum((line["trainer_idle"] + line["generator_idle"]) * line["seconds"] for line in lines)
    return idle / sum(line["seconds"] for line in lines)


def metrics(run):
    return RunDir(run).metrics()


@pytest.mark.flaky(reruns=2)
def test_the_ledger_alone_shows_that_both_sides_work_at_once(guesser, problems, tmp_path):
    sizes = {**SMALL, "updates": 5, "lr": 1e-4, "n_async": 512, "n_batch": 256, "n_mini": 256}
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "split", generators=1, **sizes)
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "sync", schedule="sync", **sizes)
    assert overlap(events(tmp_path / "split")) > 0
    assert overlap(events(tmp_path / "sync")) == 0
    account = ledger.account(events(tmp_path / "split"))
    assert account.faults == ()
    assert account.outstanding == 0
    assert account.trained == 5 * 32
    assert set(account.dropped) <= {"all-wrong", "all-right"}
    assert idle_share(tmp_path / "split") < idle_share(tmp_path / "sync")
    mixed = [row for row in rows_of(tmp_path / "split") if len(row["versions"]) > 1]
    assert mixed, "no completion went on while the weights changed"


def test_several_generators_sample_the_same_bits_in_the_synchronous_schedule(guesser, problems, tmp_path):
    for run, generators in (("here", 0), ("there", 2)):
        options = {
            **SMALL,
            "updates": 3,
            "schedule": "sync",
            "generators": generators,
            "n_async": 32 * (generators or 1),
        }
        call_stage("rl", problems, model=str(guesser), run=tmp_path / run, **options)
    here, there = (rows_of(tmp_path / run) for run in ("here", "there"))
    assert [(row["tokens"], row["logprobs"]) for row in here] == [(row["tokens"], row["logprobs"]) for row in there]


def descendants(pid: int, name: str) -> list[int]:
    """Processes below a process, at any depth, whose command line names something; Ray's workers are below a raylet."""
    parents, named = {}, []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError, IndexError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if name in (entry / "cmdline").read_bytes().decode(errors="replace"):
                named.append(int(entry.name))
    return [process for process in named if pid in ancestors(process, parents)]


def ancestors(process: int, parents: dict[int, int]) -> set[int]:
    """The parent of a process, its parent, and so on."""
    above: set[int] = set()
    while (process := parents.get(process, 0)) and process not in above:
        above.add(process)
    return above


@pytest.mark.faults
def test_killed_generators_and_verifiers_are_replaced_during_a_run(guesser, problems, tmp_path):
    run, sizes = tmp_path / "run", {**SMALL, "updates": 24, "lr": 1e-5}
    command = ["rl", problems, "--model", guesser, "--run", run, "--generators", 1, "--workers", 1, *flags_of(sizes)]
    names = ["ray::Mailbox", "magcli.verify.worker"]
    with Running(*command, env=quiet()) as process:
        killed = 0
        deadline = time.monotonic() + 120
        while killed < 2 and process.poll() is None and time.monotonic() < deadline:
            enough = (run / "metrics.jsonl").exists() and len(metrics(run)) >= 3 * (killed + 1)
            victims = descendants(process.pid, names[killed]) if enough else []
            if victims:
                os.kill(victims[0], signal.SIGKILL)
                killed += 1
            time.sleep(0.02)
        said = process.communicate(timeout=400)[1].decode()
    assert process.returncode == 0, said
    assert killed == 2
    account = ledger.account(events(run))
    assert account.faults == ()
    assert account.outstanding == 0
    assert account.trained == 24 * 4
    assert "again" not in {event["event"] for event in events(run)}
    assert f"{account}" in said


@pytest.mark.parametrize("size", [1_500, 9_000, 60_000])
def test_a_full_disk_ends_the_run_with_a_message_and_nothing_is_lost(size, guesser, problems, tmp_path, magcli):
    """No file may grow beyond ``size`` bytes: what is written first is the ledger, a group, a table, a checkpoint."""
    run, sizes = tmp_path / "run", {**SMALL, "updates": 4, "checkpoint_every": 2, "workers": 1}
    command = ["rl", problems, "--model", guesser, "--run", run, *flags_of(sizes)]
    full = magcli(*command, largest=size)
    assert full.returncode == 4, full.stderr
    assert len(full.stderr.strip().splitlines()[-1]) < 400
    assert "File too large" in full.stderr
    assert "Traceback" not in full.stderr
    again = magcli(*command)
    assert again.returncode == 0, again.stderr
    account = ledger.account(events(run))
    assert account.faults == ()
    assert (account.trained, account.outstanding) == (16, 0)
