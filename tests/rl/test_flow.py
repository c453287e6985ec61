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
from magcli.rl.curriculum import Curriculum
from magcli.rl.flow import PATIENCE, Flow
from magcli.rl.ledger import Ledger, account, read
from magcli.rl.plan import Leg
from magcli.rl.rollouts import Group
from magcli.rl.store import Store
from magcli.verify.reward import undecided

PROBLEMS = [{"id": f"p{i}", "prompt": "?", "answer": "1"} for i in range(7)]


class Clock:
    """Makes groups without a model: each takes some ticks; some are dropped. ``version`` counts updates."""

    def __init__(self, ticks, dropped=lambda number: None):
        self.ticks, self.dropped, self.version = ticks, dropped, 0
        self.policy, self.under_way, self.most = self, 0, 0
        self.started = {}

    async def roll_out(self, number, problem, generated):
        self.started[number] = self.version
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        for _ in range(self.ticks(number)):
            await asyncio.sleep(0)
        self.under_way -= 1
        generated(3)
        rollout = Rollout(0, (1,), (2, 3, 4), (-1.0,) * 3, ((0, self.started[number]),), "stop", 7)
        return Group(number, problem, (1,), (rollout,), ("x",), (undecided("wrong"),), self.dropped(number))


def flowing(path, clock, **sizes):
    sizes = {"batch_groups": 2, "async_groups": 8, "staleness": 1, "updates": 10} | sizes
    leg = Leg(None, 1, sizes.pop("batch_groups"), sizes.pop("async_groups"), None, None)
    ledger, curriculum = Ledger(path / "ledger.jsonl"), Curriculum(PROBLEMS, 0)
    for event in read(ledger.path):
        curriculum.follow(event)
    return Flow(clock, curriculum, ledger, Store(path), leg, **sizes)


async def updates(flow, schedule="asynchronous"):
    """All batches, each with the version of the weights that it trains."""
    batches = []
    try:
        while flow.roller.version < flow.updates:
            batch = await getattr(flow, schedule)()
            batches.append((flow.roller.version, [group.number for group in batch]))
            flow.roller.version += 1
            flow.ledger.note_batch([group.number for group in batch], "trained", step=flow.roller.version)
    finally:
        await flow.stop()
        flow.ledger.close()
    return batches


