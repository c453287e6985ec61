"""Columns of tables: those that stages share, each defined once, the check for those that a stage needs, and those of
several tables as one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from magcli.data.column_paths import has
from magcli.data.features import FEATURE_KEY
from magcli.data.json_columns import encoded, is_json_text, json_field
from magcli.data.readable import readable_values
from magcli.data.shapes import ABSENT_KEY, NULL_KEY
from magcli.data.types import refuse_bytes
from magcli.errors import DataError, first_line

PROBLEM = pa.schema(
    {
        "id": pa.string(),
        "prompt": pa.string(),
        "answer": pa.string(),
    }
)
"""A problem: the prompt and the ground truth. Other columns such as ``kind`` (math or code) and ``source`` may be
present; a code problem has ``tests`` instead of an answer, see ``magcli.verify.code.judge``."""

VERSION_SPAN = pa.struct({"start": pa.int32(), "version": pa.int32()})

COMPLETION = pa.schema(
    {
        "sample": pa.int32(),
        "completion": pa.string(),
        "num_tokens": pa.int32(),
        "finish": pa.string(),
        "seed": pa.int64(),
    }
)
"""One completion, in addition to the problem's columns. ``finish``: stop or length."""

TOKENS = pa.schema(
    {
        "prompt_tokens": pa.list_(pa.int32()),
        "tokens": pa.list_(pa.int32()),
        "logprobs": pa.list_(pa.float32()),
        "versions": pa.list_(VERSION_SPAN),
    }
)
"""What RL stores in addition: token ids, log-probs under the sampling distribution, weight versions."""

MESSAGES = pa.field("messages", pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})))
"""A conversation."""
EPISODE_COMPLETION = pa.schema([*COMPLETION, MESSAGES])
"""A completion that is the last turn of an episode, with the conversation."""
EPISODE = pa.schema([MESSAGES, ("given", pa.list_(pa.struct({"start": pa.int32(), "end": pa.int32()})))])
"""What RL with an environment stores besides: the conversation, and the ranges of tokens that the environment wrote."""

REWARD = pa.schema(
    {
        "reward": pa.float32(),
        "reward_format": pa.float32(),
        "reward_correct": pa.float32(),
        "reward_length": pa.float32(),
        "reward_language": pa.float32(),
        "correct": pa.bool_(),
        "correct_anywhere": pa.bool_(),
        "reason": pa.string(),
        "extracted": pa.string(),
        "detail": pa.string(),
        "languages": pa.string(),
    }
)
"""The reward and its parts (recipe, section 2). ``correct_anywhere`` ignores the format. ``reason`` explains the
verdict; ``languages`` are those of question, thoughts and answer."""

REWARD_PARTS = "reward_parts"
"""The column of the parts of a custom reward."""
CUSTOM_REWARD = pa.schema([*REWARD, json_field(REWARD_PARTS)])
"""A custom reward, whose parts are an object of numbers by name; null if it has none."""

DIFFICULTY = pa.schema(
    {
        "pass_rate": pa.float32(),
        "num_samples": pa.int32(),
        "majority": pa.string(),
        "majority_share": pa.float32(),
    }
)
"""The difficulty of a problem."""

TEST = pa.struct(dict.fromkeys(("input", "output", "call", "assert"), pa.string()))
SOLUTION = pa.struct(dict.fromkeys(("language", "code", "verdict"), pa.string()))

CODE = pa.schema(
    {
        "kind": pa.string(),
        "tests": pa.list_(TEST),
        "solutions": pa.list_(SOLUTION),
        "compare": pa.string(),
        "time_limit": pa.float64(),
        "memory_limit": pa.float64(),
    }
)
"""A code problem, in addition to ``id`` and ``prompt``, as ``magcli.curate.code.problems`` normalizes other formats.
The verdict of a solution is that of its source: right, wrong or unknown. Limits are in seconds and MB."""

