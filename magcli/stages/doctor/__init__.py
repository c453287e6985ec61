"""Check what is installed and how fast this machine is.

Prints one line per check to stdout: packages, processor, memory, verifiers, the level of isolation of programs (full,
restricted or none; see SECURITY.md) and what a higher one needs, and the speed of this processor in float32 and bf16. A
check that fails says what to do; the exit code is then 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from magcli.config import opt

INPUTS = ""
OUTPUT = ""
EXAMPLE = "magcli doctor"


@dataclass(frozen=True)
class Config:
    """Options of `magcli doctor`."""

    device: str = opt("auto", "Device to check: cpu, cuda, cuda:1; auto: cuda where PyTorch can use a GPU, else cpu.")
    engines: bool = opt(
        False,
        "Also start Ray, and vLLM, on a GPU without and with compilation (minutes), and check that it samples right.",
    )
