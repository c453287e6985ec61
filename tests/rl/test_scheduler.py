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
from magcli.rl.curriculum import AllSolved, Curriculum, StageProblems
from magcli.rl.ledger import Ledger, account, read
from magcli.rl.outcomes import MAX_WRONG
from magcli.rl.scheduler import RolloutScheduler, Schedule
from magcli.rl.store import RolloutStore
from magcli.rl.training_stages import StageOptions, TrainingStages
from magcli.rl.types import Group, StageSettings
from magcli.verify.reward import ungraded

PROBLEMS = [{"id": f"p{i}", "prompt": "?", "answer": "1"} for i in range(7)]


class Clock:
    """Makes groups without a model: each of their completions takes some ticks; some groups are dropped.

    It is the engine too, with ``num_slots`` slots that the scheduler sets. ``version`` counts updates.
    """

    def __init__(self, ticks, dropped=lambda number: None, group_size=1, backlog=0):
        self.ticks, self.dropped, self.version = ticks, dropped, 0
        self.engine, self.under_way, self.most = self, 0, 0
        self.group_size, self.backlog = group_size, backlog
        self.started, self.order = {}, []
        self.num_slots = 1
        self.slots_changed = asyncio.Condition()

    @property
    def capacity(self):
        return self.num_slots + self.backlog

    def set_concurrency(self, sequences):
        self.num_slots = sequences

    async def roll_out(self, number, problem, settings, ended, environment_works):
        rollouts = await asyncio.gather(*(self.complete(number, index, ended) for index in range(self.group_size)))
        rewards = (ungraded("wrong"),) * self.group_size
        texts = ("x",) * self.group_size
        return Group(number, problem, (1,), tuple(rollouts), texts, rewards, self.dropped(number))

    def length(self, number, index):
        return self.ticks(number)

    async def complete(self, number, index, ended):
        async with self.slots_changed:
            await self.slots_changed.wait_for(lambda: self.under_way < self.num_slots)
            self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.started.setdefault(number, self.version)
        self.order.append(number)
        for _ in range(self.length(number, index)):
            await asyncio.sleep(0)
        async with self.slots_changed:
            self.under_way -= 1
            self.slots_changed.notify_all()
        rollout = Rollout(index, (1,), (2, 3, 4), (-1.0,) * 3, ((0, self.started[number]),), "stop", 7)
        ended(rollout)
        return rollout


class WithTools(Clock):
    """The same with two turns in each completion; between them a tool works for ``tool`` ticks, without a slot."""

    def __init__(self, ticks, tool, **options):
        super().__init__(ticks, **options)
        self.tool = tool

    async def roll_out(self, number, problem, settings, ended, environment_works):
        self.works = environment_works
        return await super().roll_out(number, problem, settings, ended, environment_works)

    async def complete(self, number, index, ended):
        works = self.works
        await super().complete(number, index, lambda rollout: None)
        works(1)
        for _ in range(self.tool):
            await asyncio.sleep(0)
        works(-1)
        return await super().complete(number, index, ended)


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
        TrainingStages([StageOptions()] * len(stages), settings),
        Schedule(synchronous, sizes["staleness"], sizes["updates"]),
    )


async def updates(scheduler, stage_of=lambda update: 0):
    """All batches, each with the version of the weights that it trains, and all dropped groups."""
    batches, dropped = [], []
    try:
        while scheduler.version < scheduler.admission.updates:
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
    scheduler.update_finished()
    scheduler.ledger.record_batch([group.number for group in batch.trained], "trained", step=scheduler.version)


