"""A Ray cluster for the faults of its processes and nodes."""

from collections.abc import Iterator

import pytest
from ray_machines import Machines, opened_machines


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    """A head without CPUs, where drivers are, and three nodes with one CPU each."""
    with opened_machines(3) as machines:
        yield machines
