"""Room for generators that take much of one node, beside trainer ranks that take little of any."""

import subprocess
import sys
from pathlib import Path

import pytest
import ray

from magcli.cluster.open import open_cluster
from magcli.cluster.ranks import RankActor, RankGroup, Seat
from magcli.cluster.runtime import Cluster
from magcli.cluster.types import Demand, Node, Resources, Room, Surroundings
from magcli.errors import EnvironmentFault

GENERATORS = Demand("generators", 2, Resources(cpus=1, gpus=4))


@pytest.mark.timeout(200)
def test_ranks_leave_whole_nodes_to_generators_that_need_them(machines):
    large = [machines.add(cpus=2), machines.add(cpus=2)]
    generators = Demand("generators", 2, Resources(cpus=2))
    try:
        with open_cluster(machines.address) as cluster:
            ranks = start_ranks(cluster, generators)
            of_two_cpus = ray.remote(RankActor).options(num_cpus=2)
            started = [of_two_cpus.remote(Surroundings()) for _ in range(generators.number)]
            places = ray.get([actor.where.remote() for actor in started], timeout=400)
            assert {node for _, _, node in places} == {node.node_id for node in large}
            ranks.close()
    finally:
        for node in large:
            machines.kill(node)


def start_ranks(cluster: Cluster, beside: Demand) -> RankGroup:
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find a module of tests
    surroundings = Surroundings(str(Path.cwd()))
    ranks, room = Demand("trainer ranks", 2, Resources(cpus=1)), Room([beside])
    return RankGroup.start(cluster, ranks, own_seat, surroundings=surroundings, say=print, timeout=60.0, room=room)


def own_seat(seat: Seat) -> Seat:
    return seat


def test_ranks_and_generators_must_fit_together(monkeypatch):
    nodes = [Node("a", "a", cpus=16, gpus=8), Node("b", "b", cpus=16, gpus=3)]
    monkeypatch.setattr(Cluster, "nodes", lambda self: nodes)
    cluster, one_gpu = Cluster("auto"), Resources(cpus=1, gpus=1)
    cluster.check_room([GENERATORS, Demand("trainer ranks", 3, one_gpu)])
    cluster.check_room([Demand("trainer ranks", 11, one_gpu)])
    text = "room for 3 of 4 trainer ranks, each with 1 GPUs and 1 CPUs on one node, beside 2 generators with 4 GPUs and"
    with pytest.raises(EnvironmentFault, match=text):
        cluster.check_room([GENERATORS, Demand("trainer ranks", 4, one_gpu)])


def test_generators_that_fit_no_node_are_named_before_the_ranks(monkeypatch):
    monkeypatch.setattr(Cluster, "nodes", lambda self: [Node("a", "a", cpus=16, gpus=7)])
    with pytest.raises(EnvironmentFault, match="room for 1 of 2 generators, each with 4 GPUs and 1 CPUs on one node"):
        Cluster("auto").check_room([GENERATORS, Demand("trainer ranks", 1, Resources(gpus=1))])


def test_verifiers_have_room_beside_generators(monkeypatch):
    nodes = [Node("a", "a", cpus=4, gpus=4), Node("b", "b", cpus=8, gpus=4)]
    monkeypatch.setattr(Cluster, "nodes", lambda self: nodes)
    Cluster("auto").check_room([GENERATORS, Demand("verifiers", 2, Resources(cpus=3))])
    text = "room for 3 of 4 verifiers, each with 3 CPUs on one node, beside 2 generators with 4 GPUs and 1 CPUs each"
    with pytest.raises(EnvironmentFault, match=text):
        Cluster("auto").check_room([GENERATORS, Demand("verifiers", 4, Resources(cpus=3))])


@pytest.mark.timeout(200)
def test_a_dry_run_asks_the_cluster_for_room(machines, tiny_model_dir, tmp_path):
    def dry_run(*more: str) -> subprocess.CompletedProcess[str]:
        asked = ["rl", "--model", str(tiny_model_dir), "--trainers", "2", "--cluster", machines.address, "--dry-run"]
        command = [sys.executable, "-m", "magcli", *asked, *more]
        return subprocess.run(command, cwd=tmp_path, env=machines.environment, capture_output=True, text=True)

    fits = dry_run()
    assert fits.returncode == 0, fits.stderr
    refused = dry_run("--generators", "1")
    assert refused.returncode == 4
    assert "the cluster has room for 1 of 2 trainer ranks" in refused.stderr
    assert refused.stderr.count("\n") == 1
