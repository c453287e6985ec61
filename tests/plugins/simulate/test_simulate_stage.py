"""`magcli simulate`: what a run would take on a described machine, stage by stage."""

import json
import re
from pathlib import Path

import pytest
from calling import call_stage
from typer.testing import CliRunner

from magcli.cli import with_stages
from magcli.command import Entry
from magcli.errors import EnvironmentFault, UsageError

APPLICATION = with_stages([Entry("simulate", "Other packages", "Predict a run.")])
RECIPES = Path(__file__).parents[3] / "recipes" / "magistral-small"
MACHINE = RECIPES / "cluster.toml"
SIZES = {"updates": 4, "group_size": 4, "n_async": 256, "n_batch": 128, "n_mini": 128, "max_tokens": 1000}


def test_a_run_is_predicted_from_a_description(capsys):
    call_stage("simulate", machine=MACHINE, **SIZES)
    first = capsys.readouterr().out
    assert re.match(r"4 updates +[\d.]+ h, [\d,.]+ per hour\n", first)
    assert "staleness" in first
    call_stage("simulate", machine=MACHINE, **SIZES)
    assert capsys.readouterr().out == first
    call_stage("simulate", machine=MACHINE, **SIZES | {"schedule": "sync"})
    assert "mean 0.00, p95 0, max 0 updates" in capsys.readouterr().out


def test_sizes_are_read_from_the_rl_table_of_a_recipe(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        "[rl]\nmodel = 'some/model'\nlr = 1e-5\nupdates = 20\ngroup = 4\nn-async = 256\nn_batch = 128\nn_mini = 128\n"
        "max_tokens = 1000\n[[rl.stage]]\nn_batch = 256\nupdates = 2\n[[rl.stage]]\ntemperature = 0.7\n[sft]\nlr = 1\n"
    )
    asked = ["simulate", str(MACHINE), "--recipe", str(recipe)]
    resolved = json.loads(CliRunner().invoke(APPLICATION, [*asked, "--dry-run"]).stdout)["config"]
    assert (resolved["updates"], resolved["n_async"], len(resolved["stage"])) == (20, 256, 2)
    assert "lr" not in resolved
    done = CliRunner().invoke(APPLICATION, [*asked, "--updates", "5", "--json"])
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(event["event"], event["stage"], event["updates"]) for event in events] == [
        ("prediction", 1, 2), ("prediction", 2, 5)
    ]  # fmt: skip
    done = CliRunner().invoke(APPLICATION, [*asked, "--updates", "5"])
    assert [line for line in done.stdout.splitlines() if line.startswith("stage")] == ["stage 1", "stage 2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"machine": None}, "simulate: --machine is missing"),
        ({"n_batch": 130}, "simulate.n_batch: 130 is not a multiple of group_size 4"),
        ({"staleness": -1}, "simulate.staleness: -1 is negative"),
        ({"machine": Path("nowhere.toml")}, "nowhere.toml"),
    ],
)
def test_runs_that_cannot_be_simulated_are_refused(change, message):
    with pytest.raises(UsageError, match=message):
        call_stage("simulate", **{"machine": MACHINE, **SIZES} | change)


def test_another_layout_of_a_described_machine_says_what_it_assumes(capsys):
    call_stage("simulate", machine=MACHINE, **SIZES, quiet=False)
    described = capsys.readouterr()
    assert "simulate: " not in described.err
    call_stage("simulate", machine=MACHINE, trainers=64, generators=96, tensor_parallel=2, **SIZES, quiet=False)
    same = capsys.readouterr()
    assert same.out == described.out
    call_stage("simulate", machine=MACHINE, trainers=8, tensor_parallel=4, **SIZES, quiet=False)
    other = capsys.readouterr()
    assert "simulate: 8 trainer ranks instead of 64 divide the tokens of an update\n" in other.err
    assert "simulate: 4 devices divide the time of an engine's step: 0.0065 s and its sequences" in other.err
    assert "simulate: collectives take no time: --link GB/s counts them\n" in other.err
    assert other.out != described.out


def test_the_collectives_of_a_run_are_those_of_its_model(finished_run, capsys):
    def predicted(**options: object) -> tuple[float, str]:
        sizes = {**SIZES, "n_async": 8, "n_batch": 8, "n_mini": 8, "max_tokens": 24}
        call_stage("simulate", machine=finished_run, **sizes, **options, quiet=False, json_events=True)
        captured = capsys.readouterr()
        return json.loads(captured.out)["trained_tokens_per_s"], captured.err

    ideal, _ = predicted(trainers=2)
    fast, said = predicted(trainers=2, link=1000.0)
    slow, _ = predicted(trainers=2, link=1e-4)
    late, _ = predicted(trainers=2, link=1000.0, latency=1e6)
    assert "simulate: the collectives of a micro-batch take " in said
    _, said = predicted(trainers=4, fsdp_size=2, link=1000.0, node_link=0.001)
    assert "simulate: 2 copies of the weights, over 2 ranks each; to add up their gradients takes " in said
    assert ideal == pytest.approx(fast, rel=0.05)
    assert slow < 0.5 * fast
    assert late < 0.5 * fast


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainers": 0}, r"simulate\.trainers: 0 is less than 1"),
        ({"generators": -1}, r"simulate\.generators: -1 is negative"),
        ({"link": -1.0}, r"simulate\.link: -1\.0 is negative"),
        ({"latency": 5.0}, "--latency needs --link"),
        ({"node_link": 5.0}, "--node-link needs --link"),
        ({"fsdp_size": -1}, r"simulate\.fsdp_size: -1 is negative"),
        ({"fsdp_size": 3}, r"simulate\.fsdp_size: 3 does not divide the 64 trainer ranks"),
        ({"trainers": 8, "link": 50.0}, "--link needs --model"),
    ],
)
def test_layouts_that_cannot_be_simulated_are_refused(change, message):
    with pytest.raises(UsageError, match=message):
        call_stage("simulate", **{"machine": MACHINE, **SIZES} | change)


def test_a_model_without_configuration_is_named(tmp_path):
    missing = str(tmp_path / "missing")
    with pytest.raises(EnvironmentFault, match=r"collectives cannot be counted: .*; give a folder with config\.json"):
        call_stage("simulate", machine=MACHINE, trainers=8, link=50.0, model=missing, **SIZES)
