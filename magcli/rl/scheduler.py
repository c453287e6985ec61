"""Keep the generators busy, and give the trainer its batches.

``async``: generation continues while groups wait and during updates; ``magcli.rl.admission`` has the rules.

``sync``: the deterministic baseline; each batch is sampled from one version of the weights.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from magcli.errors import Stopped
from magcli.generate.types import Rollout
from magcli.rl.admission import Admission
from magcli.rl.curriculum import AllSolved, Curriculum
from magcli.rl.ledger import Ledger
from magcli.rl.outcomes import GroupOutcomes
from magcli.rl.rollouts import GroupSampler
from magcli.rl.store import RolloutStore
from magcli.rl.training_stages import TrainingStages
from magcli.rl.types import Batch, Group, StageSettings
from magcli.rl.utilization import SlotState, TrainerState, Utilization
from magcli.run.tasks import end_all
from magcli.verify.types import UNGRADED


@dataclass(frozen=True, slots=True)
class Schedule:
    """When groups may start.

    Attributes:
        synchronous: each batch is sampled from one version of the weights.
        staleness: S, in updates.
        updates: number of updates of the run.
        generates_during_updates: whether the engines work while the trainer does; else both take turns on one device.
    """

    synchronous: bool
    staleness: int
    updates: int
    generates_during_updates: bool = True


class RolloutScheduler:
    """The groups that are running, ready to train, or dropped since the last update.

    Args:
        sampler: generates and grades groups.
        curriculum: chooses their problems.
        ledger: records their events.
        store: holds finished groups, also those of an interrupted process.
        stages: the sizes of the run's stages.
        schedule: when groups may start.
        custom_reward: the reward is not the recipe's, and may be on any scale.
        clock: the time in seconds.
    """

    def __init__(
        self,
        sampler: GroupSampler,
        curriculum: Curriculum,
        ledger: Ledger,
        store: RolloutStore,
        stages: TrainingStages,
        schedule: Schedule,
        *,
        custom_reward: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sampler = sampler
        self.curriculum = curriculum
        self.ledger = ledger
        self.store = store
        self.stages = stages
        self.synchronous = schedule.synchronous
        self.generates_during_updates = schedule.generates_during_updates
        self.clock = clock
        # One batch for the next update; where generation goes on meanwhile, one more.
        max_queued = 2 if schedule.generates_during_updates else 1
        self.admission = Admission(
            sampler.group_size, schedule.staleness, schedule.updates, max_queued, version=self.version
        )
        self.utilization = Utilization(clock())
        self.trainer_state: TrainerState = "generation"
        self.stage = 0
        self.running: set[asyncio.Task[Group]] = set()
        self.ready: dict[int, Group] = {}
        self.dropped: list[Group] = []
        self.outcomes = GroupOutcomes(custom=custom_reward)
        self.generated_tokens = 0
        """Tokens of the completions that have ended in this process, those of evaluations included."""
        self.evaluating = 0
        """Sequences of an evaluation that the engines have besides the completions of groups."""
        self._taken: list[int] = []
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._all_solved: AllSolved | None = None
        """Why no further group of the stage can start. It is raised once those that have started fill no batch."""
        # Last, since it uses everything above.
        self._unfinished = self._restore()

    def _restore(self) -> list[int]:
        """Load the groups on disk as ready or dropped; returns those that an interrupted process left unfinished."""
        self.admission.started.update(self.ledger.started)
        for number in self.store.numbers():
            group = self.store.load(number)
            if number not in self.ledger.graded:
                # A kill came between the file of the group and its event.
                self._record_outcome(group)
            if group.dropped is not None:
                self.dropped.append(group)
                self.admission.started.pop(number, None)
            elif number in self.ledger.outstanding:
                self.ready[number] = group
                self.admission.admit(number)
        return sorted(self.ledger.outstanding - self.ready.keys())

    @property
    def version(self) -> int:
        """The version of the weights that generate the next token."""
        return self.sampler.engine.version

    @property
    def settings(self) -> StageSettings:
        """The settings of the current stage."""
        return self.stages.settings[self.stage]

    async def next_batch(self, stage: int) -> Batch:
        """The groups of the next update, which is of this stage, and those dropped since the last one.

        Groups that start from now on have the settings of the stage; running ones keep theirs.
        """
        self.stage = stage
        # What was found during an update may be of the stage before; else it is found again.
        self._all_solved = None
        self.admission.batch = self.settings.batch_groups
        self.sampler.engine.set_concurrency(self._concurrency)
        with self.trainer_in(self.admission.waits_for()):
            if self.synchronous:
                trained = await self._collect_synchronous()
            else:
                trained = await self._collect_asynchronous()
        # In this order the tables of a run do not depend on which group ended first.
        dropped = sorted(self.dropped, key=lambda group: group.number)
        self.dropped = []
        return Batch(trained, dropped)

    def update_finished(self) -> None:
        """The engines have the weights of the update of the last batch."""
        self.admission.trained(self._taken)
        self._taken = []
        if not self.synchronous and self.generates_during_updates:
            self._start_admitted()

    @contextmanager
    def trainer_in(self, state: TrainerState) -> Iterator[None]:
        """Note for the idle times what the trainer does or waits for in the block; after it, it trains."""
        self.trainer_state = state
        self._measure()
        try:
            yield
        finally:
            self.trainer_state = "training"
            self._measure()

    def evaluation_started(self, samples: int) -> None:
        """The engines have more sequences of an evaluation, which only speeds and idle times count."""
        self.evaluating += samples
        self._measure()

    def evaluation_ended(self, rollout: Rollout) -> None:
        """A sequence of an evaluation has ended."""
        self.evaluating -= 1
        self.generated_tokens += rollout.num_generated
        self._measure()

    @property
    def _concurrency(self) -> int:
        """The number of completions to be generated at once."""
        return self.settings.async_groups * self.admission.group_size

    def _measure(self) -> None:
        """Note for the idle times what slots and trainer do from now on."""
        now = self.clock()
        self.utilization.trainer(self.trainer_state, now)
        trainer_has_device = not self._trainer_is_waiting and self.trainer_state != "evaluation"
        if trainer_has_device and not self.generates_during_updates:
            # On one device the engines wait for the update and its weights.
            self.utilization.slots(0, self._concurrency, "weights", now)
            return
        # What is more than the slots waits for one.
        running = min(self.admission.in_flight + self.evaluating, self.sampler.engine.num_slots)
        # Slots that wait do so for what the trainer waits for.
        idle: SlotState = "verifier" if self.trainer_state == "verifier" else "admission"
        self.utilization.slots(running, self._concurrency, idle, now)

    @property
    def _trainer_is_waiting(self) -> bool:
        return self.trainer_state in ("generation", "verifier")

    async def _collect_asynchronous(self) -> list[Group]:
        """The oldest groups of a batch, once enough are ready and no slow group would exceed the staleness bound."""
        self._start_admitted()
        while True:
            if self._failure is not None:
                raise self._failure
            if self._all_solved is not None and not self.admission.has_batch:
                raise self._all_solved
            numbers = self.admission.choose()
            if numbers is not None:
                batch = self._take(numbers)
                if self.generates_during_updates:
                    self._start_admitted()  # one batch less waits, so more may be generated
                return batch
            # Nothing else runs between the choice and this, so no change is missed.
            self._changed.clear()
            await self._changed.wait()

    async def _collect_synchronous(self) -> list[Group]:
        """A batch sampled from the current weights only; dropped groups are replaced in further rounds."""
        numbers = [self._restart(number) for number in self._unfinished]
        self._unfinished = []
        await self._roll_out_all(numbers)
        # A round has as many groups as are missing; those that are dropped go to the next round.
        while len(self.ready) < self.settings.batch_groups:
            missing = self.settings.batch_groups - len(self.ready)
            numbers = [self._reserve() for _ in range(missing)]
            await self._roll_out_all(numbers)
        return self._take(sorted(self.ready))

    async def _roll_out_all(self, numbers: Sequence[int]) -> None:
        """Sample and grade groups at once, and store them in the order of their numbers, not of their ends."""
        groups = await asyncio.gather(*(self._roll_out(number) for number in numbers))
        for group in groups:
            self._settle(group)

    def _start_admitted(self) -> None:
        """Start groups while the engines have room and the bound on staleness allows it."""
        capacity = self.sampler.engine.capacity
        # Groups of an interrupted process are within the bound already: they were started before.
        while self._unfinished and self.admission.in_flight < capacity:
            self._start(self._restart(self._unfinished.pop(0)))
        while self.admission.may_start(capacity) and self._all_solved is None:
            self._start_next()
        self._measure()

    def _start_next(self) -> None:
        """Start the group of the next problem, or note that there is none."""
        try:
            number = self._reserve()
        except AllSolved as end:
            # Not raised here: a batch may be under way, which has to be trained and recorded.
            self._all_solved = end
            self._changed.set()
        else:
            self._start(number)

    def _reserve(self) -> int:
        # Reserved on disk before it starts, so that a kill leaves no group without its problem.
        number = self.ledger.next_number
        problem = self.curriculum.problem(number, self.stage)["id"]
        self.ledger.record(number, "reserved", problem=problem, version=self.version, stage=self.stage)
        return number

    def _restart(self, number: int) -> int:
        self.ledger.record(number, "again", version=self.version)
        return number

    def _start(self, number: int) -> None:
        task = self._roll_out(number)
        # Kept, since an event loop holds its tasks only weakly.
        self.running.add(task)
        task.add_done_callback(self._ended)

    def _roll_out(self, number: int) -> asyncio.Task[Group]:
        tokens_of_group = 0

        def completion_ended(rollout: Rollout) -> None:
            nonlocal tokens_of_group
            tokens_of_group += rollout.num_generated
            self.generated_tokens += rollout.num_generated
            # The ledger knows of groups only, not of their completions.
            is_last = self.admission.completion_ended(number)
            if is_last:
                self.ledger.record(number, "generated", tokens=tokens_of_group, version=self.version)
            self._refill()

        def environment_works(change: int) -> None:
            # The slot is free for another completion while the environment has the turn.
            self.admission.in_flight -= change
            self._refill()

        self.admission.start(number)
        problem = self.curriculum.problem(number, self.stage)
        job = self.sampler.roll_out(number, problem, self.settings, completion_ended, environment_works)
        return asyncio.create_task(job)

    def _refill(self) -> None:
        """Start groups for the slots that became free, also during an update."""
        if self._trainer_is_waiting:
            self.trainer_state = self.admission.waits_for()
        if self.synchronous or self._failure is not None:
            self._measure()
        else:
            self._start_admitted()

    def _ended(self, task: asyncio.Task[Group]) -> None:
        """Store a group that has ended, perhaps during an update, and start the groups that may start now."""
        self.running.discard(task)
        if task.cancelled():
            return
        task.exception()  # else asyncio would log it if another group's failure has already ended the run
        if self._failure is not None:
            return
        try:
            self._settle(task.result())
            self._refill()
        except Exception as error:
            self._failure = error
        # Also after a failure, which ``next_batch`` raises.
        self._changed.set()

    def _settle(self, group: Group) -> None:
        """Store a finished group as ready to train or as dropped."""
        # As read back: rewards are rounded to float32 in the file, and a resumed run reads them there.
        group = self.store.add(group)
        self._record_outcome(group)
        self.outcomes.add(group)
        if group.dropped is None:
            self.admission.admit(group.number)
            self.ready[group.number] = group
        else:
            self.admission.drop(group.number)
            self.dropped.append(group)
        if reason := self.outcomes.stop_reason(self.settings.batch_groups):
            raise Stopped(f"rl: {reason}")

    def _record_outcome(self, group: Group) -> None:
        number, dropped = group.number, group.dropped
        # If one completion could not be graded, nothing is known of the group.
        graded = 0 if dropped in UNGRADED else len(group.rewards)
        correct = sum(reward.correct for reward in group.rewards)
        problem = self.ledger.problems[number]
        self.curriculum.observe(problem, correct, graded, trains=dropped is None)
        # A resumed run replays these events to the curriculum in this order.
        if dropped is None:
            self.ledger.record(number, "admitted", right=correct, graded=graded)
        else:
            self.ledger.record(number, "dropped", reason=dropped, right=correct, graded=graded)

    def _take(self, numbers: Sequence[int]) -> list[Group]:
        """Remove the groups of the next update from the ready ones, and record the update before it begins."""
        problems = self.curriculum.counts()
        counts = {f"problems_{state}": count for state, count in problems._asdict().items()}
        self.ledger.record_batch(numbers, "taken", step=self.version + 1, stage=self.stage, **counts)
        # After a power cut the same groups are trained again, by the same update.
        self.ledger.sync()
        self.admission.take(numbers)
        self._taken = list(numbers)
        return [self.ready.pop(number) for number in numbers]

    async def abandon(self, reason: str) -> None:
        """End the run early and drop the outstanding groups."""
        await self.stop()
        for number in sorted(self.ledger.outstanding):
            self.ledger.record(number, "dropped", reason=reason, right=0, graded=0)

    async def stop(self) -> None:
        """Cancel the running groups; a resumed run generates them again."""
        await end_all(self.running)
        self.running.clear()
