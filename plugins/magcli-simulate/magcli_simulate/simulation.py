"""A simulated run: completions, verdicts, updates and new weights as events in the order of their times.

The rules are those of the RL loop, by its own code: ``magcli.rl.admission`` decides which groups start and which train,
and ``magcli.generate.dispatch`` which engine generates a completion. A completion goes to a verifier when it ends. New
weights reach running sequences, whose KV cache is kept. With placement ``shared`` the engines are paused while the
trainer works; with ``split`` only during the transfer of the weights.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

from magcli.errors import Stopped
from magcli.generate import dispatch
from magcli.rl.admission import Admission
from magcli.rl.outcomes import MAX_REJECTED_BATCHES
from magcli.rl.utilization import SlotState, TrainerState, Utilization
from magcli_simulate.engine import EngineWork, SimulatedCompletion, SimulatedEngine, total_work
from magcli_simulate.machine import Machine
from magcli_simulate.workload import GroupSource

Event = Callable[[], None]


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """The options of a run that determine its speed; batches are counted in completions."""

    updates: int
    group_size: int
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
        self.settings = settings
        self.machine = machine
        self.groups = groups
        self.batch = settings.n_batch // settings.group_size
        count = machine.generators.engines
        slots = -(-settings.n_async // count)
        if machine.generators.slots:
            slots = min(slots, machine.generators.slots)
        self.engines = [SimulatedEngine(machine.generators, slots) for _ in range(count)]
        self.engine_capacity = dispatch.capacity(slots)
        self._loads, self._running_by_engine = [0] * count, [0] * count
        self._last_group = [-1] * count
        """The group of the last completion that each engine got; the next ones of it share its prompt."""
        self.queue: deque[SimulatedCompletion] = deque()
        self.verifiers_free_at = [0.0] * machine.verifiers.workers
        self.now = 0.0
        self.admission = Admission(
            settings.group_size,
            settings.staleness,
            settings.updates,
            max_queued=2 if settings.placement == "split" else 1,
            batch=self.batch,
        )
        self.utilization = Utilization(0.0)
        self.number = self.ungraded = self.rejected_streak = 0
        self.training: dict[int, SimulatedGroup] = {}
        self.running: dict[int, SimulatedGroup] = {}
        self.ready: dict[int, SimulatedGroup] = {}
        self.result = SimulationResult()
        self._sending = False
        """Whether the trainer sends new weights to the engines."""
        self._changed = False
        """Whether a group has ended or new weights were loaded since the last attempt to begin an update."""
        self._events: list[tuple[float, int, Event]] = []
        self._order = 0

    @property
    def version(self) -> int:
        """The number of completed updates."""
        return self.admission.version

    def run(self) -> SimulationResult:
        """Simulate all updates.

        Raises:
            Stopped: too many consecutive groups had zero advantage.
        """
        while self.version < self.settings.updates:
            self._start_groups()
            self._begin_update()
            self._start_groups()  # for those of a batch that trains now others may be generated
            self._dispatch()
            self._measure()
            time, _, event = heapq.heappop(self._events)
            self.result.ready_seconds += len(self.ready) * (time - self.now)
            self.result.ungraded_seconds += self.ungraded * (time - self.now)
            self.now = time
            event()
        return self.result

    def _at(self, time: float, event: Event) -> None:
        self._order += 1
        heapq.heappush(self._events, (time, self._order, event))

    def _measure(self) -> None:
        """Note for the idle times what slots and trainer do from now on."""
        trainer = self._trainer_state()
        self.utilization.trainer(trainer, self.now)
        total = self.engines[0].slots * len(self.engines)
        running, load = sum(self._running_by_engine), sum(self._loads)
        if self.engines[0].paused:
            self.utilization.slots(0, total, "weights", self.now)
        elif load > running:
            self.utilization.slots(running, total, "cache", self.now)
        else:
            idle: SlotState = "verifier" if trainer == "verifier" else "admission"
            self.utilization.slots(running, total, idle, self.now)

    def _trainer_state(self) -> TrainerState:
        if self._sending:
            return "weights"
        return "training" if self.training else self.admission.waits_for()

    def _start_groups(self) -> None:
        if self.training and (self.settings.placement == "shared" or self.settings.schedule == "sync"):
            return
        if self.settings.schedule == "async":
            capacity = self.engine_capacity * len(self.engines)
            while self.admission.may_start(capacity):
                self._start_group()
        elif not self.running:
            for _ in range(self.batch - len(self.ready)):
                self._start_group()

    def _start_group(self) -> None:
        number, self.number = self.number, self.number + 1
        shape = self.groups(number)
        completions = [SimulatedCompletion(number, length, shape.prompt, prefills=False) for length in shape.lengths]
        self.running[number] = SimulatedGroup(completions, len(completions), shape.dropped)
        self.admission.start(number)
        self.queue.extend(completions)

    def _dispatch(self) -> None:
        """Give waiting completions to engines that have room."""
        while self.queue:
            chosen = dispatch.least_busy(self._loads, self.engine_capacity)
            if chosen is None:
                return
            room = self.engine_capacity - self._loads[chosen]
            completions = self._next_completions(room)
            group = completions[0].group
            completions[0].prefills = group != self._last_group[chosen]
            self._last_group[chosen] = group
            self.engines[chosen].submit(completions, self.now)
            self._schedule(chosen)

    def _next_completions(self, most: int) -> list[SimulatedCompletion]:
        """Remove the first completions from the queue, all of one group."""
        group = self.queue[0].group
        completions: list[SimulatedCompletion] = []
        while self.queue and self.queue[0].group == group and len(completions) < most:
            completions.append(self.queue.popleft())
        return completions

    def _schedule(self, index: int) -> None:
        """After an engine has changed: schedule its next event, which is ignored if the engine changes before."""
        engine = self.engines[index]
        self._loads[index] = engine.load
        self._running_by_engine[index] = engine.num_running
        time, revision = engine.next_event(), engine.revision
        if time is not None:
            self._at(max(time, self.now), lambda: self._process(index) if engine.revision == revision else None)

    def _process(self, index: int) -> None:
        for completion in self.engines[index].process_event():
            self._verify(completion)
        self._schedule(index)

    def _verify(self, completion: SimulatedCompletion) -> None:
        done = max(self.now, heapq.heappop(self.verifiers_free_at)) + self.machine.verifiers.seconds
        heapq.heappush(self.verifiers_free_at, done)
        self.running[completion.group].ended = self.now
        self.admission.completion_ended(completion.group)
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
        self.admission.admit(number)
        self.ready[number] = group
        self.rejected_streak = 0
        self.result.most_ready = max(self.result.most_ready, len(self.ready))

    def _drop(self, number: int) -> None:
        self.admission.drop(number)
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
        self.admission.take(numbers)
        self.training = {number: self.ready.pop(number) for number in numbers}
        if self.settings.placement == "shared":
            self._pause()
        seconds = self._training_seconds()
        self.result.training += seconds
        self._at(self.now + seconds, self._trained)

    def _choose(self) -> list[int] | None:
        if self.settings.schedule == "sync":
            return sorted(self.ready) if len(self.ready) == self.batch else None
        return self.admission.choose()

    def _training_seconds(self) -> float:
        trainer = self.machine.trainer
        tokens = sum(completion.prompt + completion.length for completion in self._trained_completions())
        of_device = tokens / trainer.devices
        seconds = trainer.update_seconds + of_device / trainer.tokens_per_s
        if trainer.collective_seconds:
            seconds += ceil(of_device / trainer.micro_tokens) * trainer.collective_seconds
        return seconds

    def _trained_completions(self) -> list[SimulatedCompletion]:
        return [completion for group in self.training.values() for completion in group.completions]

    def _pause(self) -> None:
        for engine in self.engines:
            engine.pause(self.now)

    def _trained(self) -> None:
        self._sending = True
        self._pause()
        self._at(self.now + self.machine.trainer.transfer_seconds, self._loaded)

    def _loaded(self) -> None:
        """The engines have the new weights, which completes the update."""
        self.result.updates.append(self._update())
        self.admission.trained(self.training)
        self.training = {}
        self._sending = False
        self._changed = True
        for index, engine in enumerate(self.engines):
            engine.resume(self.now, self.version)
            self._schedule(index)

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
            len(self.queue) + sum(len(engine.waiting) for engine in self.engines),
        )
