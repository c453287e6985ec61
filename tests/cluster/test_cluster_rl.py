"""`magcli rl` on a Ray cluster: generators on other nodes, weights by broadcast, a node lost meanwhile."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
from calling import flags_of, quiet
from forking import Running, fork_server
from ray_machines import workers_on

from magcli.rl import ledger
from magcli.run.rundir import RunDir

SIZES = {
    "updates": 16,
    "group_size": 8,
    "n_async": 64,
    "n_batch": 32,
    "n_mini": 32,
    "max_tokens": 24,
    "lr": 1e-5,
    "bf16": "no",
    "dtype": "fp32",
    "system": Path("none"),
    "language": False,
    "checkpoint_every": 8,
}


@pytest.fixture
def problems(tmp_path):
    path = tmp_path / "problems.jsonl"
    rows = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": "3"} for i, letter in enumerate("abcdefgh")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.timeout(300)
def test_a_run_goes_on_when_the_node_of_its_generator_is_lost(machines, guesser, problems, tmp_path):
    run = tmp_path / "run"
    options = ["--generators", 1, "--cluster", machines.address, "--workers", 1, *flags_of(SIZES)]
    command = ["rl", problems, "--model", guesser, "--run", run, *options]
    with Running(*command, env={**quiet(), **machines.environment}) as process:
        lost = None
        while lost is None and process.poll() is None:
            if (run / "metrics.jsonl").exists() and len(RunDir(run).metrics()) >= 3:
                lost = next(node for node in machines.nodes if "generator" in workers_on(node).values())
                machines.kill(lost)
            time.sleep(0.05)
        said = process.communicate(timeout=400)[1].decode()
    machines.nodes.remove(lost)
    machines.nodes.append(machines.add())
    assert process.returncode == 0, said
    assert "starting another" in said
    events = ledger.read(run / "ledger.jsonl")
    account = ledger.account(events)
    assert account.faults == ()
    assert account.outstanding == 0
    assert account.trained == SIZES["updates"] * 4
    lines = RunDir(run).metrics()
    assert [line["step"] for line in lines] == list(range(1, SIZES["updates"] + 1))


@pytest.mark.timeout(300)
def test_ranks_on_two_nodes_and_generator_and_verifier_on_a_third(machines, guesser, problems, tmp_path):
    machines.nodes.append(machines.add(cpus=2))
    run = tmp_path / "run"
    sizes = {**SIZES, "updates": 6, "checkpoint_every": 2}
    processes = ["--trainers", 2, "--generators", 1, "--verifiers", 1, "--workers", 1]
    options = [*processes, "--cluster", machines.address, *flags_of(sizes)]
    command = ["rl", problems, "--model", guesser, "--run", run, *options]
    files = set()
    with Running(*command, env={**quiet(), **machines.environment}) as process:
        while process.poll() is None:
            files |= set(run.glob("magcli-*"))
            time.sleep(0.02)
        said = process.communicate(timeout=400)[1].decode()
    machines.kill(machines.nodes.pop())
    assert process.returncode == 0, said
    account = ledger.account(ledger.read(run / "ledger.jsonl"))
    assert (account.trained, account.outstanding, account.faults) == (6 * 4, 0, ())
    lines = RunDir(run).metrics()
    assert [line["weights_version"] for line in lines] == list(range(1, 7))
    assert len({line["weights_digest"] for line in lines}) == 6
    assert max(line["mismatch_max"] for line in lines) < 1e-3
    assert files == set(), "weights go from ranks to generators, not through files"


def test_generators_for_which_there_is_no_room_are_refused_before_the_work(
    machines, guesser, problems, tmp_path, magcli
):
    options = ["--generators", 3, "--cluster", machines.address, *flags_of(SIZES)]
    command = ["rl", problems, "--model", guesser, "--run", tmp_path / "run", *options]
    with Running(*command, env={**quiet(), **machines.environment}) as process:
        said = process.communicate(timeout=400)[1].decode()
    assert process.returncode == 4
    assert "the cluster has room for 2 of 3 generators, each with 1 CPUs on one node" in said
    assert "Traceback" not in said


def run_that_waits_a_second(arguments, environment, log):
    """The command, which waits for lost nodes a second instead of two minutes."""
    from magcli.__main__ import main
    from magcli.stages.shared import trainer_ranks

    trainer_ranks.REPLACEMENT_SECONDS = 1.0
    os.environ |= environment
    with open(log, "ab") as messages:
        os.dup2(messages.fileno(), 2)
    sys.argv = ["magcli", *map(str, arguments)]
    main()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_goes_on_with_fewer_ranks_when_no_node_replaces_a_lost_one(machines, guesser, problems, tmp_path):
    third = machines.add()
    run, log = tmp_path / "run", tmp_path / "log"
    sizes = {**SIZES, "updates": 8, "checkpoint_every": 2}
    options = ["--trainers", 3, "--cluster", machines.address, "--workers", 1, *flags_of(sizes)]
    command = ["rl", problems, "--model", guesser, "--run", run, *options]
    arguments = (command, {**quiet(), **machines.environment}, log)
    process = fork_server().Process(target=run_that_waits_a_second, args=arguments)
    process.start()
    while process.is_alive() and not ((run / "metrics.jsonl").exists() and len(RunDir(run).metrics()) >= 3):
        time.sleep(0.05)
    machines.kill(third)
    process.join(200)
    said = log.read_text()
    assert process.exitcode == 0, said
    assert "going on with 2 of 3 trainer ranks" in said
    account = ledger.account(ledger.read(run / "ledger.jsonl"))
    assert (account.trained, account.outstanding, account.faults) == (8 * 4, 0, ())
    assert [line["step"] for line in RunDir(run).metrics()] == list(range(1, 9))
