"""What magcli chooses, what its recipes resolve to and what a synchronous run trains, as recorded: no refactoring
changes it.

After a change on purpose: ``RECORD=1 python -m pytest tests/stages/test_recorded.py``, and read the difference.
"""

import hashlib
import json
import math
import os
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from calling import call_stage
from safetensors.torch import load_file

from magcli.cli import NAMES
from magcli.command import stage_of
from magcli.config import as_json, field_types
from magcli.console import Console
from magcli.errors import MagError
from magcli.model import compute
from magcli.model.compute import Choice
from magcli.model.model import Model
from magcli.plan.forecast import advice
from magcli.plan.machine import Card
from magcli.plan.machine import Machine as Found
from magcli.run.job import Drops, Job
from magcli.run.rundir import RunDir
from magcli.stages.rl.config import Config, check, processes
from magcli.stages.rl.plan import RunPlan
from magcli.stages.rl.sampling_engine import generators_demand
from magcli.stages.shared import run_folder

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parent / "recorded"
GIB = 1 << 30

MODEL = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16", "vocab_size": 151936,
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
    "num_key_value_heads": 2, "max_position_embeddings": 32768, "tie_word_embeddings": True, "eos_token_id": 1,
}  # fmt: skip
"""The configuration of a model of 1.5B weights."""


class Machine(NamedTuple):
    """A machine that does not exist."""

    gpus: int = 0
    gibibytes: int = 0
    capability: tuple[int, int] = (9, 0)
    vllm: bool = True
    cpu_format: str = "fp32"


MACHINES = {
    "cpu": Machine(),
    "cpu with bf16": Machine(cpu_format="bf16"),
    "1 GPU of 24": Machine(1, 24, (8, 9)),
    "1 old GPU of 16": Machine(1, 16, (7, 5)),
    "2 GPUs of 80": Machine(2, 80),
    "8 GPUs of 80": Machine(8, 80),
    "8 GPUs of 80, no vLLM": Machine(8, 80, vllm=False),
}

OPTIONS = (
    {}, {"schedule": "sync"}, {"engine": "torch"}, {"engine": "vllm"}, {"dtype": "fp32"}, {"dtype": "bf16"},
    {"bf16": "yes"}, {"bf16": "no"}, {"lora": 16}, {"lora": 16, "engine": "torch"}, {"lora": 128, "bf16": "no"},
    {"generators": 1}, {"generators": 2}, {"generators": 2, "trainers": 2}, {"generators": 4, "trainers": 4},
    {"generators": 2, "trainers": 2, "tensor_parallel": 2}, {"tensor_parallel": 2},
    {"generators": 2, "trainers": 4, "fsdp_size": 2}, {"generators": 1, "transfer": "broadcast"},
    {"generators": 1, "transfer": "file"}, {"vllm_sleep": "yes"}, {"vllm_sleep": "no"}, {"gpu_memory": 0.5},
    {"activation_checkpointing": "no"}, {"offload": "moments"}, {"kl": 0.1}, {"max_tokens": 8192},
    {"micro_tokens": 65536}, {"attention": "varlen"}, {"card": "40G"},
)  # fmt: skip


