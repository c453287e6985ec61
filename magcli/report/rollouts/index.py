"""What the page filters and sorts by: a number or a choice of each rollout, and the problems, each once."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from magcli.data.schema import REWARD_PARTS
from magcli.report.rollouts import packing
from magcli.report.rollouts.rows import CHOICES, NUMBERS, PART, PROBLEM_TEXTS

MAX_NAME = 80
"""Characters of a problem's id or of a choice in the index; the whole id is with the problem's texts."""
OWN = "parts."
"""What the names of a custom reward's parts begin with, so that none is that of a column."""
STANDARD_PARTS = frozenset(("reward_format", "reward_correct", "reward_length", "reward_language"))
"""The parts of magcli's own reward: 0 in a run with a custom one."""
Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]


@dataclass(slots=True)
class Index:
    """The columns so far, each a list of arrays by chunk. ``problems`` numbers (id, prompt, answer)."""

    rows: int = 0
    problems: dict[tuple[str, ...], int] = field(default_factory=dict)
    _problem: list[Codes] = field(default_factory=list)
    _numbers: dict[str, list[Floats]] = field(default_factory=dict)
    _choices: dict[str, list[Codes]] = field(default_factory=dict)
    _names: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a chunk."""
        problem_texts = [pc.fill_null(batch.column(name), "").to_pylist() for name in PROBLEM_TEXTS]
        # The number of each row's problem: its own if it has one, else the next.
        numbers = [
            self.problems.setdefault(problem, len(self.problems)) for problem in zip(*problem_texts, strict=True)
        ]
        self._problem.append(np.array(numbers, np.int32))
        for name in CHOICES:
            self._add_choice(name, batch.column(name))
        for name in batch.schema.names:
            is_part = name.startswith(PART) and name != REWARD_PARTS
            if name in NUMBERS or is_part:
                values = batch.column(name).to_numpy(zero_copy_only=False)
                self._add_number(name, values.astype(np.float32))
        first, last = _versions(batch.column("versions"))
        self._add_number("version", first)
        self._add_number("last_version", last)
        for name, values in _own_parts(batch.column(REWARD_PARTS)).items():
            self._add_number(f"{OWN}{name}", values)
        self.rows += batch.num_rows

    def _add_number(self, name: str, values: Floats) -> None:
        arrays = self._numbers.setdefault(name, [])
        num_missing = self.rows - sum(len(array) for array in arrays)
        if num_missing:  # chunks without this column
            arrays.append(np.full(num_missing, np.nan, np.float32))
        arrays.append(values)

    def _add_choice(self, name: str, column: pa.Array) -> None:
        # Arrow numbers the values of each chunk; the index numbers those of all chunks.
        number_of = self._names.setdefault(name, {})
        encoded = column.dictionary_encode()
        codes = []
        for value in encoded.dictionary.to_pylist():
            code = number_of.setdefault(value[:MAX_NAME], len(number_of)) if value else -1
            codes.append(code)
        lookup = np.array([*codes, -1], np.int32)  # the last one, also at -1, is for null
        indices = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        self._choices.setdefault(name, []).append(lookup[indices])

    def columns(self) -> tuple[list[dict[str, Any]], list[bytes]]:
        """The columns that have values: what each is, and its numbers: float32, or int32 codes of its choices."""
        described: list[dict[str, Any]] = []
        parts = []
        has_own_parts = any(name.startswith(OWN) for name in self._numbers)
        for name, arrays in self._numbers.items():
            values = self._whole(arrays)
            if np.isnan(values).all():
                continue
            is_standard_part = name in STANDARD_PARTS
            if has_own_parts and is_standard_part and not np.nan_to_num(values).any():
                continue
            described.append({"name": name, "part": name.startswith((PART, OWN))})
            # Little-endian on any machine, as the page reads them.
            parts.append(values.astype("<f4").tobytes())
        for name, codes in self._choices.items():
            choices = list(self._names[name])
            if choices:
                described.append({"name": name, "choices": choices})
                parts.append(np.concatenate(codes).astype("<i4").tobytes())
        return described, parts

    def problem_column(self) -> bytes:
        """The number of each rollout's problem, int32."""
        # With an empty array, as there may be no chunk.
        return np.concatenate([np.zeros(0, np.int32), *self._problem]).astype("<i4").tobytes()

    def problem_names(self) -> list[str]:
        """What each problem is called: its id, shortened, or its number if it has none."""
        return [id[:MAX_NAME] or f"problem {number + 1}" for (id, _, _), number in self.problems.items()]

    def problem_chunks(self, size: int) -> Iterator[tuple[int, list[bytes]]]:
        """The texts of the problems in chunks of about ``size`` characters: how many problems, and the parts."""
        chunk: list[tuple[str, ...]] = []
        used = 0
        for problem in self.problems:
            chunk.append(problem)
            used += sum(len(text) for text in problem)
            if used >= size:
                yield len(chunk), _columns_of(chunk)
                chunk, used = [], 0
        if chunk:
            yield len(chunk), _columns_of(chunk)

    def _whole(self, arrays: Sequence[Floats]) -> Floats:
        # Chunks at the end may lack the column, like those before it.
        values = np.concatenate(arrays)
        return np.pad(values, (0, self.rows - len(values)), constant_values=np.nan)


def _columns_of(problems: Sequence[tuple[str, ...]]) -> list[bytes]:
    parts: list[bytes] = []
    for column in zip(*problems, strict=True):
        parts += packing.text_parts(pa.array(column, pa.string()))
    return parts


def _versions(column: pa.Array) -> tuple[Floats, Floats]:
    """The first and the last weight version of each row; NaN for one without."""
    # The spans of all rows lie end to end: those of a row from its start to its end.
    lengths, spans = packing.lists(column)
    versions = pc.struct_field(spans, "version").to_numpy(zero_copy_only=False).astype(np.float32)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    # Rows without spans are left out: their start may be beyond the last span.
    has_versions = lengths > 0
    first = np.full(len(lengths), np.nan, np.float32)
    last = first.copy()
    first[has_versions] = versions[starts[has_versions]]
    last[has_versions] = versions[ends[has_versions] - 1]
    return first, last


def _own_parts(column: pa.Array) -> dict[str, Floats]:
    """The parts of a custom reward by name, from JSON; NaN where a row lacks one."""
    parts: dict[str, Floats] = {}
    if column.null_count == len(column):
        return parts
    for row, text in enumerate(column.to_pylist()):
        for name, value in _numbers_in(text).items():
            if name not in parts:
                parts[name] = np.full(len(column), np.nan, np.float32)
            parts[name][row] = value
    return parts


def _numbers_in(text: str | None) -> dict[str, float]:
    try:
        values = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(values, dict):
        return {}
    return {name[:MAX_NAME]: value for name, value in values.items() if isinstance(value, int | float)}
