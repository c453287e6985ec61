"""The principal plane of checkpoints, computed in a stream, against numpy and against bare reads of the files.

Each side is a process that reads safetensors, writes the top-2 principal components and reports its seconds (without
imports) and its peak memory. ``plane-vs-svd``: 12 checkpoints of 4 million float32 weights against numpy's SVD of the
centred stack; the planes must agree. ``plane-vs-reads``: 16 checkpoints of 135 million bf16 weights, 4.3 GB, against a
peer that only reads the files twice, as any streaming method must, and converts them to float32.
``plane-vs-cold-reads`` evicts the files from the page cache first, as if the run were larger than the memory.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from benchmarks.pairs import Result, compare

CHECKPOINTS = 12
SHAPES = {f"layers.{index}.weight": (512, 512) for index in range(16)}
WEIGHTS = sum(rows * columns for rows, columns in SHAPES.values())
LARGE = {"checkpoints": 16, "tensors": 257, "size": 1 << 19}
NAMES = ("c1.safetensors", "c2.safetensors")

Array = np.ndarray[Any, np.dtype[np.float32]]


def against_svd() -> Result:
    """Numpy's full SVD of the centred stack, transposed, which is faster."""
    name = "plane-vs-svd"
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _write_checkpoints(folder)
        result = _compare(name, "svd", folder, CHECKPOINTS * WEIGHTS / 1e6)
        angle = _angle(folder / "magcli", folder / "svd")
    assert angle < 1e-2, f"{name}: the planes are {angle:.1e} rad apart"
    print(f"  {name}: stack {CHECKPOINTS * WEIGHTS * 4 / 1e6:.0f} MB, planes {angle:.1e} rad apart", flush=True)
    return result


def against_reads() -> Result:
    """Two sequential reads and conversions of the same files."""
    return _compare_with_reads("plane-vs-reads", cold=False)


def against_cold_reads() -> Result:
    """The same, for both sides with files that are not in the page cache."""
    return _compare_with_reads("plane-vs-cold-reads", cold=True)


def _compare_with_reads(name: str, *, cold: bool) -> Result:
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _write_large(folder)
        os.sync()
        amount = LARGE["checkpoints"] * LARGE["tensors"] * LARGE["size"] / 1e6
        return _compare(name, "reads", folder, amount, cold=cold)


def _compare(name: str, peer: str, folder: Path, amount: float, *, cold: bool = False) -> Result:
    """Pairs of magcli and the peer on the checkpoints in ``folder``, ``amount`` million weights in total."""
    memory: dict[str, list[tuple[float, float]]] = {"magcli": [], peer: []}
    sides = {method: partial(_in_process, method, folder, memory[method], cold=cold) for method in memory}
    for side in sides.values():
        side()
    result = compare(name, sides["magcli"], sides[peer], amount=amount, unit="million weights")
    for method, megabytes in memory.items():
        peak, imports = (median(column) for column in zip(*megabytes, strict=True))
        print(f"  {name}: {method} peak memory {peak:.0f} MB, of which {imports:.0f} MB imports")
    return result


def _in_process(method: str, folder: Path, memory: list[tuple[float, float]], *, cold: bool) -> float:
    if cold:
        _evict(folder)
    command = [sys.executable, "-m", "benchmarks.landscape", method, str(folder)]
    done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    memory.append((done["peak"], done["imports"]))
    return float(done["seconds"])


