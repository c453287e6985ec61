"""What processes of a cluster take of its nodes and of the process that starts them; known without Ray."""

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster: its name, and the CPUs and GPUs that Ray may use on it."""

    id: str
    host: str
    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Resources:
    """What one process takes of its node. Of a local Ray GPUs are not counted: devices are named by the caller."""

    cpus: float = 0.0
    gpus: float = 0.0

    def __str__(self) -> str:
        parts = [f"{amount:g} {name}" for amount, name in ((self.gpus, "GPUs"), (self.cpus, "CPUs")) if amount]
        return " and ".join(parts) or "no CPUs or GPUs"


@dataclass(frozen=True, slots=True)
class Demand:
    """Processes of one kind: what they are in messages, how many, and what each takes of its node."""

    what: str
    number: int
    resources: Resources

    def __str__(self) -> str:
        return f"{self.number} {self.what} with {self.resources} each"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a process of the cluster takes over from the one that starts it."""

    folder: str = field(default_factory=os.getcwd)
    variables: Mapping[str, str] = field(default_factory=dict)

    def enter(self) -> None:
        """Set the working directory, where this machine has it, and the variables."""
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        os.environ.update(self.variables)


@dataclass(frozen=True, slots=True)
class ProcessKind:
    """Processes of one kind.

    Attributes:
        what: the name of one in messages, such as engine.
        resources: what each takes of its node.
        surroundings: their working directory and variables.
        start_seconds: how long one may take to open what it runs.
    """

    what: str
    resources: Resources
    surroundings: Surroundings
    start_seconds: float


@dataclass(frozen=True, slots=True)
class Room:
    """What ranks leave room for, and what they wait for.

    ``beside``: processes that are started later. ``patience``: seconds to wait for nodes, if those that are alive are
    too few for the ranks.
    """

    beside: Sequence[Demand] = ()
    patience: float = math.inf


ANY_ROOM = Room()
