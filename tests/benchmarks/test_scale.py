"""Synthetic rows have their expected outcomes; another outcome or too much memory is a failure."""

from collections import Counter

import pytest

from benchmarks.scale import rows
from benchmarks.scale.__main__ import Step, math_steps, new_test_steps, parse_args, run, run_step, whole_cycles

MEMORY = 4 << 30


def test_every_stage_has_the_expected_row_counts(tmp_path, capsys):
    run(parse_args(["--math", "200", "--code", "100", "--new-tests", "100", "--killed", "0"]), tmp_path)
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


def test_an_unexpected_outcome_is_a_failure(tmp_path):
    rows.write_all(tmp_path, 100, 0)
    step = math_steps(tmp_path, 100)[0]
    with pytest.raises(SystemExit, match=r"'kept': 100.*, expected .*'kept': 99"):
        run_step(step._replace(outcomes=Counter(kept=99)), MEMORY)


def test_an_unexpected_sum_is_a_failure(tmp_path):
    rows.write(tmp_path / "new-tests.jsonl", rows.code_rows(100))
    step = new_test_steps(tmp_path, 100)[0]
    weak = Step([*step.arguments, "--tries", 1, "--until", 1], step.output, step.outcomes, {"wrong_passing_before": 2})
    with pytest.raises(SystemExit, match="make-tests: sum of wrong_passing_before is 1, expected 2"):
        run_step(weak, MEMORY)


def test_too_much_memory_is_a_failure(tmp_path):
    rows.write_all(tmp_path, 100, 0)
    with pytest.raises(SystemExit, match="convert failed with exit code"):
        run_step(math_steps(tmp_path, 100)[0], 16 << 20)


def test_row_counts_are_whole_cycles():
    assert whole_cycles("700") == 700
    with pytest.raises(Exception, match="expected a multiple of 100"):
        whole_cycles("750")
    assert rows.math_funnel(700_000).total() == 700_000
    assert rows.math_funnel(700_000)["kept"] == 490_000
    assert rows.code_funnel(100_000)["kept"] == 12_000


def test_rows_are_deterministic():
    assert list(rows.math_rows(300)) == list(rows.math_rows(300))
    assert list(rows.code_rows(60)) == list(rows.code_rows(60))
