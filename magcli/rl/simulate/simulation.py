"""A simulated run: completions, verdicts, updates and new weights as events in the order of their times.

The rules are those of the RL loop: ``magcli.rl.scheduler`` decides which groups start and which train; a completion
goes to a verifier the moment it ends; new weights reach running sequences, whose KV cache is kept. With placement
``shared`` the engines are paused while the trainer works; with ``split`` only during the transfer of the weights.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Literal

from magcli.errors import Stopped
from magcli.rl.scheduler import MAX_REJECTED_BATCHES, choose, may_start
from magcli.rl.simulate.engine import EngineWork, SimulatedCompletion, SimulatedEngine
from magcli.rl.simulate.machine import Machine
from magcli.rl.simulate.workload import GroupSource

Event = Callable[[], None]


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """The options of a run that determine its speed; batches are counted in completions."""

    updates: int
    group: int
    n_async: int
    n_batch: int
    staleness: int
    max_tokens: int
    schedule: Literal["async", "sync"] = "async"
    placement: Literal["shared", "split"] = "shared"


@dataclass(slots=True)
class SimulatedGroup:
    """A group that is running or ready: how many completions are ungraded, and when its last one ended."""

    completions: list[SimulatedCompletion]
    ungraded: int
    dropped: bool
    ended: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulatedUpdate:
    """One update: the time when the engines had its weights, and totals since the start of the run.

    ``work`` is that of all engines; ``ready_seconds`` and ``ungraded_seconds`` are integrals over time of the number of
    ready groups and of ungraded completions. ``staleness`` and ``mixed`` are of the completions that it trained,
    ``queued`` counts sequences without a slot.
    """

    time: float
    work: EngineWork
    training: float
    trained_tokens: int
    staleness: tuple[int, ...]
    mixed: int
    dropped: int
    ready_seconds: float
    ungraded_seconds: float
    queued: int


@dataclass(slots=True)
class SimulationResult:
    """Totals of a run without the engines' work, and its updates.

    ``verdicts`` are the seconds from each group's last token to its reward.
    """

    training: float = 0.0
    trained_tokens: int = 0
    dropped: int = 0
    ready_seconds: float = 0.0
    ungraded_seconds: float = 0.0
    most_ready: int = 0
    most_ungraded: int = 0
    verdicts: list[float] = field(default_factory=list)
    updates: list[SimulatedUpdate] = field(default_factory=list)


class Simulation:
    """The state of a run at the time ``now``; ``run`` simulates all of it."""

    def __init__(self, settings: SimulationSettings, machine: Machine, groups: GroupSource) -> None:
        self.settings, self.machine, self.groups = settings, machine, groups
        self.batch = settings.n_batch // settings.group
        count = machine.generators.engines
        slots = machine.generators.slots or -(-settings.n_async // count)
        self.engines = [SimulatedEngine(machine.generators, slots) for _ in range(count)]
        self.verifiers_free_at = [0.0] * machine.verifiers.workers
        self.now = 0.0
        self.version = self.number = self.outstanding = self.ungraded = self.rejected_streak = 0
        self.training: list[SimulatedGroup] = []
        self.running: dict[int, SimulatedGroup] = {}
        self.ready: dict[int, SimulatedGroup] = {}
        self.started: dict[int, int] = {}
        self.result = SimulationResult()
        self._changed = False
        """Whether a group has ended or new weights were loaded since ``choose`` was last asked."""
        self._events: list[tuple[float, int, Event]] = []
        self._order = 0

    def run(self) -> SimulationResult:
        """Simulate all updates.

        Raises:
            Stopped: too many consecutive groups had zero advantage.
        """
        while self.version < self.settings.updates:
            self._start_groups()
            self._begin_update()
            time, _, event = heapq.heappop(self._events)
            self.result.ready_seconds += len(self.ready) * (time - self.now)
            self.result.ungraded_seconds += self.ungraded * (time - self.now)
            self.now = time
            event()
        return self.result

    def _at(self, time: float, event: Event) -> None:
        self._order += 1
        heapq.heappush(self._events, (time, self._order, event))

    def _start_groups(self) -> None:
        if self.training and (self.settings.placement == "shared" or self.settings.schedule == "sync"):
            return
        if self.settings.schedule == "async":
            while self._may_start():
                self._start_group()
        elif not self.running:
            for _ in range(self.batch - len(self.ready)):
                self._start_group()

    def _may_start(self) -> bool:
        return may_start(
            self.outstanding,
            len(self.running),
            batch=self.batch,
            at_once=self.settings.n_async // self.settings.group,
            staleness=self.settings.staleness,
            updates_left=self.settings.updates - self.version,
        )

    def _start_group(self) -> None:
        number, self.number = self.number, self.number + 1
        shape = self.groups(number)
        completions = [
            SimulatedCompletion(number, length, shape.prompt, prefills=index == 0)
            for index, length in enumerate(shape.lengths)
        ]
        self.running[number] = SimulatedGroup(completions, len(completions), shape.dropped)
        self.started[number] = self.version
        self.outstanding += 1
        engine = min(self.engines, key=lambda engine: engine.load)
        engine.submit(completions, self.now)
        self._schedule(engine)

    def _schedule(self, engine: SimulatedEngine) -> None:
        """Schedule an engine's next event, which is ignored if the engine has changed by then."""
        time, revision = engine.next_event(), engine.revision
        if time is not None:
            self._at(max(time, self.now), lambda: self._process(engine) if engine.revision == revision else None)

    def _process(self, engine: SimulatedEngine) -> None:
        for completion in engine.process_event():
            self._verify(completion)
        self._schedule(engine)

    def _verify(self, completion: SimulatedCompletion) -> None:
        done = max(self.now, heapq.heappop(self.verifiers_free_at)) + self.machine.verifiers.seconds
        heapq.heappush(self.verifiers_free_at, done)
        self.running[completion.group].ended = self.now
        self.ungraded += 1
        self.result.most_ungraded = max(self.result.most_ungraded, self.ungraded)
        self._at(done, lambda: self._graded(completion.group))

    def _graded(self, number: int) -> None:
        """A verdict has arrived; the last one of a group makes it ready or dropped."""
        group = self.running[number]
        self.ungraded -= 1
        group.ungraded -= 1
        if group.ungraded:
            return
        self._changed = True
        self.result.verdicts.append(self.now - group.ended)
        del self.running[number]
        if group.dropped:
            self._drop(number)
            return
        self.ready[number], self.rejected_streak = group, 0
        self.result.most_ready = max(self.result.most_ready, len(self.ready))

    def _drop(self, number: int) -> None:
        del self.started[number]
        self.outstanding -= 1
        self.result.dropped += 1
        self.rejected_streak += 1
        if self.rejected_streak > MAX_REJECTED_BATCHES * self.batch:
            raise Stopped(f"simulate: {self.rejected_streak} consecutive groups had zero advantage; see [lengths]")

    def _begin_update(self) -> None:
        """Train the groups that may train now, if any."""
        numbers = self._choose() if self._changed and not self.training else None
        self._changed = self._changed and bool(self.training)
        if numbers is None:
            return
        self.training = [self.ready.pop(number) for number in numbers]
        for number in numbers:
            del self.started[number]
        if self.settings.placement == "shared":
            self._pause()
        seconds = self._training_seconds()
        self.result.training += seconds
        self._at(self.now + seconds, self._trained)

    def _choose(self) -> list[int] | None:
        if self.settings.schedule == "sync":
            return sorted(self.ready) if len(self.ready) == self.batch else None
        return choose(self.ready, self.started, self.version, batch=self.batch, staleness=self.settings.staleness)

    def _training_seconds(self) -> float:
        trainer = self.machine.trainer
        tokens = sum(completion.prompt + completion.length for completion in self._trained_completions())
        return trainer.update_seconds + tokens / (trainer.tokens_per_s * trainer.devices)

    def _trained_completions(self) -> list[SimulatedCompletion]:
        return [completion for group in self.training for completion in group.completions]

    def _pause(self) -> None:
        for engine in self.engines:
            engine.pause(self.now)

    def _trained(self) -> None:
        self._pause()
        self._at(self.now + self.machine.trainer.transfer_seconds, self._loaded)

    def _loaded(self) -> None:
        """The engines have the new weights, which completes the update."""
        self.result.updates.append(self._update())
        self.training = []
        self.version += 1
        self.outstanding -= self.batch
        self._changed = True
        for engine in self.engines:
            engine.resume(self.now, self.version)
            self._schedule(engine)

    def _update(self) -> SimulatedUpdate:
        completions = self._trained_completions()
        self.result.trained_tokens += sum(completion.length for completion in completions)
        return SimulatedUpdate(
            self.now,
            total_work(self.engines),
            self.result.training,
            self.result.trained_tokens,
            tuple(self.version - completion.first_version for completion in completions),
            sum(completion.first_version != completion.last_version for completion in completions),
            self.result.dropped,
            self.result.ready_seconds,
            self.result.ungraded_seconds,
            sum(len(engine.waiting) for engine in self.engines),
        )


def total_work(engines: list[SimulatedEngine]) -> EngineWork:
    """The work of all engines."""
    parts = [[getattr(engine.work, item.name) for engine in engines] for item in fields(EngineWork)]
    return EngineWork(*map(sum, parts))
