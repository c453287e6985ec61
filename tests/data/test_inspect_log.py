"""Logs of inspect_ai, as its archives (stored, deflated and zstd) and its JSON have them."""

import json
import zipfile

import pyarrow as pa
import pytest
from calling import call_stage

from magcli.data import table
from magcli.data.values import to_rows
from magcli.errors import DataError

SYSTEM = {"id": "m0", "role": "system", "content": "Be brief."}


def sample(id, epoch, answer, **more):
    question = f"What is {id} * 7?"
    content = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": answer}]
    said = {"role": "assistant", "content": content}
    return {
        "id": id,
        "epoch": epoch,
        "input": question,
        "target": str(id * 7),
        "messages": [SYSTEM, {"role": "user", "content": question}, said],
        "output": {"model": "m", "choices": [{"message": said, "stop_reason": "stop"}], "completion": answer},
        "scores": {"match": {"value": "C", "answer": answer}, "includes": {"value": "I", "answer": answer}},
        "store": {},
        "events": [{"event": "model", "samples": ["]"]}],
        "attachments": {"a": "b"},
        **more,
    }


ANSWERS = ((2, 1, 14), (2, 2, 15), (6, 1, 42), (6, 2, 42))
SAMPLES = [sample(id, epoch, f"\\boxed{{{answer}}}") for id, epoch, answer in ANSWERS]
HEAD = {"version": 2, "status": "success", "eval": {"task": "t", "dataset": {"samples": 2, "sample_ids": [2, 6]}}}


def as_json(folder, samples=SAMPLES, **style):
    path = folder / "log.json"
    misleading = {"name": '"samples": ['}
    log = {**HEAD, "plan": misleading, "samples": samples, "reductions": []}
    path.write_text(json.dumps(log, **style))
    return path


def as_archive(folder, compression=zipfile.ZIP_DEFLATED, samples=SAMPLES, pack=lambda text: text):
    path = folder / "log.eval"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("_journal/start.json", pack(b"{}"))
        for entry in samples:
            archive.writestr(f"samples/{entry['id']}_epoch_{entry['epoch']}.json", pack(json.dumps(entry).encode()))
        archive.writestr("header.json", pack(json.dumps(HEAD).encode()))
    return path


def as_zstd(folder):
    """An archive in zstd, which ``zipfile`` cannot write: its members are stored, and their headers say 93."""
    path = as_archive(folder, zipfile.ZIP_STORED, pack=lambda text: pa.compress(text, "zstd", asbytes=True))
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        start = -1
        while (start := data.find(signature, start + 1)) >= 0:
            data[start + offset : start + offset + 2] = (93).to_bytes(2, "little")
    path.write_bytes(bytes(data))
    return path


LOGS = {
    "deflated": as_archive,
    "stored": lambda folder: as_archive(folder, zipfile.ZIP_STORED),
    "zstd": as_zstd,
    "JSON of many lines": lambda folder: as_json(folder, indent=2),
    "JSON of one line": as_json,
}


@pytest.mark.parametrize("name", LOGS)
def test_samples_are_rows_without_their_events(name, tmp_path):
    source = table.read(str(LOGS[name](tmp_path)))
    rows = [row for batch in source.rows for row in to_rows(batch)]
    assert [(row["id"], row["epoch"]) for row in rows] == [(2, 1), (2, 2), (6, 1), (6, 2)]
    assert list(rows[0]) == ["id", "epoch", "input", "target", "messages", "output", "scores"]
    assert source.total == 4
    assert source.sha256


def test_epochs_are_samples_of_one_problem_however_many_scorers(tmp_path):
    out = tmp_path / "graded.jsonl"
    call_stage("grade", as_zstd(tmp_path), output=out, language=False)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["id"], row["epoch"], row["reason"]) for row in rows] == [
        ("2", 1, "correct"),
        ("2", 2, "wrong"),
        ("6", 1, "correct"),
        ("6", 2, "correct"),
    ]
    assert (rows[0]["prompt"], rows[0]["system"], rows[0]["reasoning_content"]) == ("What is 2 * 7?", "Be brief.", "hm")


def test_a_sample_that_was_logged_again_counts_once(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = as_archive(tmp_path, samples=[sample(2, 1, "old"), sample(2, 1, "new")])
    rows = [row for batch in table.read(str(path)).rows for row in to_rows(batch)]
    assert [row["output"]["completion"] for row in rows] == ["new"]


def test_logs_without_samples_and_other_archives_are_refused(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(HEAD))
    with pytest.raises(DataError, match=r"log\.json is a log of inspect_ai without samples"):
        table.read(str(path))
    with pytest.raises(DataError, match=r"log\.eval has no samples: it is no log of inspect_ai"):
        table.read(str(as_archive(tmp_path, samples=[])))
    archive = as_archive(tmp_path)
    archive.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"log\.eval is truncated, damaged or no log of inspect_ai"):
        table.read(str(archive))
    archive.write_bytes(b"not a zip")
    with pytest.raises(DataError, match=r"log\.eval is truncated, damaged or no log of inspect_ai"):
        table.read(str(archive))


def test_a_truncated_log_is_refused(tmp_path):
    path = as_json(tmp_path, indent=2)
    path.write_bytes(path.read_bytes()[:-800])
    with pytest.raises(DataError, match="is truncated"):
        table.read(str(path))


def test_damaged_members_are_refused(tmp_path):
    path = as_zstd(tmp_path)
    data = bytearray(path.read_bytes())
    start = data.find(b"samples/2_epoch_1.json") + len("samples/2_epoch_1.json")
    data[start : start + 40] = bytes(40)
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"log\.eval is damaged"):
        table.read(str(path))
