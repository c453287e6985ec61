"""Digests of tensors, which prove that new weights have arrived: the trainer digests what it sends, an engine what it
receives.

A digest is 64 bits. Each 32-bit word is multiplied by a random odd number of its position and all products are added,
modulo 2^64 (multilinear hashing), so that changed, swapped and shifted words are noticed. It takes about as long as a
copy, on the device of the tensor, and protects against faults, not against attacks. The host waits for a device once
for all tensors, not once for each.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache

import torch
from torch import Tensor

from magcli.errors import EnvironmentFault
from magcli.generate.types import Digests, Weights

ROW_WORDS = 4096
"""Words that are added up to one number; these numbers are digested in turn."""

WORD_BYTES = 4
ROW_BYTES = ROW_WORDS * WORD_BYTES
CPU_ROWS, GPU_ROWS = 16, 4096
"""Rows that are added up at once."""

MODULUS = 1 << 64


class WeightsFault(EnvironmentFault):
    """New weights did not arrive as they were sent."""


class PendingDigests:
    """The digests of tensors that come one by one, on one device, for which the host waits only at the end."""

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}
        self._rests: dict[str, Tensor] = {}

    @torch.no_grad()
    def add(self, name: str, tensor: Tensor) -> None:
        """Digest a tensor on its device; it may change as soon as work on this device does."""
        words = tensor.detach().contiguous().flatten().view(torch.uint8)
        length = len(words)
        while len(words) > ROW_BYTES:
            # A row of 16 KiB becomes one number of 8 bytes, until one row is left.
            words = _row_sums(words).view(torch.uint8)
            # Zeros add nothing to a sum, so the number of bytes is part of the digest.
            length += len(words)
        self._lengths[name] = length
        self._rests[name] = _row_sums(words).sum()

    def fetch(self) -> Digests:
        """The digests so far, by name: integers below 2^64."""
        if not self._rests:
            return {}
        rests = torch.stack(list(self._rests.values())).tolist()  # the only wait for the device
        return {name: (self._lengths[name] + rest) % MODULUS for name, rest in zip(self._rests, rests, strict=True)}


def digest(tensor: Tensor) -> int:
    """The digest of a tensor's bytes: an integer below 2^64."""
    return digests({"": tensor})[""]


def digests(weights: Weights, dtype: torch.dtype | None = None) -> Digests:
    """The digest of each tensor, by name; ``dtype``: of floating-point tensors after a cast to this type."""
    pending = PendingDigests()
    for name, tensor in weights.items():
        pending.add(name, tensor.to(sent_type(tensor, dtype)))
    return pending.fetch()


