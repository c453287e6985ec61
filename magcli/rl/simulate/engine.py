"""One simulated engine: running sequences get a token a step, and a step's time depends on how many there are.

Between two events every running sequence advances alike, so the time of many steps is a closed formula and a
sequence's end is known when it starts: the cost of a simulation grows with its completions, not with their tokens.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, sqrt

from magcli.rl.simulate.machine import Generators

WATERMARK = 0.01
"""Share of the cache that stays free when a sequence is let in, so that it is not the next to give way."""


@dataclass(eq=False, slots=True)
class Sample:
    """One completion on its way. ``leads``: its group's prompt is computed with it; ``made``: tokens before it gave
    way to others; ``first`` and ``last`` are the versions of the weights that made its ends."""

    group: int
    length: int
    prompt: int
    leads: bool
    made: int = 0
    first: int = -1
    last: int = -1

    @property
    def cached(self) -> int:
        """Tokens in the cache when it is let in."""
        return self.prompt + self.made


@dataclass(slots=True)
class Work:
    """What an engine has done: decode steps, tokens made, tokens attended to, tokens prefilled, seconds at work."""

    steps: float = 0
    made: float = 0
    attended: float = 0
    prefilled: float = 0
    seconds: float = 0


class Engine:
    """Slots over one copy of the model, and a queue before them.

    ``clock`` is the time at which the newest step was over; ``changes`` counts what makes an announced stop void.
    """

    def __init__(self, speed: Generators, slots: int) -> None:
        self.speed, self.slots = speed, slots
        self.clock, self.step, self.version = 0.0, 0, 0
        self.paused = False
        self.changes = self.gave_way = self.peak = 0
        self.waiting: deque[Sample] = deque()
        self.work = Work()
        self._running: list[tuple[int, int, Sample]] = []
        self._order = self._cached = self._prefill = 0

    @property
    def load(self) -> int:
        """Sequences that run or wait."""
        return len(self._running) + len(self.waiting)

    def submit(self, samples: Iterable[Sample], now: float) -> None:
        """Queue samples at a time; those for which there is room start with the next step."""
        self._advance(now)
        self.waiting.extend(samples)
        self._fill()

    def pause(self, now: float) -> None:
        """Stand still after the step that runs at ``now``; what ends with it is of the weights that made it."""
        self._advance(now)
        for end, _, sample in self._running:
            sample.last = self.version if end == self.step else sample.last
        self.paused = True
        self.changes += 1

    def resume(self, now: float, version: int) -> None:
        """Go on with new weights and the old cache; what has no token yet is theirs alone."""
        self.clock, self.version, self.paused = max(self.clock, now), version, False
        for end, _, sample in self._running:
            sample.first = version if end - self.step == sample.length else sample.first
        self._fill()

    def next_stop(self) -> float | None:
        """When the next sequence ends, or gives way because the cache is full; None while nothing runs."""
        if self.paused or not self._running:
            return None
        return self.clock + self._seconds(self._steps_to_stop())

    def stop(self) -> list[Sample]:
        """Go to the next stop; returns the samples that end there."""
        self._go(self._steps_to_stop())
        ended = []
        while self._running and self._running[0][0] == self.step:
            sample = heapq.heappop(self._running)[2]
            sample.last = self.version if sample.last < 0 else sample.last
            self._cached -= sample.prompt + sample.length
            ended.append(sample)
        while self._full():
            self._give_way()
        self._fill()
        return ended

    def _steps_to_stop(self) -> int:
        steps = self._running[0][0] - self.step
        if self.speed.cache_tokens and len(self._running) > 1:
            room = self.speed.cache_tokens - self._cached
            steps = min(steps, max(0, room // len(self._running)))
        return steps

    def _full(self) -> bool:
        limit, rows = self.speed.cache_tokens, len(self._running)
        return bool(limit) and rows > 1 and self._cached + rows > limit

    def _give_way(self) -> None:
        """The newest sequence leaves its slot and goes to the head of the queue."""
        newest = max(self._running, key=lambda entry: entry[1])
        self._running.remove(newest)
        heapq.heapify(self._running)
        end, _, sample = newest
        sample.made = sample.length - (end - self.step)
        self._cached -= sample.cached
        self.waiting.appendleft(sample)
        self.gave_way += 1

    def _fill(self) -> None:
        self.changes += 1
        while not self.paused and self.waiting and len(self._running) < self.slots and self._fits(self.waiting[0]):
            sample = self.waiting.popleft()
            sample.first = self.version if sample.first < 0 else sample.first
            self._prefill += sample.cached if sample.made else sample.prompt * sample.leads
            self._cached += sample.cached
            self._order += 1
            heapq.heappush(self._running, (self.step + sample.length - sample.made, self._order, sample))

    def _fits(self, sample: Sample) -> bool:
        limit = self.speed.cache_tokens
        spare = max(WATERMARK * limit, len(self._running) + 1)
        return not limit or not self._running or self._cached + sample.cached + spare <= limit

    def _advance(self, now: float) -> None:
        """Finish the steps that begin before ``now``, up to the next stop."""
        if not self._running:
            self.clock = max(self.clock, now)
        elif not self.paused and self.clock < now:
            self._go(min(self._steps_to_stop(), self._steps_within(now - self.clock)))

    def _steps_within(self, seconds: float) -> int:
        """Steps that begin within some seconds: the inverse of ``_seconds``, rounded up."""
        first, growth = self._first_step(), self.speed.token_seconds * len(self._running)
        left = max(0.0, seconds - self._prefill / self.speed.prefill_tokens_per_s)
        linear, square = first - growth / 2, growth / 2
        steps = 2 * left / (linear + sqrt(linear * linear + 4 * square * left))
        return max(1, ceil(steps - 1e-9))

    def _first_step(self) -> float:
        speed, rows = self.speed, len(self._running)
        fixed = speed.step_seconds + speed.gap_seconds
        return fixed + speed.sequence_seconds * rows + speed.token_seconds * self._attended()

    def _attended(self) -> int:
        """Tokens that the next step attends to, padding included."""
        if not self.speed.padded:
            return self._cached
        longest = max(sample.prompt + sample.length - end for end, _, sample in self._running) + self.step
        return len(self._running) * longest

    def _seconds(self, steps: int) -> float:
        """Time of the next ``steps`` steps, with the prefill that is due in the first of them."""
        if not steps:
            return 0.0
        growth = self.speed.token_seconds * len(self._running) * steps * (steps - 1) / 2
        return self._prefill / self.speed.prefill_tokens_per_s + steps * self._first_step() + growth

    def _go(self, steps: int) -> None:
        if not steps:
            return
        rows, seconds = len(self._running), self._seconds(steps)
        self.work.steps += steps
        self.work.made += steps * rows
        self.work.attended += steps * self._attended() + rows * steps * (steps - 1) / 2
        self.work.prefilled += self._prefill
        self.work.seconds += seconds - steps * self.speed.gap_seconds
        self.clock += seconds
        self.step += steps
        self._cached += steps * rows
        self._prefill = 0
        self.peak = max(self.peak, self._cached)
