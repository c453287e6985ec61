"""The weights being trained and where they stand."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from magcli.errors import Stopped
from magcli.rl.objective import Objective, Tally
from magcli.rl.plan import Leg
from magcli.rl.rollouts import Group
from magcli.rl.update import BeforeStep, update
from magcli.train.controller import RankController

MAX_BAD_UPDATES = 5
"""Updates in a row without a finite gradient before the run stops."""

Result = TypeVar("Result")


@dataclass
class Trainer:
    """A model that learns, by one rank or many: ``updates`` times, of which ``done`` are: the weights' version."""

    controller: RankController
    objective: Objective
    groups_per_step: int
    updates: int
    lr: float
    warmup: int
    shuffle_rewards: bool
    seed: int
    done: int = 0
    bad_updates: int = 0

    def enter(self, leg: Leg) -> None:
        """Begin a stage of the run."""
        self.objective, self.groups_per_step = leg.objective, leg.groups_per_step

    def learn(self, groups: Sequence[Group], before_step: BeforeStep | None = None) -> Tally:
        """One update; ``before_step`` is told the mismatch with the engine before any weight changes, and may raise.

        Raises:
            Stopped: several updates in a row had no finite gradient.
        """
        rate = min(1.0, (self.done + 1) / self.warmup) if self.warmup else 1.0
        rewards = [[reward.total for reward in group.rewards] for group in groups]
        if self.shuffle_rewards:
            rewards = shuffled(rewards, [self.seed, self.done])
        tally = update(
            self.controller,
            groups,
            self.objective,
            groups_per_step=self.groups_per_step,
            rewards=rewards,
            lr=self.lr * rate,
            version=self.done,
            before_step=before_step,
        )
        self.done += 1
        self.bad_updates = 0 if tally.norms else self.bad_updates + 1
        if self.bad_updates == MAX_BAD_UPDATES:
            raise Stopped(f"rl: no finite gradient in {MAX_BAD_UPDATES} updates up to {self.done}; try a lower --lr")
        return tally


def shuffled(rewards: Sequence[Sequence[float]], seed: Sequence[int]) -> list[list[float]]:
    """The control of the learning experiments: within each group the rewards change hands at random."""
    random = np.random.default_rng(list(seed))
    return [random.permutation(np.asarray(group)).tolist() for group in rewards]


async def in_thread(work: Callable[[], Result]) -> Result:
    """Do a long computation beside the event loop; being cancelled leaves it behind, and the process may end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            loop.call_soon_threadsafe(settle, None, error)
        else:
            loop.call_soon_threadsafe(settle, result, None)

    threading.Thread(target=run, name="magcli-trainer", daemon=True).start()
    return await done
