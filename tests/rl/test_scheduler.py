"""The two schedules with rollouts that take as long as the test says: which group trains when."""

import asyncio
import random
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.errors import EnvironmentFault, Stopped
from magcli.generate.types import Rollout
from magcli.rl.curriculum import Curriculum, StageProblems
from magcli.rl.ledger import Ledger, account, read
from magcli.rl.outcomes import MAX_WRONG
from magcli.rl.rollouts import Group
from magcli.rl.schedule import Schedule, StageOptions, StageSettings
from magcli.rl.scheduler import RolloutScheduler
from magcli.rl.store import RolloutStore
from magcli.verify.reward import ungraded

PROBLEMS = [{"id": f"p{i}", "prompt": "?", "answer": "1"} for i in range(7)]


class Clock:
    """Makes groups without a model: each takes some ticks; some are dropped. ``version`` counts updates."""

    def __init__(self, ticks, dropped=lambda number: None):
        self.ticks, self.dropped, self.version = ticks, dropped, 0
        self.engine, self.under_way, self.most = self, 0, 0
        self.started = {}

    async def roll_out(self, number, problem, settings, generated):
        self.started[number] = self.version
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        for _ in range(self.ticks(number)):
            await asyncio.sleep(0)
        self.under_way -= 1
        generated(3)
        rollout = Rollout(0, (1,), (2, 3, 4), (-1.0,) * 3, ((0, self.started[number]),), "stop", 7)
        return Group(number, problem, (1,), (rollout,), ("x",), (ungraded("wrong"),), self.dropped(number))


def scheduled(path, clock, stages=None, synchronous=False, **sizes):
    sizes = {"batch_groups": 2, "async_groups": 8, "staleness": 1, "updates": 10} | sizes
    stages = stages or [(sizes["batch_groups"], sizes["async_groups"])]
    settings = [StageSettings(None, 1, batch, at_once, None, None) for batch, at_once in stages]
    ledger, curriculum = Ledger(path / "ledger.jsonl"), Curriculum([StageProblems(PROBLEMS)] * len(stages), 0)
    for event in read(ledger.path):
        curriculum.replay(event)
    return RolloutScheduler(
        clock,
        curriculum,
        ledger,
        RolloutStore(path),
        Schedule([StageOptions()] * len(stages), settings),
        synchronous=synchronous,
        staleness=sizes["staleness"],
        updates=sizes["updates"],
    )


async def updates(scheduler, stage_of=lambda update: 0):
    """All batches, each with the version of the weights that it trains, and all dropped groups."""
    batches, dropped = [], []
    try:
        while scheduler.version < scheduler.updates:
            batch = await scheduler.next_batch(stage_of(scheduler.version))
            dropped += batch.dropped
            batches.append((scheduler.version, [group.number for group in batch.trained]))
            trained(scheduler, batch)
    finally:
        await scheduler.stop()
        scheduler.ledger.close()
    return batches, dropped + scheduler.dropped


def trained(scheduler, batch):
    """An update is done."""
    scheduler.sampler.version += 1
    scheduler.ledger.record_batch([group.number for group in batch.trained], "trained", step=scheduler.version)


