"""How full the slots of an asynchronous run are: the real scheduler with a made-up engine, in virtual time.

The lengths are those of a reasoning model: log-normal, median 6,000 tokens, sigma 0.9, half of the variance between
problems, at most 32,000. Every decode step takes one second of virtual time, and the trainer is twice as fast as
generation. Slots are counted by the engine, step by step, from the start of a third of the updates to the end of five
sixths of them: neither the start of the run, when all completions are young, nor its end, when no new ones start.

With tools a completion is an episode of 16 turns of equal length. After each but the last a tool works for 0.1 to
10 s, log-uniform, at 25 ms a decode step, and the next turn waits for a slot again.
"""

import asyncio
import math
import random
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.pairs import Result
from magcli.generate import dispatch
from magcli.generate.types import Rollout
from magcli.rl.curriculum import Curriculum, StageProblems
from magcli.rl.ledger import Ledger
from magcli.rl.scheduler import RolloutScheduler, Schedule
from magcli.rl.training_stages import StageOptions, TrainingStages
from magcli.rl.types import Group, StageSettings
from magcli.verify.reward import ungraded
from magcli_simulate.machine import LengthSpec
from magcli_simulate.workload import GroupSource, group_source

LENGTHS = LengthSpec(median=6000.0, sigma=0.9, correlation=0.5)
MAX_TOKENS = 32_000
GROUP = 16
SIZES = ((4096, 2048), (512, 256))
"""Concurrent completions and batch size: the paper's, and magcli's defaults."""
STALENESS = 8
UPDATES = 60
TRAINER_SHARE = 0.5
"""Time of an update in the trainer, as a share of the time in which its batch is generated."""
LEAST = 0.95
TURNS = 16
STEP_SECONDS = 0.025
TOOL_SECONDS = (0.1, 10.0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._wait = self._selector.select  # type: ignore[attr-defined]
        self._selector.select = self._jump  # type: ignore[attr-defined]

    def time(self) -> float:
        """The virtual time in seconds."""
        return self._now

    def _jump(self, timeout: float | None) -> Any:
        if timeout is not None:
            self._now += max(0.0, timeout)
        return self._wait(0)


class VirtualEngine:
    """Slots that add a token to each sequence every second; what it is asked for beyond them waits in order."""

    def __init__(self) -> None:
        self.version = 0
        self.num_slots = 0
        self.running = 0
        self.slot_seconds = 0.0
        self._since = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def capacity(self) -> int:
        """Completions to have in flight."""
        return dispatch.capacity(self.num_slots)

    def set_concurrency(self, sequences: int) -> None:
        """Set the number of slots."""
        self.num_slots = sequences

    async def generate(self, length: int) -> int:
        """Generate a completion when a slot is free; returns the version of the weights that started it."""
        if self.running >= self.num_slots:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        else:
            self._count(1)
        version = self.version
        await asyncio.sleep(length)
        if self._waiting:
            self._waiting.popleft().set_result(None)  # it takes the slot over in the next step
        else:
            self._count(-1)
        return version

    def _count(self, change: int) -> None:
        self.slot_seconds = self.occupied_until_now()
        self.running += change

    def occupied_until_now(self) -> float:
        """Slot-seconds in which a sequence ran so far."""
        now = asyncio.get_running_loop().time()
        total = self.slot_seconds + self.running * (now - self._since)
        self.slot_seconds, self._since = total, now
        return total


@dataclass
class VirtualSampler:
    """Samples groups of the lengths in ``groups``, which need no grading; completions have ``turns``."""

    engine: VirtualEngine
    groups: GroupSource
    turns: int = 1
    group_size: int = GROUP

    async def roll_out(
        self,
        number: int,
        problem: Mapping[str, Any],
        settings: StageSettings,
        completion_ended: Callable[[Rollout], None],
        environment_works: Callable[[int], None],
    ) -> Group:
        """Generate the completions of a group."""

        latencies = tool_latencies(number)

        async def complete(index: int, length: int) -> Rollout:
            version = await self.engine.generate(-(-length // self.turns))
            for _ in range(self.turns - 1):
                environment_works(1)
                await asyncio.sleep(next(latencies))
                environment_works(-1)
                await self.engine.generate(-(-length // self.turns))
            rollout = Rollout(index, (1,), (1,), (0.0,), ((0, version),), "stop", 0)
            completion_ended(rollout)
            return rollout

        lengths = self.groups(number).lengths
        rollouts = await asyncio.gather(*(complete(index, length) for index, length in enumerate(lengths)))
        rewards = (ungraded("wrong"),) * len(rollouts)
        return Group(number, problem, (1,), tuple(rollouts), ("",) * len(rollouts), rewards, None)


def tool_latencies(seed: int) -> Iterator[float]:
    """How many decode steps each call of a tool takes."""
    choose = random.Random(seed)
    low, high = map(math.log, TOOL_SECONDS)
    while True:
        yield math.exp(choose.uniform(low, high)) / STEP_SECONDS


class MemoryStore:
    """Finished groups, without files."""

    def numbers(self) -> list[int]:
        """No groups of an earlier process."""
        return []

    def add(self, group: Group) -> Group:
        """The group itself."""
        return group


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Shares of slot-seconds in which a sequence ran, by the engine and by the run's own metric; staleness."""

    engine: float
    metric: float
    staleness_mean: float
    staleness_max: int


def run() -> Result:
    """The share of slots in use at each of ``SIZES``, and at the last also with tools."""
    shares = []
    for (n_async, n_batch), turns in [*((sizes, 1) for sizes in SIZES), (SIZES[-1], TURNS)]:
        measured = measure(n_async, n_batch, STALENESS, turns=turns)
        sizes = f"n_async {n_async:,}, n_batch {n_batch:,}, staleness {STALENESS}"
        sizes += f", {turns} turns with tools" if turns > 1 else ""
        in_use = f"{measured.engine:.3f} of slots in use (1 - generator_idle: {measured.metric:.3f})"
        stale = f"staleness mean {measured.staleness_mean:.2f}, max {measured.staleness_max}"
        print(f"  rl-occupancy: {sizes}: {in_use}; {stale}", flush=True)
        shares.append(measured.engine)
    return Result("rl-occupancy", tuple(shares), least=LEAST)


def measure(
    n_async: int, n_batch: int, staleness: int, *, trainer_share: float = TRAINER_SHARE, turns: int = 1
) -> Occupancy:
    """Run the scheduler for ``UPDATES`` updates."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner, tempfile.TemporaryDirectory() as folder:
        return runner.run(_updates(Path(folder), n_async, n_batch, staleness, trainer_share, turns))


async def _updates(
    folder: Path, n_async: int, n_batch: int, staleness: int, trainer_share: float, turns: int
) -> Occupancy:
    groups = group_source(LENGTHS, group=GROUP, max_tokens=MAX_TOKENS, seed=1)
    engine = VirtualEngine()
    scheduler = _scheduler(folder, VirtualSampler(engine, groups, turns), n_async, n_batch, staleness)
    mean_length = fmean(fmean(groups(number).lengths) for number in range(2000))
    training_seconds = trainer_share * n_batch * mean_length / n_async
    clock = asyncio.get_running_loop().time
    first, last = UPDATES // 3, UPDATES - UPDATES // 6
    stale: list[int] = []
    start = (0.0, 0.0)
    try:
        for update in range(last):
            if update == first:
                start = clock(), engine.occupied_until_now()
                scheduler.utilization.metrics(clock())
                stale.clear()
            batch = await scheduler.next_batch(0)
            stale += [update - rollout.versions[0][1] for group in batch.trained for rollout in group.rollouts]
            await asyncio.sleep(training_seconds)
            engine.version += 1
            scheduler.update_finished()
        seconds = clock() - start[0]
        occupied = engine.occupied_until_now() - start[1]
        idle = scheduler.utilization.metrics(clock())["generator_idle"]
        return Occupancy(occupied / (seconds * n_async), 1 - idle, fmean(stale), max(stale))
    finally:
        await scheduler.stop()
        scheduler.ledger.close()


def _scheduler(folder: Path, sampler: VirtualSampler, n_async: int, n_batch: int, staleness: int) -> RolloutScheduler:
    problems: Sequence[Mapping[str, Any]] = [{"id": f"p{index}", "prompt": "?", "answer": "1"} for index in range(512)]
    settings: Any = StageSettings(None, 1, n_batch // GROUP, n_async // GROUP, None, None)  # type: ignore[arg-type]
    return RolloutScheduler(
        sampler,  # type: ignore[arg-type]  # stands for a GroupSampler
        Curriculum([StageProblems(problems)], 0),
        Ledger(folder / "ledger.jsonl"),
        MemoryStore(),  # type: ignore[arg-type]  # stands for a RolloutStore
        TrainingStages([StageOptions()], [settings]),
        Schedule(synchronous=False, staleness=staleness, updates=UPDATES),
        clock=asyncio.get_running_loop().time,
    )
