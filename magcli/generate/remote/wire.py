"""What a run and its generators say to each other, through the mailboxes of ``magcli.cluster``."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from magcli.generate.types import Digests, Rollout, Sampling, Scores, Sequences, TransferStep

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Starting:
    """From a generator whose engine starts: what it does now, or with ``lasts`` a line to keep."""

    text: str
    lasts: bool


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """To a generator: sample one sequence a seed."""

    request: int
    prompt: tuple[int, ...]
    sampling: Sampling
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Abort:
    """To a generator: nobody waits for a request any more."""

    request: int


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """To a generator: give the log-probs of these tokens."""

    request: int
    sequences: Sequences


@dataclass(frozen=True, slots=True)
class Load:
    """To a generator: take the weights in this file, as this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """To a generator: do one step of a broadcast of weights; with the last they become this version."""

    step: TransferStep
    info: Any
    version: int


@dataclass(frozen=True, slots=True)
class Ended:
    """From a generator: one sequence of a request has ended; ``seconds`` is what the engine has worked so far."""

    request: int
    rollout: Rollout
    seconds: float


@dataclass(frozen=True, slots=True)
class Scored:
    """From a generator: the answer to a ``ScoreRequest``."""

    request: int
    scores: Scores


@dataclass(frozen=True, slots=True)
class Failed:
    """From a generator: a request cannot be answered. ``request`` None: the engine has failed, and the process ends."""

    request: int | None
    error: Exception


@dataclass(frozen=True, slots=True)
class Loaded:
    """From a generator: the weights of this version make the next token, or this step of a broadcast is done.

    ``load_seconds`` is the time that its sequences have stood still for new weights so far; ``arrived`` are the digests
    of all weights as the engine received them, except between the steps of a broadcast.
    """

    what: int | TransferStep
    load_seconds: float
    arrived: Digests = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Beat:
    """From a generator, every so often: it is alive, and the seconds that it has worked so far."""

    seconds: float