@given(st.integers(0, 3), st.integers(1, 3), st.integers(1, 12), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_staleness_is_bounded_however_long_groups_take(tmp_path_factory, staleness, batch, at_once, seed):
    choose = random.Random(seed)
    ticks = [choose.choice([0, 1, 2, 30]) for _ in range(500)]
    gone = [choose.random() < 0.3 for _ in range(500)]
    clock = Clock(ticks.__getitem__, lambda number: "all-wrong" if gone[number] else None)
    sizes = {"batch_groups": batch, "async_groups": at_once, "staleness": staleness}
    scheduler = scheduled(tmp_path_factory.mktemp("run"), clock, **sizes)
    batches, dropped = asyncio.run(updates(scheduler))
    for version, numbers in batches:
        assert len(numbers) == batch
        assert all(version - clock.started[number] <= staleness for number in numbers)
    trained = [number for _, numbers in batches for number in numbers]
    assert len(set(trained)) == len(trained) == 10 * batch
    assert scheduler.ledger.outstanding == set(), "nothing was started that could not train"
    assert sorted(clock.started) == sorted([*trained, *(group.number for group in dropped)])
    assert clock.most <= at_once


def test_the_oldest_ready_groups_train_first_and_slow_ones_are_waited_for(tmp_path):
    clock = Clock(lambda number: 200 if number == 1 else 0)
    batches, _ = asyncio.run(updates(scheduled(tmp_path, clock, updates=3, async_groups=4)))
    numbers = [numbers for _, numbers in batches]
    assert numbers[0] == [0, 2], "the slow group 1 is overtaken once"
    assert numbers[1] == [1, 3], "but not so often that it would be too old"


def test_a_slow_group_is_never_thrown_away(tmp_path):
    clock = Clock(lambda number: 500 if number % 3 == 0 else 0)
    _, dropped = asyncio.run(updates(scheduled(tmp_path, clock, staleness=2)))
    assert dropped == []


def test_each_synchronous_batch_is_sampled_by_one_version(tmp_path):
    clock = Clock(lambda number: number % 4, lambda number: "all-right" if number % 3 == 0 else None)
    batches, _ = asyncio.run(updates(scheduled(tmp_path, clock, synchronous=True, batch_groups=3, updates=5)))
    assert [numbers for _, numbers in batches] == [
        [1, 2, 4], [5, 7, 8], [10, 11, 13], [14, 16, 17], [19, 20, 22],
    ]  # fmt: skip
    assert all(clock.started[number] == version for version, numbers in batches for number in numbers)


def test_a_run_that_rejects_every_group_stops(tmp_path):
    clock = Clock(lambda number: 0, lambda number: "all-wrong" if number > 3 else None)
    message = rf"none of {MAX_WRONG} completions of {MAX_WRONG} groups is right"
    with pytest.raises(Stopped, match=message):
        asyncio.run(updates(scheduled(tmp_path, clock)))


def test_groups_of_a_killed_process_are_resumed(tmp_path):
    """Of four groups reserved, one is trained, one waits graded, one waits dropped, one has to be made again."""
    clock = Clock(lambda number: 0, lambda number: "all-right" if number == 2 else None)
    scheduler = scheduled(tmp_path, clock, async_groups=4, updates=1, batch_groups=1, staleness=3)
    for _ in range(4):
        scheduler._reserve()
    asyncio.run(settle(scheduler, [0, 1, 2]))
    scheduler.ledger.record_batch([0], "trained", step=1)
    scheduler.store.remove([0])
    scheduler.ledger.close()
    clock.version = 1
    again = scheduled(tmp_path, clock, batch_groups=2, updates=2)
    assert sorted(again.ready) == [1]
    assert [group.number for group in again.dropped] == [2]
    batches, _ = asyncio.run(updates(again))
    assert batches == [(1, [1, 3])]
    events = read(tmp_path / "ledger.jsonl")
    assert [event["event"] for event in events].count("again") == 1
    assert str(account(events)) == "4 groups reserved = 3 trained + 1 dropped (all-right 1)"


async def settle(scheduler, numbers):
    for number in numbers:
        scheduler._settle(await scheduler._roll_out(number))


def test_an_error_in_a_group_reaches_the_waiting_trainer(tmp_path):
    class Broken(Clock):
        async def roll_out(self, number, problem, settings, generated):
            raise EnvironmentFault("the generator is gone")

    with pytest.raises(EnvironmentFault, match="the generator is gone"):
        asyncio.run(updates(scheduled(tmp_path, Broken(lambda number: 0))))


@pytest.mark.parametrize(("staleness", "before", "after"), [(1, 8, 4), (3, 8, 4), (1, 8, 1), (0, 6, 2), (2, 3, 7)])
def test_batch_sizes_may_change_between_stages(tmp_path, staleness, before, after):
    stages = [(before, 16), (after, 16)]
    scheduler = scheduled(tmp_path, Clock(lambda number: number % 5), stages, staleness=staleness, updates=9)
    batches, _ = asyncio.run(asyncio.wait_for(updates(scheduler, lambda update: min(update // 3, 1)), 30))
    assert [len(numbers) for _, numbers in batches] == [before] * 3 + [after] * 6


def test_an_error_while_nobody_waits_is_raised_at_the_next_wait(tmp_path):
    class Breaking(Clock):
        async def roll_out(self, number, problem, settings, generated):
            if number == 3:
                raise EnvironmentFault("the generator is gone")
            return await super().roll_out(number, problem, settings, generated)

    async def scenario():
        scheduler = scheduled(tmp_path, Breaking(lambda number: 0), async_groups=3)
        with closing(scheduler.ledger):
            await scheduler.next_batch(0)
            while scheduler.running:
                await asyncio.sleep(0)
            await asyncio.wait_for(scheduler.next_batch(0), 10)

    with pytest.raises(EnvironmentFault, match="the generator is gone"):
        asyncio.run(scenario())


def test_a_run_rejecting_groups_with_different_rewards_gets_a_hint(tmp_path):
    class Graded(Clock):
        async def roll_out(self, number, problem, settings, generated):
            group = await super().roll_out(number, problem, settings, generated)
            rewards = tuple(replace(ungraded("wrong"), correctness=part) for part in (0.2, 0.7))
            return replace(group, rollouts=group.rollouts * 2, texts=group.texts * 2, rewards=rewards)

    with pytest.raises(Stopped, match=r"rewards differ within groups: try --diverse-by reward"):
        asyncio.run(updates(scheduled(tmp_path, Graded(lambda number: 0, lambda number: "all-wrong"))))


def test_a_run_that_ends_early_drops_the_remaining_groups(tmp_path):
    scheduler = scheduled(tmp_path, Clock(lambda number: number), batch_groups=3, staleness=2)

    async def scenario():
        await scheduler.next_batch(0)
        await scheduler.abandon("all-solved")
        scheduler.ledger.close()

    asyncio.run(scenario())
    assert scheduler.ledger.outstanding == set()
    assert account(read(tmp_path / "ledger.jsonl")).dropped.keys() == {"all-solved"}
