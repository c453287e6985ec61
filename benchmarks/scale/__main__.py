"""The stages that need no model, on as many problems as the paper has, each under a limit of memory.

Usage: ``python -m benchmarks.scale [--math 700000] [--code 100000] [--made 5000] [--killed 20000] [--limit-gb 4]
[--folder DIR]``

Writes synthetic problems whose fates are known, runs each stage as a user would, and prints Markdown tables of time,
memory and rows dropped by reason. Fails where a row met another fate than its own, where a process wanted more memory,
and where a stage that was killed at random instants and begun again wrote other bytes than an unbroken one. Problems
are 700k and 100k as in section 4 of the recipe. Time of the code is programs run: starting one takes about 20 ms of CPU
in Python, a test 10 ms, and a compiler in C++ half a second. ``make-tests`` tries tens of inputs on every solution, so
its time is that of each problem, whatever their number, and a part of the problems is enough to know it.
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
from benchmarks.scale.cost import Cost, costly
from benchmarks.scale.killed import bytes_survive
from magcli.data import table


class Step(NamedTuple):
    """A command, where its rows go, and what must become of the rows: ``kept`` or a reason -> how many.

    ``sums``: what columns of the table must add up to.
    """

    arguments: Sequence[object]
    output: Path
    fates: Counter[str]
    sums: Mapping[str, int] = {}


class Done(NamedTuple):
    """A step that is done: its name, what it cost, and the counts of its rows."""

    name: str
    cost: Cost
    rows_in: int
    rows_out: int
    dropped: Counter[str]


def math_steps(folder: Path, count: int) -> list[Step]:
    """Mathematics: another format, and the format filter with evaluations to keep clear of."""
    given, table, clean = folder / "math.jsonl", folder / "math.arrow", folder / "clean.arrow"
    against = ["--against", folder / "evaluation.jsonl", "--dropped", folder / "dropped-math.jsonl"]
    return [
        Step(["convert", given, "-o", table], table, Counter(kept=count)),
        Step(["clean-math", table, "-o", clean, *against], clean, rows.math_funnel(count)),
    ]


def code_steps(folder: Path, count: int) -> list[Step]:
    """Code: agreement, the same decided anew, two languages, another format."""
    given, matrix, kept = folder / "code.jsonl", folder / "matrix.arrow", folder / "kept.arrow"
    strict, twins, table = folder / "strict.arrow", folder / "two-languages.arrow", folder / "two-languages.parquet"
    fates = rows.code_funnel(count)
    weak = rows.code_kinds(count)["weak"]
    both = Counter(kept=2 * fates["kept"])
    run = ["--workers", 2, "--matrix", matrix, "--dropped", folder / "dropped-code.jsonl"]
    return [
        Step(["filter-code", given, "--min-tests", 2, "-o", kept, *run], kept, fates),
        Step(
            ["filter-code", given, "--min-tests", 2, "--drop-weak", "--from-matrix", matrix, "-o", strict],
            strict,
            fates + Counter(kept=-weak, weak=weak) if weak else fates,
        ),
        Step(["duplicate", kept, "-o", twins], twins, both),
        Step(["convert", twins, "-o", table], table, both),
    ]


def new_test_steps(folder: Path, count: int) -> list[Step]:
    """New tests for problems: every wrong solution that the given ones let pass must fail one of them."""
    given, made = folder / "made.jsonl", folder / "made.arrow"
    run = ["--workers", 2, "--votes", 1, "--tries", 30, "--dropped", folder / "dropped-made.jsonl"]
    weak = rows.code_kinds(count)["weak"]
    sums = {"wrong_passing_before": weak, "wrong_passing": 0}
    return [Step(["make-tests", given, "-o", made, *run], made, rows.made_funnel(count), sums)]


def done(step: Step, limit: int) -> Done:
    """Run a step and hold it to what must become of its rows.

    Raises:
        SystemExit: it failed, rows met another fate, or a column adds up to something else.
    """
    cost = costly(step.arguments, limit)
    told = json.loads(step.output.with_name(f"{step.output.name}.run.json").read_text())
    found = Counter(told["dropped"]) + Counter(kept=told["rows_out"])
    if found != step.fates:
        raise SystemExit(f"error: magcli {step.arguments[0]} made {dict(found)} of rows due to be {dict(step.fates)}")
    for column, due in step.sums.items():
        if (total := sum(sum(batch.column(column).to_pylist()) for batch in table.read(str(step.output)).rows)) != due:
            raise SystemExit(f"error: {column} of magcli {step.arguments[0]} adds up to {total}, not {due}")
    name = f"{step.arguments[0]}{' --from-matrix' if '--from-matrix' in step.arguments else ''}"
    return Done(name, cost, told["rows_in"], told["rows_out"], Counter(told["dropped"]))


def markdown(all_done: Sequence[Done]) -> str:
    """Time, memory and the funnel, as Markdown."""
    lines = [
        "| stage | rows in | rows out | minutes | CPU minutes | rows/s | peak memory, GB | dropped by reason |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in all_done:
        seconds, cpu, peak = each.cost
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in each.dropped.most_common()) or "-"
        lines.append(
            f"| `{each.name}` | {each.rows_in:,} | {each.rows_out:,} | {seconds / 60:.1f} | {cpu / 60:.1f} "
            f"| {each.rows_in / seconds:,.0f} | {peak / 2**30:.2f} | {reasons} |"
        )
    return "\n".join(lines)


def whole_cycles(text: str) -> int:
    """A number of rows; kinds come in cycles, so it must be one of whole cycles."""
    count = int(text)
    if count % 100:
        raise argparse.ArgumentTypeError(f"{text} is no multiple of 100")
    return count


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--math", type=whole_cycles, default=700_000, help="mathematics problems; 0 for none")
    parser.add_argument("--code", type=whole_cycles, default=100_000, help="code problems; 0 for none")
    parser.add_argument("--made", type=whole_cycles, default=5_000, help="code problems for new tests; 0 for none")
    parser.add_argument("--killed", type=whole_cycles, default=20_000, help="problems of runs that are killed")
    parser.add_argument("--limit-gb", type=float, default=4.0, help="data that one process may have")
    parser.add_argument("--folder", type=Path, help="where tables go and stay (default: a temporary folder)")
    return parser.parse_args(arguments)


def run(given: argparse.Namespace, folder: Path) -> None:
    """Write the rows, run every step, print what it cost."""
    limit = int(given.limit_gb * 2**30)
    rows.write_all(folder, given.math, given.code, given.made)
    parts = (math_steps, given.math), (code_steps, given.code), (new_test_steps, given.made)
    steps = [step for part, count in parts if count for step in part(folder, count)]
    print(markdown([done(step, limit) for step in steps]), flush=True)
    if given.killed:
        print(bytes_survive(folder / "killed", given.killed))


def main() -> None:
    """Run in the folder that was named, or in one that goes."""
    given = options(sys.argv[1:])
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
        return run(given, given.folder)
    with tempfile.TemporaryDirectory(prefix="magcli-scale-") as name:
        run(given, Path(name))


if __name__ == "__main__":
    main()
