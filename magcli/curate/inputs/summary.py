"""What the rows of ``make-tests`` say together: tests, wrong solutions, and the rates of a model that was asked."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

COUNTS = ("tests_tried", "tests_made", "wrong_solutions", "wrong_passing_before", "wrong_passing", "out_of_time")


def count(tally: Counter[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Add up what rows tell: columns tests and those of ``magcli.data.schema.NEW_TESTS``."""
    for row in rows:
        tally.update({"problems": 1, "without": row["no_tests"] is not None})
        tally.update([f"origin_{test['origin']}" for test in row["tests"]])
        tally.update([f"none_{row['no_tests']}"] if row["no_tests"] else [])
        tally.update([f"cpp_{row['cpp_unrun']}"] if row["cpp_unrun"] else [])
        for column, start in (("tests_thrown", "thrown"), ("programs", "program"), ("program_inputs", "input")):
            tally.update({f"{start}_{name}": number for name, number in (row[column] or {}).items()})
        tally.update({name: row[name] for name in COUNTS})


def of_model(tally: Counter[str]) -> dict[str, int]:
    """Programs that were asked of a model and their inputs that were tried, by what became of them."""
    return {name: number for name, number in tally.items() if name.startswith(("program_", "input_")) and number}


def summary(tally: Counter[str]) -> str:
    """One line for people."""
    parts = [
        f"{tally['problems']:,} problems; {tally['tests_tried']:,} inputs tried, {tally['tests_made']:,} "
        f"kept{_parts(tally, 'origin_', 'given')}, thrown away{_parts(tally, 'thrown_')}",
        _score(tally),
        f"no new tests for {tally['without']:,}{_parts(tally, 'none_')}",
    ]
    if of_model(tally):
        parts.append(_rates(tally))
    if tally["out_of_time"]:
        parts.append(f"{tally['out_of_time']:,} ran out of their time, so that on another machine tests may differ")
    if told := _parts(tally, "cpp_"):
        parts.append(f"C++ solutions cannot be called in some{told}")
    return "; ".join(parts)


def _score(tally: Counter[str]) -> str:
    """How many of the wrong solutions fail a given test, and how many more a new one."""
    wrong, before = tally["wrong_solutions"], tally["wrong_solutions"] - tally["wrong_passing_before"]
    more = tally["wrong_passing_before"] - tally["wrong_passing"]
    shares = [f"{number:,} ({number / max(1, wrong):.1%})" for number in (before, before + more)]
    return f"of {wrong:,} wrong solutions given tests fail {shares[0]}, given and new ones {shares[1]}: {more:,} more"


def _rates(tally: Counter[str]) -> str:
    """How many programs of a model give inputs, and how many of these become tests."""
    asked, tried = (sum(n for name, n in tally.items() if name.startswith(start)) for start in ("program_", "input_"))
    used, kept = tally["program_used"], tally["input_kept"]
    return (
        f"of {asked:,} programs asked of the model {used:,} ({used / max(1, asked):.1%}) gave "
        f"inputs{_parts(tally, 'program_', 'used')}; of {tried:,} of their inputs that were tried {kept:,} "
        f"({kept / max(1, tried):.1%}) are new tests{_parts(tally, 'input_', 'kept')}"
    )


def _parts(tally: Counter[str], start: str, without: str = "") -> str:
    """The counts whose name begins so, in brackets."""
    found = {name.removeprefix(start): count for name, count in tally.most_common() if name.startswith(start) and count}
    told = ", ".join(f"{name} {count:,}" for name, count in found.items() if name != without)
    return f" ({told})" if told else ""
