"""Other layouts of a machine: what their collectives cost, and what ranks and devices divide."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_simulate_calibrate import LENGTHS, RUN, TRUTH, measured

from benchmarks.rank_memory import table
from benchmarks.rank_memory.models import SHAPES
from benchmarks.rank_memory.step import Setting, count_fake_step
from magcli.errors import DataError, UsageError
from magcli.model.model import Model
from magcli.model.shape import ModelShape, shape_of
from magcli.rl.layout import NotedLayout, note_layout, noted_layout
from magcli.run.rundir import RunDir
from magcli_simulate.collectives import Collectives, Costs, Link, of_micro_batch, of_optimizer_step, of_sequence
from magcli_simulate.machine import Machine
from magcli_simulate.placement import Layout, assumptions, placed
from magcli_simulate.predict import calibrate, predict
from magcli_simulate.workload import group_source

DOCS = Path(__file__).parents[3] / "docs" / "cluster.md"
SPLIT = replace(TRUTH, trainer=replace(TRUTH.trainer, micro_tokens=4096))


def shape_from(folder: Path, config: dict[str, object]) -> ModelShape:
    (folder / "config.json").write_text(json.dumps(config))
    return shape_of(Model.open(str(folder)))


@pytest.fixture
def small(tmp_path: Path) -> ModelShape:
    return shape_from(tmp_path, {**LLAMA, "tie_word_embeddings": False})


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1000, "hidden_size": 64,
    "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_the_formula_is_what_a_step_of_fsdp_does(tied, bf16, tmp_path):
    shape = shape_from(tmp_path, {**LLAMA, "tie_word_embeddings": tied})
    config = Model.open(str(tmp_path)).text_config
    setting = Setting(tokens=1024, bf16=bf16, micro_batches=1)
    counted = count_fake_step(config, 8, setting)
    collectives = of_micro_batch(shape, bf16=bf16)
    assert collectives.calls == counted.calls[table.GATHER] + counted.calls[table.REDUCE]
    assert collectives.size == counted.sent[table.GATHER] + counted.sent[table.REDUCE]


@pytest.mark.parametrize("tied", [False, True])
def test_copies_of_the_weights_add_up_their_gradients_as_counted(tied, tmp_path):
    shape = shape_from(tmp_path, {**LLAMA, "tie_word_embeddings": tied})
    config = Model.open(str(tmp_path)).text_config
    counted = count_fake_step(config, 8, Setting(tokens=1024, micro_batches=2, fsdp_size=4))
    collectives = of_optimizer_step(shape, 4)
    assert collectives.calls == counted.calls["allreduce_"]
    assert collectives.size == 2 * counted.sent["allreduce_"], "a reduction and a gather"


@pytest.mark.parametrize("name", SHAPES)
def test_the_formula_gives_the_figures_of_the_documentation(name, tmp_path):
    shape = shape_from(tmp_path, SHAPES[name])
    line = next(line for line in DOCS.read_text().splitlines() if line.startswith(f"| {name} | 64 |"))
    gathers, gathered, reductions, reduced = map(float, re.findall(r"(\d+): ([\d.]+)", line)[0] + re.findall(
        r"(\d+): ([\d.]+)", line)[1])  # fmt: skip
    collectives = of_micro_batch(shape, bf16=True)
    assert collectives.calls == gathers + reductions
    assert collectives.size / 1e9 == pytest.approx(gathered + reduced, abs=0.1)


def test_ranks_send_all_but_their_own_part():
    link = Link(bytes_per_s=100.0, latency=0.5)
    assert link.seconds(Collectives(4, 800.0), 1) == 0
    assert link.seconds(Collectives(4, 800.0), 2) == 4 * 0.5 + 400 / 100
    assert link.seconds(Collectives(4, 800.0), 8) == 4 * 0.5 + 700 / 100


def test_an_engine_reduces_twice_a_layer(small):
    assert of_sequence(small) == Collectives(6, 2 * 6 * 2 * 64)


def test_without_costs_ranks_divide_the_tokens_and_nothing_else():
    other = placed(SPLIT, Layout(trainers=4))
    assert other == replace(SPLIT, trainer=replace(SPLIT.trainer, devices=4))
    assert placed(SPLIT, Layout()) == SPLIT


def test_the_collectives_of_several_ranks_are_counted_and_their_weights_gathered(small):
    costs = Costs(small, False, Link(1e6))
    other = placed(SPLIT, Layout(trainers=2), costs).trainer
    assert other.tokens_per_s == SPLIT.trainer.tokens_per_s
    assert other.collective_seconds == of_micro_batch(small, bf16=False).size / 2 / 1e6
    assert other.transfer_seconds == pytest.approx(0.1 + 4 * small.parameters / 2 / 1e6)
    back = placed(replace(SPLIT, trainer=other), Layout(trainers=1), costs).trainer
    assert replace(back, transfer_seconds=0.1) == SPLIT.trainer
    assert back.transfer_seconds == pytest.approx(0.1)


def test_copies_gather_among_their_own_ranks_and_send_gradients_between_nodes_once_a_step(small):
    costs = Costs(small, False, Link(1e6), node_link=Link(1e5))
    whole = placed(SPLIT, Layout(trainers=4), costs).trainer
    other = placed(SPLIT, Layout(trainers=4, fsdp_size=2), costs, optimizer_steps=3).trainer
    assert (other.devices, other.sharing, other.copies) == (4, 2, 2)
    assert other.collective_seconds == of_micro_batch(small, bf16=False).size / 2 / 1e6 < whole.collective_seconds
    a_step = 2 * 4 * small.parameters / 2 / 2 / 1e5
    assert other.update_seconds == pytest.approx(SPLIT.trainer.update_seconds + 3 * a_step)
    machine = replace(SPLIT, trainer=other)
    again = placed(machine, Layout(fsdp_size=0), costs, optimizer_steps=3).trainer
    assert again.update_seconds == pytest.approx(SPLIT.trainer.update_seconds)
    assert replace(again, update_seconds=whole.update_seconds) == whole
    lines = assumptions(SPLIT, machine, costs)
    assert lines[1].startswith("2 copies of the weights, over 2 ranks each; to add up their gradients takes ")
    with pytest.raises(UsageError, match="fsdp_size: 3 does not divide the 4 trainer ranks"):
        placed(SPLIT, Layout(trainers=4, fsdp_size=3), costs)


def test_collectives_in_measured_speeds_are_taken_out_before_others_are_added(small):
    costs = Costs(small, False, Link(1e6))
    collective = costs.micro_batch(2)
    speed = 1 / (1 / 3000 + collective / 4096)
    of_two = replace(SPLIT, trainer=replace(SPLIT.trainer, devices=2, tokens_per_s=speed))
    assert placed(of_two, Layout(trainers=4), costs).trainer.tokens_per_s == pytest.approx(3000)
    assert placed(of_two, Layout(trainers=2), costs) == of_two, "as it was measured"
    with pytest.raises(UsageError, match="the collectives of 2 trainer ranks take longer than their updates did"):
        placed(of_two, Layout(trainers=4), replace(costs, link=Link(1e3)))
    with pytest.raises(UsageError, match="--link needs micro_tokens"):
        placed(TRUTH, Layout(trainers=4), costs)


def test_devices_of_an_engine_divide_a_step_and_add_their_latency(small):
    engine = replace(TRUTH.generators, cache_tokens=1000)
    machine = replace(TRUTH, generators=engine)
    two = placed(machine, Layout(tensor_parallel=2), Costs(small, True, Link(1e6, 1e-4))).generators
    assert (two.devices, two.engines, two.cache_tokens) == (2, 1, 2000)
    assert two.step_seconds == pytest.approx(engine.step_seconds / 2 + 6 * 1e-4)
    assert two.sequence_seconds == pytest.approx(engine.sequence_seconds / 2 + of_sequence(small).size / 2 / 1e6)
    assert two.token_seconds == engine.token_seconds / 2
    four = placed(machine, Layout(tensor_parallel=4), Costs(small, True, Link(1e6))).generators
    assert four.token_seconds == engine.token_seconds / 2, "two key-value heads are not divided by four"
    back = placed(replace(machine, generators=two), Layout(tensor_parallel=1), Costs(small, True, Link(1e6, 1e-4)))
    assert back.generators.step_seconds == pytest.approx(engine.step_seconds)


def test_generators_take_turns_with_the_trainer_or_run_beside_it():
    shared = replace(
        TRUTH, trainer=replace(TRUTH.trainer, shared=True), generators=replace(TRUTH.generators, gap_seconds=0.01)
    )
    beside = placed(shared, Layout(generators=3))
    assert (beside.trainer.shared, beside.generators.engines, beside.generators.gap_seconds) == (False, 3, 0.0)
    turns = placed(beside, Layout(generators=0))
    assert (turns.trainer.shared, turns.generators.engines) == (True, 1)


@pytest.mark.parametrize("trainers", [1, 3])
def test_a_measured_run_predicts_the_layout_that_it_does_not_have(trainers, small):
    """Runs on a known machine calibrate one whose speed with other ranks and engines is that of the known one."""
    known = replace(SPLIT, trainer=replace(SPLIT.trainer, devices=trainers))
    runs = []
    for n_async, n_batch in ((16, 32), (128, 64)):
        run = measured(replace(RUN, n_async=n_async, n_batch=n_batch, placement="split"), known)
        tokens = run.tokens * trainers
        runs.append(replace(run, tokens=tokens, layout=NotedLayout(trainers), micro_tokens=4096))
    found = calibrate(runs, workers=2)
    assert found.trainer.devices == trainers
    assert found.trainer.tokens_per_s == pytest.approx(3000, rel=1e-3)
    layout, costs = Layout(trainers=2, generators=4), Costs(small, False, Link(1e8))
    ours, truth = (speed(placed(machine, layout, costs)) for machine in (found, known))
    assert ours == pytest.approx(truth, rel=0.03)


def speed(machine: Machine) -> float:
    draw = group_source(LENGTHS, group=8, max_tokens=600, seed=9)
    return predict(
        replace(RUN, n_async=48, n_batch=96, staleness=4, placement="split"), machine, draw
    ).trained_tokens_per_s


def test_collectives_are_waited_for_in_each_micro_batch():
    slow = replace(SPLIT, trainer=replace(SPLIT.trainer, micro_tokens=100, collective_seconds=0.1))
    in_turn = replace(RUN, schedule="sync", placement="split")  # so that both train the same groups
    runs = [measured(in_turn, machine) for machine in (SPLIT, slow)]
    tokens = runs[0].tokens
    assert runs[1].training - runs[0].training == pytest.approx(0.1 * np.ceil(tokens.round() / 100))


def test_what_is_assumed_is_said(small):
    costs = Costs(small, False, Link(1e8))
    other = placed(SPLIT, Layout(trainers=2, generators=4, tensor_parallel=2), costs)
    lines = assumptions(SPLIT, other, costs)
    assert lines[0] == "2 trainer ranks instead of 1 divide the tokens of an update"
    assert lines[1].startswith("the collectives of a micro-batch take 0.")
    assert lines[2].startswith("new weights take 0.")
    assert lines[3] == "4 engines instead of 1, each as fast as one was"
    assert lines[4].startswith("2 devices divide the time of an engine's step: 0.004 s")
    assert assumptions(SPLIT, SPLIT, None) == []
    unknown = assumptions(SPLIT, placed(SPLIT, Layout(trainers=2)), None)
    assert unknown[-1] == "collectives take no time: --link GB/s counts them"


def test_a_run_notes_its_layout_and_that_it_was_resumed_with_another(tmp_path):
    with RunDir.open(tmp_path / "run", "rl", {}, restart=False) as folder:
        assert noted_layout({"chosen": folder.notes}) == NotedLayout(1, 1)
        note_layout(folder, trainers=4, tensor_parallel=2, fsdp_size=0)
        assert noted_layout({"chosen": folder.notes}) == NotedLayout(4, 2)
    with RunDir.open(tmp_path / "run", "rl", {}, restart=False) as folder:
        note_layout(folder, trainers=4, tensor_parallel=2, fsdp_size=4)
        assert noted_layout({"chosen": folder.notes}) == NotedLayout(4, 2)
        note_layout(folder, trainers=4, tensor_parallel=2, fsdp_size=2)
        with pytest.raises(DataError, match="resumed with other --trainers, --fsdp-size or --tensor-parallel"):
            noted_layout({"chosen": folder.notes})
    with RunDir.open(tmp_path / "hybrid", "rl", {}, restart=False) as folder:
        note_layout(folder, trainers=4, tensor_parallel=1, fsdp_size=2)
        assert noted_layout({"chosen": folder.notes}) == NotedLayout(4, 1, 2)
