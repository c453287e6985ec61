"""What a command imports and computes before its first row: nothing that it does not need."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

GENERATE = """
import json, sys
from magcli.cli import app
app(json.loads(sys.argv[1]), standalone_mode=False)
print(json.dumps(sorted(sys.modules)))
"""
UNUSED = (
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.tensor",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint",
    "transformers.modeling_utils",
    "transformers.masking_utils",
    "transformers.generation",
    "transformers.models",
    "transformers.quantizers",
    "accelerate",
    "peft",
    "sympy",
    "scipy",
    "sklearn",
    "pandas",
    "datasets",
    "numba",
)


def test_the_embedded_engine_imports_no_compiler_and_no_models_of_transformers(tiny_model_dir, tmp_path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"id": "1", "prompt": "1+1="}\n')
    command = ["generate", problems, "--model", tiny_model_dir, "--engine", "torch", "--max-tokens", 4]
    given = json.dumps([str(word) for word in [*command, "-o", tmp_path / "rows.jsonl"]])
    done = subprocess.run([sys.executable, "-c", GENERATE, given], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 1
    modules = json.loads(done.stdout.splitlines()[-1])
    assert "torch" in modules
    assert [name for name in UNUSED if name in modules] == []


LIGHT = {
    "convert": (["convert", "problems.jsonl", "-o", "{}/rows.arrow"], 1.0),
    "show": (["show", "problems.jsonl"], 1.0),
    "clean-math": (["clean-math", "messy.jsonl", "-o", "{}/rows.arrow"], 1.0),
    "grade": (["grade", "completions.jsonl", "--workers", "1", "-o", "{}/rows.arrow"], 1.5),
}
"""Commands that need no model, and their limits in seconds of a processor; that of ``grade`` has a worker to start."""


@pytest.mark.parametrize("name", LIGHT)
def test_commands_without_a_model_start_within_a_second_of_a_processor(name, tmp_path) -> None:
    """Bytecode is cached as where magcli is installed: the first run writes it."""
    command, limit = LIGHT[name]
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    taken = []
    for turn in range(4):
        (tmp_path / str(turn)).mkdir()
        words = [word.format(tmp_path / str(turn)) for word in command]
        began = seconds_of_children()
        done = subprocess.run(
            [sys.executable, "-m", "magcli", *words], cwd=EXAMPLES, env=environment, capture_output=True, timeout=60
        )
        taken.append(seconds_of_children() - began)
        assert done.returncode == 0, done.stderr
    assert min(taken[1:]) < limit


def seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