AGREEMENT = pa.schema(
    {
        "tests_dropped": pa.struct(dict.fromkeys(("bad", "duplicate", "unrun", "disagree", "contested"), pa.int32())),
        "outputs_replaced": pa.int32(),
        "wrong_solutions": pa.int32(),
        "wrong_passing": pa.int32(),
        "weak": pa.bool_(),
        "trivial": pa.string(),
        "cpp_unrun": pa.string(),
    }
)
"""Result of running the solutions of a code problem. ``weak``: a solution labelled wrong passes all kept tests, or a
trivial program does, which ``trivial`` names (``magcli.curate.code.prepare``). ``cpp_unrun``: why C++ solutions cannot
run on tests that call a Python function."""

CODE_MADE = CODE.set(
    CODE.get_field_index("tests"),
    pa.field("tests", pa.list_(pa.struct([*TEST, ("origin", pa.string()), ("catches", pa.int32())]))),
)
"""``CODE`` with marks on each test. ``origin``: given, mutation or generator. ``catches``: how many wrong
solutions that passed all tests before fail this one; null for a given test."""


def has_test_marks(schema: pa.Schema) -> bool:
    """Whether the tests of a table may have marks; tests stored as JSON text may."""
    if "tests" not in schema.names:
        return False
    kind = schema.field("tests").type
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        return any(field.name == "origin" for field in kind.value_type)
    return bool(pa.types.is_string(kind))


ProgramOutcome = Literal[
    "too-long", "refused", "cut", "no-program", "repeated", "unused", "fails", "constant", "unfit", "used"
]
"""The outcome of a requested generator program. ``too-long``: the problem does not fit into the model's context.
``refused``: a server withheld the answer. ``cut``: the answer reached its maximum length before a program was complete.
``no-program``: it contains no Python program. ``repeated``: another answer has the same program. ``unused``: enough
inputs were found without it. ``fails``: it prints nothing for any seed. ``constant``: it prints the same for all.
``unfit``: it does not call the function, or only prints given inputs. ``used``: its inputs were tried."""
PROGRAM_OUTCOMES: tuple[ProgramOutcome, ...] = get_args(ProgramOutcome)
INPUT_OUTCOMES = ("fault", "disagree", "nothing-new", "kept")

NEW_TESTS = pa.schema(
    {
        "tests_tried": pa.int32(),
        "tests_thrown": pa.struct(dict.fromkeys(INPUT_OUTCOMES[:-1], pa.int32())),
        "tests_made": pa.int32(),
        "no_tests": pa.string(),
        "wrong_solutions": pa.int32(),
        "wrong_passing_before": pa.int32(),
        "wrong_passing": pa.int32(),
        "weak": pa.bool_(),
        "cpp_unrun": pa.string(),
        "out_of_time": pa.bool_(),
        "programs": pa.struct(dict.fromkeys(PROGRAM_OUTCOMES, pa.int32())),
        "program_inputs": pa.struct(dict.fromkeys(INPUT_OUTCOMES, pa.int32())),
    }
)
"""Result of making tests for a code problem. ``no_tests`` is why there are none. Wrong solutions, ``weak`` and
``cpp_unrun`` are as in ``AGREEMENT``; ``before`` is with the given tests only. ``out_of_time``: time ran out before all
inputs were tried. If a model was used, ``programs`` counts its programs by ``ProgramOutcome``, and ``program_inputs``
their inputs that were tried."""

MATRIX = pa.schema(
    {
        "id": pa.string(),
        "digest": pa.string(),
        "solution": pa.int32(),
        "test": pa.int32(),
        "verdict": pa.string(),
        "group": pa.int32(),
        "output": pa.string(),
        "seconds": pa.float32(),
    }
)
"""One run of a solution on a test, both by index in the problem's lists; ``digest`` is that of the problem. Runs of a
test with equal outputs form a group, 0 if they are right; one run of each other group has its ``output``. ``group`` is
null for a run without output, ``seconds`` for a program that did not compile."""

TRACE = pa.schema(
    [
        ("id", pa.string()),
        MESSAGES,
        ("source", pa.string()),
        ("weight", pa.float32()),
    ]
)
"""A conversation to train on; the assistant's turns are the targets."""

DROPPED = pa.schema({"drop_reason": pa.string(), "drop_detail": pa.string()})
"""Why a stage dropped a row, in addition to the row's columns; the detail is whatever else is known."""

