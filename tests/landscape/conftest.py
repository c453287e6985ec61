"""Fixtures: small runs of checkpoints in Hugging Face layout, and the float64 answer to compare with."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

SHAPES = {"embed.weight": (64, 24), "layer.q.weight": (24, 24), "norm.weight": (24,), "head.weight": (30, 24)}


def save_checkpoint(folder: Path, tensors: Mapping[str, torch.Tensor], *, shards: int = 1) -> Path:
    """Write a checkpoint as one file, or as shards with an index."""
    folder.mkdir(parents=True)
    if shards == 1:
        save_file(dict(tensors), folder / "model.safetensors")
        return folder
    names = list(tensors)
    weight_map = {name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(names)}
    for file in set(weight_map.values()):
        save_file({n: tensors[n] for n in names if weight_map[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


@dataclass(frozen=True)
class Run:
    """Stacked weights (T, W), as stored, in sorted order of tensor names, and the folders that hold them."""

    stack: np.ndarray
    folders: list[Path]

    def components(self) -> np.ndarray:
        """The top two principal components (2, W) by SVD in float64."""
        stack = self.stack.astype(np.float64)
        return np.linalg.svd(stack - stack.mean(0), full_matrices=False)[2][:2]


def unstack(row: np.ndarray, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    tensors, start = {}, 0
    for name in sorted(SHAPES):
        size = int(np.prod(SHAPES[name]))
        tensors[name] = torch.from_numpy(row[start : start + size].copy()).view(SHAPES[name]).to(dtype)
        start += size
    return tensors


def flatten(tensors: Mapping[str, torch.Tensor]) -> np.ndarray:
    return np.concatenate([tensors[name].float().numpy().ravel() for name in sorted(tensors)])


def curved_path(count: int, drift: float, *, noise: float = 0.1, seed: int = 0) -> np.ndarray:
    """Weights (T, W) on a bent path of relative length ``drift`` in a random plane, and noise around it."""
    rng = np.random.default_rng(seed)
    width = sum(int(np.prod(shape)) for shape in SHAPES.values())
    time = np.linspace(0, 1, count)
    path = np.column_stack([time, 0.4 * np.sin(np.pi * time)])
    steps = path @ rng.normal(size=(2, width)) + noise * 0.3 * rng.normal(size=(count, width))
    return 0.03 * (rng.normal(size=width) + drift * steps)


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    """A function that saves weights (T, W) as checkpoints and gives them back as stored."""

    def make(
        stack: np.ndarray,
        *,
        name: str = "run",
        dtypes: Sequence[torch.dtype] = (torch.float32,),
        shards: int = 1,
        order: int = 1,
    ) -> Run:
        folders, stored = [], []
        for step, row in enumerate(stack):
            tensors = unstack(row, dtypes[step % len(dtypes)])
            folder = tmp_path / name / f"step_{step:05}"
            folders.append(save_checkpoint(folder, dict(list(tensors.items())[::order]), shards=shards))
            stored.append(flatten(tensors))
        return Run(np.stack(stored), folders)

    return make


@pytest.fixture
def curved() -> Callable[..., np.ndarray]:
    return curved_path


@pytest.fixture
def save() -> Callable[..., Path]:
    return save_checkpoint
