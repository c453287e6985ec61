"""Shards as tasks of Ray."""

import asyncio
import sys
import time

import pytest
from ray import cloudpickle

from magcli.cluster.open import open_cluster
from magcli.cluster.shards import map_shards
from magcli.cluster.types import Resources, Surroundings
from magcli.errors import DataError

LONG = 300.0


def work(attempt, say):
    """The first shard is damaged, the second takes long."""
    say("started")
    if attempt.shard == 1:
        raise DataError("shard 1 is damaged")
    time.sleep(LONG)


@pytest.mark.timeout(200)
def test_the_error_of_a_shard_ends_the_others(machines):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find a module of tests
    with open_cluster(machines.address) as cluster:
        mapping = map_shards(
            cluster,
            work,
            [2, 1],
            Resources(cpus=1),
            surroundings=Surroundings(),
            said=lambda shard, said: True,
            ended=lambda shard: None,
            lost=lambda attempt, error: None,
        )
        started = time.monotonic()
        with pytest.raises(DataError, match="shard 1 is damaged"):
            asyncio.run(mapping)
        assert time.monotonic() - started < LONG / 2