@pytest.fixture
def pretend(monkeypatch):
    """Make this machine look like another one to what magcli asks."""

    def as_machine(machine):
        memory = machine.gibibytes * GIB
        monkeypatch.setattr(torch.cuda, "device_count", lambda: machine.gpus)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: machine.capability)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (memory - GIB // 2, memory))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "made-up GPU")
        monkeypatch.setattr("magcli.plan.machine.host", lambda: Card("this machine", 64 * GIB, 48 * GIB, is_gpu=False))
        monkeypatch.setattr(compute, "_measured", lambda *_: Choice(machine.cpu_format, "as the test says"))
        monkeypatch.setattr("magcli.plan.engines.find_spec", lambda name: machine.vllm or None)

    return as_machine


@pytest.fixture
def model_folder(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    monkeypatch.chdir(tmp_path)
    return "model"


def chosen(options, machine, folder):
    """What a run of RL with these options does on a machine, in the order in which it decides."""
    config = Config(model="model", device="cuda" if machine.gpus else "cpu", **options)
    check(config)
    model = Model.open("model")
    asked = {"bf16": config.bf16, "dtype": config.dtype}
    with RunDir.open(folder, "rl", {}, restart=True) as run:
        job = Job("rl", Console(quiet=True), Drops(keep=False))
        formats = run_folder.resolve_formats(asked, model, config.device, run, job, exact=config.schedule == "sync")
    plan = RunPlan.of(config, model, Found.ask(config.device, config.card), formats=formats)
    trainer, engines, forecast = plan.trainer, plan.engines, plan.forecast
    assert "'auto'" not in repr((trainer, engines)), "nothing is still to be decided"
    return {
        "bf16": "yes" if trainer.bf16 else "no",
        "dtype": engines.dtype,
        "engine": engines.name,
        "devices": ",".join(engines.devices),
        "transfer": engines.transfer,
        "ranks-send": engines.ranks_send,
        "adapters": engines.adapter_rank > 0,
        "shares-base": engines.on_base_of_trainer,
        "recompute": trainer.recomputes,
        "bf16-base": trainer.bf16_base,
        "sleep": "yes" if engines.sleeps else "no",
        "share": f"{engines.share:.3f}",
        "eager": engines.eager,
        "micro-tokens": forecast.plan.training.micro_tokens,
        "beside": generators_demand(processes(config)) or "-",
        "peak": f"{forecast.plan.peak / GIB:.2f}",
        "disk": f"{sum(line.size for line in forecast.disk) / GIB:.2f}",
        "fits": forecast.fits or advice(forecast),
    }


def rows_of(name, folder):
    """What each of the options changes on a machine, after all values without options."""
    without = {}
    for options in OPTIONS:
        try:
            values = chosen(options, MACHINES[name], folder)
        except MagError as error:
            values = {"refused": error}
        without = without or values
        given = " ".join(f"{option}={value}" for option, value in options.items()) or "no option"
        changed = values if values is without else {k: v for k, v in values.items() if v != without.get(k)}
        yield f"{name} | {given}"
        yield from (f"  {key}: {value}" for key, value in changed.items())


def check_recorded(name, text):
    """A recorded text is the same; with RECORD it is written."""
    path = RECORDED / name
    if os.environ.get("RECORD"):
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()


def test_choices_for_made_up_machines_are_as_recorded(pretend, model_folder, tmp_path):
    rows = []
    for name, machine in MACHINES.items():
        pretend(machine)
        rows += rows_of(name, tmp_path / "run")
    check_recorded("choices.txt", "\n".join(rows) + "\n")


def resolved(recipe, stage, table, capsys):
    """What ``--dry-run`` prints of a table, but for the options that are at their defaults."""
    here = {"device": "cpu", "model": "owner/model"}
    options = {name: here[name] for name in here.keys() & field_types(stage_of(stage).Config).keys() - table.keys()}
    call_stage(stage, recipe=recipe, dry_run=True, allow_missing=True, **options)
    printed = json.loads(capsys.readouterr().out)
    defaults = as_json(stage_of(stage).Config())
    config = {name: value for name, value in printed["config"].items() if value != defaults[name]}
    return {key: value for key, value in printed.items() if value is not None} | {"config": config}


def test_recipes_resolve_as_recorded(monkeypatch, capsys):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("magcli.stages.shared.preview.check_model", lambda name: None)  # it may not be made yet
    texts = []
    for recipe in sorted((ROOT / "recipes").rglob("*.toml")):
        monkeypatch.chdir(recipe.parent)
        tables = tomllib.loads(recipe.read_text(encoding="utf-8"))
        for stage in (name for name in NAMES if name in tables):
            try:
                text = json.dumps(resolved(recipe, stage, tables[stage], capsys), indent=1)
            except MagError as error:
                text = str(error)
            texts.append(f"{recipe.relative_to(ROOT)} {stage}\n{text}")
    check_recorded("recipes.txt", "\n".join(texts).replace(str(ROOT), "") + "\n")


def test_a_synchronous_run_trains_the_recorded_weights(finished_run):
    """Norms, as other processors round otherwise; the completions themselves are the same everywhere."""
    weights = load_file(finished_run / "model" / "model.safetensors")
    lines = [json.loads(line) for line in (finished_run.parent / "rows.jsonl").read_text().splitlines()]
    completions = hashlib.sha256("\n".join(line["completion"] for line in lines).encode()).hexdigest()
    norms = {name: weights[name].norm().item() for name in sorted(weights)}
    path = RECORDED / "weights.json"
    if os.environ.get("RECORD"):
        path.write_text(json.dumps({"completions": completions, "norms": norms}, indent=1) + "\n")
    recorded = json.loads(path.read_text())
    assert completions == recorded["completions"]
    assert norms.keys() == recorded["norms"].keys()
    assert {name for name in norms if not math.isclose(norms[name], recorded["norms"][name], rel_tol=1e-5)} == set()
