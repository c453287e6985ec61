"""The number format that `auto` stands for: measured on a CPU, and its reason."""

import json
import os
import subprocess
import sys

import pytest
import torch

from magcli.model import compute
from magcli.model.compute import Choice, choose_for
from magcli.model.device import default_device
from magcli.model.model import Model
from magcli.plan.formats import torch_dtype

AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
"""Make an x86 processor behave like one without AVX-512 and AMX."""
ASK = (
    "import json; from magcli.model.compute import choose_for;"
    "print(json.dumps([choose_for(576, 1536, 'cpu', each) for each in ('training', 'sampling')]))"
)


def in_process(**environment):
    command = [sys.executable, "-c", ASK]
    done = subprocess.run(command, capture_output=True, env={**os.environ, **environment}, check=True, timeout=240)
    return [Choice(*each) for each in json.loads(done.stdout)]


def test_without_bf16_instructions_auto_is_float32():
    for choice in in_process(**AVX2):
        assert choice.format == "fp32"
        assert "times as fast here" in choice.reason


def test_auto_is_the_faster_format(monkeypatch):
    for bf16, format in ((1.0, "bf16"), (1.9, "fp32"), (2.0, "fp32"), (90.0, "fp32")):
        monkeypatch.setattr(compute, "_shortest", lambda works, budget, bf16=bf16: [bf16, 2.0])
        compute._measured.cache_clear()
        assert choose_for(512, 512, "cpu", "training").format == format
    compute._measured.cache_clear()


def scripted(monkeypatch, comparisons):
    """Let the comparisons of bf16 and fp32 take these seconds, in turn."""
    left = iter(comparisons)
    monkeypatch.setattr(compute, "_shortest", lambda works, budget: next(left))
    compute._measured.cache_clear()


@pytest.mark.parametrize(
    ("usual", "disturbed", "format", "speed"),
    [(1.0, 30.0, "fp32", "1 times"), (2.0, 0.05, "bf16", "2.0 times"), (0.5, 9.0, "fp32", "0.5 times")],
)
def test_a_few_disturbed_comparisons_do_not_decide(monkeypatch, usual, disturbed, format, speed):
    """Other work on the machine slows down one of the formats in some of the comparisons."""
    many = compute.REPEATS // 2
    comparisons = [[1.0, disturbed]] * many + [[1.0, usual]] * (compute.REPEATS - many)
    scripted(monkeypatch, [[1.0, usual], *comparisons])
    choice = choose_for(512, 512, "cpu", "sampling")
    compute._measured.cache_clear()
    assert choice.format == format
    assert choice.reason.removeprefix("bf16 is ").startswith(speed)


def test_small_models_are_float32_without_a_measurement(monkeypatch):
    monkeypatch.setattr(compute, "_measured", None)
    assert choose_for(128, 384, "cpu", "sampling").format == "fp32"


def test_the_measurement_is_made_once_and_leaves_the_threads_as_they_were():
    before = torch.get_num_threads()
    assert choose_for(512, 512, "cpu", "sampling") is choose_for(512, 512, "cpu", "sampling")
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("capability", "format"), [((7, 5), "fp32"), ((8, 0), "bf16"), ((9, 0), "bf16")])
def test_on_cuda_the_format_depends_on_compute_capability(capability, format, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    choice = choose_for(64, 64, "cuda:1", "training")
    assert choice.format == format
    assert ("needs 8.0" in choice.reason) == (format == "fp32")


@pytest.mark.parametrize("error", [RuntimeError("Found no NVIDIA driver"), AssertionError("not compiled with CUDA")])
def test_the_format_for_gpus_of_other_machines_is_bf16(error, monkeypatch):
    def refuse(device):
        raise error

    monkeypatch.setattr(torch.cuda, "get_device_capability", refuse)
    assert choose_for(64, 64, "cuda", "training") == ("bf16", "this machine has no GPU to ask")


THREADS = (
    "import sys, torch; torch.set_num_threads(3); from magcli.model.compute import use_threads;"
    "from magcli.model.model import Model;"
    "model = Model.open(sys.argv[1]); print(use_threads(model, 4), use_threads(model, 10**6))"
)


@pytest.mark.parametrize(("environment", "expected"), [({}, "1 1"), ({"OMP_NUM_THREADS": "2"}, "3 3")])
def test_products_too_small_to_share_take_one_thread(environment, expected, tiny_model_dir):
    clean = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", THREADS, str(tiny_model_dir)]
    done = subprocess.run(command, capture_output=True, text=True, env=clean | environment, check=True)
    assert done.stdout.strip() == expected


def test_an_explicit_format_is_not_measured(tiny_model_dir, monkeypatch):
    monkeypatch.setattr(compute, "_measured", None)
    assert torch_dtype("fp32", Model.open(tiny_model_dir), "cpu") == torch.float32
    assert torch_dtype("bf16", Model.open(tiny_model_dir), "cpu") == torch.bfloat16


def test_without_a_driver_the_device_is_the_cpu(tmp_path):
    assert default_device(drivers=(tmp_path / "none",)) == "cpu"


def test_a_driver_without_a_usable_gpu_is_no_gpu(tmp_path, monkeypatch):
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert default_device(drivers=(tmp_path / "version",)) == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert default_device(drivers=(tmp_path / "version",)) == "cuda"
