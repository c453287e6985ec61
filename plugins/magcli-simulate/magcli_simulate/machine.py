"""The machine of a simulated run, as a TOML file describes it.

[lengths]                # tokens of completions: median and sigma, quantiles, or the rollouts of a run
median = 6000
sigma = 0.9

[generators]             # a step of b sequences with k tokens in the KV cache takes
devices = 256            # step_seconds + sequence_seconds * b + token_seconds * k
devices_per_engine = 2
step_seconds = 0.012

[trainer]
devices = 256
tokens_per_s = 2000      # per device, prompts included

[verifiers]
workers = 64
seconds = 0.5
"""

from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from magcli.config import read_recipe, resolve
from magcli.errors import UsageError

Quantiles = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class LengthSpec:
    """The lengths of completions and prompts, and the share of dropped groups.

    Args:
        median: of a log-normal distribution, in tokens.
        sigma: standard deviation of the log-lengths.
        quantiles: pairs (share, tokens) of another distribution, interpolated logarithmically.
        rollouts: a table or folder of rollouts, from which whole groups are drawn.
        correlation: of the log-lengths of one problem's completions.
        prompt: tokens of a prompt.
        dropped: share of groups with zero advantage, which are dropped and replaced.
    """

    median: float = 0.0
    sigma: float = 0.0
    quantiles: Quantiles = ()
    rollouts: str = ""
    correlation: float = 0.0
    prompt: int = 0
    dropped: float = 0.0


@dataclass(frozen=True, slots=True)
class GeneratorSpec:
    """The engines, each with a copy of the model on ``devices_per_engine`` devices.

    Args:
        devices: of all engines.
        step_seconds: fixed time of a decode step.
        sequence_seconds: additional time of a step for each running sequence.
        token_seconds: additional time of a step for each token in the KV cache.
        padded: every running sequence costs as many tokens as the longest one, as in the embedded engine.
        gap_seconds: time between two steps in which the engine's process does something else; counts as idle.
        slots: maximum number of sequences in one engine; 0: n_async divided by the number of engines.
        cache_tokens: capacity of an engine's KV cache; 0: unlimited. If it is full, the newest sequence is preempted,
            and recomputed when there is room again.
        prefill_tokens_per_s: prompt tokens that an engine processes per second; a group's prompt is processed once.
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
        """Number of engines."""
        return self.devices // self.devices_per_engine


@dataclass(frozen=True, slots=True)
class TrainerSpec:
    """The devices that train.

    Args:
        devices: that share the tokens of an update.
        fsdp_size: devices that share one copy of the weights (hybrid sharding); 0: all of them.
        tokens_per_s: of one device, forward and backward, prompts included.
        update_seconds: fixed time of an update: optimizer, logging, and what copies of the weights send each other.
        transfer_seconds: time to send new weights to the engines, which are paused meanwhile.
        micro_tokens: tokens of a micro-batch on one device; needed with ``collective_seconds`` only.
        collective_seconds: time of the collectives of a micro-batch, which its computation does not hide.
        shared: trainer and engines take turns on the same devices; else the engines generate during training.
    """

    devices: int
    tokens_per_s: float
    update_seconds: float = 0.0
    transfer_seconds: float = 0.0
    micro_tokens: int = 0
    collective_seconds: float = 0.0
    shared: bool = False
    fsdp_size: int = 0

    @property
    def sharing(self) -> int:
        """Number of devices that share one copy of the weights."""
        return self.fsdp_size or self.devices

    @property
    def copies(self) -> int:
        """Number of copies of the weights."""
        return self.devices // self.sharing


@dataclass(frozen=True, slots=True)
class VerifierSpec:
    """Workers that grade one completion at a time, in ``seconds``."""

    workers: int = 1
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that determines the speed of a simulated run."""

    lengths: LengthSpec
    generators: GeneratorSpec
    trainer: TrainerSpec
    verifiers: VerifierSpec


