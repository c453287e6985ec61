"""Environments for tests: some that work, and one for each way to fail."""

import os
import signal
import time
from pathlib import Path


class Cup:
    """Tells the number under the cup after any turn, twice; the reward is the number of the model's turns."""

    max_turns = 3

    def reply(self, row, messages):
        return f"It is {row['answer']}." if len(turns(messages)) < 3 else None

    def reward(self, row, messages):
        return {"total": len(turns(messages)), "correct": row["answer"] in messages[-1]["content"], "asked": 2}


class Hint:
    """The same hint after the first turn; the row's verifier grades."""

    async def reply(self, row, messages):
        return {"role": "user", "content": "Again?"} if len(turns(messages)) == 1 else None


class Slow(Hint):
    """Says in the row's file that it works, and takes its time."""

    async def reply(self, row, messages):
        Path(row["flag"]).touch()
        time.sleep(0.05)
        return await super().reply(row, messages)


class Raises:
    def reply(self, row, messages):
        return row["no such column"]


class Nonsense:
    def reply(self, row, messages):
        return 42


class OtherRole:
    def reply(self, row, messages):
        return {"role": "system", "content": "Be brief."}


class Hangs:
    seconds = 0.5

    def reply(self, row, messages):
        time.sleep(60)


class Exits:
    def reply(self, row, messages):
        os._exit(3)


class Crashes:
    def reply(self, row, messages):
        os.kill(os.getpid(), signal.SIGSEGV)


class BadReward(Hint):
    def reward(self, row, messages):
        return "good"


class WithoutReply:
    def step(self, action):
        return action


class WrongSignature:
    def reply(self, messages):
        return None


class Endless(Hint):
    max_turns = 0


class OneRole(Hint):
    roles = "tool"


class NotMade(Hint):
    def __init__(self):
        raise RuntimeError("no key")


def total(completion, row):
    return 1.0


def turns(messages):
    return [message for message in messages if message["role"] == "assistant"]
