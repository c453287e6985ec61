"""What a command imports and computes before its first row: nothing that it does not need."""

import json
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
    "magcli.verify.grader",
)


def test_the_embedded_engine_imports_no_compiler_and_no_models_of_transformers(tiny_model_dir, tmp_path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"id": "1", "prompt": "1+1="}\n')
    (tmp_path / "system.txt").write_text("Answer.")
    command = ["generate", problems, "--model", tiny_model_dir, "--engine", "torch", "--max-tokens", 4]
    command += ["--system", tmp_path / "system.txt"]
    given = json.dumps([str(word) for word in [*command, "-o", tmp_path / "rows.jsonl"]])
    done = subprocess.run([sys.executable, "-c", GENERATE, given], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 1
    modules = json.loads(done.stdout.splitlines()[-1])
    assert "torch" in modules
    assert [name for name in UNUSED if name in modules] == []


HELP = """
import json, sys
from magcli.cli import app
try:
    app(["--help"], standalone_mode=False)
finally:
    print(json.dumps(sorted(sys.modules)))
"""


def test_help_imports_no_server_and_no_templates() -> None:
    """All stages are imported for it, and each of these modules takes a tenth of its time."""
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    modules = json.loads(done.stdout.splitlines()[-1])
    assert "magcli.stages.rl" in modules
    unused = ["asyncio", "ssl", "jinja2", "httpx", "pyarrow", "numpy", "torch", "ray"]
    assert [name for name in unused if name in modules] == []


LIGHT = {
    "help": (1.0, ["generate", "--help"]),
    "convert": (1.5, ["convert", "problems.jsonl", "-o", "{}/rows.arrow"]),
    "show": (1.5, ["show", "problems.jsonl"]),
    "clean-math": (1.5, ["clean-math", "messy.jsonl", "-o", "{}/rows.arrow"]),
    "grade": (1.5, ["grade", "{}/one.jsonl", "--workers", "1", "-o", "{}/rows.arrow"]),
}
"""CPU seconds, workers included, where SymPy and pyarrow are imported within ``YARD``, and the command. A quiet machine
needs two thirds of them at most."""
YARD = 0.5
YARDSTICK = [sys.executable, "-c", "import pyarrow.compute, sympy"]


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("name", LIGHT)
def test_commands_without_a_model_take_about_a_second_of_cpu_time(name, tmp_path) -> None:
    """Other processes slow a processor down, so the limit grows with the time of some imports measured now."""
    limit, command = LIGHT[name]
    line = (EXAMPLES / "completions.jsonl").read_text(encoding="utf-8").splitlines()[0]
    taken, yards = [], []
    for turn in range(4):
        folder = tmp_path / str(turn)
        folder.mkdir()
        (folder / "one.jsonl").write_text(line + "\n", encoding="utf-8")
        words = [word.format(folder) for word in command]
        taken.append(processor_seconds([sys.executable, "-m", "magcli", *words]))
        yards.append(processor_seconds(YARDSTICK))
        if min(taken) < limit * max(1.0, min(yards) / YARD):
            break
    else:
        pytest.fail(f"{min(taken):.1f} s, where the imports take {min(yards):.1f} s")


def processor_seconds(command: list[str]) -> float:
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
