"""A simulated engine: the slots of one copy of the model, whose decode steps add a token to each running sequence.

A step takes longer the more sequences run. Between two events all of them advance alike, so the time of many steps has
a closed form: the cost of a simulation grows with the number of completions, not of tokens.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import ceil, sqrt

from magcli_simulate.machine import GeneratorSpec

WATERMARK = 0.01
"""Share of the KV cache that must stay free when a sequence is admitted, so that it is not preempted next."""


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
        self.clock = 0.0
        self.step = 0
        self.version = 0
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
        self.clock = max(self.clock, now)
        self.version = version
        self.paused = False
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
        first = self._first_step()
        growth = self.speed.token_seconds * len(self._running)
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


def total_work(engines: list[SimulatedEngine]) -> EngineWork:
    """The work of all engines."""
    parts = [[getattr(engine.work, item.name) for engine in engines] for item in fields(EngineWork)]
    return EngineWork(*map(sum, parts))
