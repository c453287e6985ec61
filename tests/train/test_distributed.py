"""Commands, answers and heartbeats among real processes: ranks that die, hang or fail are named promptly."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from training_ranks import on_ranks, started, until

from magcli.errors import EnvironmentFault
from magcli.train.distributed import RankChannel, Ranks, open_ranks

HOW = [
    pytest.param(signal.SIGKILL, id="killed"),
    pytest.param(signal.SIGSTOP, id="stopped", marks=pytest.mark.faults),
]
"""Ways in which a rank is lost."""


def test_a_single_process_needs_no_process_group(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    ranks = open_ranks()
    assert (ranks.rank, ranks.size, ranks.mesh) == (0, 1, None)
    assert (ranks.sum(2.5), ranks.gather("x"), ranks.broadcast("y")) == (2.5, ["x"], "y")
    assert not dist.is_initialized()


@pytest.mark.parametrize("value", ["", "two"])
def test_an_incomplete_launch_gets_a_hint_to_use_torchrun(monkeypatch, value):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", value)
    with pytest.raises(EnvironmentFault, match=r"RANK is .*torchrun"):
        open_ranks()


def test_a_rank_without_the_others_fails_to_connect(monkeypatch):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1"}
    variables |= {"MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True", "GLOO_SOCKET_IFNAME": "lo"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(EnvironmentFault, match="rank 1 could not connect to all 2 ranks"):
        open_ranks(timeout=1.0)


def talk(ranks):
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_USE_AGENT_STORE"} & os.environ.keys()
    total = ranks.sum(0.1 * (ranks.rank + 1))
    return total, ranks.gather({"rank": ranks.rank}), ranks.broadcast(f"from {ranks.rank}")


def test_numbers_are_summed_and_objects_gathered_and_broadcast():
    first, second = on_ranks(talk)
    assert first == (pytest.approx(0.3), [{"rank": 0}, {"rank": 1}], "from 0")
    assert second == (first[0], [], "from 0")


def follow(ranks, channel):
    """Commands are (what, for which rank), or a collective and the folder in which each rank says that it begins."""
    done = []
    while (order := channel.receive()) is not None:
        what, rank = order
        try:
            if what == "collective":
                (rank / str(ranks.rank)).touch()
                dist.all_reduce(torch.ones(1))
            if rank == ranks.rank and what == "fail":
                raise ValueError("no such thing\nand more")
            if rank == ranks.rank and what in ("sleep", "missed"):
                time.sleep(60)
        except Exception as error:
            channel.answer(error)
            raise
        done.append(what)
        channel.answer()
    return done


def lead(ranks, channel, orders):
    """Send commands; returns the error and the seconds until it was detected."""
    for order in orders:
        start_time = time.monotonic()
        try:
            channel.send([order] * ranks.size)
            if order[0] == "collective":
                time.sleep(1.0)
                dist.all_reduce(torch.ones(1))
            if order[0] == "missed":
                dist.all_reduce(torch.ones(1))
            if order[0] == "own":
                raise KeyError("of rank 0")
        except Exception as error:
            own = error
        else:
            own = None
        try:
            channel.wait(own)
        except Exception as error:
            return type(error).__name__, str(error), time.monotonic() - start_time, channel.in_step
    channel.send([None] * ranks.size)
    return "none", "", 0.0, channel.in_step


def work(ranks, orders):
    channel = RankChannel(ranks)
    return lead(ranks, channel, orders) if ranks.rank == 0 else follow(ranks, channel)


def test_commands_are_run_in_order(tmp_path):
    first, *others = on_ranks(work, [("a", 0), ("collective", tmp_path), ("b", 0)], size=3)
    assert first == ("none", "", 0.0, False)
    assert others == [["a", "collective", "b"]] * 2


@pytest.mark.flaky(reruns=2)
def test_a_rank_that_fails_is_named_with_its_reason():
    with started(work, [("a", 0), ("fail", 1)], size=3) as ranks:
        kind, text, seconds, in_step = ranks[0].result()
    assert kind == "EnvironmentFault"
    assert text.startswith("training stopped: rank 1 (process ")
    assert text.endswith("failed: no such thing")
    assert seconds < 5
    assert not in_step


@pytest.mark.flaky(reruns=2)
def test_a_rank_that_answers_late_is_named():
    with started(work, [("sleep", 2)], size=3, timeout=2.0) as ranks:
        kind, text, seconds, _ = ranks[0].result()
    assert kind == "EnvironmentFault"
    assert "rank 2 (process" in text
    assert "is alive, but has not answered for 2 s" in text
    assert 1.5 < seconds < 8


def test_an_error_on_rank_0_is_raised_as_it_is():
    with started(work, [("own", 0)], size=2) as ranks:
        assert ranks[0].result()[:2] == ("KeyError", "'of rank 0'")


@pytest.mark.flaky(reruns=2)
def test_a_live_rank_that_never_joins_a_collective_is_named():
    """Rank 1 sleeps while rank 0 is in a collective; its heartbeat continues."""
    with started(work, [("a", 0), ("missed", 1)], size=2, timeout=3.0) as ranks:
        kind, text, _, in_step = ranks[0].result()
    assert (kind, in_step) == ("EnvironmentFault", False)
    assert text.startswith("training stopped: rank 0 (process ")
    assert text.endswith("; not finished: rank 1")


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("how", HOW)
def test_a_rank_that_dies_or_hangs_is_named_within_the_timeout(how, tmp_path):
    """Rank 1 is lost while all are in a collective; rank 2 fails because of it, and is not blamed."""
    orders = [("a", 0)] * 20 + [("collective", tmp_path)] * 20
    with started(work, orders, size=3, timeout=4.0) as ranks:
        until(lambda: (tmp_path / "1").exists())
        os.kill(ranks[1].process.pid, how)
        kind, text, seconds, _ = ranks[0].result()
    assert kind == "EnvironmentFault"
    assert f"rank 1 (process {ranks[1].process.pid}" in text
    assert "has died or hangs" in text
    assert seconds < 3 * 4.0


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("how", HOW)
def test_other_ranks_detect_that_rank_0_is_lost(how, tmp_path):
    def outcome(rank):
        kind, text = rank.outcome()
        return kind, text.splitlines()[0]

    with started(wait, tmp_path, size=2, timeout=3.0) as ranks:
        until(lambda: len(list(tmp_path.iterdir())) == 2)
        os.kill(ranks[0].process.pid, how)
        start_time = time.monotonic()
        kind, text = outcome(ranks[1])
        assert time.monotonic() - start_time < 10
    assert kind == "raised"
    assert text.startswith(f"EnvironmentFault: rank 0 (process {ranks[0].process.pid}")
    assert "has died or hangs" in text


def wait(ranks, folder):
    channel = RankChannel(ranks)
    (folder / str(ranks.rank)).touch()
    if ranks.rank == 0:
        time.sleep(60)
    channel.receive()


@pytest.mark.flaky(reruns=2)
def test_a_rank_waiting_for_commands_still_has_a_heartbeat():
    first, second = on_ranks(patient)
    assert (first, second) == ("done", "done")


def patient(ranks):
    channel = RankChannel(ranks)
    channel.heartbeat_timeout = 2.5
    if ranks.rank == 0:
        time.sleep(5.0)
        channel.send([None] * ranks.size)
    else:
        assert channel.receive() is None
    return "done"


def test_ranks_compare_by_value():
    assert Ranks() == Ranks(0, 1, torch.device("cpu"), None)