TEXT_COLUMNS = {field.name for field in (*PROBLEM, *COMPLETION, *REWARD, *DROPPED) if pa.types.is_string(field.type)}
"""Columns that are always text, even if all values look like numbers."""

KNOWN: Mapping[str, pa.DataType] = {
    **dict.fromkeys(
        (
            "kind", "language", "source", "suite", "compare", "checker", "checker_language", "harness", "entry_point",
            "finish", "reason", "extracted", "validation", "validator_flags", "problem_yaml", "test_setup_code", "test",
            "code", "canonical_solution", "reference_python", "python_file", "cpp_file",
        ),
        pa.string(),
    ),
    "num_tokens": pa.int64(),
    **dict.fromkeys(("correct", "correct_anywhere", "custom_output_validator"), pa.bool_()),
}  # fmt: skip
"""Optional columns of stages, and their types. A column of values without a common type is stored as JSON text; these
columns are parsed when a stage reads its input."""


MAX_NAMES = 3
"""Maximum number of alternative names of a column in an error message."""


def require(schema: pa.Schema, needs: Iterable[str], *, stage: str, where: str) -> None:
    """Check that a table has the columns that a stage needs; ``a|b`` means either, ``a.b`` a value in objects.

    Raises:
        DataError: names the missing columns, the stage and the columns that are present.
    """
    alternatives = [need.split("|") for need in needs]
    missing = [names for names in alternatives if not any(has(name, schema) for name in names)]
    if not missing:
        return
    # Another stage may add the columns; else the table may have them under other names.
    fix = _missing_stage(stage, set(chain.from_iterable(missing)), schema.names)
    if not fix:
        fix = f"see: magcli {stage} --help"
        # It names columns itself, and says how.
        if stage != "convert":
            fix = f"rename one with: magcli convert INPUT --rename {missing[0][0]}=COLUMN -o OUTPUT, or {fix}"
    word = "columns" if len(missing) > 1 else "column"
    columns = ", ".join(map(_either, missing))
    present = ", ".join(schema.names) or "none"
    raise DataError(f"{stage}: {where} lacks {word} {columns}; it has: {present}; {fix}")


def _missing_stage(stage: str, missing: Collection[str], present: Collection[str]) -> str:
    """The stage that makes what a table lacks, where its columns tell which stage's it is; empty if they do not."""
    # Traces may have a prompt too, so that problems are what has no completion yet.
    is_traces = any(name in present for name in ("messages", "completion"))
    is_problems = "prompt" in present and not is_traces
    if stage == "sft" and is_problems:
        return "these are problems: magcli cold-start makes traces of worked solutions, rollouts or graded completions"
    if "completion" in missing and is_problems:
        return "these are problems: magcli generate samples their completions"
    if "correct" in missing and "completion" in present:
        return "these are completions without verdicts: magcli grade them first"
    if "correct" in missing and is_problems:
        how = "give --model, which" if stage == "evaluate" else "magcli evaluate --model"
        return f"these are problems: {how} samples and grades them"
    if "answer" in missing and is_traces:
        source = "filter-math" if stage == "rl" else "clean-math"
        return f"these are traces, on which magcli sft trains; {stage} takes problems, as of magcli {source}"
    return ""


def _either(names: Sequence[str]) -> str:
    """The names of one column for an error message."""
    if len(names) > MAX_NAMES:
        names = [*names[: MAX_NAMES - 1], "..."]
    return " or ".join(names)


