"""A Ray cluster of three nodes on loopback, as several machines would be."""

from collections.abc import Iterator

import pytest
from ray_machines import Machines, opened_machines


@pytest.fixture(scope="session")
def machines() -> Iterator[Machines]:
    """A head without CPUs, where drivers are, and two nodes with one CPU each."""
    with opened_machines(2) as machines:
        yield machines
