"""Python code in a model folder never runs, whatever stdin says."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("engine", ["torch", "vllm"])
def test_a_model_that_needs_its_own_code_is_refused_in_one_line(
    model_with_code: Path, tmp_path: Path, engine: str
) -> None:
    (tmp_path / "problems.jsonl").write_text('{"prompt": "2 + 3", "answer": "5"}\n')
    command = [sys.executable, "-m", "magcli", "generate", "problems.jsonl", "--model", str(model_with_code)]
    command += ["--engine", engine, "-o", "out.jsonl"]
    done = subprocess.run(command, input="y\n" * 9, capture_output=True, text=True, cwd=tmp_path, timeout=120)
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
    done = subprocess.run(command, input="n\n", capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("CANARY"))
