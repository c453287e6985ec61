"""What processes of a cluster take of its nodes and of the process that starts them; known without Ray."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LOCAL, AUTO = "local", "auto"
"""The values of ``--cluster`` for a Ray of one's own on this machine, and for the one that runs on it already."""

WAITING_SECONDS = 30.0
"""How often a wait for room in the cluster is reported."""

LIBRARIES = ("HF_", "VLLM_", "TRANSFORMERS_", "OPENAI_API_KEY", "OMP_", "GOMP_", "TORCHDYNAMO_", "TOKENIZERS_")
"""How the names of variables of libraries and servers begin."""


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

    @classmethod
    def of_this_process(cls, threads: int = 0) -> Surroundings:
        """Its working directory, and its variables of libraries and servers.

        ``threads``: of the compute libraries; 0: as this process.
        """
        # Not all of them: a node has a PATH and a HOME of its own.
        variables = {name: value for name, value in os.environ.items() if name.startswith(LIBRARIES)}
        if threads:
            variables["OMP_NUM_THREADS"] = str(threads)
        return cls(os.path.realpath(os.getcwd()), variables)

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
