"""An id stands for one problem wherever problems are counted by id."""

import json
from pathlib import Path

import pytest
from calling import call_stage

from magcli.errors import DataError
from magcli.stages.shared.tables import check_ids

ONE = {"id": "a", "prompt": "1+1?", "answer": "2"}


@pytest.mark.parametrize(
    ("row", "custom_reward"),
    [
        (ONE, False),
        ({**ONE, "pass_rate": 0.5}, True),
        ({**ONE, "id": "b", "answer": "3"}, False),
        ({**ONE, "source": "s"}, True),
        ({**ONE, "level": 2}, False),
    ],
)
def test_repeated_rows_are_one_problem(row, custom_reward):
    rows = [{**ONE, "pass_rate": 0.1, "level": 1}, row]
    assert refusal(rows, custom_reward) == ""


def refusal(rows, custom_reward):
    try:
        check_ids("rl", rows, custom_reward=custom_reward)
    except DataError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("row", "custom_reward"),
    [
        ({**ONE, "prompt": "1+2?"}, False),
        ({**ONE, "answer": "3"}, False),
        ({**ONE, "tests": ["assert f(1) == 1"]}, False),
        ({**ONE, "level": 2}, True),
    ],
)
def test_an_id_of_two_problems_is_refused(row, custom_reward):
    expected = "rl: id 'a' belongs to two different problems; make the ids unique"
    assert refusal([{**ONE, "level": 1}, row], custom_reward) == expected


@pytest.mark.parametrize("dry_run", [False, True])
def test_rl_refuses_one_id_for_several_problems(dry_run, tiny_model_dir: Path, tmp_path: Path):
    data = tmp_path / "p.jsonl"
    rows = [{"id": f"p{n % 4}", "prompt": f"{n}+1?", "answer": str(n + 1)} for n in range(16)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="rl: id 'p0' belongs to two different problems"):
        call_stage("rl", data, model=str(tiny_model_dir), run=tmp_path / "run", system=Path("none"), dry_run=dry_run)
