"""What the columns of a dump are: where reward, verdict, reference answer, step, length and log-probs lie.

Layouts (``magcli.layouts``) name them in the dumps of trainers; other tables have them under the names that are listed
here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from magcli.data.schema import REWARD
from magcli.errors import DataError
from magcli.layouts.names import PROBLEM
from magcli.run.job import CountedInputs

NAMES: Mapping[str, Sequence[str]] = {
    "answer": ("answer", *PROBLEM["answer"]),
    "reward": ("trainer_reward", "reward", "rewards", "score", "total_reward"),
    "verdict": ("correct", "acc", "is_correct"),
    "finish": ("finish", "finish_reason", "stop_reason", "truncated", "is_truncated"),
    "num_tokens": ("num_tokens", "completion_length", "response_length", "num_output_tokens"),
    "logprobs": ("logprobs", "sampling_logprobs", "rollout_log_probs", "generation_logprobs"),
    "trainer_logprobs": ("trainer_logprobs", "old_log_probs", "prev_logprobs"),
    "step": ("step", "global_step", "update"),
}
"""The columns that may hold a value, the first that a table has."""
TRL = ("step", "prompt", "completion", "advantage")
"""The columns of TRL's completions; rewards and columns of the user's own are between the last two."""
PARTS = frozenset(name for name in REWARD.names if name.startswith("reward_"))
"""The parts of magcli's own reward, which is the column beside them."""
WORDS = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True)
class Dump:
    """The columns of a dump by what they hold. ``rewards`` are those whose sum is the reward; ``said`` a message."""

    schema: pa.Schema
    columns: Mapping[str, str]
    rewards: Sequence[str]
    said: str = ""

    def problem(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row as the verifier reads it."""
        answer = self._value(row, "answer")
        return {**row, "answer": None if answer is None else str(answer)}

    def has_truth(self, problem: Mapping[str, Any]) -> bool:
        """Whether a row has something to grade by."""
        return bool((problem.get("answer") or "").strip() or problem.get("tests"))

    def reward(self, row: Mapping[str, Any]) -> float | None:
        """The trainer's reward: the sum of its parts; None if there is no number."""
        numbers = [_number(row.get(name)) for name in self.rewards]
        # A part that was not computed for a row is no part of its sum.
        present = [number for number in numbers if number is not None]
        return math.fsum(present) if present else None

    def verdict(self, row: Mapping[str, Any]) -> bool | None:
        """What the trainer took an answer for, where the dump says it apart from the reward."""
        value = self._value(row, "verdict")
        if isinstance(value, str) and value.lower() in WORDS:
            return WORDS[value.lower()]
        number = _number(value)
        # 1 and 0, or the share of passed tests.
        return None if number is None else number >= 0.5

    def finish(self, row: Mapping[str, Any]) -> str | None:
        """Why the completion ended."""
        value = self._value(row, "finish")
        return None if value is None else str(value)

    def num_tokens(self, row: Mapping[str, Any]) -> int | None:
        """Length of the completion in tokens."""
        number = _number(self._value(row, "num_tokens"))
        return None if number is None else int(number)

    def logprobs(self, row: Mapping[str, Any]) -> tuple[Any, Any]:
        """The log-probs of the tokens by the sampler and by the trainer."""
        return self._value(row, "logprobs"), self._value(row, "trainer_logprobs")

    def group(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """What joins the samples of a prompt at one step: the prompt, and the group's name where the dump has one."""
        # Names of groups may begin anew in another table, and are null where one of several tables has none.
        return (self._value(row, "step"), self._value(row, "group"), row["prompt"])

    def compared(self, schema: pa.Schema) -> list[str]:
        """The columns of measured rows that are needed to compare rollouts."""
        # Comparing needs few columns, of all rollouts at once.
        own = ("prompt", "completion", "reason", "correct_anywhere", "trainer_reward", "trainer_right")
        measured = (
            "answer_found",
            "answer_boxed",
            "ends_within",
            "ratio_highest",
            "ratio_mean",
            "drifts",
            "repetition",
        )
        named = [self.columns[key] for key in ("finish", "num_tokens", "step", "group") if key in self.columns]
        return list(dict.fromkeys((*own, *measured, *(name for name in named if name in schema.names))))

    def _value(self, row: Mapping[str, Any], key: str) -> Any:
        name = self.columns.get(key)
        return None if name is None else row.get(name)


def dump_of(schema: pa.Schema, inputs: CountedInputs, rewards: Sequence[str]) -> Dump:
    """The columns of a dump; ``rewards`` are those that the user named.

    Raises:
        DataError: one of these is not there.
    """
    columns = {}
    for key, names in NAMES.items():
        name = _first(names, schema)
        if name:
            columns[key] = name
    if "group" in schema.names:
        columns["group"] = "group"
    missing = [name for name in rewards if name not in schema.names]
    if missing:
        raise DataError(
            f"audit.rewards: the dump has no column {', '.join(missing)}; it has: {', '.join(schema.names)}"
        )
    said = ""
    # TRL names a column of rewards by its function, so they are told by their position.
    if not rewards and all(map(_is_of_trl, inputs.schemas)):
        rewards = _rewards_of_trl(inputs.schemas[0])
        if rewards:
            said = f"the reward is the sum of {', '.join(rewards)} (--rewards names others)"
    if not rewards and "reward" in columns:
        rewards = [columns["reward"]]
    return Dump(schema, columns, rewards, said)


def _first(names: Sequence[str], schema: pa.Schema) -> str:
    """The first of these columns that is there and has values."""
    present = {field.name for field in schema if not pa.types.is_null(field.type)}
    return next((name for name in names if name in present), "")


def _is_of_trl(schema: pa.Schema) -> bool:
    """Whether a table has TRL's columns, and no rewards of magcli."""
    is_own = "reward" in schema.names and not PARTS.isdisjoint(schema.names)
    return set(TRL) <= set(schema.names) and not is_own


def _rewards_of_trl(schema: pa.Schema) -> list[str]:
    """The rewards of TRL's completions: its columns of floats between the completion and the advantage."""
    names = schema.names[schema.names.index("completion") + 1 : schema.names.index("advantage")]
    return [name for name in names if pa.types.is_floating(schema.field(name).type)]


def _number(value: Any) -> float | None:
    """A value as a number; None if it is none, or not finite."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    # ``True`` is an int too, and counts as 1.
    is_finite = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_finite else None
