"""Environments in their workers: what they may return, and that whatever they do has a reason."""

import asyncio
from pathlib import Path

import pytest

from magcli.environments.environment import in_workers
from magcli.environments.trial import failure_of
from magcli.errors import UsageError
from magcli.verify import loading
from magcli.verify.environment import Reply, as_reply, terms_of
from magcli.verify.reward import Reward

FILE = Path(__file__).with_name("toys.py")
ROW = {"id": "p1", "prompt": "What is under the cup?", "answer": "7"}
MESSAGES = [{"role": "user", "content": ROW["prompt"]}, {"role": "assistant", "content": "look"}]


def asked(name, what="reply", messages=MESSAGES):
    with in_workers(f"{FILE}:{name}", sandbox="none") as environment:
        return asyncio.run(getattr(environment, what)(ROW, messages))


def test_a_reply_is_a_turn_of_the_user_and_the_reward_has_parts():
    assert asked("Cup") == Reply(({"role": "user", "content": "It is 7."},))
    end = [*MESSAGES, {"role": "user", "content": "It is 7."}, {"role": "assistant", "content": "7"}]
    reward = asked("Cup", "reward", end)
    assert (reward.total, reward.correct, reward.parts) == (2.0, True, {"asked": 2.0})


def test_an_environment_may_be_asynchronous_and_ends_an_episode_with_none():
    assert asked("Hint") == Reply(({"role": "user", "content": "Again?"},))
    assert asked("Hint", messages=[*MESSAGES, *MESSAGES]) == Reply(())


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Raises", "KeyError: 'no such column' (toys.py:"),
        ("Nonsense", "returned 42, not None, a text, a message or a list of messages"),
        ("OtherRole", "has the role 'system', but the class has roles = (user)"),
        ("Hangs", "took over 0.5 s and was ended; a class attribute seconds gives it more time"),
        ("Exits", "ended its process with exit status 3"),
        ("Crashes", "crashed its process twice, by SIGSEGV"),
        ("NotMade", "cannot be created: RuntimeError: no key"),
    ],
)
def test_a_failure_is_a_verdict_that_names_it(name, problem):
    failure = asked(name)
    assert isinstance(failure, Reward)
    assert failure.reason == "reward-error"
    assert not failure.trainable
    assert problem in failure.detail
    assert name in failure.detail


def test_a_trial_finds_a_reward_that_is_no_number():
    with in_workers(f"{FILE}:BadReward", sandbox="none") as environment:
        assert "reward of" in asyncio.run(failure_of(environment, ROW))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("nothing", r"name it as file.py:Class or module:Class, or use one of calculator, python"),
        (f"{FILE}:Missing", r"has no class Missing"),
        (f"{FILE}:WithoutReply", r"has no method reply; magcli calls it as reply\(row, messages\)"),
        (f"{FILE}:WrongSignature", r"reply has the signature \(self, messages\)"),
        (f"{FILE}:turns", r"is a function, not a class"),
        (f"{FILE}:OneRole", r"roles is 'tool', not names such as"),
        (f"{FILE}:Endless", r"max_turns is 0, not a whole number from 1 on"),
    ],
)
def test_a_class_that_cannot_be_asked_is_refused(spec, problem):
    with pytest.raises(UsageError, match=problem):
        terms_of(spec)


def test_replies_are_texts_messages_or_several():
    tool = {"role": "tool", "content": "5", "name": "calculator", "tool_call_id": "call00000", "ignored": 1}
    kept = {key: value for key, value in tool.items() if key != "ignored"}
    assert as_reply([tool, "Go on."], ("tool", "user")) == Reply((kept, {"role": "user", "content": "Go on."}))
    for wrong in ([], [None], {"role": "user"}, {"content": "x"}, {"role": "user", "content": 3}):
        with pytest.raises(TypeError):
            as_reply(wrong, ("user",))


def test_libraries_loaded_within_another_are_one_notice():
    seen = []
    loading.observe(seen.append)
    with loading.loading(), loading.loading():
        assert seen == [True]
    assert seen == [True, False]