@torch.no_grad()
def row_digests(data: Tensor, sizes: Mapping[str, int]) -> Digests:
    """The digests of tensors that lie one after another in ``data`` (uint8), in a few passes over all of them.

    ``sizes`` are the bytes of each, which takes ``rows_of`` rows of ``data``, the last one padded with zeros.
    """
    lengths = dict(sizes)  # all bytes of a tensor that are digested: its own, and those of its sums
    left = dict(sizes)  # bytes in ``data`` of the tensors that are more than one row
    rests: dict[str, Tensor] = {}  # the sum (int64 ``[1]``) of the last row of each
    zeros = data.new_zeros(ROW_BYTES).view(torch.int64)
    # Each pass makes a row of 16 KiB one number of 8 bytes; a tensor is done when its numbers fit into one row.
    while left:
        num_rows = [rows_of(size) for size in left.values()]
        sums = dict(zip(left, torch.split(_row_sums(data), num_rows), strict=True))
        padded: list[Tensor] = []
        remaining: dict[str, int] = {}
        for name, size in left.items():
            if size <= ROW_BYTES:
                rests[name] = sums[name]
                continue
            num_bytes = sums[name].nbytes
            remaining[name] = num_bytes
            lengths[name] += num_bytes
            padding = rows_of(num_bytes) * ROW_BYTES - num_bytes
            padded += [sums[name], zeros[: padding // zeros.itemsize]]
        left = remaining
        if padded:
            data = torch.cat(padded).view(torch.uint8)
    if not sizes:
        return {}
    numbers = torch.cat([rests[name] for name in sizes]).tolist()  # the only wait for the device
    return {name: (lengths[name] + number) % MODULUS for name, number in zip(sizes, numbers, strict=True)}


def rows_of(size: int) -> int:
    """The number of rows that so many bytes take; no bytes take one too."""
    return max(1, -(-size // ROW_BYTES))


def sent_type(tensor: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """The type in which a tensor is sent: floating-point ones are cast to ``dtype``; None keeps their type."""
    return dtype if dtype and tensor.is_floating_point() else tensor.dtype


def combined(parts: Digests) -> str:
    """One digest of a whole update, as 16 hexadecimal digits."""
    lines = [f"{name} {parts[name]:016x}\n" for name in sorted(parts)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def merged(ranks: Sequence[Digests]) -> Digests:
    """What has arrived in an engine, from what has in each of its ranks, to which whole tensors are sent.

    A tensor that a rank lacks has not arrived. One that differs among the ranks gets the digest of their digests, so it
    is not what was sent, whatever that was.
    """
    # Missing on one rank is missing: the engine computes with all of them.
    in_all = set(ranks[0]).intersection(*ranks[1:])
    arrived = {}
    for name in ranks[0]:
        if name in in_all:
            arrived[name] = _merged_digest([rank[name] for rank in ranks])
    return arrived


def _merged_digest(values: Sequence[int]) -> int:
    if len(set(values)) == 1:
        return values[0]
    return int.from_bytes(hashlib.sha256(repr(values).encode()).digest()[:8])


def check_arrival(sent: Digests, arrived: Digests, version: int, engine: str = "the engine") -> None:
    """Check that an engine has received exactly what was sent as this version of the weights.

    Raises:
        WeightsFault: a tensor is missing, was not sent, or differs; the message names the first one.
    """
    faults = []
    for name in sorted(sent.keys() | arrived.keys()):
        fault = _fault(name, sent, arrived)
        if fault:
            faults.append(f"{name} {fault}")
    if faults:
        others = f" (and {len(faults) - 1:,} more)" if len(faults) > 1 else ""
        raise WeightsFault(
            f"weights of update {version} in {engine}: {faults[0]}{others}; check the machine's memory, or try another "
            "--transfer; the same command resumes before this update"
        )


def check_arrivals(sent: Digests, arrivals: Sequence[Digests], version: int) -> None:
    """``check_arrival`` for each engine of a run."""
    for number, arrived in enumerate(arrivals, start=1):
        engine = f"generator {number} of {len(arrivals)}" if len(arrivals) > 1 else "the engine"
        check_arrival(sent, arrived, version, engine)


def renamed(parts: Digests, names: Mapping[str, str]) -> Digests:
    """Digests under other names (old name -> new name); those without a new name keep theirs."""
    return {names.get(name, name): value for name, value in parts.items()}


def _fault(name: str, sent: Digests, arrived: Digests) -> str:
    """What is wrong with a tensor, or an empty string."""
    if name not in arrived:
        return "did not arrive"
    if name not in sent:
        return "arrived, but was not sent"
    if sent[name] != arrived[name]:
        return f"arrived altered (digest {arrived[name]:016x} instead of {sent[name]:016x})"
    return ""


def _row_sums(data: Tensor) -> Tensor:
    """The weighted sums (int64) of the rows of some bytes; the last row is padded with zeros."""
    add_up = _cpu_sums if data.device.type == "cpu" else _gpu_sums
    rest = len(data) % ROW_BYTES
    whole = len(data) - rest
    sums = add_up(_as_words(data[:whole]))
    if rest:
        last_row = data.new_zeros(ROW_BYTES)
        last_row[:rest] = data[whole:]
        sums += add_up(_as_words(last_row))
    if not sums:  # no bytes
        return data.new_zeros(1, dtype=torch.int64)
    return torch.cat(sums)


def _as_words(data: Tensor) -> Tensor:
    """Whole rows of bytes as int32 ``[rows, words]``; copied if they do not begin at a multiple of a word."""
    aligned = data.clone() if data.storage_offset() % WORD_BYTES else data
    return aligned.view(torch.int32).view(-1, ROW_WORDS)


def _cpu_sums(rows: Tensor) -> list[Tensor]:
    """The sums of rows of words, a few at a time in one buffer, which stays in the CPU's cache."""
    buffer = torch.empty(CPU_ROWS, ROW_WORDS, dtype=torch.int64)
    multipliers = _multipliers(rows.device)
    sums = []
    for start in range(0, len(rows), CPU_ROWS):
        part = rows[start : start + CPU_ROWS]
        # Products of int64 wrap around: they are sums modulo 2^64.
        sums.append(buffer[: len(part)].copy_(part) @ multipliers)
    return sums


def _gpu_sums(rows: Tensor) -> list[Tensor]:
    """The sums of rows of words, on a device that has no products of integer matrices."""
    multipliers = _multipliers(rows.device)
    return [(rows[start : start + GPU_ROWS] * multipliers).sum(1) for start in range(0, len(rows), GPU_ROWS)]


@cache
def _multipliers(device: torch.device) -> Tensor:
    """A random odd number for each position of a row, the same in all processes."""
    # An odd number has an inverse modulo 2^64, so a word that differs changes its product.
    random = torch.Generator().manual_seed(0)
    numbers = torch.randint(-(1 << 63), (1 << 63) - 1, (ROW_WORDS,), generator=random)
    return (numbers | 1).to(device)
