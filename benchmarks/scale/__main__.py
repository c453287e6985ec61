"""Runs the stages without a model on as many problems as in section 4 of the recipe, under a memory limit.

Writes synthetic problems with known outcomes, runs each stage as a command, and prints a Markdown table of time, memory
and rows dropped by reason. It fails if a row has an unexpected outcome, if a process exceeds the memory limit, or if a
stage that was killed at random times and resumed writes other bytes than an uninterrupted one. ``make-tests`` runs tens
of inputs per solution, in time proportional to the number of problems, so a part of the problems is enough.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.scale import rows
from benchmarks.scale.kills import check_resume
from benchmarks.scale.limits import Cost, run_limited
from magcli.data import table
from magcli.data.manifest import note_path


class Step(NamedTuple):
    """A command, its output, and the expected counts of kept rows and of dropped ones by reason.

    ``sums`` are the expected sums of columns.
    """

    arguments: Sequence[object]
    output: Path
    outcomes: Counter[str]
    sums: Mapping[str, int] = {}


class Done(NamedTuple):
    """The name, cost and row counts of a finished step."""

    name: str
    cost: Cost
    rows_in: int
    rows_out: int
    dropped: Counter[str]


def math_steps(folder: Path, count: int) -> list[Step]:
    """Conversion, and ``clean-math`` with an evaluation set."""
    problems = folder / "math.jsonl"
    table = folder / "math.arrow"
    clean = folder / "clean.arrow"
    against = ["--against", folder / "evaluation.jsonl", "--dropped", folder / "dropped-math.jsonl"]
    return [
        Step(["convert", problems, "-o", table], table, Counter(kept=count)),
        Step(["clean-math", table, "-o", clean, *against], clean, rows.math_funnel(count)),
    ]


def code_steps(folder: Path, count: int) -> list[Step]:
    """``filter-code``, the same from its matrix, ``duplicate``, and conversion."""
    problems = folder / "code.jsonl"
    matrix = folder / "matrix.arrow"
    kept = folder / "kept.arrow"
    strict = folder / "strict.arrow"
    both = folder / "two-languages.arrow"
    table = folder / "two-languages.parquet"
    outcomes = rows.code_funnel(count)
    weak = rows.code_kinds(count)["weak"]
    twice = Counter(kept=2 * outcomes["kept"])
    run = ["--workers", 2, "--matrix", matrix, "--dropped", folder / "dropped-code.jsonl"]
    return [
        Step(["filter-code", problems, "--min-tests", 2, "-o", kept, *run], kept, outcomes),
        Step(
            ["filter-code", problems, "--min-tests", 2, "--drop-weak", "--from-matrix", matrix, "-o", strict],
            strict,
            outcomes + Counter(kept=-weak, weak=weak) if weak else outcomes,
        ),
        Step(["duplicate", kept, "-o", both], both, twice),
        Step(["convert", both, "-o", table], table, twice),
    ]


def new_test_steps(folder: Path, count: int) -> list[Step]:
    """``make-tests``: every wrong solution that passes the given tests must fail a new one."""
    problems, output = folder / "new-tests.jsonl", folder / "new-tests.arrow"
    run = ["--workers", 2, "--votes", 1, "--tries", 30, "--dropped", folder / "dropped-new-tests.jsonl"]
    weak = rows.code_kinds(count)["weak"]
    sums = {"wrong_passing_before": weak, "wrong_passing": 0}
    return [Step(["make-tests", problems, "-o", output, *run], output, rows.new_tests_funnel(count), sums)]


def run_step(step: Step, limit: int) -> Done:
    """Run a step and check its row counts and sums.

    Raises:
        SystemExit: it failed, or the counts or sums are wrong.
    """
    cost = run_limited(step.arguments, limit)
    record = json.loads(note_path(step.output).read_text())
    outcomes = Counter(record["dropped"]) + Counter(kept=record["rows_out"])
    if outcomes != step.outcomes:
        raise SystemExit(f"error: magcli {step.arguments[0]}: {dict(outcomes)}, expected {dict(step.outcomes)}")
    for column, expected in step.sums.items():
        total = sum(sum(batch.column(column).to_pylist()) for batch in table.read(str(step.output)).rows)
        if total != expected:
            raise SystemExit(f"error: magcli {step.arguments[0]}: sum of {column} is {total}, expected {expected}")
    name = f"{step.arguments[0]}{' --from-matrix' if '--from-matrix' in step.arguments else ''}"
    return Done(name, cost, record["rows_in"], record["rows_out"], Counter(record["dropped"]))


def markdown(steps: Sequence[Done]) -> str:
    """A table of time, memory and dropped rows."""
    lines = [
        "| stage | rows in | rows out | minutes | CPU minutes | rows/s | peak memory, GB | dropped by reason |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for step in steps:
        seconds, cpu, peak = step.cost
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in step.dropped.most_common()) or "-"
        lines.append(
            f"| `{step.name}` | {step.rows_in:,} | {step.rows_out:,} | {seconds / 60:.1f} | {cpu / 60:.1f} "
            f"| {step.rows_in / seconds:,.0f} | {peak / 2**30:.2f} | {reasons} |"
        )
    return "\n".join(lines)


def whole_cycles(text: str) -> int:
    """A number of rows, which must be a multiple of a cycle."""
    count = int(text)
    if count % 100:
        raise argparse.ArgumentTypeError(f"expected a multiple of 100, got {text}")
    return count


def parse_args(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--math", type=whole_cycles, default=700_000, help="mathematics problems; 0 for none")
    parser.add_argument("--code", type=whole_cycles, default=100_000, help="code problems; 0 for none")
    parser.add_argument("--new-tests", type=whole_cycles, default=5_000, help="problems for make-tests; 0 for none")
    parser.add_argument("--killed", type=whole_cycles, default=20_000, help="problems of killed runs; 0 for none")
    parser.add_argument("--limit-gb", type=float, default=4.0, help="data limit of each process")
    parser.add_argument("--folder", type=Path, help="keep the tables here (default: a temporary folder)")
    return parser.parse_args(arguments)


def run(args: argparse.Namespace, folder: Path) -> None:
    """Write the rows, run every step and print the table."""
    limit = int(args.limit_gb * 2**30)
    rows.write_all(folder, args.math, args.code, args.new_tests)
    parts = (math_steps, args.math), (code_steps, args.code), (new_test_steps, args.new_tests)
    steps = [step for part, count in parts if count for step in part(folder, count)]
    print(markdown([run_step(step, limit) for step in steps]), flush=True)
    if args.killed:
        print(check_resume(folder / "killed", args.killed))


def main() -> None:
    """Run in the given folder or in a temporary one."""
    args = parse_args(sys.argv[1:])
    if args.folder:
        args.folder.mkdir(parents=True, exist_ok=True)
        return run(args, args.folder)
    with tempfile.TemporaryDirectory(prefix="magcli-scale-") as name:
        run(args, Path(name))


if __name__ == "__main__":
    main()