def _evict(folder: Path) -> None:
    """Remove the checkpoints from the page cache."""
    for path in folder.glob("step_*/*"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _measure(method: str, folder: Path) -> dict[str, float]:
    """Run one side; seconds, and peak memory in MB at the end and after the imports."""
    methods = {"magcli": _stream, "reads": _read_twice, "svd": _svd}
    if method in ("magcli", "reads"):
        import magcli.landscape.components  # noqa: F401
    shutil.rmtree(folder / method, ignore_errors=True)
    imports, started = _peak_memory(), time.perf_counter()
    methods[method](sorted(folder.glob("step_*")), folder / method)
    return {"seconds": time.perf_counter() - started, "peak": _peak_memory(), "imports": imports}


def _read_twice(folders: list[Path], out: Path) -> None:
    import torch

    from magcli.landscape.checkpoints import open_checkpoint, pieces

    torch.set_num_threads(1)
    raw, converted = torch.empty(4 << 17, dtype=torch.uint8), torch.empty(1 << 17)
    for folder in [*folders, *folders]:
        for stored in open_checkpoint(folder).values():
            for rows in pieces([stored], 0, stored.size, raw):
                converted[: rows.shape[1]].copy_(rows[0])


def _stream(folders: list[Path], out: Path) -> None:
    from magcli.landscape.components import write_components
    from magcli.landscape.pca import plane

    write_components(plane(folders), out)


def _svd(folders: list[Path], out: Path) -> None:
    stack = np.empty((len(folders), WEIGHTS), np.float32)
    for row, folder in zip(stack, folders, strict=True):
        tensors = load_file(folder / "model.safetensors")
        np.concatenate([tensors[name].ravel() for name in SHAPES], out=row)
    stack -= stack.mean(0)
    components: Array = np.linalg.svd(stack.T, full_matrices=False)[0][:, :2].T
    out.mkdir(exist_ok=True)
    ends = np.cumsum([rows * columns for rows, columns in SHAPES.values()])[:-1]
    for name, component in zip(NAMES, np.ascontiguousarray(components), strict=True):
        parts = zip(SHAPES.items(), np.split(component, ends), strict=True)
        save_file({tensor: part.reshape(shape) for (tensor, shape), part in parts}, out / name)


def _write_checkpoints(folder: Path) -> None:
    """A noisy, curved path from random weights, 1 % of their norm long."""
    random = np.random.default_rng(0)
    start, first, second = random.standard_normal((3, WEIGHTS), np.float32)
    ends = np.cumsum([rows * columns for rows, columns in SHAPES.values()])[:-1]
    for step, t in enumerate(np.linspace(0, 1, CHECKPOINTS, dtype=np.float32)):
        noise = random.standard_normal(WEIGHTS, np.float32)
        weights = start + 1e-2 * (t * first + 0.4 * np.sin(np.pi * t) * second + 0.02 * noise)
        into = folder / f"step_{step:02d}"
        into.mkdir()
        parts = zip(SHAPES.items(), np.split(weights.astype(np.float32), ends), strict=True)
        save_file({name: part.reshape(shape) for (name, shape), part in parts}, into / "model.safetensors")


def _write_large(folder: Path) -> None:
    """A curved path from random bf16 weights in steps of 0.1 % of their norm."""
    import torch
    from safetensors.torch import save_file as save

    start, first, second = torch.randn(3, LARGE["size"], generator=torch.Generator().manual_seed(0))
    for step, t in enumerate(np.linspace(0, 1, LARGE["checkpoints"])):
        weights = (start + 1e-2 * (t * first + 0.4 * np.sin(np.pi * t) * second)).bfloat16()
        into = folder / f"step_{step:02d}"
        into.mkdir()
        tensors = {f"layers.{index}.weight": weights.roll(index) for index in range(LARGE["tensors"])}
        save(tensors, into / "model.safetensors")


def _angle(one: Path, other: Path) -> float:
    """The largest angle between two planes, in radians."""
    a, b = (np.linalg.qr(_components(folder))[0] for folder in (one, other))
    return float(np.linalg.norm(a - b @ (b.T @ a), 2))


def _components(folder: Path) -> np.ndarray[Any, np.dtype[np.float64]]:
    columns = []
    for file in NAMES:
        tensors = load_file(folder / file)
        columns.append(np.concatenate([tensors[name].ravel() for name in SHAPES]))
    return np.stack(columns, 1).astype(np.float64)


def _peak_memory() -> float:
    """MB of this process."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1e3


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], Path(sys.argv[2]))))
