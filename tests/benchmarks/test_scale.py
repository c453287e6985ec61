"""Synthetic rows meet the fates that they are made for; another fate, or want of memory, is a failure."""

from collections import Counter

import pytest

from benchmarks.scale import rows
from benchmarks.scale.__main__ import Step, done, math_steps, new_test_steps, options, run, whole_cycles

ROOM = 4 << 30


def test_every_stage_makes_of_the_rows_what_they_are_made_for(tmp_path, capsys):
    run(options(["--math", "200", "--code", "100", "--made", "100", "--killed", "0"]), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
    assert all(float(peak) > 0.05 for *_, peak, _ in cells), lines  # the most depends on the number of workers
    assert [row[:3] for row in cells] == [
        ["`convert`", "200", "200"],
        ["`clean-math`", "200", "140"],
        ["`filter-code`", "100", "12"],
        ["`filter-code --from-matrix`", "100", "11"],
        ["`duplicate`", "12", "24"],
        ["`convert`", "24", "24"],
        ["`make-tests`", "100", "17"],
    ]


def test_a_row_of_another_fate_is_a_failure(tmp_path):
    rows.write_all(tmp_path, 100, 0)
    step = math_steps(tmp_path, 100)[0]
    with pytest.raises(SystemExit, match=r"made .*'kept': 100.* of rows due to be .*'kept': 99"):
        done(step._replace(fates=Counter(kept=99)), ROOM)


def test_a_column_that_adds_up_to_something_else_is_a_failure(tmp_path):
    rows.write(tmp_path / "made.jsonl", rows.code_rows(100))
    step = new_test_steps(tmp_path, 100)[0]
    weak = Step([*step.arguments, "--tries", 1, "--max-new", 1], step.output, step.fates, {"wrong_passing_before": 2})
    with pytest.raises(SystemExit, match="wrong_passing_before of magcli make-tests adds up to 1, not 2"):
        done(weak, ROOM)


def test_want_of_memory_is_a_failure(tmp_path):
    rows.write_all(tmp_path, 100, 0)
    with pytest.raises(SystemExit, match="convert ended with"):
        done(math_steps(tmp_path, 100)[0], 16 << 20)


def test_fates_are_known_of_whole_cycles_alone():
    assert whole_cycles("700") == 700
    with pytest.raises(Exception, match="no multiple of 100"):
        whole_cycles("750")
    assert rows.math_funnel(700_000).total() == 700_000
    assert rows.math_funnel(700_000)["kept"] == 490_000
    assert rows.code_funnel(100_000)["kept"] == 12_000


def test_rows_are_the_same_each_time():
    assert list(rows.math_rows(300)) == list(rows.math_rows(300))
    assert list(rows.code_rows(60)) == list(rows.code_rows(60))
