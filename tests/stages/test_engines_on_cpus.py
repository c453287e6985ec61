"""How many engines share this machine's CPUs under a local Ray."""

from pathlib import Path

import pytest

from magcli.plan.machine import Card
from magcli.stages.generate import Config
from magcli.stages.shared import cluster_engines
from magcli.stages.shared.cluster_engines import MOST_ON_CPUS, engines_on_cpus
from magcli.stages.shared.options import LocalEngineOptions


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch):
    """Gives this machine 64 threads and some free memory."""

    def give(usable: int) -> None:
        monkeypatch.setattr("magcli.plan.machine.host", lambda: Card("this machine", 1 << 40, usable, is_gpu=False))

    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    return give


def test_engines_share_the_cores_as_memory_allows(memory, tiny_model_dir: Path) -> None:
    config = Config(model=str(tiny_model_dir))
    stored = (tiny_model_dir / "model.safetensors").stat().st_size
    of_one = cluster_engines.LOADED_COPIES * stored
    memory(100 * of_one)
    assert engines_on_cpus(config) == MOST_ON_CPUS
    memory(5 * of_one)
    assert engines_on_cpus(config) == 2
    memory(of_one)
    assert engines_on_cpus(config) == 1


def test_there_are_no_more_engines_than_threads(memory, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory(1 << 40)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert engines_on_cpus(Config(model=str(tiny_model_dir))) == 2


def test_some_engines_are_alone(memory, tiny_model_dir: Path) -> None:
    memory(1 << 40)
    assert engines_on_cpus(Config(model=str(tiny_model_dir), deterministic=True)) == 1
    assert engines_on_cpus(Config(model=str(tiny_model_dir), engine="vllm")) == 1
    assert engines_on_cpus(Config(model=str(tiny_model_dir / "missing"))) == 1
    assert engines_on_cpus(LocalEngineOptions()) == 1, "of landscape"
