"""JSON files with checksums: any flipped bit, and any line that is added, moved or left out, is found."""

import json
from pathlib import Path

import pytest

from magcli.data.checksum import encode_line, encode_lines, encode_object, last_crc, read_lines, read_object
from magcli.errors import DataError

LINES = [{"step": 1, "loss": 0.5}, {"step": 2, "text": 'Grüße, "crc"'}, {"step": 3, "parts": {"a": None}}]


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(encode_lines(LINES) + b'{"step": 4')
    lines = read_lines(path, "restore it")
    assert lines.objects == LINES
    assert lines.size == path.stat().st_size - len(b'{"step": 4')
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()[:3]] == [1, 2, 3]
    assert read_lines(tmp_path / "missing.jsonl", "").objects == []


def test_a_line_is_appended_after_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    for fields in LINES:
        with path.open("ab+") as file:
            line, _ = encode_line(fields, last_crc(file))
            file.write(line)
    assert path.read_bytes() == encode_lines(LINES)


def test_every_flipped_bit_of_lines_is_found_or_is_in_a_checksum(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    whole = encode_lines(LINES)
    refused = 0
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            lines = read_lines(path, "restore it")
        except DataError:
            refused += 1
        else:
            # Only the newline at the end of the file can be lost unseen; a kill leaves that too.
            assert lines.objects == LINES[:2]
            assert bit // 8 == len(whole) - 1
    assert refused == 8 * len(whole) - 8


@pytest.mark.parametrize("order", [[0, 2], [1, 0, 2], [0, 0, 1, 2], [1, 2]])
def test_a_line_that_is_left_out_moved_or_repeated_is_found(order: list[int], tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    encoded = encode_lines(LINES).splitlines(keepends=True)
    path.write_bytes(b"".join(encoded[number] for number in order))
    with pytest.raises(DataError, match=r"line \d: it does not match its checksum; restore it"):
        read_lines(path, "restore it")


def test_lines_without_checksums_are_read_and_continued_without(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    lines = read_lines(path, "")
    assert (lines.objects, lines.crc) == (LINES, None)
    assert encode_line({"step": 4}, lines.crc) == (b'{"step": 4}\n', None)
    with path.open("rb") as file:
        assert last_crc(file) is None
    path.write_bytes(path.read_bytes() + encode_lines(LINES))
    with pytest.raises(DataError, match="line 4: it has a checksum, unlike the lines before it"):
        read_lines(path, "")


def test_an_object_is_read_as_it_was_written_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    fields = {"command": "rl", "stage": [{"updates": 3}], "ratio": 0.1}
    whole = encode_object(fields)
    path.write_bytes(whole)
    assert read_object(path) == fields
    changed = 0
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            values = read_object(path)
        except ValueError:
            continue
        # White space may change, and the name of the checksum's key; the values stay.
        assert {name: values[name] for name in fields} == fields
        changed += 1
    assert changed < len(whole)
