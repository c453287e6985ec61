"""From the data of a suite to problems: hand-made rows in the shapes of the real files."""

import gzip
import json
from pathlib import Path

import pytest

from magcli.errors import DataError
from magcli.evaluation.rows import problems
from magcli.evaluation.suite import Suite, load

GPQA = "Which of these is a noble gas?\n\nA. argon\nB. oxygen\nC. chlorine\nD. iron\n\nAnswer in the usual form."


def suite_of(folder: Path, text: str) -> Suite:
    (folder / "mine.toml").write_text(text)
    return load([str(folder / "mine.toml")])[0]


def lines(path: Path, rows: list) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


def test_ids_of_math_problems_contain_their_suite(tmp_path: Path) -> None:
    (tmp_path / "eval").mkdir()
    lines(tmp_path / "eval" / "aime2025.jsonl", [{"id": "a-0", "problem": "1+1", "expected_answer": 2}])
    (found,) = problems(load(["aime25"])[0], [str(tmp_path)])
    assert found == {"id": "aime25/a-0", "suite": "aime25", "kind": "math", "prompt": "1+1", "answer": "2"}


def test_headerless_tables_arrays_and_chat_wrappers_are_read(tmp_path: Path) -> None:
    (tmp_path / "mgsm_de.tsv").write_text("Wie viel ist 1+1?\t2\nUnd 2+2?\t4\n")
    found = problems(load(["mgsm-de"])[0], [str(tmp_path)])
    assert [(row["prompt"], row["answer"]) for row in found] == [("Wie viel ist 1+1?", "2"), ("Und 2+2?", "4")]
    rows = [{"question": "Q", "answer": "1", "gid": n, "data_source": s} for n, s in enumerate(["AIME2024", "CNMO"])]
    (tmp_path / "mmath_fr.json").write_text(json.dumps(rows))
    assert [row["id"] for row in problems(load(["mmath-aime-fr"])[0], [str(tmp_path)])] == ["mmath-aime-fr/0"]
    wrapped = "<|im_start|>user\nWhat is 1+1?<|im_end|>\n<|im_start|>assistant\n<think>"
    lines(tmp_path / "hmmt_feb_2025.jsonl", [{"idx": 0, "prompt": wrapped, "reference_solution": "\\boxed{2}\n#### 2"}])
    assert problems(load(["hmmt25"])[0], [str(tmp_path)])[0]["prompt"] == "What is 1+1?"


def test_choices_and_their_letter_are_shuffled_by_the_seed(tmp_path: Path) -> None:
    lines(tmp_path / "gpqa_diamond.jsonl.gz", [{"id": n, "question": GPQA, "answer": "A"} for n in range(40)])
    suite = load(["gpqa-diamond"])[0]
    found = problems(suite, [str(tmp_path)], seed=1)
    assert {row["answer"] for row in found} == set("ABCD")
    assert all(f"({row['answer']}) argon\n" in row["prompt"] for row in found)
    assert all("\nA. " not in row["prompt"] and "usual form" not in row["prompt"] for row in found)
    assert found == problems(suite, [str(tmp_path)], seed=1)
    assert [row["answer"] for row in found] != [row["answer"] for row in problems(suite, [str(tmp_path)], seed=2)]


def test_choices_in_columns_have_the_correct_one_first(tmp_path: Path) -> None:
    own = 'verifier = "math"\n[[source]]\nfiles = ["q.jsonl"]\nprompt = "{Q}"\nchoices = ["Right One", "W 1", "W 2"]\n'
    lines(tmp_path / "q.jsonl", [{"Q": f"q{n}", "Right One": "yes", "W 1": "no", "W 2": "maybe"} for n in range(9)])
    for row in problems(suite_of(tmp_path, own), []):
        assert f"({row['answer']}) yes" in row["prompt"]


def test_missing_data_is_named_with_its_hub_id_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        problems(load(["math500"])[0], [str(tmp_path)])
    message = str(error.value)
    assert "suite math500: no math500.jsonl in" in message
    assert "on the hub it is HuggingFaceH4/MATH-500:test: --data hub" in message
    assert "\n" not in message


def test_a_suite_looks_in_a_given_folder_then_next_to_itself(tmp_path: Path, monkeypatch) -> None:
    own, here, named = (tmp_path / name for name in ("own", "here", "named"))
    for number, folder in enumerate((own, here, named)):
        folder.mkdir()
        lines(folder / "q.jsonl", [{"q": str(number)}])
    suite = suite_of(own, 'verifier = "math"\n[[source]]\nfiles = ["q.jsonl"]\nprompt = "{q}"\nanswer = "1"\n')
    monkeypatch.chdir(here)
    assert problems(suite, [])[0]["prompt"] == "0"
    assert problems(suite, [str(named)])[0]["prompt"] == "2"
    (own / "q.jsonl").unlink()
    assert problems(suite, [])[0]["prompt"] == "1"
    with pytest.raises(DataError, match=r"no q.jsonl in \S*/own or the folders in it.*or name another folder by"):
        problems(suite, [str(own)])


def test_the_source_of_the_data_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"no polyglot_python.jsonl or python/.* comes from a clone of github.com/Aider-AI"
    ):
        problems(load(["aider-polyglot-python"])[0], [str(tmp_path)])


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ("{ min = '2024-08-01' }", [1, 2]),
        ("{ max = '2024-08-01' }", [0]),
        ("{ min = '2024-08-01', max = '2024-12-31' }", [1]),
        ("{ not = ['2024-07-31T00:00:00'] }", [1, 2]),
    ],
)
def test_rows_of_a_date_range_are_chosen(tmp_path: Path, rule: str, kept: list[int]) -> None:
    days = ["2024-07-31T00:00:00", "2024-08-01T00:00:00", "2025-01-01T00:00:00"]
    lines(tmp_path / "q.jsonl", [{"q": str(number), "day": day} for number, day in enumerate(days)])
    source = f'[[source]]\nfiles = ["q.jsonl"]\nprompt = "{{q}}"\nanswer = "1"\nwhere = {{ day = {rule} }}\n'
    own = f'verifier = "math"\n{source}'
    assert [int(row["prompt"]) for row in problems(suite_of(tmp_path, own), [])] == kept


def test_a_range_of_another_type_than_the_column_is_reported(tmp_path: Path) -> None:
    lines(tmp_path / "q.jsonl", [{"q": "1", "level": "hard"}])
    source = '[[source]]\nfiles = ["q.jsonl"]\nprompt = "{q}"\nanswer = "1"\nwhere = { level = { min = 3 } }\n'
    with pytest.raises(DataError, match=r"suite mine: level is 'hard', which cannot be compared with \{'min': 3\}"):
        problems(suite_of(tmp_path, f'verifier = "math"\n{source}'), [])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"problem": "p"}], "row 1: no column 'expected_answer'; known: id, problem"),
        ([{"problem": "p", "expected_answer": 1}] * 2, "row 2: another row has the id 'aime25/1' too"),
        ([], "no row of its data matches the suite"),
        ("{broken", "cannot be read"),
        ("3\n", "aime2025.jsonl cannot be read: every row must be a JSON object"),
    ],
)
def test_rows_without_the_required_columns_are_named(tmp_path: Path, rows: list | str, message: str) -> None:
    if isinstance(rows, str):
        (tmp_path / "aime2025.jsonl").write_text(rows)
    else:
        lines(tmp_path / "aime2025.jsonl", [{"id": 1, **row} for row in rows])
    with pytest.raises(DataError, match=message):
        problems(load(["aime25"])[0], [str(tmp_path)])
