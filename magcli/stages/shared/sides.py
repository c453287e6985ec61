"""The side of a row in a split: training or held out."""

import hashlib
from typing import Any

HASH_BYTES = 8


def held_out(value: Any, share: float, seed: int) -> bool:
    """Whether a row with this value is held out: true for ``share`` of all values."""
    # Numbers, lists and null by their spelling in Python.
    text = value if isinstance(value, str) else repr(value)
    normalized = " ".join(text.casefold().split())  # copies of a problem that differ in spaces stay together
    # A null character cannot be part of the seed, so no two pairs have one key.
    key = f"{seed}\0{normalized}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(key, digest_size=HASH_BYTES).digest()
    # Uniform in [0, 1).
    fraction: float = int.from_bytes(digest) / 256**HASH_BYTES
    return fraction < share
