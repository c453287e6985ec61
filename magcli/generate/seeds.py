"""Seeds of samples: a function of what is sampled, not of when or where, so that any part can be made again."""

import hashlib


def seed_of(run_seed: int, row_id: str, sample: int) -> int:
    """The seed of one sample of one row in one run: 63 bits of a SHA-256, the same on every machine and version."""
    digest = hashlib.sha256(f"{run_seed}\0{row_id}\0{sample}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1