TABLES: dict[str, Any] = {
    "lengths": LengthSpec, "generators": GeneratorSpec, "trainer": TrainerSpec, "verifiers": VerifierSpec
}  # fmt: skip


def read_machine(path: Path) -> Machine:
    """Read a machine from its TOML file; paths in it are relative to the file.

    Raises:
        UsageError: the file does not exist, or a key is unknown (with the nearest name), missing or out of range.
    """
    machine = Machine(**{table: _read_table(path, table) for table in TABLES})
    for rule, holds in _rules(machine).items():
        if not holds:
            raise UsageError(f"{path}: {rule}")
    return machine


def _read_table(path: Path, table: str) -> Any:
    options, kind = read_recipe(path, TABLES, kind="machine").get(table, {}), TABLES[table]
    if rollouts := options.get("rollouts"):
        options["rollouts"] = str(path.parent / str(rollouts))
    missing = [field.name for field in fields(kind) if field.default is MISSING and field.name not in options]
    if missing:
        raise UsageError(f"{path}: [{table}] lacks {', '.join(missing)}")
    return resolve(kind, table, options, {})


def _rules(machine: Machine) -> dict[str, bool]:
    """What a machine must fulfil, in words, and whether it does."""
    lengths = machine.lengths
    engines = machine.generators
    trainer = machine.trainer
    verifiers = machine.verifiers
    costs = engines.sequence_seconds, engines.token_seconds, engines.gap_seconds
    per_engine = engines.devices_per_engine
    return {
        "[lengths] needs exactly one of median, quantiles and rollouts": (
            (lengths.median > 0) + bool(lengths.quantiles) + bool(lengths.rollouts) == 1
        ),
        "[lengths] quantiles: pairs (share, tokens), both rising, shares from 0 to 1, tokens from 1": (
            _valid_quantiles(lengths.quantiles)
        ),
        "[lengths] sigma, prompt: not below 0": min(lengths.sigma, lengths.prompt) >= 0,
        "[lengths] correlation: from 0 to 1": 0 <= lengths.correlation <= 1,
        "[lengths] dropped: from 0 to below 1": 0 <= lengths.dropped < 1,
        "[generators] devices: a multiple of devices_per_engine": (
            min(per_engine, engines.devices) > 0 and engines.devices % per_engine == 0
        ),
        "[generators] step_seconds, prefill_tokens_per_s: above 0": (
            min(engines.step_seconds, engines.prefill_tokens_per_s) > 0
        ),
        "[generators] sequence_seconds, token_seconds, gap_seconds: not below 0": min(costs) >= 0,
        "[generators] slots, cache_tokens: not below 0": min(engines.slots, engines.cache_tokens) >= 0,
        "[trainer] devices, tokens_per_s: above 0": min(trainer.devices, trainer.tokens_per_s) > 0,
        "[trainer] devices: a multiple of fsdp_size": (
            trainer.fsdp_size >= 0 and trainer.devices % max(1, trainer.fsdp_size) == 0
        ),
        "[trainer] update_seconds, transfer_seconds, collective_seconds: not below 0": (
            min(trainer.update_seconds, trainer.transfer_seconds, trainer.collective_seconds) >= 0
        ),
        "[trainer] micro_tokens: above 0 with collective_seconds": (
            trainer.micro_tokens >= (1 if trainer.collective_seconds else 0)
        ),
        "[verifiers] workers above 0, seconds not below 0": verifiers.workers > 0 and verifiers.seconds >= 0,
    }


def _valid_quantiles(quantiles: Quantiles) -> bool:
    if not quantiles:
        return True
    if any(len(pair) != 2 for pair in quantiles):
        return False
    shares, tokens = zip(*quantiles, strict=True)
    rising = all(list(values) == sorted(values) for values in (shares, tokens))
    return rising and shares[0] == 0 and shares[-1] == 1 and tokens[0] >= 1
