"""Python code in a model folder never runs, whatever stdin says."""

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from magcli.errors import EnvironmentFault
from magcli.model.load import load_config, load_model, load_outline, load_tokenizer, load_vision_model

CODE = """
open("CANARY", "a").write("executed")
from transformers import LlamaConfig, LlamaForCausalLM


class OddConfig(LlamaConfig):
    model_type = "odd"


class OddForCausalLM(LlamaForCausalLM):
    config_class = OddConfig
"""


@pytest.fixture
def model_with_code(tiny_model_dir: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model_dir, folder)
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "odd"
    config["architectures"] = ["OddForCausalLM"]
    config["auto_map"] = {
        "AutoConfig": "modeling_odd.OddConfig",
        "AutoModelForCausalLM": "modeling_odd.OddForCausalLM",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_odd.py").write_text(CODE)
    return folder


def refusal(load: Callable[[str], object], folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The message with which a folder is refused, while stdin would say yes to everything."""
    answers = io.StringIO("y\n" * 100)
    monkeypatch.setattr("sys.stdin", answers)
    with pytest.raises(EnvironmentFault) as refused:
        load(str(folder))
    assert answers.tell() == 0, "stdin was read"
    return str(refused.value)


@pytest.mark.parametrize(
    "load",
    [
        load_config,
        load_outline,
        partial(load_model, dtype=torch.float32),
        partial(load_model, dtype=torch.float32, from_scratch=True),
        partial(load_vision_model, dtype=torch.float32),
    ],
    ids=["config", "outline", "model", "from-scratch", "vision"],
)
def test_every_loader_refuses_the_code(
    load: Callable[[str], object],
    model_with_code: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(model_with_code)
    assert "needs Python code of its own" in refusal(load, model_with_code, monkeypatch)
    assert capfd.readouterr() == ("", "")
    assert not list(model_with_code.rglob("CANARY"))


def test_the_code_of_a_tokenizer_is_refused(model_with_code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer names its code in a file of its own."""
    monkeypatch.chdir(model_with_code)
    config = json.loads((model_with_code / "config.json").read_text())
    del config["auto_map"]
    (model_with_code / "config.json").write_text(json.dumps(config))
    settings = json.loads((model_with_code / "tokenizer_config.json").read_text())
    settings["tokenizer_class"] = "OddTokenizer"
    settings["auto_map"] = {"AutoTokenizer": ["modeling_odd.OddTokenizer", None]}
    (model_with_code / "tokenizer_config.json").write_text(json.dumps(settings))
    assert "needs Python code of its own" in refusal(load_tokenizer, model_with_code, monkeypatch)
    assert not list(model_with_code.rglob("CANARY"))


@pytest.mark.parametrize("engine", ["torch", "vllm"])
def test_a_model_that_needs_its_own_code_is_refused_in_one_line(
    model_with_code: Path, tmp_path: Path, engine: str
) -> None:
    (tmp_path / "problems.jsonl").write_text('{"prompt": "2 + 3", "answer": "5"}\n')
    command = [sys.executable, "-m", "magcli", "generate", "problems.jsonl", "--model", str(model_with_code)]
    command += ["--engine", engine, "-o", "out.jsonl"]
    done = subprocess.run(command, input="y\n" * 9, capture_output=True, text=True, cwd=tmp_path, timeout=400)
    assert done.returncode == 4, done.stderr
    assert done.stdout == "", "nothing is asked"
    assert "needs Python code of its own, which magcli never runs: use a model of a family" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("CANARY"))


def test_a_model_of_a_known_family_loads_without_the_code_beside_it(
    tiny_model_dir: Path, model_with_code: Path, tmp_path: Path
) -> None:
    config = json.loads((model_with_code / "config.json").read_text())
    config["model_type"] = json.loads((tiny_model_dir / "config.json").read_text())["model_type"]
    (model_with_code / "config.json").write_text(json.dumps(config))
    (tmp_path / "problems.jsonl").write_text('{"prompt": "2 + 3", "answer": "5"}\n')
    command = [sys.executable, "-m", "magcli", "generate", "problems.jsonl", "--model", str(model_with_code)]
    command += ["--system", "none", "--max-tokens", "4", "-o", "out.jsonl"]
    done = subprocess.run(command, input="n\n", capture_output=True, text=True, cwd=tmp_path, timeout=400)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("CANARY"))
