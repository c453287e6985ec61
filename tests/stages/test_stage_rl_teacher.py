"""`magcli rl --teacher`: on-policy distillation."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from calling import call_stage
from transformers import AutoModelForCausalLM

from magcli.data.table import read
from magcli.errors import UsageError
from magcli.model.model import Model
from magcli.plan.formats import TrainerPlan
from magcli.stages.shared import rank_weights
from magcli.train.distributed import Ranks
from magcli.train.logprobs import token_logprobs
from magcli.train.optim import autocast
from magcli.train.packing import pack

OPTIONS = {
    "updates": 8, "group_size": 8, "n_async": 64, "n_batch": 64, "n_mini": 32, "max_tokens": 24, "lr": 1e-3,
    "bf16": "no", "dtype": "fp32", "system": Path("none"), "language": False, "schedule": "sync",
}  # fmt: skip


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    path = tmp_path_factory.mktemp("problems") / "threes.jsonl"
    rows = [{"id": letter, "prompt": f"{letter}?", "answer": "3"} for letter in "abcdefgh"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def teacher(guesser, tmp_path_factory):
    """The guesser after a second of SFT on one answer: it gives that one nearly always."""
    folder = tmp_path_factory.mktemp("models")
    rows = [{"prompt": f"{letter}?", "completion": "<think>..</think>\\boxed{3}"} for letter in 10 * "abcdefgh"]
    (folder / "traces.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"epochs": 4, "step_tokens": 512, "lr": 5e-3, "bf16": "no", "system": Path("none")}
    call_stage("sft", folder / "traces.jsonl", model=str(guesser), run=folder / "run", **options)
    return folder / "run" / "model"


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_the_divergence_from_the_teacher_falls(guesser, teacher, problems, tmp_path):
    run = tmp_path / "run"
    out = tmp_path / "rollouts.arrow"
    call_stage("rl", problems, model=str(guesser), run=run, output=out, teacher=str(teacher), **OPTIONS)
    lines = metrics(run)
    distances = [line["kl_teacher"] for line in lines]
    assert distances[0] > 0.1
    assert np.mean(distances[-2:]) < 0.5 * distances[0]
    assert all(line["reward"] is not None for line in lines)
    assert all(line["groups_dropped"] == {} for line in lines), "equal outcomes train too"
    rows = [row for batch in read(str(out)).rows for row in batch.to_pylist()]
    assert {row["advantage"] for row in rows} == {None}
    recorded = json.loads((run / "run.json").read_text())
    assert recorded["teacher"] == str(teacher)
    assert re.fullmatch(r"[0-9a-f]{64}", recorded["teacher_sha256"])
    with pytest.raises(UsageError, match=r"other settings: .*teacher"):
        call_stage("rl", problems, model=str(guesser), run=run, teacher=str(guesser), **OPTIONS)


def test_without_a_teacher_nothing_is_distilled(guesser, problems, tmp_path):
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "run", **OPTIONS | {"updates": 1})
    assert "kl_teacher" not in metrics(tmp_path / "run")[0]


def test_a_teacher_with_another_tokenizer_is_refused(guesser, teacher, problems, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(teacher, other)
    (other / "SHA256SUMS").unlink()  # as the tokenizer is changed on purpose
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    first, second = list(words)[10:12]
    words[first], words[second] = words[second], words[first]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(
        UsageError, match=r"has another tokenizer than --model \S+; give a teacher with the same token ids$"
    ):
        call_stage("rl", problems, model=str(guesser), run=tmp_path / "run", teacher=str(other), **OPTIONS)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("change", [{"advantage_norm": "none"}, {"advantage": "math:sqrt"}, {"shuffle_rewards": True}])
def test_other_sources_of_advantages_are_refused(change, guesser, problems, tmp_path):
    with pytest.raises(UsageError, match="rl: --teacher replaces --advantage"):
        call_stage("rl", problems, model=str(guesser), run=tmp_path / "run", teacher=str(guesser), **change)


def test_a_teacher_in_bf16_scores_as_in_float32(teacher, tmp_path):
    AutoModelForCausalLM.from_pretrained(teacher, dtype=torch.bfloat16).save_pretrained(tmp_path)
    packed = pack([[3, 19, 89, 1, 4, 5, 82, 82, 6, 92, 18, 31, 40, 21, 20, 97, 10, 99, 1]])
    found = []
    for bf16 in (False, True):
        model = rank_weights.frozen_model(TrainerPlan(bf16=bf16), Model.open(tmp_path), Ranks())
        with torch.no_grad(), autocast(model.device, bf16):
            found.append(token_logprobs(model, packed).values)
        assert model.dtype == (torch.bfloat16 if bf16 else torch.float32)
    assert found[1].dtype == torch.float32
    torch.testing.assert_close(found[1], found[0], rtol=0.05, atol=0.05)


def test_a_server_is_no_teacher(guesser, problems, tmp_path):
    with pytest.raises(UsageError, match="--teacher scores in the trainer"):
        call_stage("rl", problems, model=str(guesser), run=tmp_path / "run", teacher="http://localhost:1")


def test_the_dry_run_counts_the_teacher(guesser, teacher, problems, tmp_path, capsys):
    options = {**OPTIONS, "run": tmp_path / "run", "teacher": str(teacher), "dry_run": True, "quiet": False}
    call_stage("rl", problems, model=str(guesser), **options)
    assert re.search(r"teacher, float32\s", capsys.readouterr().err)
