"""Trainer ranks under Ray that write checkpoints while they train: a loss, an error, and the end of the run."""

import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from calling import flags_of, others_slow, quiet
from forking import Running
from test_cluster_ranks import ranks_below

from magcli.cluster.open import open_cluster
from magcli.errors import EnvironmentFault
from magcli.model.model import Model
from magcli.plan.formats import TrainerPlan
from magcli.run.rundir import RunDir
from magcli.stages import sft
from magcli.stages.sft import work as sft_work
from magcli.stages.sft.spec import PolicySpec
from magcli.train import checkpoint
from magcli.train.commands import RankState
from magcli.train.controller import RankController
from magcli.train.rank_group import ClusterRanks, RankSetup
from magcli.train.sft import Example, TrainStep

STEP = TrainStep([[Example((5, 6, 7, 8), (False, True, True, True))]], total=6.0, lr=1e-3, max_norm=1.0, bf16=False)


@pytest.fixture(scope="module")
def cluster():
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find a module of tests
    with open_cluster() as opened:
        yield opened


@dataclass
class HoldBackShards:
    """Rank 1 writes its shards once a file exists."""

    gate: Path

    def run(self, state: RankState) -> None:
        import time

        from magcli.train import background_save
        from magcli.train.shard_index import IndexWriter

        gate = self.gate

        class HeldBack(IndexWriter):
            def write_data(self, plan, planner):
                while not gate.exists():
                    time.sleep(0.01)
                return super().write_data(plan, planner)

        if state.ranks.rank == 1:
            background_save.IndexWriter = HeldBack


class FillDisk:
    """Rank 1 cannot write more than 4 KiB per file."""

    def run(self, state: RankState) -> None:
        import resource
        import signal

        if state.ranks.rank == 1:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))


def opened(cluster, model_dir, say=print) -> tuple[ClusterRanks, RankController]:
    """Two ranks with the tiny model."""
    ranks = ClusterRanks(cluster, 2, RankSetup("cpu", 1), say=say)
    controller = RankController(ranks)
    config = sft.Config(model=str(model_dir), system=Path("none"))
    controller.open(sft_work._open_state(PolicySpec.of(config), Model.open(model_dir), TrainerPlan()))
    return ranks, controller


def on_both(controller, command) -> Any:
    return controller.run([command] * 2)


def test_the_end_of_a_run_waits_for_its_checkpoint(cluster, tiny_model_dir, tmp_path):
    gate, said = tmp_path / "gate", []

    def say(text):
        said.append(text)
        gate.touch()

    ranks, controller = opened(cluster, tiny_model_dir, say)
    on_both(controller, HoldBackShards(gate))
    controller.save(checkpoint.step_folder(tmp_path, 1), {"step": 1})
    on_both(controller, STEP)
    assert checkpoint.steps(tmp_path) == []
    ranks.stop()
    assert said == ["waiting until the last checkpoint is written"]
    checkpoint.check(checkpoint.step_folder(tmp_path, 1))


def test_an_error_of_writing_ends_the_run_with_one_line(cluster, tiny_model_dir, tmp_path):
    ranks, controller = opened(cluster, tiny_model_dir)
    on_both(controller, FillDisk())
    controller.save(checkpoint.step_folder(tmp_path, 1), {"step": 1})
    with pytest.raises(EnvironmentFault, match=r"^rank \d \(process .*\): cannot write .*: rank 1: ") as fault:
        controller.finish_save()
    assert "\n" not in str(fault.value)
    ranks.stop()
    assert checkpoint.steps(tmp_path) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", others_slow([0, 1], kept=[1]))
def test_a_run_goes_on_after_a_rank_was_killed_while_a_checkpoint_was_written(tiny_model_dir, tmp_path, victim):
    path, run = tmp_path / "traces.jsonl", tmp_path / "run"
    choose = random.Random(0)
    rows = [{"prompt": f"{n}?", "completion": "<think></think>" + "x" * choose.randrange(40)} for n in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sizes = {"epochs": 2, "step_tokens": 128, "micro_tokens": 64, "bf16": "no", "checkpoint_every": 1, "trainers": 2}
    command = ["sft", path, "--model", tiny_model_dir, "--run", run, "--system", "none", *flags_of(sizes)]
    with Running(*command, env=quiet()) as process:
        killed = 0
        while not killed and process.poll() is None:
            writing = [*run.glob("checkpoints/.step-*.tmp/shards")]
            if writing and len(checkpoint.steps(run / "checkpoints")) > 1:
                killed = sorted(ranks_below(process.pid))[victim]
                os.kill(killed, signal.SIGKILL)
            time.sleep(0.002)
        said = process.communicate(timeout=400)[1].decode()
    assert process.returncode == 0, said
    assert f"(process {killed} on" in said
    assert "starting the ranks again from the last checkpoint" in said
    steps = [line["step"] for line in RunDir(run).metrics()]
    assert steps == list(range(1, len(steps) + 1))
    assert [folder.name for folder in (run / "checkpoints").iterdir()] == [f"step-{len(steps):06d}"]
