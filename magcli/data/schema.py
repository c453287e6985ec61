"""The columns that stages agree on, and the check at a stage's door. One place for each column."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

import pyarrow as pa

from magcli.errors import DataError

PROBLEM = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("prompt", pa.string()),
        pa.field("answer", pa.string()),
    ]
)
"""A problem: what is asked and the ground truth. ``kind`` (math or code), ``source`` and others may stand beside; a
code problem has ``tests`` in place of an answer, see ``magcli.verify.code.programs``."""

VERSION_SPAN = pa.struct([pa.field("start", pa.int32()), pa.field("version", pa.int32())])

COMPLETION = pa.schema(
    [
        pa.field("sample", pa.int32()),
        pa.field("completion", pa.string()),
        pa.field("num_tokens", pa.int32()),
        pa.field("finish", pa.string()),
        pa.field("seed", pa.int64()),
    ]
)
"""One sample of a model, beside the problem's own columns. ``finish``: stop or length."""

TOKENS = pa.schema(
    [
        pa.field("prompt_tokens", pa.list_(pa.int32())),
        pa.field("tokens", pa.list_(pa.int32())),
        pa.field("logprobs", pa.list_(pa.float32())),
        pa.field("versions", pa.list_(VERSION_SPAN)),
    ]
)
"""What RL keeps of a sample besides: ids, log-probs of the distribution sampled, weight versions by token."""

REWARD = pa.schema(
    [
        pa.field("reward", pa.float32()),
        pa.field("reward_format", pa.float32()),
        pa.field("reward_correct", pa.float32()),
        pa.field("reward_length", pa.float32()),
        pa.field("reward_language", pa.float32()),
        pa.field("correct", pa.bool_()),
        pa.field("correct_anywhere", pa.bool_()),
        pa.field("reason", pa.string()),
        pa.field("extracted", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("languages", pa.string()),
    ]
)
"""The reward and its parts (recipe, section 2). ``correct_anywhere`` ignores the format. ``reason`` tells why;
``languages`` are those of question, thoughts and answer."""

DIFFICULTY = pa.schema(
    [
        pa.field("pass_rate", pa.float32()),
        pa.field("num_samples", pa.int32()),
        pa.field("majority", pa.string()),
        pa.field("majority_share", pa.float32()),
    ]
)
"""What one difficulty pass learned about a problem."""

TEST = pa.struct([(name, pa.string()) for name in ("input", "output", "call", "assert")])
SOLUTION = pa.struct([(name, pa.string()) for name in ("language", "code", "verdict")])

CODE = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("tests", pa.list_(TEST)),
        pa.field("solutions", pa.list_(SOLUTION)),
        pa.field("compare", pa.string()),
        pa.field("time_limit", pa.float64()),
        pa.field("memory_limit", pa.float64()),
    ]
)
"""A code problem beside ``id`` and ``prompt``: what ``magcli.curate.code.solutions`` makes of the files of others. The
verdict of a solution is what its source says of it: right, wrong or unknown. Limits are in seconds and MB."""

AGREEMENT = pa.schema(
    [
        pa.field(
            "tests_dropped",
            pa.struct([(name, pa.int32()) for name in ("bad", "duplicate", "unrun", "disagree", "contested")]),
        ),
        pa.field("outputs_replaced", pa.int32()),
        pa.field("wrong_solutions", pa.int32()),
        pa.field("wrong_passing", pa.int32()),
        pa.field("weak", pa.bool_()),
        pa.field("trivial", pa.string()),
        pa.field("cpp_unrun", pa.string()),
    ]
)
"""What running its solutions taught of a code problem. ``weak``: a solution labelled wrong passes all tests kept, or a
program that computes nothing, which ``trivial`` names (``magcli.curate.code.trivial``).
``cpp_unrun``: why C++ solutions cannot be asked what the tests ask of a Python function."""

CODE_MADE = CODE.set(
    CODE.get_field_index("tests"), pa.field("tests", pa.list_(pa.struct([*TEST, ("origin", pa.string())])))
)
"""The same with tests that tell their origin: given, mutation or generator."""


def tells_origin(schema: pa.Schema) -> bool:
    """Whether the tests of a table may tell their origin; as JSON text they may."""
    if "tests" not in schema.names:
        return False
    kind = schema.field("tests").type
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        return any(field.name == "origin" for field in kind.value_type)
    return bool(pa.types.is_string(kind))


ProgramFate = Literal[
    "too-long", "refused", "cut", "no-program", "repeated", "unused", "fails", "constant", "unfit", "used"
]
"""What becomes of a program that was asked for. ``too-long``: the problem does not fit into the model's context.
``refused``: a server kept the answer back. ``cut``: the answer ended at its longest before there was a program.
``no-program``: it has none in Python. ``repeated``: another answer has the same. ``unused``: enough inputs were found
without it. ``fails``: it prints nothing for any seed. ``constant``: the same for all. ``unfit``: no call of the
function, or given inputs only. ``used``: its inputs were tried."""
PROGRAM_FATES: tuple[ProgramFate, ...] = get_args(ProgramFate)
INPUT_FATES = ("fault", "disagree", "nothing-new", "kept")