def resolve_aliases(schema: pa.Schema, needs: Iterable[str], aliases: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Columns under the names of other tools: alias -> the missing column that it stands for.

    Raises:
        DataError: several aliases of a column are present.
    """
    renames = {}
    names = chain.from_iterable(need.split("|") for need in needs)
    for name in names:
        if name in schema.names:
            continue
        present = [alias for alias in aliases.get(name, ()) if alias in schema.names]
        if len(present) > 1:
            raise DataError(f"column {name} is missing and could be {' or '.join(present)}; rename one of them")
        if present:
            renames[present[0]] = name
    return renames


def extend_schema(schema: pa.Schema, extra: pa.Schema) -> pa.Schema:
    """The schema with more columns at the end, which replace those of the same name."""
    kept = [field for field in schema if field.name not in extra.names]
    return pa.schema([*kept, *extra], schema.metadata)


def with_columns(batch: pa.RecordBatch, extra: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with more columns, as ``extend_schema`` orders them."""
    schema = extend_schema(batch.schema, extra.schema)
    columns = []
    for name in schema.names:
        owner = extra if name in extra.schema.names else batch
        columns.append(owner.column(name))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def repeat_rows(batch: pa.RecordBatch, count: int) -> pa.RecordBatch:
    """Each row ``count`` times, one after the other."""
    return batch.take(pa.array(np.repeat(np.arange(batch.num_rows), count)))


def common_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The schema of several tables as one: all columns, in order of appearance.

    A column without a common type is JSON, as it would be in one table.
    """
    if len(schemas) < 2:
        return schemas[0] if schemas else pa.schema([])
    columns = dict.fromkeys(chain.from_iterable(schema.names for schema in schemas))
    return pa.schema([_common_field(column, schemas) for column in columns], schemas[0].metadata)


def _common_field(column: str, schemas: Sequence[pa.Schema]) -> pa.Field:
    fields = [schema.field(column) for schema in schemas if column in schema.names]
    marks = _common_marks(fields, len(schemas))
    # A column without any value fits every type, so only the others decide.
    typed = [field for field in fields if NULL_KEY not in (field.metadata or {})]
    if not typed:
        return pa.field(column, pa.string(), metadata={**marks, NULL_KEY: b"1"})
    kind = _common_type(typed)
    return json_field(column, marks) if kind is None else pa.field(column, kind, metadata=marks or None)


def _common_marks(fields: Sequence[pa.Field], tables: int) -> dict[bytes, bytes]:
    """Whether nulls are absent keys, and the feature if all tables agree."""
    metadata = [field.metadata or {} for field in fields]
    features = {marks.get(FEATURE_KEY) for marks in metadata}
    feature = features.pop() if len(features) == 1 else None
    # The rows of a table without the column lack the key.
    is_absent = len(fields) < tables or any(ABSENT_KEY in marks for marks in metadata)
    common = {}
    if is_absent:
        common[ABSENT_KEY] = b"1"
    if feature:
        common[FEATURE_KEY] = feature
    return common


def _common_type(fields: Sequence[pa.Field]) -> pa.DataType | None:
    """The type that holds the values of all fields, or None; text columns keep numbers of two kinds as written."""
    if any(map(is_json_text, fields)) or (fields[0].name in TEXT_COLUMNS and _mixes_numbers(fields)):
        return None
    # One schema a field, because Arrow unifies types of schemas only; its marks are in ``_common_marks``.
    single = [pa.schema([field.remove_metadata()]) for field in fields]
    try:
        return pa.unify_schemas(single, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def _mixes_numbers(fields: Sequence[pa.Field]) -> bool:
    """Whether a column has integers in one table and floats in another; as text each must stay as written."""
    kinds = [field.type for field in fields]
    return any(map(pa.types.is_integer, kinds)) and any(map(pa.types.is_floating, kinds))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A table's rows in the common schema; missing columns are null.

    Raises:
        DataError: a value does not fit into the common type.
    """
    return pa.RecordBatch.from_arrays([_column(batch, field) for field in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """A column in the type of the common schema; nulls if the batch lacks it."""
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(field.name)
    own_field = batch.schema.field(field.name)
    # Its type is a placeholder, which need not be castable.
    if NULL_KEY in (own_field.metadata or {}):
        return pa.nulls(batch.num_rows, field.type)
    if is_json_text(field) and not is_json_text(own_field):
        refuse_bytes(pa.schema([own_field]), "JSON")
        return encoded(readable_values(column))
    try:
        return column if column.type == field.type else column.cast(field.type)
    except pa.ArrowException as error:
        what = f"column {field.name} is {own_field.type} here and {field.type} in another input"
        raise DataError(f"{what}: {first_line(error)}; convert it to text, or process the inputs separately") from None
