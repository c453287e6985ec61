"""What is lost with a node, and when a run is not started again."""

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import ray
from calling import others_slow
from ray import cloudpickle

from magcli.cluster.errors import NodeLost, RanksLost
from magcli.cluster.open import open_cluster
from magcli.cluster.ray_errors import as_magcli_error
from magcli.cluster.runtime import Cluster
from magcli.cluster.types import Demand, Node, Resources
from magcli.console import Console
from magcli.errors import EnvironmentFault
from magcli.run.rundir import RunDir
from magcli.stages.shared import trainer_ranks

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find a module of tests


class Answering:
    """An actor with an answer too large for a message: it stays on its node until it is fetched."""

    def answer(self) -> bytes:
        """Two megabytes."""
        return bytes(2_000_000)


class WithoutItsModule:
    """An actor on a node without magcli."""

    def __init__(self) -> None:
        raise ModuleNotFoundError("No module named 'magcli'")

    def where(self) -> None:
        """Nothing."""


def test_an_actor_that_cannot_be_made_is_not_lost(machines):
    with open_cluster(machines.address):
        with pytest.raises(ray.exceptions.RayActorError) as raised:
            ray.get(ray.remote(WithoutItsModule).remote().where.remote())
        error = as_magcli_error(raised.value, "rank 0")
    assert type(error) is EnvironmentFault
    text = "rank 0 cannot start: ModuleNotFoundError: No module named 'magcli'; does its node have the same magcli?"
    assert str(error) == text


def test_an_answer_that_is_lost_with_its_node(machines):
    node = machines.add(cpus=3)
    with open_cluster(machines.address):
        actor = ray.remote(Answering).options(num_cpus=3).remote()
        answer = actor.answer.remote()
        assert ray.wait([answer], fetch_local=False, timeout=400)[0] == [answer]
        machines.kill(node)
        for reference in (answer, actor.answer.remote()):
            with pytest.raises(ray.exceptions.RayError) as raised:
                ray.get(reference)
            error = as_magcli_error(raised.value, "rank 0")
            assert isinstance(error, NodeLost), repr(raised.value)
            assert str(error) == "rank 0 died: its node is gone"


def test_a_run_that_gets_on_is_started_again_after_every_loss(tmp_path):
    folder, told = RunDir(tmp_path), []

    def train(after_loss: bool) -> None:
        told.append(after_loss)
        if len(told) <= 3 * trainer_ranks.MAX_LOSSES:
            folder.log({"step": len(told)})
            raise RanksLost("training stopped: rank 1 died")

    trainer_ranks.again_when_lost("rl", train, folder, Console(quiet=True))
    assert told == [False, *[True] * (3 * trainer_ranks.MAX_LOSSES)]


def test_a_run_that_gets_no_further_is_given_up(tmp_path):
    folder, told = RunDir(tmp_path), []

    def train(after_loss: bool) -> None:
        told.append(after_loss)
        raise RanksLost("training stopped: rank 1 died")

    with pytest.raises(RanksLost):
        trainer_ranks.again_when_lost("rl", train, folder, Console(quiet=True))
    assert len(told) == 1 + trainer_ranks.MAX_LOSSES


HOLDER = """
import sys, time, torch
from magcli.generate.weights.matching import shared
with shared({"w": torch.ones(8)}) as file:
    print(file.path, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("losses", others_slow([1, 1 + trainer_ranks.MAX_LOSSES], kept=[1]))
def test_the_weights_of_killed_ranks_are_removed_from_shared_memory(losses, tmp_path):
    """When the run goes on and when it is given up; the killed process is not waited for, so it is a zombie."""
    files, processes = [], []

    def train(after_loss: bool) -> None:
        assert not any(file.exists() for file in files)
        if len(files) < losses:
            process = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
            processes.append(process)
            files.append(Path(process.stdout.readline().strip()))
            assert files[-1].exists()
            os.kill(process.pid, signal.SIGKILL)
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            raise RanksLost("training stopped: rank 0 died")

    try:
        with pytest.raises(RanksLost) if losses > 1 else nullcontext():
            trainer_ranks.again_when_lost("rl", train, RunDir(tmp_path), Console(quiet=True))
        assert len(files) == losses
        assert not any(file.exists() for file in files)
    finally:
        for process in processes:
            process.communicate()


def test_work_is_not_refused_while_a_node_is_awaited(monkeypatch):
    monkeypatch.setattr(Cluster, "nodes", lambda self: [Node("a", "a", cpus=1, gpus=0)])
    with pytest.raises(EnvironmentFault, match="room for 1 of 2 trainer ranks"):
        Cluster("auto").check_room([Demand("trainer ranks", 2, Resources(cpus=1))])
    Cluster("auto", awaits_nodes=True).check_room([Demand("trainer ranks", 2, Resources(cpus=1))])
    assert Cluster("auto").places_for(Resources(cpus=1))
    assert not Cluster("auto").places_for(Resources(cpus=2))