NEW_TESTS = pa.schema(
    [
        pa.field("tests_tried", pa.int32()),
        pa.field("tests_thrown", pa.struct([(name, pa.int32()) for name in INPUT_FATES[:-1]])),
        pa.field("tests_made", pa.int32()),
        pa.field("no_tests", pa.string()),
        pa.field("wrong_solutions", pa.int32()),
        pa.field("wrong_passing_before", pa.int32()),
        pa.field("wrong_passing", pa.int32()),
        pa.field("weak", pa.bool_()),
        pa.field("cpp_unrun", pa.string()),
        pa.field("out_of_time", pa.bool_()),
        pa.field("programs", pa.struct([(name, pa.int32()) for name in PROGRAM_FATES])),
        pa.field("program_inputs", pa.struct([(name, pa.int32()) for name in INPUT_FATES])),
    ]
)
"""What making tests for a code problem gave. ``no_tests`` is why there are none. Wrong solutions, ``weak`` and
``cpp_unrun`` are as in ``AGREEMENT``, ``before`` tells of the given tests alone. ``out_of_time``: the problem's time
was over before its inputs were. Where a model was asked, ``programs`` is what became of its programs (``ProgramFate``),
``program_inputs`` of their inputs that were tried."""

MATRIX = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("digest", pa.string()),
        pa.field("solution", pa.int32()),
        pa.field("test", pa.int32()),
        pa.field("verdict", pa.string()),
        pa.field("group", pa.int32()),
        pa.field("output", pa.string()),
        pa.field("seconds", pa.float32()),
    ]
)
"""One run of a solution on a test, both by their place in the problem's lists, from 0; ``digest`` is of the problem.
Runs of a test whose outputs count as equal are of one group, 0 where they are right; one run of each other group has
its ``output``. Null is the group of a run without output, and the seconds of a program that was not compiled."""

TRACE = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        pa.field("source", pa.string()),
        pa.field("weight", pa.float32()),
    ]
)
"""A conversation to learn from; the assistant's turns are the targets."""

DROPPED = pa.schema([pa.field("id", pa.string()), pa.field("reason", pa.string()), pa.field("row", pa.string())])
"""A row that a stage left out: its id, why, and the row itself as JSON (shortened when large)."""

TEXTS = {f.name for schema in (PROBLEM, COMPLETION, REWARD, DROPPED) for f in schema if pa.types.is_string(f.type)}
"""Columns that are text, whatever their values look like."""

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
"""Columns that stages read where they are there, beside those that they need, and the type of their values. Rows that
mix a value, null and absent make JSON text of any column; of these the door takes the values themselves."""

KNOWN_JSON = (
    "tests", "test_list", "public_tests", "private_tests", "generated_tests", "solutions", "incorrect_solutions",
    "submissions", "samples", "choices", "options", "time_limit", "memory_limit", "memory_limit_bytes",
)  # fmt: skip
"""The same, whose values have several forms: they stay JSON text, which stages read, but null is none."""


NAMES_TOLD = 3
"""Names of one column that an error tells at most."""


def require(schema: pa.Schema, needs: Iterable[str], *, stage: str, where: str) -> None:
    """Check that a table has the columns a stage needs; ``a|b`` is either of two.

    Raises:
        DataError: names the missing columns, the stage and the columns that are there.
    """
    missing = [name.split("|") for name in needs if not set(name.split("|")) & set(schema.names)]
    if missing:
        there = ", ".join(schema.names) or "none"
        cut = any(len(names) > NAMES_TOLD for names in missing)
        raise DataError(
            f"{stage}: {where} lacks column {', '.join(map(_either, missing))}; it has: {there}. "
            f"Rename with: magcli convert INPUT --rename {missing[0][0]}=COLUMN -o OUTPUT"
            + (f"; all names: magcli {stage} --help" if cut else "")
        )


def _either(names: Sequence[str]) -> str:
    """Names of one column, as an error tells them."""
    told = names if len(names) <= NAMES_TOLD else [*names[: NAMES_TOLD - 1], "..."]
    return " or ".join(told)


def meant(schema: pa.Schema, needs: Iterable[str], aliases: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Columns that other tools name otherwise: alias -> the needed column that is missing.

    Raises:
        DataError: several might be meant.
    """
    found = {}
    for name in (name for need in needs for name in need.split("|") if name not in schema.names):
        there = [alias for alias in aliases.get(name, ()) if alias in schema.names]
        if len(there) > 1:
            raise DataError(f"column {name} is missing, and {' or '.join(there)} might be it; rename one of them")
        if there:
            found[there[0]] = name
    return found
