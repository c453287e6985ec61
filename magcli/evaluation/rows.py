"""Load the problems of a suite: find its rows in a folder or on the hub, and convert them."""

import gzip
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from magcli.config import did_you_mean
from magcli.data import table
from magcli.data.values import to_rows
from magcli.errors import DataError
from magcli.evaluation import programs
from magcli.evaluation.suite import SHIPPED, Source, Suite

EXERCISE_CONFIG = ".meta/config.json"
_EXERCISE_TEXTS = {
    "introduction": "introduction.md",
    "instructions": "instructions.md",
    "instructions_append": "instructions.append.md",
}
# The kinds of files in the exercise's configuration, by our columns.
_EXERCISE_FILES = {"stub": "solution", "tests": "test", "example": "example"}
HUB = "hub"
"""In place of a folder: read data from the Hugging Face hub."""
LETTERS = "ABCDEFGHIJ"
INSTRUCTION = "Give the letter of the right option in \\boxed{}."

# The name of a column in a template.
_COLUMN = re.compile(r"\{([A-Za-z_][\w .-]*)\}")
_OPTIONS = re.compile(r"^A\. (.*?)^B\. (.*?)^C\. (.*?)^D\. (.*?)(?:\n\n|\Z)", re.M | re.S)
# The user's turn of a chat in ChatML.
_CHAT = re.compile(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", re.S)

Row = Mapping[str, Any]


class Question(NamedTuple):
    """A statement with its options, and the letter of the right one."""

    prompt: str
    letter: str


def problems(suite: Suite, folders: Sequence[str], seed: int = 0, *, reference: bool = False) -> list[dict[str, Any]]:
    """The problems of a suite, as ``evaluate`` reads them from a table.

    Choices are shuffled by the seed and the row's id.

    Args:
        suite: The suite.
        folders: Folders to search, and ``hub``. The suite's own folder is searched last; without ``folders`` it is
            searched first, then the current folder.
        seed: Seed of the order of choices.
        reference: Add a column with a solution that must be correct.

    Raises:
        DataError: the data is missing, or a row lacks a column that the suite needs.
    """
    source, rows = _find(suite, folders)
    by_id: dict[str, dict[str, Any]] = {}
    matching = (row for row in rows if _satisfies(suite.name, source.where, row))
    # The number among the matching rows, which is the id without a column for it.
    for number, row in enumerate(matching):
        try:
            problem = _problem(suite, source, row, number, seed)
            if problem["id"] in by_id:
                raise DataError(f"another row has the id {problem['id']!r} too; ids must be unique")
        except DataError as error:
            raise DataError(f"evaluate: suite {suite.name}: row {number + 1}: {error}") from None
        if reference:
            problem["reference"] = _text(source.reference, row) if source.reference else None
        by_id[problem["id"]] = problem
    if not by_id:
        raise DataError(f"evaluate: suite {suite.name}: no row of its data matches the suite")
    return list(by_id.values())


def _find(suite: Suite, folders: Sequence[str]) -> tuple[Source, Iterator[Row]]:
    """The first available source, and its rows.

    Raises:
        DataError: there is none; the message says where the data can be had.
    """
    own = str(suite.folder)
    if folders:
        searched = dict.fromkeys([*(folder for folder in folders if folder != HUB), own])
    else:
        searched = dict.fromkeys([own, "."])
    for source in suite.sources:
        for folder in searched:
            for path in _paths(Path(folder), source.files):
                return source, _read(path, source.names)
        if HUB in folders and source.hub:
            return source, _table(source.hub)
    raise DataError(_missing_data(suite, list(searched), named=bool(folders)))


def _missing_data(suite: Suite, searched: Sequence[str], *, named: bool) -> str:
    """What to do about missing data; ``named``: folders were given by the user."""
    files = dict.fromkeys(chain.from_iterable(source.files for source in suite.sources))
    hubs = dict.fromkeys(source.hub for source in suite.sources if source.hub)
    origins = dict.fromkeys(source.origin for source in suite.sources if source.origin)
    folders = [folder for folder in searched if folder != str(SHIPPED)]
    if files and folders:
        text = f"no {' or '.join(files)} in {' or '.join(folders)} or the folders in it"
    else:
        text = "its data is not on this machine"
    if hubs:
        text += f"; on the hub it is {' or '.join(hubs)}: --data hub"
    if origins:
        text += f"; it comes from {' or '.join(origins)}: put it there"
    a_folder = "another folder" if named else "a folder"
    return f"evaluate: suite {suite.name}: {text}, or name {a_folder} by --data"


def _paths(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """The files of these names in a folder or in the folders in it."""
    for name in names:
        # A clone of a repository is often a folder below.
        for path in (folder / name, *sorted(folder.glob(f"*/{name}"))):
            if path.exists():
                yield path


def _read(path: Path, names: Sequence[str]) -> Iterator[Row]:
    """The rows of a file, or of a folder of exercises.

    JSON is not read as a table, which would convert values of mixed types to strings.

    Raises:
        DataError: it cannot be read.
    """
    in_folders = exercises(path) if path.is_dir() else []
    if in_folders:
        return iter(in_folders)
    plain = path.name.removesuffix(".gz")
    if not plain.endswith((".json", ".jsonl", ".tsv")):
        return _table(str(path))
    is_compressed = plain != path.name
    try:
        with gzip.open(path, "rt", encoding="utf-8") if is_compressed else path.open(encoding="utf-8") as file:
            rows = _parsed(file.read(), plain, names)
    except (OSError, ValueError, EOFError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path} cannot be read: every row must be a JSON object")
    return iter(rows)


def exercises(folder: Path) -> list[Row]:
    """The exercises in a clone of Exercism's or Aider Polyglot's repository, one per folder, by name.

    A row has ``slug``, ``introduction``, ``instructions``, ``instructions_append``, and the mappings ``stub``,
    ``tests`` and ``example`` of file names to texts.

    Raises:
        DataError: an exercise cannot be read.
    """
    return [_exercise(config.parents[1]) for config in sorted(folder.glob(f"*/{EXERCISE_CONFIG}"))]


def _exercise(folder: Path) -> Row:
    row: dict[str, Any] = {"slug": folder.name}
    try:
        files = json.loads((folder / EXERCISE_CONFIG).read_text(encoding="utf-8"))["files"]
        for column, name in _EXERCISE_TEXTS.items():
            path = folder / ".docs" / name
            row[column] = path.read_text(encoding="utf-8") if path.is_file() else ""
        for column, kind in _EXERCISE_FILES.items():
            names = files.get(kind, [])
            row[column] = {name: (folder / name).read_text(encoding="utf-8") for name in names}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"the exercise {folder} cannot be read: {error}") from None
    return row


def _parsed(text: str, name: str, names: Sequence[str]) -> list[Row]:
    # Not ``splitlines``, which also splits at separators that JSON texts may contain.
    lines = [line for line in text.split("\n") if line.strip()]
    if name.endswith(".tsv"):
        return [dict(zip(names, line.split("\t"), strict=True)) for line in lines]
    if text.lstrip().startswith("["):
        rows: list[Row] = json.loads(text)
        return rows
    return [json.loads(line) for line in lines]


def _table(name: str) -> Iterator[Row]:
    return (row for batch in table.read(name).rows for row in to_rows(batch))


def _satisfies(suite: str, where: Mapping[str, Any], row: Row) -> bool:
    """Whether a row satisfies the conditions ``where`` of its source.

    Raises:
        DataError: a value cannot be compared with its range.
    """
    for column, rule in where.items():
        try:
            if not _matches(rule, row.get(column)):
                return False
        except TypeError:
            problem = f"{column} is {row[column]!r}, which cannot be compared with {rule}; fix the key where"
            raise DataError(f"evaluate: suite {suite}: {problem}") from None
    return True


def _matches(rule: Any, value: Any) -> bool:
    match rule:
        case {"min": _} | {"max": _}:
            return _between(rule.get("min"), value, rule.get("max"))
        case {"not": list(others)}:
            return value not in others
        case list():
            return value in rule
        # Null and an empty list count as empty text.
        case "":
            return not value
    return bool(value == rule)


def _between(low: Any, value: Any, high: Any) -> bool:
    """Whether a value is in a range with optional bounds; compared as text if these are text, such as ISO dates."""
    if value is None:
        return False
    bound = low if high is None else high
    if isinstance(bound, str):
        value = str(value)
    if low is not None and not low <= value:  # NaN is in no range
        return False
    return bool(high is None or value <= high)


def _problem(suite: Suite, source: Source, row: Row, number: int, seed: int) -> dict[str, Any]:
    row_id = _text(source.id, row) if source.id else number
    id = f"{suite.name}/{row_id}"
    prompt = _text(source.prompt, row).strip()
    problem = {"id": id, "suite": suite.name, "kind": suite.kind, "prompt": prompt}
    if source.choices:
        # By row, so that the order does not depend on which other rows are read.
        rng = random.Random(f"{seed}\0{id}")
        question = _with_choices(source, row, prompt, rng)
        problem |= {"prompt": question.prompt, "answer": question.letter}
    elif suite.kind == "code":
        problem |= programs.with_tests(source.tests, row)
    elif source.answer:
        problem["answer"] = _text(source.answer, row)
    for name in source.keep:
        problem[name] = _plain(_value(row, name))
    return problem


def _text(template: str, row: Row) -> str:
    """A template with the columns of a row filled in.

    Raises:
        DataError: the row lacks one.
    """
    return _COLUMN.sub(lambda name: _as_text(_value(row, name[1])), template)


def _value(row: Row, column: str) -> Any:
    if column not in row:
        raise DataError(f"no column {column!r}{did_you_mean(column, row)}")
    return row[column]


def _as_text(value: Any) -> str:
    """A value as text: empty for None, lists line by line, files concatenated, the user's turn of a chat."""
    if value is None:
        return ""
    if isinstance(value, dict):
        is_files = all(isinstance(text, str) for text in value.values())
        return "\n".join(value.values()) if is_files else json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        lines = [part if isinstance(part, str) else json.dumps(part, ensure_ascii=False) for part in value]
        return "\n".join(lines)
    chat = _CHAT.search(str(value))
    return chat[1].strip() if chat else str(value)


def _plain(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _with_choices(source: Source, row: Row, prompt: str, rng: random.Random) -> Question:
    """The statement with its options in random order.

    Raises:
        DataError: the statement has no options, or no right one.
    """
    if source.choices == ("inline",):
        stem, options, right = _inline(prompt, _text(source.answer, row).strip())
    else:
        stem = prompt
        options = [str(_value(row, name)).strip() for name in source.choices]
        right = 0
    order = rng.sample(range(len(options)), len(options))  # the option at each position
    lines = [f"({letter}) {options[index]}" for letter, index in zip(LETTERS, order, strict=False)]
    statement = "\n".join([stem, "", *lines, "", INSTRUCTION])
    right_letter = LETTERS[order.index(right)]
    return Question(statement, right_letter)


def _inline(prompt: str, letter: str) -> tuple[str, list[str], int]:
    """The statement without its options, the options, and the index of the right one."""
    match = _OPTIONS.search(prompt)
    if not match or letter not in LETTERS[:4]:
        raise DataError("the statement lacks the options A to D, or the answer is none of them")
    stem = prompt[: match.start()].strip()
    options = [option.strip() for option in match.groups()]
    return stem, options, LETTERS.index(letter)