@given(
    staleness=st.integers(0, 3),
    batch=st.integers(1, 3),
    slots=st.integers(1, 12),
    group_size=st.integers(1, 4),
    backlog=st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_staleness_is_bounded_however_long_completions_take(
    tmp_path_factory, staleness, batch, slots, group_size, backlog, seed
):
    """A group trains at most S updates after it was started, each group trains once or is dropped."""
    choose = random.Random(seed)
    ticks = [choose.choice([0, 1, 2, 30]) for _ in range(500)]
    gone = [choose.random() < 0.3 for _ in range(500)]
    clock = Clock(ticks.__getitem__, lambda number: "all-wrong" if gone[number] else None, group_size, backlog)
    sizes = {"batch_groups": batch, "async_groups": slots, "staleness": staleness}
    scheduler = scheduled(tmp_path_factory.mktemp("run"), clock, **sizes)
    batches, dropped = asyncio.run(updates(scheduler))
    reserved = {
        event["group"]: event["version"] for event in read(scheduler.ledger.path) if event["event"] == "reserved"
    }
    for version, numbers in batches:
        assert len(numbers) == batch
        assert all(version - reserved[number] <= staleness for number in numbers)
        assert all(reserved[number] <= clock.started[number] for number in numbers)
    trained = [number for _, numbers in batches for number in numbers]
    assert len(set(trained)) == len(trained) == 10 * batch
    assert scheduler.ledger.outstanding == set(), "nothing was started that could not train"
    assert sorted(clock.started) == sorted([*trained, *(group.number for group in dropped)])
    assert clock.most <= slots * group_size
    assert clock.order == sorted(clock.order), "the rest of a group that has started comes before the next group"


def test_a_freed_slot_takes_the_next_completion_while_its_group_runs_on(tmp_path):
    """One completion in each group is long; the slots of the others do not wait for it."""

    class LongTail(Clock):
        def length(self, number, index):
            return 200 if index == 0 else 20

    clock, running = LongTail(None, group_size=4, backlog=1), []

    async def watch():
        while True:
            running.append(clock.under_way)
            await asyncio.sleep(0)

    async def scenario():
        watcher = asyncio.create_task(watch())
        await updates(scheduled(tmp_path, clock, batch_groups=1, async_groups=2, staleness=30, updates=40))
        watcher.cancel()

    asyncio.run(scenario())
    steady = running[len(running) // 4 : len(running) // 2]
    assert sum(steady) / len(steady) > 0.8 * 8


def test_idle_time_has_its_cause(tmp_path):
    """Slots are empty because of the bound, because of missing verdicts, or because the trainer works."""
    now = [0.0]

    class Slow(Clock):
        async def roll_out(self, number, problem, settings, ended, environment_works):
            group = await super().roll_out(number, problem, settings, ended, environment_works)
            await asyncio.Future() if number else None
            return group

    async def scenario():
        scheduler = scheduled(tmp_path, Slow(lambda number: 0), batch_groups=1, async_groups=4, staleness=0)
        scheduler.clock = lambda: now[0]
        with closing(scheduler.ledger):
            batch = await scheduler.next_batch(0)
            scheduler.utilization.metrics(0.0)
            now[0] = 3.0  # the trainer works; the bound of 0 admits no other group
            with scheduler.trainer_in("weights"):
                now[0] = 4.0
            trained(scheduler, batch)
            waiting = asyncio.create_task(scheduler.next_batch(0))
            for _ in range(20):
                await asyncio.sleep(0)
            now[0] = 10.0  # group 1 is generated, and its verdict never arrives
            metrics = scheduler.utilization.metrics(now[0])
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await scheduler.stop()
        return metrics

    metrics = asyncio.run(scenario())
    assert metrics["generator_idle_admission"] == pytest.approx(0.4)
    assert metrics["generator_idle_verifier"] == pytest.approx(0.6)
    assert metrics["generator_idle"] == pytest.approx(1.0)
    assert metrics["trainer_idle_weights"] == pytest.approx(0.1)
    assert metrics["trainer_idle_verifier"] == pytest.approx(0.6)
    assert metrics["trainer_idle"] == pytest.approx(0.7)


def test_slots_fill_at_the_start_of_an_update_although_none_is_in_use(tmp_path):
    """Generation was ahead by two batches and had stopped; nothing ends that could start the next groups."""

    async def scenario():
        scheduler = scheduled(tmp_path, Clock(lambda number: 0), async_groups=2, staleness=8)
        with closing(scheduler.ledger):
            trained(scheduler, await scheduler.next_batch(0))
            while scheduler.running:  # all end
                await asyncio.sleep(0)
            before = scheduler.admission.in_flight, len(scheduler.ready)
            await scheduler.next_batch(0)
            during = scheduler.admission.in_flight
            await scheduler.stop()
        return before, during

    before, during = asyncio.run(scenario())
    assert before[0] == 0
    assert before[1] >= 4
    assert during > 0


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
        async def roll_out(self, number, problem, settings, ended, environment_works):
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
        async def roll_out(self, number, problem, settings, ended, environment_works):
            if number == 3:
                raise EnvironmentFault("the generator is gone")
            return await super().roll_out(number, problem, settings, ended, environment_works)

    async def scenario():
        scheduler = scheduled(tmp_path, Breaking(lambda number: 0), async_groups=3)
        with closing(scheduler.ledger):
            await scheduler.next_batch(0)
            while scheduler.running:
                await asyncio.sleep(0)
            await asyncio.wait_for(scheduler.next_batch(0), 10)

    with pytest.raises(EnvironmentFault, match="the generator is gone"):
        asyncio.run(scenario())


def solved_after(monkeypatch, groups, *, stage=0):
    """All problems of a stage are solved once so many groups have started."""
    problem = Curriculum.problem

    def problem_or_none(curriculum, number, stage_of_group=0):
        if number >= groups and stage_of_group == stage:
            raise AllSolved("rl: all 7 problems are solved")
        return problem(curriculum, number, stage_of_group)

    monkeypatch.setattr(Curriculum, "problem", problem_or_none)


@pytest.mark.parametrize("ticks", [lambda number: 0, lambda number: 3 + number % 2])
@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_every_batch_that_was_taken_is_trained_before_solved_problems_end_the_run(
    tmp_path, monkeypatch, staleness, ticks
):
    solved_after(monkeypatch, 6)
    scheduler = scheduled(tmp_path, Clock(ticks), staleness=staleness)
    with pytest.raises(AllSolved):
        asyncio.run(asyncio.wait_for(updates(scheduler), 30))
    events = read(tmp_path / "ledger.jsonl")
    steps = {kind: [event["step"] for event in events if event["event"] == kind] for kind in ("taken", "trained")}
    assert steps["taken"] == steps["trained"] == list(range(1, scheduler.version + 1))
    assert scheduler.version > 0
    assert account(events).faults == ()


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_problems_solved_by_the_last_update_of_a_stage_do_not_end_the_next_one(tmp_path, monkeypatch, staleness):
    solved_after(monkeypatch, 4, stage=0)
    scheduler = scheduled(tmp_path, Clock(lambda number: 0), [(2, 8), (2, 8)], staleness=staleness, updates=5)
    batches, _ = asyncio.run(asyncio.wait_for(updates(scheduler, lambda update: int(update >= 2)), 30))
    assert [numbers for _, numbers in batches] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_a_run_rejecting_groups_with_different_rewards_gets_a_hint(tmp_path):
    class Graded(Clock):
        async def roll_out(self, number, problem, settings, ended, environment_works):
            group = await super().roll_out(number, problem, settings, ended, environment_works)
            rewards = tuple(replace(ungraded("wrong"), correctness=part, total=part) for part in (0.2, 0.7))
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


def test_other_groups_have_the_slots_while_an_environment_works(tmp_path):
    tools = WithTools(lambda number: 10, tool=40, backlog=1)
    scheduler = scheduled(tmp_path, tools, batch_groups=2, async_groups=4, staleness=12, updates=12)
    batches, _ = asyncio.run(updates(scheduler))
    assert len(batches) == 12
    working = [number for number, version in tools.started.items() if version == 0]
    assert len(working) > tools.num_slots + tools.backlog, "slots of waiting episodes went to other groups"
    assert tools.most == tools.num_slots
