"""What `sft` and `rl` say about memory before they start, and what happens where it runs out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from calling import TRAINED, call_stage

from magcli import cli
from magcli.console import Console
from magcli.errors import EnvironmentFault, UsageError
from magcli.model.model import Model
from magcli.plan import machine, memory
from magcli.plan.machine import Machine
from magcli.rl.trainer import Learn
from magcli.run.rundir import RunDir
from magcli.stages.rl.config import Config, check
from magcli.stages.rl.plan import RunPlan
from magcli.stages.shared import forecast
from magcli.train.sft import TrainStep

QWEN_1_5B = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 1536,
    "intermediate_size": 8960, "max_position_embeddings": 32768, "num_attention_heads": 12, "num_hidden_layers": 28,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": True,
    "vocab_size": 151936,
}  # fmt: skip
QWEN_7B = QWEN_1_5B | {
    "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4,
    "tie_word_embeddings": False, "vocab_size": 152064,
}  # fmt: skip
SHORT = {name: value for name, value in TRAINED.items() if name not in ("updates", "trajectory_every")}


def planned(config, model):
    """The plan of a dry run."""
    return RunPlan.of(config, model, Machine.ask(config.device, config.card, planned=True))


@pytest.fixture
def config_alone(tmp_path):
    """The folder of a large model without weights and tokenizer."""
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN_1_5B))
    return folder


@pytest.fixture
def traces(tmp_path):
    path = tmp_path / "traces.jsonl"
    rows = [{"prompt": f"{number}?", "completion": "<think>a</think>b"} for number in range(8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_dry_run_lists_the_memory_from_a_configuration_alone(magcli, config_alone, tmp_path):
    done = magcli("rl", "--model", config_alone, "--card", "80G", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stage"] == "rl"
    for part in ("weights, float32", "gradients", "Adam moments", "activations", "logits", "disk: checkpoints, 3"):
        assert part in done.stderr
    assert "it fits the 74." in done.stderr
    assert "in bf16 on cuda" in done.stderr, "the plan is for the card, not for this machine"


@pytest.mark.parametrize("scratch", [False, True])
def test_ranks_load_the_whole_model_only_where_they_cannot_read_slices(magcli, config_alone, tmp_path, scratch):
    flags = ["--from-scratch"] if scratch else []
    options = ["--trainers", 4, "--card", "80G", "--dry-run"]
    done = magcli("sft", "--model", config_alone, *flags, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ("whole model before it is sharded" in done.stderr) is scratch
    assert "host: copy of a rank's checkpoint 4.3 GiB always" in " ".join(done.stderr.split())


def test_what_does_not_fit_is_refused_with_the_smallest_change(magcli, config_alone, tmp_path):
    keeps = ["--activation-checkpointing", "no", "--micro-tokens", "8192"]
    command = ["sft", "--model", config_alone, "--card", "24G", "--lora", "16", *keeps, "--dry-run", "--json"]
    done = magcli(*command, cwd=tmp_path)
    assert done.returncode == 4
    plan_event, memory_event, error = map(json.loads, done.stderr.splitlines())
    assert plan_event["message"] == (
        "sft: the run trains in bf16 adapters of rank 16, in micro-batches of up to 8,192 tokens"
    )
    assert memory_event["fits"] is False
    assert memory_event["peak"] == max(
        sum(line["bytes"] for line in memory_event["lines"] if phase in line["phases"]) for phase in memory.PHASES
    )
    flags = error["message"].rpartition("it would with ")[2].split()
    assert flags[0] == "--micro-tokens"
    assert magcli(*command, *flags, cwd=tmp_path).returncode == 0


def test_a_model_that_no_option_makes_fit_needs_more_cards(magcli, config_alone, tmp_path):
    done = magcli("rl", "--model", config_alone, "--card", "8G", "--engine", "torch", "--dry-run", cwd=tmp_path)
    assert done.returncode == 4
    assert "take a smaller model, or " in done.stderr
    assert " such cards with --trainers " in done.stderr
    assert "--lora" not in done.stderr, "adapters are trained in one process"


def test_an_unknown_card_is_refused(magcli, config_alone, tmp_path):
    done = magcli("rl", "--model", config_alone, "--card", "H100", "--dry-run", cwd=tmp_path)
    assert done.returncode == 2
    assert "--card must be a size such as 24G, not 'H100'" in done.stderr


def test_a_gpu_that_is_not_there_is_one_line(letters, guesser, tmp_path):
    with pytest.raises(EnvironmentFault, match="--device cuda: PyTorch finds 0 GPUs; see magcli doctor"):
        call_stage("rl", letters, model=str(guesser), run=tmp_path / "run", device="cuda", **SHORT | {"updates": 1})


def test_a_run_that_does_not_fit_is_refused_before_the_weights(letters, guesser, tmp_path):
    with pytest.raises(EnvironmentFault, match=r"it does not fit the 0\.0 MiB that a card of 300M has for it"):
        call_stage("rl", letters, model=str(guesser), run=tmp_path / "run", card="300M", **TRAINED)
    assert not (tmp_path / "run" / "model").exists()


def test_on_a_cpu_only_a_clear_lack_of_memory_is_a_warning(letters, guesser, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine, "_available", lambda total: 1 << 20)
    options = SHORT | {"updates": 1, "quiet": False}
    call_stage("rl", letters, model=str(guesser), run=tmp_path / "run", **options)
    assert "warning: rl: the peak is " in capsys.readouterr().err
    assert (tmp_path / "run" / "model").exists()


def test_generators_have_cards_of_their_own(config_alone, monkeypatch):
    config = Config(model=str(config_alone), run=Path("run"), card="80G", engine="torch")
    alone = planned(replace(config, generators=2), Model.open(config_alone)).forecast
    beside = planned(config, Model.open(config_alone)).forecast
    assert alone.plan.engine is None
    engine = beside.plan.engine
    assert engine is not None
    resident = memory.engine_weight_bytes(engine) + memory.cache_bytes(engine)
    assert resident <= 0.35 * beside.card.total
    with_vllm = planned(replace(config, engine="vllm"), Model.open(config_alone)).forecast
    assert with_vllm.plan.share == round(0.35 * with_vllm.card.total)


def test_vllm_sleeps_during_updates_where_both_do_not_fit_at_once(tmp_path):
    """7B, all weights, on 80 GB: the larger of both phases fits, their sum does not."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN_7B))
    model = Model.open(tmp_path)
    base = Config(model=str(tmp_path), run=Path("run"), card="80G", engine="vllm", device="cpu")
    config = replace(base, offload="moments", micro_tokens=2048)
    made = planned(config, model).forecast
    assert made.plan.sleeps
    assert made.fits
    phases = memory.phase_bytes(made.plan.lines)
    assert phases["sampling"] > made.plan.share
    assert max(phases["forward"], phases["scoring"], phases["backward"]) + made.plan.share > made.card.usable
    awake = planned(replace(config, vllm_sleep="no"), model).forecast
    assert (awake.plan.sleeps, awake.fits) == (False, False)
    small = planned(replace(config, lora=32), model).forecast
    assert (small.plan.sleeps, small.fits) == (False, True), "adapters fit beside vLLM"
    assert planned(replace(config, lora=32, vllm_sleep="yes"), model).forecast.plan.sleeps