@given(st.integers(0, 3), st.integers(1, 3), st.integers(1, 12), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_staleness_is_bounded_whatever_the_groups_take(tmp_path_factory, staleness, batch, at_once, seed):
    choose = random.Random(seed)
    ticks = [choose.choice([0, 1, 2, 30]) for _ in range(500)]
    gone = [choose.random() < 0.3 for _ in range(500)]
    clock = Clock(ticks.__getitem__, lambda number: "all-wrong" if gone[number] else None)
    sizes = {"batch_groups": batch, "async_groups": at_once, "staleness": staleness}
    flow = flowing(tmp_path_factory.mktemp("flow"), clock, **sizes)
    batches = asyncio.run(updates(flow))
    for version, numbers in batches:
        assert len(numbers) == batch
        assert all(version - clock.started[number] <= staleness for number in numbers)
    trained = [number for _, numbers in batches for number in numbers]
    assert len(set(trained)) == len(trained) == 10 * batch
    assert flow.ledger.outstanding == set(), "nothing was started that could not train"
    assert sorted(clock.started) == sorted([*trained, *(group.number for group in flow.dropped)])
    assert clock.most <= at_once


def test_the_oldest_ready_groups_train_first_and_slow_ones_are_waited_for(tmp_path):
    clock = Clock(lambda number: 200 if number == 1 else 0)
    batches = asyncio.run(updates(flowing(tmp_path, clock, updates=3, async_groups=4)))
    numbers = [numbers for _, numbers in batches]
    assert numbers[0] == [0, 2], "the slow group 1 is overtaken once"
    assert numbers[1] == [1, 3], "but not so often that it would be too old"


def test_a_slow_group_is_never_thrown_away(tmp_path):
    clock = Clock(lambda number: 500 if number % 3 == 0 else 0)
    flow = flowing(tmp_path, clock, staleness=2)
    asyncio.run(updates(flow))
    assert flow.dropped == []


def test_each_synchronous_batch_is_begun_and_ended_by_one_version(tmp_path):
    clock = Clock(lambda number: number % 4, lambda number: "all-right" if number % 3 == 0 else None)
    batches = asyncio.run(updates(flowing(tmp_path, clock, batch_groups=3, updates=5), "synchronous"))
    assert [numbers for _, numbers in batches] == [
        [1, 2, 4], [5, 7, 8], [10, 11, 13], [14, 16, 17], [19, 20, 22],
    ]  # fmt: skip
    assert all(clock.started[number] == version for version, numbers in batches for number in numbers)


def test_groups_without_end_in_vain_stop_the_run(tmp_path):
    clock = Clock(lambda number: 0, lambda number: "all-wrong" if number > 3 else None)
    flow = flowing(tmp_path, clock)
    with pytest.raises(Stopped, match=rf"{2 * PATIENCE + 1} groups in a row taught nothing \(all-wrong 101\)"):
        asyncio.run(updates(flow))


def test_what_a_killed_process_left_is_taken_up(tmp_path):
    """Of four groups reserved, one is trained, one waits graded, one waits dropped, one has to be made again."""
    clock = Clock(lambda number: 0, lambda number: "all-right" if number == 2 else None)
    flow = flowing(tmp_path, clock, async_groups=4, updates=1, batch_groups=1, staleness=3)
    for _ in range(4):
        flow._reserve()
    asyncio.run(settle(flow, [0, 1, 2]))
    flow.ledger.note_batch([0], "trained", step=1)
    flow.store.remove([0])
    flow.ledger.close()
    clock.version = 1
    again = flowing(tmp_path, clock, batch_groups=2, updates=2)
    assert sorted(again.ready) == [1]
    assert [group.number for group in again.dropped] == [2]
    batches = asyncio.run(updates(again))
    assert batches == [(1, [1, 3])]
    told = read(tmp_path / "ledger.jsonl")
    assert [event["event"] for event in told].count("again") == 1
    assert str(account(told)) == "4 groups reserved = 3 trained + 1 dropped (all-right 1)"


async def settle(flow, numbers):
    for number in numbers:
        flow._settle(await flow._roll_out(number))


def test_an_error_in_a_group_reaches_who_waits_for_a_batch(tmp_path):
    class Broken(Clock):
        async def roll_out(self, number, problem, generated):
            raise EnvironmentFault("the generator is gone")

    with pytest.raises(EnvironmentFault, match="the generator is gone"):
        asyncio.run(updates(flowing(tmp_path, Broken(lambda number: 0))))


@pytest.mark.parametrize(("staleness", "before", "after"), [(1, 8, 4), (3, 8, 4), (1, 8, 1), (0, 6, 2), (2, 3, 7)])
def test_a_stage_may_have_other_batches_than_the_one_before(tmp_path, staleness, before, after):
    flow = flowing(tmp_path, Clock(lambda number: number % 5), batch_groups=before, staleness=staleness, updates=9)

    async def in_two_stages():
        first, sizes = flow.updates, []
        for update in range(first):
            flow.enter(update // 3, Leg(None, 1, before if update < 3 else after, 16, None, None))
            batch = await asyncio.wait_for(flow.asynchronous(), 10)
            sizes.append(len(batch))
            flow.roller.version += 1
            flow.ledger.note_batch([group.number for group in batch], "trained", step=flow.roller.version)
        await flow.stop()
        flow.ledger.close()
        return sizes

    flow.enter = lambda stage, leg: setattr(flow, "leg", leg)  # the clock has no sampling to change
    assert asyncio.run(in_two_stages()) == [before] * 3 + [after] * 6


def test_an_error_while_nobody_waits_reaches_the_next_who_does(tmp_path):
    class Breaking(Clock):
        async def roll_out(self, number, problem, generated):
            if number == 3:
                raise EnvironmentFault("the generator is gone")
            return await super().roll_out(number, problem, generated)

    async def scenario():
        flow = flowing(tmp_path, Breaking(lambda number: 0), async_groups=3)
        with closing(flow.ledger):
            await flow.asynchronous()
            while flow.running:
                await asyncio.sleep(0)
            await asyncio.wait_for(flow.asynchronous(), 10)

    with pytest.raises(EnvironmentFault, match="the generator is gone"):
        asyncio.run(scenario())


def test_groups_whose_rewards_differ_are_pointed_out(tmp_path):
    class Graded(Clock):
        async def roll_out(self, number, problem, generated):
            group = await super().roll_out(number, problem, generated)
            rewards = tuple(replace(undecided("wrong"), correctness=part) for part in (0.2, 0.7))
            return replace(group, rollouts=group.rollouts * 2, texts=group.texts * 2, rewards=rewards)

    with pytest.raises(Stopped, match=r"rewards differ within some: --diverse-by reward trains on these"):
        asyncio.run(updates(flowing(tmp_path, Graded(lambda number: 0, lambda number: "all-wrong"))))


def test_a_run_that_ends_early_drops_what_is_left(tmp_path):
    flow = flowing(tmp_path, Clock(lambda number: number), batch_groups=3, staleness=2)

    async def scenario():
        await flow.asynchronous()
        await flow.abandon("all-solved")
        flow.ledger.close()

    asyncio.run(scenario())
    assert flow.ledger.outstanding == set()
    assert account(read(tmp_path / "ledger.jsonl")).dropped.keys() == {"all-solved"}
