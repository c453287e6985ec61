"""A simulated run: groups, completions, verdicts, updates and weights as events in the order of their times.

The rules are those of the loop: ``magcli.rl.scheduler`` says which groups start and which train; a completion goes to
a verifier the moment it ends; new weights reach running sequences, whose cache is kept. With placement ``shared`` the
engines stand still while the trainer works; with ``split`` they only wait for the transfer of the weights.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from magcli.errors import Stopped
from magcli.rl.scheduler import MAX_REJECTED_BATCHES, choose, may_start
from magcli.rl.simulate.draw import Draw
from magcli.rl.simulate.engine import Engine, Sample, Work
from magcli.rl.simulate.machine import Machine

Event = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What of a run's recipe decides its speed; batches in completions."""

    updates: int
    group: int
    n_async: int
    n_batch: int
    staleness: int
    max_tokens: int
    schedule: Literal["async", "sync"] = "async"
    placement: Literal["shared", "split"] = "shared"


@dataclass(slots=True)
class Group:
    """A group under way or ready: its samples, how many of them are not graded yet, whether it will be dropped, and
    when its last sample ended."""

    samples: list[Sample]
    ungraded: int
    dropped: bool
    ended: float = 0.0

    @property
    def tokens(self) -> int:
        """Generated tokens."""
        return sum(sample.length for sample in self.samples)


@dataclass(frozen=True, slots=True)
class Update:
    """One update: when its weights were in the engines, and what all of the machine had done by then.

    ``work`` is that of all engines and ``ready_seconds``, ``ungraded_seconds`` are integrals over time, since the
    start; ``staleness`` and ``mixed`` are of the completions that it trained, ``queued`` sequences without a slot.
    """

    time: float
    work: Work
    training: float
    trained_tokens: int
    staleness: tuple[int, ...]
    mixed: int
    dropped: int
    ready_seconds: float
    ungraded_seconds: float
    queued: int


@dataclass(slots=True)
class Tally:
    """What adds up over a run, besides the engines' work. ``verdicts`` are the seconds from each group's last token
    to its reward."""

    training: float = 0.0
    trained_tokens: int = 0
    dropped: int = 0
    rejected_streak: int = 0
    ready_seconds: float = 0.0
    ungraded_seconds: float = 0.0
    most_ready: int = 0
    most_ungraded: int = 0
    verdicts: list[float] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)


