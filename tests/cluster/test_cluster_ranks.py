"""Trainer ranks as processes of a cluster: they train as one process does, and go on when one of them is lost."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from calling import call_stage, flags_of, quiet
from forking import Running
from safetensors.torch import load_file
from training_ranks import killed_once

from magcli.cluster.errors import RanksLost
from magcli.cluster.open import open_cluster
from magcli.cluster.ranks import RankGroup, Seat
from magcli.cluster.types import Demand, Resources, Surroundings
from magcli.errors import DataError, EnvironmentFault, UsageError
from magcli.rl import ledger
from magcli.run.rundir import RunDir

SIZES = {
    "updates": 3,
    "group_size": 8,
    "n_async": 32,
    "n_batch": 32,
    "n_mini": 32,
    "max_tokens": 24,
    "lr": 1e-3,
    "bf16": "no",
    "dtype": "fp32",
    "system": Path("none"),
    "language": False,
    "micro_tokens": 256,
    "checkpoint_every": 1,
    "workers": 1,
}


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    path = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    rows = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": "3"} for i, letter in enumerate("abcdefgh")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_two_ranks_of_a_cluster_train_like_one(problems, guesser, tmp_path):
    options = {**SIZES, "schedule": "sync"}
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "one", **options)
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "two", trainers=2, **options)
    one, two = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("one", "two"))
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert (tensor - two[name]).norm() <= 1e-3 * tensor.norm()
    assert ledger.account(ledger.read(tmp_path / "two" / "ledger.jsonl")).trained == 12


@pytest.mark.slow
def test_a_run_that_two_ranks_began_resumes_with_one(problems, guesser, tmp_path):
    run = tmp_path / "run"
    options = {**SIZES, "schedule": "sync", "updates": 12, "lr": 1e-5}
    command = ["rl", problems, "--model", guesser, "--run", run, "--trainers", 2, *flags_of(options)]
    killed_once(command, run / "checkpoints" / "step-000003")
    call_stage("rl", problems, model=str(guesser), run=run, **options)
    account = ledger.account(ledger.read(run / "ledger.jsonl"))
    assert (account.trained, account.outstanding, account.faults) == (48, 0, ())
    assert all(torch.isfinite(tensor).all() for tensor in load_file(run / "model" / "model.safetensors").values())


@pytest.mark.slow
@pytest.mark.flaky(reruns=2)
@pytest.mark.timeout(300)
def test_sigterm_writes_a_checkpoint_of_both_ranks_first_and_the_run_goes_on_from_there(problems, guesser, tmp_path):
    run, loss = tmp_path / "run", tmp_path / "torch.py"
    loss.write_text("def own(tokens, clip_low, clip_high):\n    return -tokens.advantage * tokens.new\n")
    options = {**SIZES, "schedule": "sync", "updates": 30, "lr": 1e-5, "checkpoint_every": 1_000, "loss": f"{loss}:own"}
    command = ["rl", problems, "--model", guesser, "--run", run, "--trainers", 2, *flags_of(options)]
    with Running(*command, env=quiet()) as process:
        try:
            while process.poll() is None and _updates_in(run) < 4:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            errors = process.communicate(timeout=400)[1].decode()
        finally:
            process.kill()
    assert process.returncode == 143, errors
    done = _updates_in(run)
    assert 4 <= done < 30
    assert f"checkpoint of update {done} written before the end" in errors
    assert (run / "checkpoints" / f"step-{done:06d}" / "checkpoint.json").exists()
    call_stage("rl", problems, model=str(guesser), run=run, **options)
    account = ledger.account(ledger.read(run / "ledger.jsonl"))
    assert (account.trained, account.outstanding, account.faults) == (120, 0, ())


def _updates_in(run: Path) -> int:
    """How many updates a run has recorded."""
    path = run / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def _parts_of_tensors(run: Path) -> set[int]:
    """Into how many parts the matrices of the last checkpoint are split."""
    *_, index = sorted(run.glob("checkpoints/*/shards/index.json"))
    tensors = json.loads(index.read_text())["tensors"].values()
    return {len(tensor["chunks"]) for tensor in tensors if len(tensor["size"]) == 2}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_copies_of_two_shards_train_like_one_process(problems, guesser, tmp_path):
    # Of several micro-batches on each rank only the last adds up the gradients of both copies.
    options = {**SIZES, "schedule": "sync", "micro_tokens": 128}
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "one", **options)
    hybrid = {**options, "trainers": 4, "fsdp_size": 2}
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "four", **{**hybrid, "updates": 2})
    assert _parts_of_tensors(tmp_path / "four") == {2}
    # The last update is made by ranks that all share one copy, from the checkpoint of the four.
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "four", trainers=2, **options)
    one, four = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("one", "four"))
    for name, tensor in one.items():
        assert (tensor - four[name]).norm() <= 1e-3 * tensor.norm()


@pytest.mark.parametrize(("trainers", "fsdp_size"), [(4, 1), (4, 3), (1, 2)])
def test_copies_divide_the_ranks(problems, tmp_path, trainers, fsdp_size):
    with pytest.raises(UsageError, match=f"divide the {trainers} ranks"):
        call_stage("rl", problems, model="any", run=tmp_path / "run", trainers=trainers, fsdp_size=fsdp_size)


def ranks_below(driver: int) -> list[int]:
    """The processes of ranks in a session that a driver started."""
    session = f"magcli-ray-{driver}-".encode()
    raylets = set()
    ranks = []
    for entry in [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        try:
            command = (entry / "cmdline").read_bytes()
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"/raylet/raylet" in command and session in command:
            raylets.add(int(entry.name))
        if b"RankActor" in command:
            ranks.append((int(entry.name), parent))
    return [process for process, parent in ranks if parent in raylets]


RANKS_SEND = {"generators": 1, "transfer": "broadcast"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sent", [{}, pytest.param(RANKS_SEND, marks=pytest.mark.faults)], ids=["file", "ranks"])
def test_a_run_goes_on_after_a_rank_was_killed(sent, problems, guesser, tmp_path):
    run = tmp_path / "run"
    sizes = {**SIZES, "updates": 10, "lr": 1e-5, "trainers": 2, **sent}
    command = ["rl", problems, "--model", guesser, "--run", run, *flags_of(sizes)]
    with Running(*command, env=quiet()) as process:
        killed = 0
        while not killed and process.poll() is None:
            metrics = RunDir(run).metrics() if (run / "metrics.jsonl").exists() else []
            ranks = ranks_below(process.pid)
            if len(metrics) >= 3 and ranks:
                killed = ranks[-1]
                os.kill(killed, signal.SIGKILL)
            time.sleep(0.02)
        said = process.communicate(timeout=400)[1].decode()
    assert process.returncode == 0, said
    assert f"(process {killed} on" in said
    assert "starting the ranks again from the last checkpoint" in said
    account = ledger.account(ledger.read(run / "ledger.jsonl"))
    assert (account.trained, account.outstanding, account.faults) == (40, 0, ())
    assert [line["step"] for line in RunDir(run).metrics()] == list(range(1, 11))


@pytest.fixture(scope="module")
def cluster():
    import sys

    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find a module of tests
    with open_cluster() as opened:
        yield opened


def start(cluster, open_state=None, timeout=60.0) -> RankGroup:
    surroundings = Surroundings(variables={"GLOO_SOCKET_IFNAME": "lo"})
    ranks = Demand("trainer ranks", 2, Resources())
    return RankGroup.start(cluster, ranks, open_state or join, surroundings=surroundings, say=print, timeout=timeout)


def join(seat: Seat) -> Seat:
    from magcli.train.distributed import join_ranks

    join_ranks(seat.rank, seat.size, seat.local_rank, (seat.host, seat.port), "cpu", timeout=50.0)
    return seat


def join_without_a_model(seat: Seat) -> Seat:
    """What rank 1 does whose machine lacks the model's folder."""
    join(seat)
    if seat.rank == 1:
        raise EnvironmentFault("model /nowhere is neither a folder nor a hub id")
    return seat