@pytest.mark.parametrize(("card", "recomputes"), [("80G", "no"), ("24G", "yes")])
@pytest.mark.parametrize("asked", ["auto", "yes", "no"])
def test_activations_are_recomputed_where_the_run_might_not_fit_else(card, recomputes, asked, config_alone):
    config = Config(
        model=str(config_alone), run=Path("run"), card=card, engine="vllm", generators=1, device="cpu",
        micro_tokens=8192, activation_checkpointing=asked,
    )  # fmt: skip
    plan = planned(config, Model.open(config_alone))
    assert plan.trainer.recomputes == ((recomputes if asked == "auto" else asked) == "yes")
    assert plan.forecast.plan.training.activation_checkpointing == plan.trainer.recomputes


def test_vllm_gets_a_share_in_which_its_weights_fit_and_the_run_uses_it(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN_7B))
    config = Config(model=str(tmp_path), run=Path("run"), card="24G", engine="vllm", device="cpu", lora=32)
    plan = planned(config, Model.open(tmp_path))
    made = plan.forecast
    weights = memory.BF16 * made.plan.training.shape.parameters
    assert 0.35 * made.card.total < weights < made.plan.share
    assert not made.fits
    assert plan.engines.sleeps
    assert round(plan.engines.share * made.card.total) == made.plan.share
    asked = planned(replace(config, gpu_memory=0.5), Model.open(tmp_path)).forecast
    assert asked.plan.share == round(0.5 * made.card.total)