class Simulation:
    """The state of a run at the time ``now``; ``run`` goes through it."""

    def __init__(self, settings: Settings, machine: Machine, draw: Draw) -> None:
        self.settings, self.machine, self.draw = settings, machine, draw
        self.batch = settings.n_batch // settings.group
        count = machine.generators.engines
        slots = machine.generators.slots or -(-settings.n_async // count)
        self.engines = [Engine(machine.generators, slots) for _ in range(count)]
        self.free = [0.0] * machine.verifiers.workers
        self.now = 0.0
        self.version = self.number = self.outstanding = self.ungraded = 0
        self.training: list[Group] = []
        self.running: dict[int, Group] = {}
        self.ready: dict[int, Group] = {}
        self.started: dict[int, int] = {}
        self.tally = Tally()
        self._news = False
        self._events: list[tuple[float, int, Event]] = []
        self._order = 0

    def run(self) -> Tally:
        """All updates.

        Raises:
            Stopped: too many consecutive groups had zero advantage.
        """
        while self.version < self.settings.updates:
            self._start_groups()
            self._begin_update()
            time, _, event = heapq.heappop(self._events)
            self._pass_time(time)
            event()
        return self.tally

    def _pass_time(self, time: float) -> None:
        self.tally.ready_seconds += len(self.ready) * (time - self.now)
        self.tally.ungraded_seconds += self.ungraded * (time - self.now)
        self.now = time

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
        drawn = self.draw(number)
        samples = [Sample(number, length, drawn.prompt, place == 0) for place, length in enumerate(drawn.lengths)]
        self.running[number] = Group(samples, len(samples), drawn.dropped)
        self.started[number] = self.version
        self.outstanding += 1
        engine = min(self.engines, key=lambda engine: engine.load)
        engine.submit(samples, self.now)
        self._announce(engine)

    def _announce(self, engine: Engine) -> None:
        """Make an event of an engine's next stop; it is void if the engine has changed by then."""
        time, changes = engine.next_stop(), engine.changes
        if time is not None:
            self._at(max(time, self.now), lambda: self._stop(engine) if engine.changes == changes else None)

    def _stop(self, engine: Engine) -> None:
        for sample in engine.stop():
            self._verify(sample)
        self._announce(engine)

    def _verify(self, sample: Sample) -> None:
        done = max(self.now, heapq.heappop(self.free)) + self.machine.verifiers.seconds
        heapq.heappush(self.free, done)
        self.running[sample.group].ended = self.now
        self.ungraded += 1
        self.tally.most_ungraded = max(self.tally.most_ungraded, self.ungraded)
        self._at(done, lambda: self._graded(sample))

    def _graded(self, sample: Sample) -> None:
        self.ungraded -= 1
        group = self.running[sample.group]
        group.ungraded -= 1
        if not group.ungraded:
            self.tally.verdicts.append(self.now - group.ended)
            self._settle(sample.group, self.running.pop(sample.group))

    def _settle(self, number: int, group: Group) -> None:
        self._news = True
        if not group.dropped:
            self.ready[number], self.tally.rejected_streak = group, 0
            self.tally.most_ready = max(self.tally.most_ready, len(self.ready))
            return
        del self.started[number]
        self.outstanding -= 1
        self.tally.dropped += 1
        self.tally.rejected_streak += 1
        if self.tally.rejected_streak > MAX_REJECTED_BATCHES * self.batch:
            raise Stopped(
                f"simulation: {self.tally.rejected_streak} consecutive groups had zero advantage; see [lengths]"
            )

    def _begin_update(self) -> None:
        """Train the groups that may train now; asked again only when a group or new weights have come."""
        numbers = self._chosen() if self._news and not self.training else None
        self._news = self._news and bool(self.training)
        if numbers is None:
            return
        self.training = [self.ready.pop(number) for number in numbers]
        for number in numbers:
            del self.started[number]
        if self.settings.placement == "shared":
            self._pause()
        seconds = self._training_seconds()
        self.tally.training += seconds
        self._at(self.now + seconds, self._trained)

    def _chosen(self) -> list[int] | None:
        if self.settings.schedule == "sync":
            return sorted(self.ready) if len(self.ready) == self.batch else None
        return choose(self.ready, self.started, self.version, batch=self.batch, staleness=self.settings.staleness)

    def _training_seconds(self) -> float:
        trainer = self.machine.trainer
        prompts = sum(sample.prompt for group in self.training for sample in group.samples)
        tokens = prompts + sum(group.tokens for group in self.training)
        return trainer.update_seconds + tokens / (trainer.tokens_per_s * trainer.devices)

    def _pause(self) -> None:
        for engine in self.engines:
            engine.pause(self.now)

    def _trained(self) -> None:
        self._pause()
        self._at(self.now + self.machine.trainer.transfer_seconds, self._loaded)

    def _loaded(self) -> None:
        trained, self.training = self.training, []
        self.tally.updates.append(self._update(trained))
        self.version += 1
        self.outstanding -= self.batch
        self._news = True
        for engine in self.engines:
            engine.resume(self.now, self.version)
            self._announce(engine)

    def _update(self, trained: list[Group]) -> Update:
        samples = [sample for group in trained for sample in group.samples]
        self.tally.trained_tokens += sum(sample.length for sample in samples)
        return Update(
            self.now,
            total_work(self.engines),
            self.tally.training,
            self.tally.trained_tokens,
            tuple(self.version - sample.first for sample in samples),
            sum(sample.first != sample.last for sample in samples),
            self.tally.dropped,
            self.tally.ready_seconds,
            self.tally.ungraded_seconds,
            sum(len(engine.waiting) for engine in self.engines),
        )


def total_work(engines: list[Engine]) -> Work:
    """What all engines have done."""
    works = [engine.work for engine in engines]
    return Work(
        steps=sum(work.steps for work in works),
        made=sum(work.made for work in works),
        attended=sum(work.attended for work in works),
        prefilled=sum(work.prefilled for work in works),
        seconds=sum(work.seconds for work in works),
    )
