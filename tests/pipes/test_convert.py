"""`magcli convert`: columns renamed and chosen, rows limited, counts that add up."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from calling import call_stage

from magcli.data import table
from magcli.data.values import to_rows
from magcli.errors import DataError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = [{"id": str(i), "n": i, "x": [i]} for i in range(3000)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "a.jsonl"


def test_columns_are_renamed_and_chosen(source: Path, magcli) -> None:
    out = source.with_name("out.jsonl")
    assert magcli("convert", source, "--rename", "m=n,n=x", "--columns", "n,id", "-o", out).returncode == 0
    assert out.read_text().splitlines()[7] == '{"n": [7], "id": "7"}'


def test_rows_after_the_limit_are_not_read(source: Path, magcli) -> None:
    out = source.with_name("out.parquet")
    done = magcli("convert", source, "-n", "2000", "-o", out)
    assert "2,000 rows in, 2,000 out in" in done.stderr
    assert numbers(out) == list(range(2000))


def numbers(path: Path) -> list[int]:
    return [row["n"] for batch in table.read(str(path)).rows for row in to_rows(batch)]


@pytest.mark.parametrize(
    ("values", "in_order"),
    [
        ([10, 9, None, 2**64, -5, 9.5], [-5, 9, 9.5, 10, 2**64, None]),
        (["b", 'a"', "ab", None], ['a"', "ab", "b", None]),
    ],
)
def test_values_of_json_are_sorted_by_value(tmp_path: Path, values, in_order) -> None:
    """As texts, 10 and 2**64 are before 9; another tool may store texts as JSON."""
    source, out = tmp_path / "in.arrow", tmp_path / "out.arrow"
    texts = pa.array([None if value is None else json.dumps(value) for value in values], pa.string())
    rows = pa.table({"n": pa.ExtensionArray.from_storage(pa.json_(), texts)})
    with pa.ipc.new_file(source, rows.schema) as writer:
        writer.write_table(rows)
    call_stage("convert", source, output=out, sort="n")
    assert numbers(out) == in_order


def test_values_without_an_order_are_not_sorted(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"n": 10}\n{"n": "a"}\n')
    with pytest.raises(DataError, match="rows cannot be sorted by n: it has values of several types"):
        call_stage("convert", source, output=tmp_path / "out.jsonl", sort="n")


@pytest.mark.parametrize(
    ("options", "kept", "reasons"),
    [
        (["--where", "n < 5 or x contains 7"], [0, 1, 2, 3, 4, 7], {"not-matching": 2994}),
        (["--where", "n >= 10", "--limit", "2"], [10, 11], {"not-matching": 10, "over-limit": 1012}),
        (["--sort=-n", "--limit", "2"], [2999, 2998], {"over-limit": 2998}),
        (["--where", "n in (3, 1, 2)", "--sort", "id"], [1, 2, 3], {"not-matching": 2997}),
    ],
)
def test_rows_are_chosen_and_the_others_counted(source: Path, magcli, options, kept, reasons) -> None:
    out = source.with_name("out.arrow")
    done = magcli("convert", source, *options, "-o", out)
    assert done.returncode == 0, done.stderr
    assert numbers(out) == kept
    link = table.read(str(out)).chain[-1]
    assert link.dropped == reasons
    assert link.rows_in == link.rows_out + sum(reasons.values())


def test_a_sample_and_a_shuffle_depend_on_the_seed(source: Path, magcli) -> None:
    found = []
    for seed in (0, 0, 1):
        options = ["--shuffle", "--sample", "50", "--seed", seed]
        done = magcli("convert", source, *options, "--restart", "-o", source.with_name("out.arrow"))
        assert done.returncode == 0, done.stderr
        found.append(numbers(source.with_name("out.arrow")))
    assert found[0] == found[1] != found[2]
    assert len(set(found[0])) == 50
    assert found[0] != sorted(found[0])
    done = magcli("convert", source, "--sample", "50", "-o", source.with_name("kept.arrow"))
    kept = numbers(source.with_name("kept.arrow"))
    assert (len(set(kept)), kept) == (50, sorted(kept))


def test_the_sides_of_a_split_are_those_of_split_and_its_rest_is_in_dropped(source: Path, magcli) -> None:
    train, rest, held_out = (source.with_name(name) for name in ("train.arrow", "rest.jsonl", "held.jsonl"))
    done = magcli("convert", source, "--split", "0.8", "--by", "id", "-o", train, "--dropped", rest)
    assert done.returncode == 0, done.stderr
    assert sorted(numbers(train) + numbers(rest)) == list(range(3000))
    options = ["--share", "0.2", "--by", "id", "--held-out", held_out, "-o", source.with_name("t.arrow")]
    assert magcli("split", source, *options).returncode == 0
    assert numbers(held_out) == numbers(rest)


NESTED = [
    {
        "prompt": "a",
        "reward_model": {"ground_truth": "5", "style": ""},
        "tests": [{"k": 1}, {"k": 2}],
        "mix": [1, "x"],
    },
    {"prompt": "b", "reward_model": {"ground_truth": "3", "style": "rule"}, "tests": [], "mix": None},
    {"prompt": "c", "reward_model": None, "tests": [{"k": 3}], "mix": "no list"},
]


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    (tmp_path / "nested.jsonl").write_text("".join(json.dumps(row) + "\n" for row in NESTED))
    return tmp_path / "nested.jsonl"


def lines(magcli, *arguments: object) -> list[dict]:
    done = magcli("convert", *arguments, "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_values_within_objects_are_columns(nested: Path, magcli) -> None:
    path = "reward_model.ground_truth"
    found = lines(magcli, nested, "--rename", f"answer={path}", "--columns", "prompt,answer")
    assert found == [{"prompt": "a", "answer": "5"}, {"prompt": "b", "answer": "3"}, {"prompt": "c", "answer": None}]
    assert lines(magcli, nested, "--columns", path, "--sort", path)[0] == {path: "3"}
    assert lines(magcli, nested, "--columns", "prompt", "--where", f"{path} == '5'") == [{"prompt": "a"}]
    assert "tests" not in lines(magcli, nested, "--drop-columns", "tests,mix", "--where", "len(tests) > 1")[0]
    done = magcli("convert", nested, "--columns", "reward_model.gold")
    assert done.returncode == 3
    assert "reward_model has no 'gold'; known: ground_truth, style" in done.stderr


def test_each_element_of_a_list_becomes_a_row(nested: Path, magcli) -> None:
    found = lines(magcli, nested, "--explode", "tests", "--columns", "prompt,tests.k")
    assert found == [{"prompt": "a", "tests.k": 1}, {"prompt": "a", "tests.k": 2}, {"prompt": "c", "tests.k": 3}]
    assert lines(magcli, nested, "--explode", "mix", "--columns", "mix") == [{"mix": 1}, {"mix": "x"}]
    done = magcli("convert", nested, "--explode", "prompt")
    assert done.returncode == 3
    assert "column prompt holds no lists but string" in done.stderr


def test_one_option_limits_the_rows_of_every_stage(tmp_path: Path, magcli) -> None:
    rows = [{"prompt": f"Compute {i}+1.", "answer": str(i + 1), "completion": "2"} for i in range(9)]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for stage in ("grade", "clean-math"):
        done = magcli(stage, data, "-n", "4", "-o", tmp_path / f"{stage}.arrow")
        assert f"{stage}: 4 rows in, 4 out" in done.stderr
        assert table.read(str(tmp_path / f"{stage}.arrow")).chain[-1].config["limit"] == 4
    text = magcli("convert", data).stdout
    done = magcli("grade", "-", "--limit", "4", "-o", tmp_path / "piped.arrow", input=text)
    assert "grade: 4 rows in, 4 out" in done.stderr
    stages = [link.stage for link in table.read(str(tmp_path / "piped.arrow")).chain]
    assert stages == ["convert", "grade"], "a pipe is read to its end, where its history is"
    assert magcli("grade", data, "--limit", "0").returncode == 2


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--rename", "id=n"], 2, "has a column id already"),
        (["--rename", "m=id,k=id"], 2, "convert.rename: id occurs twice"),
        (["--rename", "m=id,m=n"], 2, "convert.rename: m occurs twice"),
        (["--columns", "n,n"], 2, "named twice"),
        (["--columns", "n,y"], 3, "lacks column y; it has: id, n, x"),
        (["--rename", "a=y"], 3, "lacks column y; it has: id, n, x"),
    ],
)
def test_impossible_columns_are_refused(source: Path, magcli, options: list[str], code: int, message: str) -> None:
    done = magcli("convert", source, *options, "-o", source.with_name("out.arrow"))
    assert done.returncode == code
    assert message in done.stderr
    assert not source.with_name("out.arrow").exists()


def test_json_from_a_pipe_is_identified_by_its_digest(source: Path, magcli) -> None:
    """Stages tell by the digest whether finished work is of this input."""
    out = source.with_name("out.arrow")
    found = []
    for text in (source.read_bytes(), source.read_bytes()[:-9]):
        assert magcli("convert", "-", "-o", out, "--restart", input=text).returncode == 0
        found.append(table.read(str(out)).chain[-1].inputs[0].sha256)
    assert found[0] == table.read(str(source)).sha256
    assert found[1] not in ("", found[0])
