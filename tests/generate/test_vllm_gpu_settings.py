"""vLLM's arguments on a GPU, checked without one: against vLLM's own classes and its check of free memory."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

from magcli.generate.spec import Spec
from magcli.generate.vllm.start import AUTO_FIT, gpu_settings
from magcli.model.model import Model

GIB = 1 << 30


@pytest.fixture
def spec(tiny_model_dir: Path) -> Spec:
    return Spec(Model.open(tiny_model_dir), engine="vllm", slots=4096, device="cuda:1", gpu_memory=0.35)


def test_vllm_has_all_arguments(spec: Spec) -> None:
    arguments = pytest.importorskip("vllm").AsyncEngineArgs
    names = {field.name for field in dataclasses.fields(arguments)}
    settings = gpu_settings(spec)
    assert set(settings) <= names
    assert settings["device_ids"] == [1]
    assert settings["max_model_len"] == AUTO_FIT


def test_vllm_accepts_as_many_slots_as_the_run_has_completions(spec: Spec) -> None:
    scheduling = pytest.importorskip("vllm.config").SchedulerConfig
    tokens = gpu_settings(spec)["max_num_batched_tokens"]
    config = scheduling(
        max_num_batched_tokens=tokens, max_num_seqs=spec.slots, max_model_len=2048, is_encoder_decoder=False
    )
    assert (config.max_num_batched_tokens, config.max_num_seqs) == (8192, 4096)


@pytest.mark.parametrize(
    ("card", "free", "share", "starts"),
    [
        (23.6, 16.9, 0.35, True),  # 24 GB, beside the float32 weights of 1.5B
        (23.6, 16.9, 0.92, False),  # vLLM's own default
        (79.0, 78.0, 0.9, True),  # 80 GB, alone
    ],
)
def test_vllm_starts_where_its_share_is_free(card: float, free: float, share: float, starts: bool) -> None:
    worker_utils = pytest.importorskip("vllm.v1.worker.utils")
    cache = pytest.importorskip("vllm.config").CacheConfig(gpu_memory_utilization=share)
    snapshot = SimpleNamespace(total_memory=int(card * GIB), free_memory=int(free * GIB), device_="cuda:0")
    if starts:
        assert worker_utils.request_memory(snapshot, cache) <= free * GIB
    else:
        with pytest.raises(ValueError, match="less than desired GPU memory utilization"):
            worker_utils.request_memory(snapshot, cache)
