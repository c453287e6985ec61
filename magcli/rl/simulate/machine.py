"""The machines of a simulated run, as a TOML file describes them.

[lengths]                # tokens of completions: median and sigma, or quantiles, or the rollouts of a run
median = 6000
sigma = 0.9

[generators]             # a step of b sequences with k tokens in the cache takes
devices = 256            # step_seconds + sequence_seconds * b + token_seconds * k
devices_per_engine = 2
step_seconds = 0.012

[trainer]
devices = 256
tokens_per_s = 2000      # prompts included, one device

[verifiers]
workers = 64
seconds = 0.5
"""

import json
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from magcli.config import read_recipe, resolve
from magcli.errors import UsageError

T = TypeVar("T")
Quantiles = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long completions are, and what else is drawn with them.

    Args:
        median: of a log-normal distribution, in tokens.
        sigma: its standard deviation in log tokens.
        quantiles: pairs (share, tokens) of another distribution, logarithmic in between.
        rollouts: a table or folder of rollouts; whole groups are drawn from it, with prompts and what became of them.
        within: correlation of the log-lengths of one problem's completions.
        prompt: tokens of a prompt.
        dropped: share of the groups that teach nothing and are replaced.
    """

    median: float = 0.0
    sigma: float = 0.0
    quantiles: Quantiles = ()
    rollouts: str = ""
    within: float = 0.0
    prompt: int = 0
    dropped: float = 0.0


@dataclass(frozen=True, slots=True)
class Generators:
    """Engines that decode, each a copy of the model on ``devices_per_engine`` devices.

    Args:
        devices: of all engines.
        step_seconds: what a decode step takes whatever runs in it.
        sequence_seconds: what each running sequence adds to a step.
        token_seconds: what each token in the key-value cache adds to a step.
        padded: every running sequence costs as many of these as the longest, as in the embedded engine.
        gap_seconds: between two steps, while the engine's process does other things; it counts as idle.
        slots: sequences that run at once in one engine; 0: those of n_async, shared out.
        cache_tokens: tokens that an engine's key-value cache holds; 0: no limit. Where it is full the newest sequence
            gives way, and is computed again from its tokens when there is room.
        prefill_tokens_per_s: prompt tokens that an engine computes in a second; a group's prompt is computed once.
    """

    devices: int
    step_seconds: float
    devices_per_engine: int = 1
    sequence_seconds: float = 0.0
    token_seconds: float = 0.0
    padded: bool = False
    gap_seconds: float = 0.0
    slots: int = 0
    cache_tokens: int = 0
    prefill_tokens_per_s: float = float("inf")

    @property
    def engines(self) -> int:
        """Copies of the model."""
        return self.devices // self.devices_per_engine


@dataclass(frozen=True, slots=True)
class Trainer:
    """The devices that train.

    Args:
        devices: that share an update's tokens.
        tokens_per_s: of one device, forward and backward, prompts included.
        update_seconds: what an update takes besides: optimizer, logging.
        transfer_seconds: new weights on their way to the engines, which stand still meanwhile.
        shared: the devices are those of the engines, and both take turns; else the engines go on beside the trainer.
    """

    devices: int
    tokens_per_s: float
    update_seconds: float = 0.0
    transfer_seconds: float = 0.0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Verifiers:
    """Workers that grade, each one completion at a time, in ``seconds``."""

    workers: int = 1
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Machine:
    """All that a simulated run happens on."""

    lengths: Lengths
    generators: Generators
    trainer: Trainer
    verifiers: Verifiers


def read_machine(path: Path) -> Machine:
    """A machine from its TOML file; paths in it are relative to the file.

    Raises:
        UsageError: no such file, a key that is unknown (with the nearest name), missing or out of its range.
    """
    parts = {table: _table(path, table, kind) for table, kind in TABLES.items()}
    machine = Machine(**parts)
    _check(machine, path)
    return machine


def as_toml(machine: Machine) -> str:
    """A machine as the file that describes it; what is as usual is left out."""
    lines: list[str] = []
    for table in TABLES:
        part = getattr(machine, table)
        given = {field.name: (getattr(part, field.name), field.default) for field in fields(part)}
        changed = {name: value for name, (value, usual) in given.items() if value != usual}
        lines += ["", f"[{table}]", *(f"{key} = {_plain(value)}" for key, value in changed.items())]
    return "\n".join(lines[1:]) + "\n"


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_plain, value))}]"
    return json.dumps(value)


TABLES: dict[str, Any] = {"lengths": Lengths, "generators": Generators, "trainer": Trainer, "verifiers": Verifiers}


def _table(path: Path, table: str, kind: type[T]) -> T:
    given = read_recipe(path, table, TABLES, kind="machine")
    if rollouts := given.get("rollouts"):
        given["rollouts"] = str(path.parent / str(rollouts))
    needed = [field.name for field in fields(kind) if field.default is MISSING]  # type: ignore[arg-type]
    missing = [name for name in needed if name not in given]
    if missing:
        raise UsageError(f"{path}: [{table}] lacks {', '.join(missing)}")
    return resolve(kind, table, given, {})


def _check(machine: Machine, path: Path) -> None:
    lengths, engines, trainer, verifiers = machine.lengths, machine.generators, machine.trainer, machine.verifiers
    ways = sum((lengths.median > 0, bool(lengths.quantiles), bool(lengths.rollouts)))
    rising = all(len(pair) == 2 for pair in lengths.quantiles) and _rising(lengths.quantiles)
    rules = {
        "[lengths] wants one of median, quantiles and rollouts": ways == 1,
        "[lengths] quantiles: pairs (share, tokens), both rising, shares from 0 to 1, tokens from 1": rising,
        "[lengths] sigma, prompt: not below 0": lengths.sigma >= 0 and lengths.prompt >= 0,
        "[lengths] within: from 0 to 1": 0 <= lengths.within <= 1,
        "[lengths] dropped: from 0 to below 1": 0 <= lengths.dropped < 1,
        "[generators] devices: a multiple of devices_per_engine": engines.devices_per_engine > 0
        and engines.devices > 0
        and engines.devices % engines.devices_per_engine == 0,
        "[generators] step_seconds, prefill_tokens_per_s: above 0": engines.step_seconds > 0
        and engines.prefill_tokens_per_s > 0,
        "[generators] sequence_seconds, token_seconds, gap_seconds: not below 0": min(
            engines.sequence_seconds, engines.token_seconds, engines.gap_seconds
        )
        >= 0,
        "[generators] slots, cache_tokens: not below 0": engines.slots >= 0 and engines.cache_tokens >= 0,
        "[trainer] devices, tokens_per_s: above 0": trainer.devices > 0 and trainer.tokens_per_s > 0,
        "[trainer] update_seconds, transfer_seconds: not below 0": trainer.update_seconds >= 0
        and trainer.transfer_seconds >= 0,
        "[verifiers] workers above 0, seconds not below 0": verifiers.workers > 0 and verifiers.seconds >= 0,
    }
    for rule, kept in rules.items():
        if not kept:
            raise UsageError(f"{path}: {rule}")


def _rising(quantiles: Quantiles) -> bool:
    if not quantiles:
        return True
    shares, tokens = zip(*quantiles, strict=True)
    ordered = all(list(values) == sorted(values) for values in (shares, tokens))
    return ordered and shares[0] == 0 and shares[-1] == 1 and tokens[0] >= 1
