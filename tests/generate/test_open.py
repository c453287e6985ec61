"""Opening engines: what a model name opens, and which options contradict each other."""

import asyncio
import subprocess
import sys

import pytest

from magcli.console import Console
from magcli.errors import EnvironmentFault, UsageError
from magcli.generate import open as open_module
from magcli.generate.open import open_generator, open_policy
from magcli.generate.server import ServerGenerator
from magcli.generate.spec import Spec
from magcli.generate.torch.policy import TorchPolicy
from magcli.generate.types import Sampling
from magcli.model.model import Model
from magcli.plan.engines import policy_engine


def close(generator) -> None:
    asyncio.run(generator.close())


def test_a_url_opens_a_server():
    generator = open_generator(Spec(Model.open("http://127.0.0.1:9/v1")))
    assert isinstance(generator, ServerGenerator)
    close(generator)


def test_a_folder_opens_the_embedded_engine(tiny_model_dir):
    generator = open_generator(Spec(Model.open(tiny_model_dir), slots=2, deterministic=True))
    assert isinstance(generator, TorchPolicy)
    messages = [{"role": "user", "content": "1+2"}]
    assert len(asyncio.run(generator.complete(messages, Sampling(4), seeds=[1, 2]))) == 2
    close(generator)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("http://host/v1", {"engine": "torch"}, "folder"),
        ("http://host/v1", {"engine": "vllm"}, "folder"),
        ("folder", {"engine": "vllm", "deterministic": True}, "needs engine torch"),
        ("http://host/v1", {"deterministic": True}, "deterministic"),
        ("folder", {"deterministic": True, "dtype": "bf16"}, "fp32"),
    ],
)
def test_contradictory_options_are_rejected(model, options, message):
    with pytest.raises(UsageError, match=message):
        open_generator(Spec(Model.open(model), **options))


def test_a_missing_model_is_an_error(tmp_path):
    with pytest.raises(EnvironmentFault, match="nowhere"):
        open_generator(Spec(Model.open(tmp_path / "nowhere")))


def test_auto_is_vllm_on_a_gpu_only():
    assert policy_engine("auto", "cpu") == "torch"
    assert policy_engine("auto", "cuda:1") == "vllm"
    assert policy_engine("auto", "cuda", deterministic=True) == "torch"
    assert policy_engine("torch", "cuda") == "torch"


def test_without_vllm_there_is_an_install_hint(tiny_model_dir, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(EnvironmentFault, match=r"magcli\[vllm\].*magcli\[vllm-cpu\]"):
        open_policy(Spec(Model.open(tiny_model_dir), engine="vllm"))
    assert policy_engine("auto", "cuda") == "torch"


def test_importing_open_imports_no_engine():
    code = (
        "import sys, magcli.generate.open, magcli.generate.types; print({'torch', 'httpx', 'vllm'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(("device", "lines"), [("cuda", 1), ("cuda:1", 1), ("cpu", 0)])
def test_the_embedded_engine_says_on_a_gpu_that_it_is_for_checks(device, lines, tiny_model_dir, monkeypatch, capsys):
    monkeypatch.setattr(open_module, "_open_torch", lambda spec: "opened")
    assert open_policy(Spec(Model.open(tiny_model_dir), engine="torch", device=device), Console()) == "opened"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    assert all(line.startswith("warning: the embedded engine is for checks only on a GPU") for line in said)
    assert all(line.endswith("sample with --engine vllm") for line in said)