def total(value: float):
    """A part that adds a value over all ranks."""

    def add(seat: Seat) -> float:
        import torch
        import torch.distributed as dist

        tensor = torch.tensor(value * (seat.rank + 1))
        dist.all_reduce(tensor)
        return tensor.item()

    return add


def die(seat: Seat) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(seat: Seat) -> None:
    raise DataError("rows of another model")


def break_down(seat: Seat) -> None:
    raise ZeroDivisionError("of a library")


def sleep(seat: Seat) -> None:
    time.sleep(60)


def test_ranks_meet_and_their_parts_run_together(cluster):
    group = start(cluster)
    assert group.call([total(1.0), total(10.0)]) == 21.0
    assert group.call([lambda seat: seat.local_rank, lambda seat: None]) == 0
    group.close()


@pytest.mark.parametrize(
    ("part", "error", "message"),
    [
        (die, RanksLost, r"training stopped: rank 1 \(process \d+ on .*\) died: its process was killed"),
        (refuse, DataError, "rows of another model"),
        (break_down, EnvironmentFault, r"rank 1 \(process \d+ on .*\): ZeroDivisionError: of a library"),
    ],
)
def test_the_error_of_a_group_names_the_rank_at_fault_not_its_neighbour(part, error, message, cluster):
    group = start(cluster)
    with pytest.raises(error, match=message):
        group.call([total(1.0), part])


def test_a_rank_that_cannot_open_its_state_is_named(cluster):
    with pytest.raises(EnvironmentFault, match=r"rank 1 \(process \d+ on .*\): model /nowhere is neither"):
        start(cluster, join_without_a_model)


def test_a_rank_that_hangs_is_named(cluster):
    group = start(cluster, timeout=15.0)
    group._timeout = 2.0
    with pytest.raises(RanksLost, match=r"rank 1 \(process \d+ on .*\) did not answer in 2 s"):
        group.call([lambda seat: None, sleep])
