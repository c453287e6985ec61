"""How generation slots and the trainer spend their time, and what they wait for while they are idle.

A slot is idle while no sequence in it advances:

==============  ====================================================================================================
``admission``   no completion may start: the bound on staleness is reached, or the run needs no more groups; also the
                slots of a generator that is being replaced
``weights``     the engine waits for weights: they are loaded or, where one device does both, the trainer works
``verifier``    as ``admission``, but the next update, which would allow more groups, waits only for verdicts
``cache``       completions wait for room in the KV cache (only known of simulated engines)
==============  ====================================================================================================

The trainer is idle while it computes no update:

==============  ====================================================================================================
``generation``  a batch is not generated yet
``verifier``    a batch is generated, and verdicts are missing
``weights``     new weights are sent to the engines
``saving``      rollouts, metrics or checkpoints are written
``evaluation``  held-out problems are sampled and graded (only in the update after an evaluation)
==============  ====================================================================================================
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

SlotState = Literal["running", "admission", "weights", "verifier", "cache"]
TrainerState = Literal["training", "generation", "verifier", "weights", "saving", "evaluation"]

SLOT_IDLE: tuple[SlotState, ...] = ("admission", "weights", "verifier")
TRAINER_IDLE: tuple[TrainerState, ...] = ("generation", "verifier", "weights", "saving")


class TimeMeter:
    """Integrates over time how many of some workers are in which state."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._workers: Mapping[str, float] = {}
        self._worker_seconds: dict[str, float] = defaultdict(float)

    def set(self, workers: Mapping[str, float], now: float) -> None:
        """From ``now`` on, this many workers are in each state."""
        # Up to this time they were in the states of the last call.
        elapsed = now - self._since
        for state, count in self._workers.items():
            self._worker_seconds[state] += count * elapsed
        self._workers, self._since = workers, now

    def shares(self, now: float) -> dict[str, float]:
        """The share of the time since the last call that workers were in each state; together 1."""
        # Counts the time since the last change.
        self.set(self._workers, now)
        seconds_by_state = dict(self._worker_seconds)
        self._worker_seconds.clear()
        total = sum(seconds_by_state.values())
        if total <= 0:
            return {}
        return {state: seconds / total for state, seconds in seconds_by_state.items()}


class Utilization:
    """The meters of a run, from the time ``now`` on."""

    def __init__(self, now: float) -> None:
        self._slots, self._trainer = TimeMeter(now), TimeMeter(now)

    def slots(self, running: float, total: int, idle: SlotState, now: float) -> None:
        """From ``now`` on, ``running`` of ``total`` slots are busy, and the others are idle for one reason."""
        # Engines may still run what was started under a higher limit.
        running = min(running, total)
        self._slots.set({"running": running, idle: total - running}, now)

    def trainer(self, state: TrainerState, now: float) -> None:
        """From ``now`` on, the trainer is in this state."""
        self._trainer.set({state: 1.0}, now)

    def metrics(self, now: float, *, load_share: float = 0.0) -> dict[str, float]:
        """Idle shares since the last call, in all and by cause: metrics of an update.

        ``load_share`` is the share of the time in which running sequences stood still while engines loaded weights, if
        the slots were not reported as idle in it.
        """
        slots = self._slots.shares(now)
        # Sequences that stood still while weights were loaded counted as running.
        running = slots.pop("running", 0.0)
        slots["weights"] = slots.get("weights", 0.0) + min(load_share, running)
        trainer = self._trainer.shares(now)
        trainer.pop("training", None)
        return _idle("generator_idle", slots, SLOT_IDLE) | _idle("trainer_idle", trainer, TRAINER_IDLE)


def _idle(name: str, shares: Mapping[str, float], causes: Sequence[str]) -> dict[str, float]:
    """As ``idle_metrics``, of these causes and of others that occurred."""
    others = [cause for cause in shares if cause not in causes]
    return idle_metrics(name, shares, (*causes, *others))


def idle_metrics(name: str, shares: Mapping[str, float], causes: Sequence[str]) -> dict[str, float]:
    """The total of some shares under ``name``, and each one under ``name_cause``."""
    by_cause = {f"{name}_{cause}": shares.get(cause, 0.0) for cause in causes}
    return {name: sum(by_cause.values()), **by_cause}


def repeated_idle(training: float, seconds: float) -> dict[str, float]:
    """Idle shares of an update that is repeated after an interruption, before the engines start."""
    slots = {"weights": 1.0}
    trainer = {"training": training / seconds, "saving": 1.0 - training / seconds}
    return idle_metrics("generator_idle", slots, SLOT_IDLE) | idle_metrics("trainer_idle", trainer, TRAINER_IDLE)