@pytest.mark.parametrize("changes", [{"generators": 1}, {"engine": "torch"}, {"card": ""}])
def test_only_vllm_on_the_trainers_gpu_sleeps(changes, config_alone):
    config = Config(model=str(config_alone), run=Path("run"), card="80G", engine="vllm", device="cpu", vllm_sleep="yes")
    check(config)
    with pytest.raises(UsageError, match="--vllm-sleep yes needs vLLM on the trainer's GPU"):
        check(replace(config, **changes))


def test_a_disk_that_is_too_small_is_said_before_the_work(config_alone, tmp_path, monkeypatch, magcli):
    done = magcli("rl", "--model", config_alone, "--card", "9999G", "--updates", "100000", "--trajectory-every", "1",
                  "--dry-run", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "warning: rl: the run writes up to " in done.stderr


def test_a_small_shared_memory_is_said(capsys, monkeypatch):
    forecast.warn_of_small_shared_memory(1 << 60, Console())
    assert "start the container with --ipc=host or a larger --shm-size" in capsys.readouterr().err
    forecast.warn_of_small_shared_memory(1, Console())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: can't allocate memory: 8 bytes"),
    ],
)
def test_memory_that_runs_out_in_an_update_is_one_line_and_the_run_resumes(
    error, letters, guesser, tmp_path, monkeypatch
):
    run, learn = tmp_path / "run", Learn.run

    def exhausted(self, state):
        if len(RunDir(run).metrics()) == 2:
            raise error
        return learn(self, state)

    with monkeypatch.context() as patched:
        patched.setattr(Learn, "run", exhausted)
        with pytest.raises(EnvironmentFault) as caught:
            call_stage("rl", letters, model=str(guesser), run=run, **SHORT | {"updates": 3})
    assert "out of memory while training: lower --micro-tokens, or use --activation-checkpointing yes; the same" in str(
        caught.value
    )
    assert caught.value.exit_code == 4
    call_stage("rl", letters, model=str(guesser), run=run, **SHORT | {"updates": 3})
    assert len(RunDir(run).metrics()) == 3


def test_memory_that_runs_out_while_sampling_names_the_options(letters, guesser, tmp_path, monkeypatch):
    def exhausted(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("magcli.generate.torch.engine.Engine.step", exhausted)
    with pytest.raises(EnvironmentFault, match=r"while sampling: lower --slots \(of rl --n-async\) or --max-tokens"):
        call_stage("generate", letters, model=str(guesser), output=tmp_path / "out.jsonl", system=Path("none"))


def test_other_errors_of_torch_stay_what_they_are(traces, guesser, tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(TrainStep, "run", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        call_stage("sft", traces, model=str(guesser), run=tmp_path / "run", system="none", bf16="no")


def test_memory_that_runs_out_anywhere_is_one_line(monkeypatch, capsys):
    def exhausted(*_):
        raise MemoryError("Unable to allocate 2.00 GiB")

    monkeypatch.setattr(cli, "_run", exhausted)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 4
    assert "error: out of memory; use smaller sizes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("card", "flags", "recomputes"),
    [
        ("40G", [], True),
        ("320G", [], False),
        ("320G", ["--activation-checkpointing", "yes"], True),
        ("320G", ["--activation-checkpointing", "no"], False),
        ("320G", ["--no-recompute"], False),
    ],
)
def test_activations_are_recomputed_on_a_small_gpu_or_where_asked(
    card, flags, recomputes, magcli, config_alone, tmp_path
):
    done = magcli("sft", "--model", config_alone, "--card", card, *flags, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ("one recomputed layer" in done.stderr) is recomputes


def test_activations_are_kept_on_a_cpu_and_the_former_name_is_not_listed(magcli, config_alone, tmp_path):
    kept = magcli("sft", "--model", config_alone, "--device", "cpu", "--dry-run", cwd=tmp_path)
    assert "one recomputed layer" not in kept.stderr
    recomputed = magcli("sft", "--model", config_alone, "--device", "cpu", "--recompute", "--dry-run", cwd=tmp_path)
    assert "one recomputed layer" in recomputed.stderr
    assert b"--recompute" not in magcli("sft", "--help", cwd=tmp_path).stdout


def test_offloaded_moments_are_not_on_the_card(magcli, config_alone, tmp_path):
    command = ["rl", "--model", config_alone, "--card", "320G", "--dry-run"]
    assert "Adam moments" in magcli(*command, cwd=tmp_path).stderr
    assert "Adam moments" not in magcli(*command, "--offload", "moments", cwd=tmp_path).stderr
