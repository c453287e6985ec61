"""What the files of a Weights & Biases run on this machine hold: its client writes them late, so a kill loses some.

A ``.wandb`` file is a LevelDB log: after a head of 7 bytes, blocks of 32 KiB of chunks, each a checksum of 4 bytes,
the length, a kind (1 whole, 2 first, 3 middle, 4 last part of a record), and the bytes.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

HEAD = 7
BLOCK = 32768
CHUNK = struct.Struct("<IHB")
ENDS = (1, 4)


def last_step(folder: Path, run: str) -> int:
    """The largest step in the files of a run below a folder, 0 for none."""
    return max((step for path in folder.glob(f"*-{run}/run-{run}.wandb") for step in steps(path)), default=0)


def steps(path: Path) -> Iterator[int]:
    """The steps that a file holds, in order; what a kill has torn is left out."""
    from wandb.proto.wandb_internal_pb2 import Record

    for data in records(path.read_bytes()):
        record = Record.FromString(data)
        if record.HasField("history"):
            yield record.history.step.num


def records(data: bytes) -> Iterator[bytes]:
    """The whole records of a log."""
    at, parts = HEAD, b""
    while at + CHUNK.size <= len(data):
        left = BLOCK - at % BLOCK
        if left < CHUNK.size:
            at += left
            continue
        _, size, kind = CHUNK.unpack_from(data, at)
        at += CHUNK.size + size
        if not kind or at > len(data):
            return
        parts += data[at - size : at]
        if kind in ENDS:
            yield parts
            parts = b""
