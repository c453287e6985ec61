"""Files in the forms that people have are read, or named for what they are."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling import call_stage

from magcli.data import table
from magcli.data.values import to_rows
from magcli.errors import DataError

ROWS = [{"prompt": "Compute 1+1.", "answer": "2"}, {"prompt": "é", "answer": "3"}]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
CSV = "prompt,answer\nCompute 1+1.,2\né,3\n"


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for batch in table.read(str(path)).rows for row in to_rows(batch)]


def zstd(text: str) -> bytes:
    packed: bytes = pa.compress(text.encode(), codec="zstd", asbytes=True)
    return packed


READ = {
    "array.jsonl": json.dumps(ROWS).encode(),
    "indented.jsonl": json.dumps(ROWS, indent=2).encode(),
    "bom.jsonl": b"\xef\xbb\xbf" + LINES.encode(),
    "bom.csv": b"\xef\xbb\xbf" + CSV.encode(),
    "C.JSONL": LINES.encode(),
    "X.Json.GZ": gzip.compress(json.dumps(ROWS).encode()),
    "x.jsonl.zst": zstd(LINES),
    "x.json.zst": zstd(json.dumps(ROWS)),
    "x.csv.gz": gzip.compress(CSV.encode()),
    "x.csv.zst": zstd(CSV),
    "x.tsv": CSV.replace(",", "\t").encode(),
    "x.tsv.gz": gzip.compress(CSV.replace(",", "\t").encode()),
    "x.ndjson": LINES.encode(),
}


@pytest.mark.parametrize("name", READ)
def test_forms_that_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(READ[name])
    assert rows_of(tmp_path / name) == ROWS


NAMED = {
    "utf16.jsonl": (LINES.encode("utf-16"), "it is UTF-16"),
    "bare-utf16.jsonl": (LINES.encode("utf-16-le"), "it may be UTF-16"),
    "gzip.jsonl": (gzip.compress(LINES.encode()), "it is a gzip file; name it .gz"),
    "zstd.jsonl": (zstd(LINES), "it is a zstd file; name it .zst"),
    "returns.jsonl": (LINES.replace("\n", "\r").encode(), "carriage returns"),
    "indented.jsonl": ("\n".join(json.dumps(row, indent=2) for row in ROWS).encode(), "may take several lines"),
    "columns.json": (b'{"prompt": ["a", "b"], "answer": ["1", "2"]}', "may be a table of columns"),
    "cut.jsonl.zst": (zstd(LINES)[:-5], "cut.jsonl.zst"),
    "cut.csv.gz": (gzip.compress(CSV.encode())[:-5], "cut.csv.gz is truncated"),
}


@pytest.mark.parametrize("name", NAMED)
def test_forms_that_are_named_for_what_they_are(tmp_path: Path, name: str) -> None:
    data, what = NAMED[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=what):
        rows_of(tmp_path / name)


def write_parquet(path: Path, *answers: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"answer": list(answers)}), path)


def answers_of(name: str) -> list[str]:
    return [row["answer"] for batch in table.read(name).rows for row in to_rows(batch)]


def test_a_repository_is_read_by_the_splits_in_its_file_names(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "train-00000-of-00002.parquet", "1", "2")
    write_parquet(tmp_path / "data" / "train-00001-of-00002.parquet", "3")
    assert answers_of(str(tmp_path)) == answers_of(f"{tmp_path}:train") == ["1", "2", "3"]
    write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet", "4")
    assert answers_of(f"{tmp_path}:test") == ["4"]
    with pytest.raises(DataError, match=r"several tables; give one of them: .*:test, .*:train"):
        table.read(str(tmp_path))
    with pytest.raises(DataError, match=r"no split dev; it has: .*:test, .*:train"):
        table.read(f"{tmp_path}:dev")


def test_the_card_of_a_repository_says_what_its_splits_are(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "train-0.parquet", "1")
    write_parquet(tmp_path / "data" / "test-0.parquet", "2")
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/train-*\n---\nText.\n"
    )
    assert answers_of(str(tmp_path)) == ["1"]
    (tmp_path / "README.md").write_text("---\nconfigs:\n- config_name: default\n  data_files: data/gone-*\n---\n")
    with pytest.raises(DataError, match=r"README\.md names data/gone-\*, and there is no such file"):
        table.read(str(tmp_path))


def test_a_folder_of_json_lines_leaves_out_side_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"answer": "1"}\n')
    (tmp_path / "b.jsonl").write_text('{"answer": "2", "more": 1}\n')
    for side_file in (".a.jsonl.run.json", "a.jsonl.run.json"):
        (tmp_path / side_file).write_text("{}")
    assert answers_of(str(tmp_path)) == ["1", "2"]


def test_a_split_of_a_folder_that_datasets_saved(tmp_path: Path) -> None:
    import datasets

    one, other = (datasets.Dataset.from_list([{"answer": answer}]) for answer in ("1", "2"))
    datasets.DatasetDict(train=one, test=other).save_to_disk(str(tmp_path / "both"))
    assert answers_of(f"{tmp_path / 'both'}:test") == ["2"]


def test_a_pattern_in_quotes_stands_for_its_files(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"part-{number}.jsonl").write_text(f'{{"answer": "{number}"}}\n')
    call_stage("convert", tmp_path / "part-*.jsonl", output=tmp_path / "out.jsonl")
    assert answers_of(str(tmp_path / "out.jsonl")) == ["1", "2"]
    with pytest.raises(DataError, match=r"no file matches .*gone-\*"):
        call_stage("convert", tmp_path / "gone-*", output=tmp_path / "out.jsonl")
