import random

import pytest

from magcli.rl import wandb_files


def log_of(records: list[bytes]) -> bytes:
    """A LevelDB log after its head, as its format says."""
    data = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        first, left = True, record
        while first or left:
            room = wandb_files.BLOCK - len(data) % wandb_files.BLOCK
            if room < 7:
                data += bytes(room)
                continue
            part, left = left[: room - 7], left[room - 7 :]
            kind = (1 if not left else 2) if first else (4 if not left else 3)
            data += wandb_files.CHUNK.pack(0, len(part), kind) + part
            first = False
    return bytes(data)


@pytest.fixture(scope="module")
def records() -> list[bytes]:
    choose = random.Random(0)
    sizes = [choose.randrange(1, 9000) for _ in range(40)] + [100_000, 1, wandb_files.BLOCK - 7]
    return [bytes(choose.randrange(256) for _ in range(size)) for size in sizes]


def test_records_are_read_across_blocks(records) -> None:
    assert list(wandb_files.records(log_of(records))) == records


@pytest.mark.parametrize("seed", range(20))
def test_of_a_torn_log_the_whole_records_are_read(seed, records) -> None:
    data = log_of(records)
    found = list(wandb_files.records(data[: random.Random(seed).randrange(len(data))]))
    assert found == records[: len(found)]
    assert len(found) < len(records)


def test_an_empty_log_has_no_record() -> None:
    assert list(wandb_files.records(b":W&B\xe1\xbe\x00")) == []
    assert list(wandb_files.records(b"")) == []
