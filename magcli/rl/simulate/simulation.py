"""A simulated run: completions, verdicts, updates and new weights as events in the order of their times.

The rules are those of the RL loop, by its own code: ``magcli.rl.admission`` decides which groups start and which train,
and ``magcli.generate.dispatch`` which engine generates a completion. A completion goes to a verifier when it ends. New
weights reach running sequences, whose KV cache is kept. With placement ``shared`` the engines are paused while the
trainer works; with ``split`` only during the transfer of the weights.

Every step of an engine adds a token to each running sequence, and takes longer the more there are. Between two events
all running sequences advance alike, so the time of many steps has a closed form: the cost of a simulation grows with
the number of completions, not of tokens.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from math import ceil, sqrt
from typing import Literal

from magcli.errors import Stopped
from magcli.generate import dispatch
from magcli.rl.admission import Admission
from magcli.rl.outcomes import MAX_REJECTED_BATCHES
from magcli.rl.simulate.machine import GeneratorSpec, Machine
from magcli.rl.simulate.workload import GroupSource
from magcli.rl.utilization import SlotState, TrainerState, Utilization

WATERMARK = 0.01
"""Share of the KV cache that must stay free when a sequence is admitted, so that it is not preempted next."""

Event = Callable[[], None]


@dataclass(eq=False, slots=True)
class SimulatedCompletion:
    """A completion being generated.

    ``prefills``: it is the first of its group in its engine, so the prompt is processed with it. ``generated`` is the
    number of tokens that it had when it was preempted. ``first_version`` and ``last_version`` are the weights that
    generated its first and last token, -1 before they are known.
    """

    group: int
    length: int
    prompt: int
    prefills: bool
    generated: int = 0
    first_version: int = -1
    last_version: int = -1

    @property
    def cached(self) -> int:
        """Tokens in the KV cache when it is admitted."""
        return self.prompt + self.generated


@dataclass(slots=True)
class EngineWork:
    """What an engine has done: decode steps; tokens generated, attended to and prefilled; busy seconds."""

    steps: float = 0
    generated: float = 0
    attended: float = 0
    prefilled: float = 0
    seconds: float = 0


class SimulatedEngine:
    """The slots of one copy of the model, and the queue for them.

    ``clock`` is the time when the last step ended. ``revision`` changes whenever ``next_event`` may have changed.
    """

    def __init__(self, speed: GeneratorSpec, slots: int) -> None:
        self.speed, self.slots = speed, slots
        self.clock, self.step, self.version = 0.0, 0, 0
        self.paused = False
        self.revision = self.preemptions = self.peak = 0
        self.waiting: deque[SimulatedCompletion] = deque()
        self.work = EngineWork()
        self._running: list[tuple[int, int, SimulatedCompletion]] = []
        """A heap of (step of the last token, order of admission, completion)."""
        self._order = self._cached = self._prefill = 0

    @property
    def num_running(self) -> int:
        """Number of running sequences."""
        return len(self._running)

    @property
    def load(self) -> int:
        """Number of running and waiting sequences."""
        return len(self._running) + len(self.waiting)

    def submit(self, completions: Iterable[SimulatedCompletion], now: float) -> None:
        """Queue completions; those for which there is room start with the next step."""
        self._advance(now)
        self.waiting.extend(completions)
        self._admit()

    def pause(self, now: float) -> None:
        """Pause after the step that runs at ``now``; a completion that ends with it has the old weights."""
        self._advance(now)
        for end, _, completion in self._running:
            completion.last_version = self.version if end == self.step else completion.last_version
        self.paused = True
        self.revision += 1

    def resume(self, now: float, version: int) -> None:
        """Continue with new weights and the old KV cache; a completion without a token has only the new weights."""
        self.clock, self.version, self.paused = max(self.clock, now), version, False
        for end, _, completion in self._running:
            completion.first_version = version if end - self.step == completion.length else completion.first_version
        self._admit()

    def next_event(self) -> float | None:
        """The time when the next sequence ends or is preempted; None if nothing runs."""
        if self.paused or not self._running:
            return None
        return self.clock + self._seconds(self._steps_to_event())

    def process_event(self) -> list[SimulatedCompletion]:
        """Advance to the next event; returns the completions that end there."""
        self._run(self._steps_to_event())
        ended = []
        while self._running and self._running[0][0] == self.step:
            completion = heapq.heappop(self._running)[2]
            completion.last_version = self.version if completion.last_version < 0 else completion.last_version
            self._cached -= completion.prompt + completion.length
            ended.append(completion)
        limit = self.speed.cache_tokens
        while limit and len(self._running) > 1 and self._cached + len(self._running) > limit:
            self._preempt()
        self._admit()
        return ended

    def _steps_to_event(self) -> int:
        steps = self._running[0][0] - self.step
        if self.speed.cache_tokens and len(self._running) > 1:
            room = self.speed.cache_tokens - self._cached
            steps = min(steps, max(0, room // len(self._running)))
        return steps

    def _preempt(self) -> None:
        """Move the newest running sequence to the head of the queue."""
        newest = max(self._running, key=lambda entry: entry[1])
        self._running.remove(newest)
        heapq.heapify(self._running)
        end, _, completion = newest
        completion.generated = completion.length - (end - self.step)
        self._cached -= completion.cached
        self.waiting.appendleft(completion)
        self.preemptions += 1

    def _admit(self) -> None:
        """Start waiting sequences while there are slots and room in the KV cache."""
        self.revision += 1
        while not self.paused and self.waiting and len(self._running) < self.slots and self._has_room(self.waiting[0]):
            completion = self.waiting.popleft()
            completion.first_version = self.version if completion.first_version < 0 else completion.first_version
            self._prefill += completion.cached if completion.generated else completion.prompt * completion.prefills
            self._cached += completion.cached
            self._order += 1
            end = self.step + completion.length - completion.generated
            heapq.heappush(self._running, (end, self._order, completion))

    def _has_room(self, completion: SimulatedCompletion) -> bool:
        limit = self.speed.cache_tokens
        spare = max(WATERMARK * limit, len(self._running) + 1)
        return not limit or not self._running or self._cached + completion.cached + spare <= limit

    def _advance(self, now: float) -> None:
        """Run the steps that begin before ``now``, up to the next event."""
        if not self._running:
            self.clock = max(self.clock, now)
        elif not self.paused and self.clock < now:
            self._run(min(self._steps_to_event(), self._steps_within(now - self.clock)))

    def _steps_within(self, seconds: float) -> int:
        """Number of steps that begin within some seconds: the inverse of ``_seconds``, rounded up."""
        first, growth = self._first_step(), self.speed.token_seconds * len(self._running)
        left = max(0.0, seconds - self._prefill / self.speed.prefill_tokens_per_s)
        linear, square = first - growth / 2, growth / 2
        steps = 2 * left / (linear + sqrt(linear * linear + 4 * square * left))
        return max(1, ceil(steps - 1e-9))

    def _first_step(self) -> float:
        """Seconds of the next step without prefill."""
        speed, rows = self.speed, len(self._running)
        fixed = speed.step_seconds + speed.gap_seconds
        return fixed + speed.sequence_seconds * rows + speed.token_seconds * self._attended()

    def _attended(self) -> int:
        """Tokens that the next step attends to, padding included."""
        if not self.speed.padded:
            return self._cached
        starts = (completion.prompt + completion.length - end for end, _, completion in self._running)
        return len(self._running) * (max(starts) + self.step)

    def _seconds(self, steps: int) -> float:
        """Seconds of the next ``steps`` steps, with the prefill of the first of them."""
        if not steps:
            return 0.0
        growth = self.speed.token_seconds * len(self._running) * steps * (steps - 1) / 2
        return self._prefill / self.speed.prefill_tokens_per_s + steps * self._first_step() + growth

    def _run(self, steps: int) -> None:
        if not steps:
            return
        rows, seconds = len(self._running), self._seconds(steps)
        self.work.steps += steps
        self.work.generated += steps * rows
        self.work.attended += steps * self._attended() + rows * steps * (steps - 1) / 2
        self.work.prefilled += self._prefill
        self.work.seconds += seconds - steps * self.speed.gap_seconds
        self.clock += seconds
        self.step += steps
        self._cached += steps * rows
        self._prefill = 0
        self.peak = max(self.peak, self._cached)


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
            settings.group,
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
            self._dispatch()
            self._begin_update()
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
        self._loads[index], self._running_by_engine[index] = engine.load, engine.num_running
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
        return trainer.update_seconds + tokens / (trainer.tokens_per_s * trainer.devices)

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


def total_work(engines: list[SimulatedEngine]) -> EngineWork:
    """The work of all engines."""
    parts = [[getattr(engine.work, item.name) for engine in engines] for item in fields(EngineWork)]
    return EngineWork(*map(sum, parts))
