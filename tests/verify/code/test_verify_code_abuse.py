"""Scripts as test authors write them: right programs pass, and no wrong program does."""

from pathlib import Path

import pytest

from magcli.errors import DataError
from magcli.verify.code.judge import judge
from magcli.verify.sandbox import Limits
from magcli.verify.types import Verdict

SHORT = Limits(cpu=2.0)
FAULTS = ("wrong-answer", "runtime-error", "output-limit")


def cases(name: str) -> dict[str, tuple[str, str]]:
    """Programs and scripts of a file beside this one, by their names: ``=== name``, program, ``---``, script."""
    _, *parts = Path(__file__).with_name(name).read_text().split("\n=== ")
    table: dict[str, tuple[str, str]] = {}
    for part in parts:
        title, _, text = part.partition("\n")
        program, _, script = text.partition("\n---\n")
        assert title not in table
        table[title] = program, script
    return table


HONEST = cases("honest_scripts.txt")
ABUSIVE = cases("abusive_scripts.txt")
EXECUTING = cases("executing_scripts.txt")


def judged(program: str, script: str) -> Verdict:
    """The verdict where the problem asks for ``f``, if the program defines it."""
    names = frozenset(("f",)) if "def f(" in program else None
    return judge(program, "python", [{"assert": script}], SHORT, problem_names=names)


@pytest.mark.parametrize("name", HONEST)
def test_a_right_program_passes(name: str) -> None:
    verdict = judged(*HONEST[name])
    assert verdict.reason == "accepted", verdict


@pytest.mark.parametrize("name", ABUSIVE)
def test_a_wrong_program_fails(name: str) -> None:
    verdict = judged(*ABUSIVE[name])
    assert verdict.reason in FAULTS, verdict


@pytest.mark.parametrize("name", EXECUTING)
def test_a_script_that_executes_what_is_returned_is_a_bad_test(name: str) -> None:
    with pytest.raises(DataError, match="it executes what"):
        judged(*EXECUTING[name])
