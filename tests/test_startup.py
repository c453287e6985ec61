"""What a command imports and computes before its first row: nothing that it does not need."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from magcli.cli import NAMES

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


OPENMP = "from magcli.__main__ import share_cores; share_cores(); import torch"


@pytest.mark.parametrize(
    ("given", "spins"), [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "30000000000")]
)
def test_waiting_threads_of_torch_sleep_unless_the_user_decides(given: dict[str, str], spins: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "OMP_"))}
    environment |= given | {"OMP_DISPLAY_ENV": "verbose"}
    done = subprocess.run([sys.executable, "-c", OPENMP], capture_output=True, text=True, env=environment, timeout=240)
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr


HELP = """
import json, sys
from magcli.cli import app
try:
    app(json.loads(sys.argv[1]), standalone_mode=False)
finally:
    print(json.dumps(sorted(sys.modules)))
"""


def modules_of_help(*command: str) -> list[str]:
    """The modules that are loaded once the help of a command was printed."""
    done = subprocess.run(
        [sys.executable, "-c", HELP, json.dumps([*command, "--help"])], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_list_of_stages_imports_none() -> None:
    assert [name for name in modules_of_help() if name.startswith("magcli.stages.") and "shared" not in name] == []


@pytest.mark.parametrize("stage", NAMES)
def test_the_help_of_a_stage_imports_what_declares_its_options_alone(stage: str) -> None:
    """Each of these modules takes a tenth of its time."""
    modules = modules_of_help(stage)
    module = f"magcli.stages.{stage.replace('-', '_')}"
    assert module in modules
    unused = [f"{module}.work", "asyncio", "ssl", "jinja2", "httpx", "pyarrow", "numpy", "torch", "ray", "sympy"]
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
