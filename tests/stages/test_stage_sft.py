import hashlib
import json
import random
import re
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from calling import call_stage, flags_of, kill_and_resume, seconds_of, written_at
from forking import Running
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForCausalLM, AutoTokenizer

from magcli.data import table
from magcli.data.checksum import encode_object, read_object
from magcli.errors import DataError, EnvironmentFault, Stopped, UsageError
from magcli.run.rundir import RunDir
from magcli.train.optim import SFT_LR, default_lr

SHORT = {"epochs": 2, "step_tokens": 128, "lr": 3e-3, "system": Path("none"), "bf16": "no", "checkpoint_every": 3}


def tracked_steps(run):
    """The steps that TensorBoard has of a run, each event once as it lies in the files, and its options."""
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}, purge_orphaned_data=False)
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars("train/loss")], events.Tags()["tensors"]


def traces(path, count=60, seed=0):
    choose = random.Random(seed)
    rows = [
        {
            "id": str(i),
            "prompt": f"{choose.choice('abc')}?",
            "completion": "<think></think>" + "x" * choose.randrange(9),
        }
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lines(run):
    found = RunDir(run).metrics()
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]


def weights(run, folder="model"):
    return (run / folder / "model.safetensors").read_bytes()


def test_the_result_is_a_model_that_transformers_loads(tiny_model_dir, tmp_path, capsys):
    call_stage("sft", traces(tmp_path / "t.jsonl"), model=str(tiny_model_dir), run=tmp_path / "run", **SHORT)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "a?"}], add_generation_prompt=True)["input_ids"]
    made = model.generate(torch.tensor([ids]), max_new_tokens=4, do_sample=False)
    assert tokenizer.decode(made[0, len(ids) :]).startswith("<think></think>")
    curve = [line["loss"] for line in lines(tmp_path / "run")]
    assert np.mean(curve[-3:]) < 0.7 * np.mean(curve[:3])
    assert capsys.readouterr().out == ""


def test_the_learning_rate_follows_a_cosine_and_metrics_are_complete(tiny_model_dir, tmp_path):
    out = tmp_path / "metrics.arrow"
    options = {**SHORT, "warmup": 0.25, "floor": 0.1}
    call_stage(
        "sft", traces(tmp_path / "t.jsonl"), model=str(tiny_model_dir), run=tmp_path / "run", output=out, **options
    )
    rows = table.read(str(out)).rows.__next__().to_pylist()
    kept = lines(tmp_path / "run")
    assert [row["step"] for batch in table.read(str(out)).rows for row in batch.to_pylist()] == list(
        range(1, len(kept) + 1)
    )
    assert "seconds" not in rows[0], "times would make equal outputs differ"
    rates = [line["lr"] for line in kept]
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert max(rates) == pytest.approx(3e-3)
    assert rates[-1] < 0.2 * 3e-3
    assert all(
        line["tokens"] >= 128 > line["tokens"] - 40 for line in kept if line is not kept[-1] and line["tokens"] > 99
    )
    assert all(0 < line["target_tokens"] < line["tokens"] for line in kept)


def test_the_best_checkpoint_by_held_out_loss_is_the_result(tiny_model_dir, tmp_path):
    other = [{"prompt": "a?", "completion": "<think></think>zzz"}]
    held = tmp_path / "held.jsonl"
    held.write_text(json.dumps(other[0]) + "\n")
    options = {**SHORT, "epochs": 6, "lr": 2e-2, "evaluate_every": 2, "held_out": held}
    call_stage("sft", traces(tmp_path / "t.jsonl"), model=str(tiny_model_dir), run=tmp_path / "run", **options)
    losses = {line["step"]: line["held_out_loss"] for line in lines(tmp_path / "run") if "held_out_loss" in line}
    last = lines(tmp_path / "run")[-1]["step"]
    assert set(losses) == {*range(2, last + 1, 2), last}
    assert min(losses, key=losses.get) < last, "the held-out text is another one, so training on must make it worse"
    assert measured(tmp_path / "run" / "model", "a?", "<think></think>zzz") == pytest.approx(
        min(losses.values()), rel=1e-4
    )


def test_unusable_held_out_traces_are_not_among_the_rows_of_the_input(tiny_model_dir, tmp_path, capsys):
    data, held = (tmp_path / f"{name}.jsonl" for name in ("data", "held"))
    usable, unusable = ({"prompt": "a?", "completion": text} for text in ("1", "1" * 2000))
    data.write_text(json.dumps(usable) + "\n" + json.dumps(unusable) + "\n")
    held.write_text((json.dumps(usable) + "\n") * 2 + (json.dumps(unusable) + "\n") * 3)
    options = {**SHORT, "max_steps": 1, "model": str(tiny_model_dir), "run": tmp_path / "run", "held_out": held}
    out, dropped = tmp_path / "steps.arrow", tmp_path / "dropped.arrow"
    call_stage("sft", data, output=out, dropped=dropped, quiet=False, **options)
    link = table.read(str(out)).chain[-1]
    assert (link.rows_in, link.dropped, table.read(str(dropped)).total) == (2, {"too-long": 1}, 1)
    assert f"sft: 3 held-out traces of {held} are not used (too-long 3)" in capsys.readouterr().err


def test_held_out_traces_of_which_none_is_usable_are_refused(tiny_model_dir, tmp_path):
    """Without their loss the last model would be the result, and not the best."""
    held = tmp_path / "held.jsonl"
    held.write_text(json.dumps({"prompt": "a?", "completion": "z" * 5000}) + "\n")
    data = traces(tmp_path / "t.jsonl")
    options = {**SHORT, "model": str(tiny_model_dir), "run": tmp_path / "run", "held_out": held}
    for dry_run in (True, False):
        with pytest.raises(DataError, match=r"sft: no usable trace in .*held\.jsonl \(dropped too-long 1\)"):
            call_stage("sft", data, **options, dry_run=dry_run)
    held.write_text(json.dumps({"prompt": "a?", "completion": "z"}) + "\n")
    call_stage("sft", data, **options)
    assert "held_out_loss" in lines(tmp_path / "run")[-1]


def measured(folder, prompt, completion):
    """Mean loss of the targets by plain transformers."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    user = [{"role": "user", "content": prompt}]
    before = tokenizer.apply_chat_template(user, add_generation_prompt=True)["input_ids"]
    turn = {"role": "assistant", "content": completion}
    ids = torch.tensor([tokenizer.apply_chat_template([*user, turn])["input_ids"]])
    with torch.no_grad():
        logprobs = model(ids).logits[0, :-1].log_softmax(-1)
    return -logprobs[range(len(before) - 1, ids.shape[1] - 1), ids[0, len(before) :]].mean().item()


def test_training_from_scratch_needs_config_and_tokenizer_only(tiny_model_dir, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in tiny_model_dir.iterdir():
        if file.suffix != ".safetensors":
            (bare / file.name).write_bytes(file.read_bytes())
    data = traces(tmp_path / "t.jsonl")
    with pytest.raises(EnvironmentFault, match="weights"):
        call_stage("sft", data, model=str(bare), run=tmp_path / "a", **SHORT)
    for run, seed in (("b", 1), ("c", 1), ("d", 2)):
        call_stage("sft", data, model=str(bare), run=tmp_path / run, from_scratch=True, seed=seed, max_steps=2, **SHORT)
    assert weights(tmp_path / "b") == weights(tmp_path / "c") != weights(tmp_path / "d")
    assert len(lines(tmp_path / "b")) == 2


def test_a_finished_run_is_recognised_and_other_settings_are_refused(tiny_model_dir, tmp_path):
    data = traces(tmp_path / "t.jsonl")
    options = {"model": str(tiny_model_dir), "run": tmp_path / "run", **SHORT}
    call_stage("sft", data, **options)
    before = weights(tmp_path / "run")
    written = written_at(tmp_path / "run")
    call_stage("sft", data, **options)
    assert written_at(tmp_path / "run") == written, "nothing is trained again"
    assert weights(tmp_path / "run") == before
    with pytest.raises(UsageError, match=r"other settings: lr 0\.003 \(now 0\.004\);"):
        call_stage("sft", data, **options | {"lr": 4e-3})
    with pytest.raises(UsageError, match="other settings: inputs"):
        call_stage("sft", traces(tmp_path / "u.jsonl", seed=1), **options)
    with pytest.raises(UsageError, match="other settings: held_out_sha256"):
        call_stage("sft", data, **options, held_out=data)


def test_traces_that_cannot_be_trained_on_are_dropped_with_a_reason(tiny_model_dir, tmp_path):
    answer = [{"role": "assistant", "content": "b"}]
    rows = [
        {"id": "good", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
        {"id": "no-turn", "messages": [{"role": "user", "content": "a"}]},
        {"id": "all-ones", "messages": [{"role": "assistant", "content": "b"}]},
        {"id": "long", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b" * 99}]},
        {"id": "empty", "messages": []},
        {"id": "past-context", "messages": [{"role": "user", "content": "a" * 600}, *answer]},
    ]
    data, dropped = tmp_path / "t.jsonl", tmp_path / "dropped.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {**SHORT, "max_length": 64, "epochs": 1, "dropped": dropped}
    call_stage("sft", data, model=str(tiny_model_dir), run=tmp_path / "run", output=tmp_path / "m.jsonl", **options)
    found = {row["id"]: row["drop_reason"] for row in map(json.loads, dropped.read_text().splitlines())}
    assert found == {
        "no-turn": "unusable-trace",
        "all-ones": "unusable-trace",
        "long": "too-long",
        "empty": "unusable-trace",
        "past-context": "too-long",
    }
    whole = {**options, "max_length": 32768, "run": tmp_path / "whole", "output": tmp_path / "w.jsonl"}
    call_stage("sft", data, model=str(tiny_model_dir), **whole)
    left = {row["id"] for row in map(json.loads, dropped.read_text().splitlines()) if row["drop_reason"] == "too-long"}
    assert left == {"past-context"}, "the model has a context of 512 tokens"
    assert lines(tmp_path / "run")[0]["target_tokens"] == 2, "b and the end of the turn"


def sums(path):
    path.write_text("".join(json.dumps({"id": c, "prompt": f"{c}?", "answer": "7"}) + "\n" for c in "abc"))
    return path


def right_traces(path):
    """Traces that teach the answer to each of ``sums``."""
    rows = [{"prompt": f"{c}?", "completion": "<think></think>\\boxed{7}"} for c in "abc" * 20]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


EXAM = {"evaluate_every": 4, "eval_samples": 2, "eval_max_tokens": 16, "eval_temperature": 0.5, "lr": 2e-2}


def test_the_best_checkpoint_by_accuracy_on_problems_is_the_result(tiny_model_dir, tmp_path, capsys, monkeypatch):
    data, run, table_of = right_traces(tmp_path / "t.jsonl"), tmp_path / "run", sums(tmp_path / "sums.jsonl")
    options = {**SHORT, **EXAM, "epochs": 4, "held_out": data}
    call_stage("sft", data, model=str(tiny_model_dir), run=run, eval_table=table_of, **options)
    found = {line["step"]: line for line in lines(run) if "accuracy" in line}
    accuracy = {step: line["accuracy"] for step, line in found.items()}
    best = max(accuracy.values())
    assert best > accuracy[4], "the longer it learns, the more it gets right"
    assert all(line["accuracy_low"] <= line["accuracy"] <= line["accuracy_high"] for line in found.values())
    chosen = min(
        (step for step in accuracy if accuracy[step] == best), key=lambda step: (found[step]["held_out_loss"], -step)
    )
    kept = measured(run / "model", "a?", "<think></think>\\boxed{7}")
    assert kept == pytest.approx(found[chosen]["held_out_loss"], rel=0.2), (
        "of equal ones the one with the lowest held-out loss"
    )
    assert not (run / "candidate").exists()
    monkeypatch.setenv("COLUMNS", "200")
    call_stage("report", positional=[str(run)])
    assert f"accuracy {best:.3f} at step {chosen}" in capsys.readouterr().out


@pytest.mark.faults
def test_a_killed_run_with_adapters_and_evaluation_selects_the_same_model(tiny_model_dir, tmp_path):
    data, problems = right_traces(tmp_path / "t.jsonl"), sums(tmp_path / "sums.jsonl")
    options = {**SHORT, **EXAM, "model": str(tiny_model_dir), "eval_table": problems, "lora": 4, "epochs": 1}
    took = seconds_of("sft", data, run=tmp_path / "whole", **options)
    kill_and_resume(15, 0.8 * took, "sft", data, run=tmp_path / "broken", **options)
    assert lines(tmp_path / "broken") == lines(tmp_path / "whole")
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")
    adapters = [(tmp_path / run / "adapter" / "adapter_model.safetensors").read_bytes() for run in ("broken", "whole")]
    assert adapters[0] == adapters[1]


def test_adapters_on_the_frozen_model_equal_the_merged_model(tiny_model_dir, tmp_path):
    peft = pytest.importorskip("peft")

    run = tmp_path / "run"
    options = {**SHORT, "lr": 2e-2, "lora": 4, "lora_alpha": 8.0}
    call_stage("sft", traces(tmp_path / "t.jsonl"), model=str(tiny_model_dir), run=run, **options)
    curve = [line["loss"] for line in lines(run)]
    assert np.mean(curve[-3:]) < 0.8 * np.mean(curve[:3])
    base, whole = (AutoModelForCausalLM.from_pretrained(folder) for folder in (tiny_model_dir, run / "model"))
    adapted = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_model_dir), run / "adapter")
    ids = torch.arange(10, 40)[None]
    with torch.no_grad():
        torch.testing.assert_close(whole(ids).logits, adapted(ids).logits, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(whole(ids).logits, base(ids).logits, atol=1e-2)
    same = [torch.equal(a, b) for a, b in zip(whole.parameters(), base.parameters(), strict=True)]
    assert True in same, "embeddings and norms are frozen"
    assert whole.state_dict().keys() == base.state_dict().keys()


def test_problems_that_cannot_be_graded_are_refused_by_name(tiny_model_dir, tmp_path):
    data, problems = traces(tmp_path / "t.jsonl"), tmp_path / "p.jsonl"
    options = {**SHORT, "model": str(tiny_model_dir), "run": tmp_path / "run", "eval_table": problems}
    for row, message in (
        ({"prompt": "a", "answer": "\\frac{1}{"}, "problem 0 of .* cannot be graded: the answer .* cannot be verified"),
        ({"prompt": None, "answer": "1"}, "problem 0 of .* has no prompt"),
        ({"question": "a", "gold": "\\frac{1}{"}, "problem 0 of .* cannot be graded: the answer .* cannot be verified"),
        ({"riddle": "a"}, "lacks column"),
    ):
        problems.write_text(json.dumps(row) + "\n")
        with pytest.raises(DataError, match=message):
            call_stage("sft", data, **options, restart=True)


def test_a_table_without_traces_is_refused_by_name(tiny_model_dir, tmp_path):
    data = tmp_path / "t.jsonl"
    data.write_text('{"question": "a"}\n')
    with pytest.raises(DataError, match="lacks columns prompt, completion; it has: question"):
        call_stage("sft", data, model=str(tiny_model_dir), run=tmp_path / "run", **SHORT)


def test_a_mask_is_shown_in_readable_form(magcli, tiny_model_dir, tmp_path):
    rows = [{"prompt": "2+2?", "completion": "<think>two\ntwos</think>4"}, {"prompt": "x", "completion": "y"}]
    data = tmp_path / "t.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = magcli(
        "sft", data, "--model", tiny_model_dir, "--run", tmp_path / "run", "--system", "none",
        "--dry-run", "--show-mask", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == (
        "       | <|user|>2+2?<|end|><|assistant|>\ntarget | <think>two↵\ntarget | twos</think>4<|end|>\n\n"
    )
    assert not (tmp_path / "run").exists()


def test_steps_without_a_finite_gradient_are_skipped_and_many_in_a_row_stop(tiny_model_dir, tmp_path):
    broken = tmp_path / "broken"
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    model.save_pretrained(broken)
    AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(broken)
    with pytest.raises(Stopped, match="no finite gradient in 5 steps up to 5; try a lower --lr"):
        call_stage("sft", traces(tmp_path / "t.jsonl"), model=str(broken), run=tmp_path / "run", **SHORT)
    found = lines(tmp_path / "run")
    assert [(line["step"], line["skipped"], line["grad_norm"], line["loss"]) for line in found] == [
        (step, 1.0, None, None) for step in range(1, len(found) + 1)
    ]
    assert not (tmp_path / "run" / "model").exists()


def test_without_lr_the_number_of_weights_decides(tiny_model_dir, tmp_path):
    options = {**SHORT, "lr": 0.0, "warmup": 0.0, "max_steps": 1}
    call_stage("sft", traces(tmp_path / "t.jsonl"), model=str(tiny_model_dir), run=tmp_path / "run", **options)
    weights = AutoModelForCausalLM.from_pretrained(tiny_model_dir).num_parameters()
    assert [line["lr"] for line in lines(tmp_path / "run")] == [default_lr(weights, at_24b=SFT_LR, lora=False)]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("max_norm", -1.0, "sft.max_norm: -1.0 is not positive"),
        ("lr", -1.0, "sft.lr: -1.0 is negative"),
        ("warmup", 1.0, r"sft.warmup: 1.0 is not in \[0, 1\)"),
        ("lora", -1, "sft.lora: -1 is negative"),
        ("eval_samples", 0, "sft.eval_samples: 0 is not positive"),
        ("model", "", "--model is missing"),
        ("model", "http://localhost:1/v1", "a server's weights cannot be trained"),
    ],
)
def test_invalid_options_are_refused_first(option, value, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        call_stage("sft", "nothing.jsonl", **{"model": "m", "run": tmp_path / "run"} | {option: value})


def test_up_to_date_metrics_do_not_replace_a_missing_model(tiny_model_dir, tmp_path):
    data, run = traces(tmp_path / "t.jsonl", 10), tmp_path / "run"
    options = {**SHORT, "model": str(tiny_model_dir), "run": run, "output": tmp_path / "metrics.arrow"}
    call_stage("sft", data, **options)
    before = weights(run)
    shutil.rmtree(run)
    call_stage("sft", data, **options)
    assert weights(run) == before


def test_showing_a_mask_needs_no_weights(tiny_model_dir, tmp_path, capsys):
    bare = tmp_path / "bare"
    shutil.copytree(tiny_model_dir, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    data = traces(tmp_path / "t.jsonl")
    call_stage("sft", data, model=str(bare), run=tmp_path / "run", show_mask=1, system=Path("none"))
    assert capsys.readouterr().out.startswith("       | <|user|>")
    assert not (tmp_path / "run").exists()


QUESTION = {"role": "user", "content": "1+2?"}


def test_a_table_without_usable_traces_says_why_and_writes_the_dropped_rows(tiny_model_dir, tmp_path):
    data, dropped = tmp_path / "t.jsonl", tmp_path / "dropped.jsonl"
    calls = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": "f"}}]}
    rows = [{"id": str(number), "messages": [QUESTION, calls]} for number in range(3)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {**SHORT, "model": str(tiny_model_dir), "run": tmp_path / "run", "dropped": dropped}
    for _ in range(2):
        reason = r"no usable trace in .*\(dropped unusable-trace 3: the first: message 1 has tool calls"
        with pytest.raises(DataError, match=reason):
            call_stage("sft", data, **options)
        assert [json.loads(line)["id"] for line in dropped.read_text().splitlines()] == ["0", "1", "2"]


def test_a_template_that_rewrites_earlier_turns_trains_each_turn(magcli, tiny_model_dir, tmp_path):
    template = tmp_path / "own.jinja"
    template.write_text(
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content.split('</think>')[-1] + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|><think>' }}{% endif %}"
    )
    answer = {"role": "assistant", "content": "3", "reasoning_content": "ones"}
    data = tmp_path / "t.jsonl"
    data.write_text(json.dumps({"messages": [QUESTION, answer, QUESTION, answer]}) + "\n")
    options = {**SHORT, "model": str(tiny_model_dir), "run": tmp_path / "run", "chat_template": template}
    shown = magcli(
        "sft", data, "--model", tiny_model_dir, "--system", "none", "--chat-template", template, "--show-mask", "2"
    )
    assert "1 conversations make 2 examples" in shown.stderr
    assert shown.stdout.count(b"target | ones") == 2
    call_stage("sft", data, **options)
    saved = AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    assert saved.chat_template == template.read_text()
    template.write_text(template.read_text() + " ")
    with pytest.raises(UsageError, match="chat_template_sha256"):
        call_stage("sft", data, **options)


@pytest.mark.parametrize("completion", ["3", "<think>\nones\n</think>\n\n3"])
def test_thoughts_in_a_column_are_trained_on_once(completion, tiny_model_dir, tmp_path, capsys):
    data = tmp_path / "t.jsonl"
    data.write_text(json.dumps({"prompt": "1+2?", "completion": completion, "reasoning_content": "ones"}) + "\n")
    call_stage("sft", data, model=str(tiny_model_dir), run=tmp_path / "run", show_mask=1, system=Path("none"))
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("target")]
    assert shown == [f"target | {line}" for line in ("<think>↵", "ones↵", "</think>↵", "↵", "3<|end|>")]


def test_a_date_in_the_prompt_is_that_of_the_runs_start(tiny_model_dir, tmp_path, monkeypatch):
    template = tmp_path / "own.jinja"
    template.write_text(
        "{{ strftime_now('%Y') }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    run = tmp_path / "run"
    options = {**SHORT, "model": str(tiny_model_dir), "run": run, "chat_template": template}
    call_stage("sft", traces(tmp_path / "t.jsonl"), **options)
    note = read_object(run / "run.json")
    assert note["chosen"]["date"].count("-") == 2
    first = weights(run)
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints")
    note["chosen"]["date"] = "1999-12-31"
    (run / "run.json").write_bytes(encode_object(note))
    call_stage("sft", tmp_path / "t.jsonl", **options)
    assert json.loads((run / "run.json").read_text())["chosen"]["date"] == "1999-12-31"
    assert weights(run) != first, "the prompts have the recorded date"


def test_a_system_prompt_that_the_template_does_not_take_is_said_once(magcli, tiny_model_dir, tmp_path):
    template = tmp_path / "own.jinja"
    template.write_text(
        "{% for m in messages if m.role != 'system' %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    own = tmp_path / "system.txt"
    own.write_text("Be kind.")
    shown = magcli(
        "sft", traces(tmp_path / "t.jsonl"), "--model", tiny_model_dir, "--system", own, "--chat-template", template,
        "--show-mask", "1",
    )  # fmt: skip
    assert shown.stderr.count("takes no system prompt") == 1
    assert shown.stdout.decode().startswith("       | <|user|>Be kind.↵\n       | ↵\n       | ")


@pytest.mark.parametrize(("args", "message"), [(("enable",), "must be key=value"), (("a-b=1",), "must be key=value")])
def test_template_args_are_pairs(args, message, tiny_model_dir, tmp_path):
    with pytest.raises(UsageError, match=message):
        call_stage("sft", traces(tmp_path / "t.jsonl"), model=str(tiny_model_dir), template_args=args)


def test_a_chat_template_that_is_not_jinja_is_refused(tiny_model_dir, tmp_path):
    template = tmp_path / "own.jinja"
    template.write_text("{% for m in messages %}")
    with pytest.raises(UsageError, match=r"--chat-template .*own\.jinja, line 1: "):
        call_stage("sft", traces(tmp_path / "t.jsonl"), model=str(tiny_model_dir), chat_template=template)


@pytest.mark.parametrize(
    ("kills", "bf16"), [(2, "no"), *(pytest.param(25, bf16, marks=pytest.mark.faults) for bf16 in ("no", "yes"))]
)
def test_a_killed_run_resumes_to_the_same_curve_and_weights(kills, bf16, tiny_model_dir, tmp_path):
    held = traces(tmp_path / "held.jsonl", 8, seed=5)
    data = traces(tmp_path / "t.jsonl", 250)
    options = {**SHORT, "model": str(tiny_model_dir), "bf16": bf16, "held_out": held, "evaluate_every": 7}
    took = seconds_of("sft", data, run=tmp_path / "whole", **options)
    kill_and_resume(kills, 0.6 * took, "sft", data, run=tmp_path / "broken", **options)
    assert lines(tmp_path / "broken") == lines(tmp_path / "whole")
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")


def test_a_trace_without_a_usable_weight_is_dropped_with_the_reason(tiny_model_dir, tmp_path):
    rows = [{"id": str(weight), "prompt": "a?", "completion": "<think></think>x", "weight": weight}
            for weight in (None, 2.0, 0.0, -1.0, float("nan"))]  # fmt: skip
    path, dropped = tmp_path / "t.jsonl", tmp_path / "dropped.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    call_stage("sft", path, model=str(tiny_model_dir), run=tmp_path / "run", dropped=dropped, **SHORT)
    reasons = {row["id"]: row["drop_reason"] for row in map(json.loads, dropped.read_text().splitlines())}
    assert reasons == {"0.0": "no-weight", "-1.0": "no-weight", "nan": "no-weight"}


def test_columns_of_mixed_types_are_read(tiny_model_dir, tmp_path, capsys):
    """One text, one null and one that is not there: the column is kept as JSON text, and no quote is learnt."""
    rows = [{"id": "1", "prompt": "a?", "completion": "<think></think>x"}, {"id": "2", "prompt": "b?"},
            {"id": "3", "prompt": "c?", "completion": None}]  # fmt: skip
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    call_stage("sft", path, model=str(tiny_model_dir), dry_run=True, show_mask=3, system=Path("none"))
    shown = capsys.readouterr().out
    assert "<think></think>x" in shown
    assert '"' not in shown
    assert "null" not in shown


def test_turns_may_have_other_keys(tiny_model_dir, tmp_path, capsys):
    plain, named = (
        {"role": "user", "content": "a?"},
        {"role": "assistant", "content": "<think></think>x", "name": "bot"},
    )
    rows = [
        {"id": "1", "messages": [plain, named]},
        {"id": "2", "messages": [plain, {"role": "assistant", "content": None}]},
    ]
    path, dropped = tmp_path / "t.jsonl", tmp_path / "dropped.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    call_stage("sft", path, model=str(tiny_model_dir), run=tmp_path / "run", dropped=dropped, **SHORT)
    assert [json.loads(line)["drop_reason"] for line in dropped.read_text().splitlines()] == ["unusable-trace"]


def test_an_input_without_a_usable_trace_is_a_data_error_with_reasons(tiny_model_dir, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "1", "prompt": "a?", "completion": null}\n')
    with pytest.raises(DataError, match=r"no usable trace in .*t\.jsonl \(dropped unusable-trace 1: the first: there"):
        call_stage("sft", path, model=str(tiny_model_dir), run=tmp_path / "run", **SHORT)


def test_of_models_of_equal_accuracy_the_last_is_the_result(tiny_model_dir, tmp_path, capsys):
    """All are wrong; without held-out traces nothing else tells them apart."""
    data, run, table_of = right_traces(tmp_path / "t.jsonl"), tmp_path / "run", sums(tmp_path / "sums.jsonl")
    options = {**SHORT, **EXAM, "epochs": 1, "evaluate_every": 1, "eval_samples": 1, "eval_max_tokens": 1}
    call_stage("sft", data, model=str(tiny_model_dir), run=run, eval_table=table_of, quiet=False, **options)
    assert {line["accuracy"] for line in lines(run)} == {0.0}
    assert len(lines(run)) > 1
    assert f"best accuracy 0.0% at step {lines(run)[-1]['step']}" in capsys.readouterr().err


def test_runs_with_dropout_repeat(tiny_model_dir, tmp_path):
    model = Path(shutil.copytree(tiny_model_dir, tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.3}))
    data, losses = right_traces(tmp_path / "t.jsonl"), []
    for name in ("one", "two"):
        call_stage("sft", data, model=str(model), run=tmp_path / name, **SHORT | {"epochs": 1})
        losses.append([line["loss"] for line in lines(tmp_path / name)])
    call_stage("sft", data, model=str(tiny_model_dir), run=tmp_path / "plain", **SHORT | {"epochs": 1})
    assert losses[0] == losses[1]
    assert losses[0] != [line["loss"] for line in lines(tmp_path / "plain")], "dropout was on"


def test_token_ids_outside_of_the_vocabulary_are_one_line(tiny_model_dir, tmp_path):
    model = Path(shutil.copytree(tiny_model_dir, tmp_path / "model"))
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|new|>"]})
    tokenizer.save_pretrained(model)
    (tmp_path / "t.jsonl").write_text(json.dumps({"id": "1", "prompt": "<|new|>", "completion": "a"}) + "\n")
    message = "token id 104 is outside of the model's vocabulary of 104"
    with pytest.raises(DataError, match=message):
        call_stage("sft", tmp_path / "t.jsonl", model=str(model), run=tmp_path / "run", **SHORT)
    with pytest.raises(DataError, match=message):
        call_stage("generate", tmp_path / "t.jsonl", model=str(model), output=tmp_path / "o.jsonl", system=Path("none"))


def test_stop_adds_end_tokens_to_the_result(tiny_model_dir, tmp_path):
    data = right_traces(tmp_path / "t.jsonl")
    call_stage("sft", data, model=str(tiny_model_dir), run=tmp_path / "run", **SHORT | {"epochs": 1}, stop="<|user|>")
    saved = json.loads((tmp_path / "run" / "model" / "generation_config.json").read_text())
    assert saved["eos_token_id"] == [1, 3]
    with pytest.raises(UsageError, match="--stop 'abc' is 3 tokens"):
        call_stage("sft", data, model=str(tiny_model_dir), run=tmp_path / "other", **SHORT, stop="abc")


def test_a_finished_run_is_prolonged_by_more_epochs(tiny_model_dir, tmp_path):
    data, run = traces(tmp_path / "t.jsonl"), tmp_path / "run"
    options = {"model": str(tiny_model_dir), "run": run, "held_out": data, "evaluate_every": 4}
    call_stage("sft", data, **options, **SHORT)
    before = lines(run)
    assert [folder.name for folder in (run / "checkpoints").iterdir()] == [f"step-{len(before):06d}"]
    call_stage("sft", data, **options, **SHORT | {"epochs": 3})
    assert lines(run)[: len(before)] == before, "nothing is trained again"
    assert len(lines(run)) > len(before)
    assert (run / "model" / "config.json").exists()
    assert not (run / "shorter").exists()
    with pytest.raises(UsageError, match=r"epochs 3 \(now 2\)"):
        call_stage("sft", data, **options, **SHORT)


def test_a_prolonged_run_that_gets_worse_keeps_its_best_model(tiny_model_dir, tmp_path):
    data, run = traces(tmp_path / "t.jsonl"), tmp_path / "run"
    options = {"model": str(tiny_model_dir), "run": run, "held_out": data, "evaluate_every": 4}
    call_stage("sft", data, **options, **SHORT)
    state = next((run / "checkpoints").glob("*/state.json"))
    changed = json.loads(state.read_text()) | {"best": "100.0"}
    state.write_text(json.dumps(changed))
    manifest = json.loads((state.parent / "checkpoint.json").read_text())
    content = state.read_bytes()
    manifest["files"]["state.json"] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (state.parent / "checkpoint.json").write_text(json.dumps(manifest))
    best = weights(run)
    call_stage("sft", data, **options, **SHORT | {"epochs": 3})
    assert weights(run) == best


@pytest.mark.flaky(reruns=2)
def test_sigterm_writes_a_checkpoint_first_and_the_run_goes_on_from_there(tiny_model_dir, tmp_path):
    held = traces(tmp_path / "held.jsonl", 8, seed=5)
    data = traces(tmp_path / "t.jsonl", 1500)
    options = {**SHORT, "checkpoint_every": 10_000, "evaluate_every": 50}
    run = tmp_path / "ended"
    command = ["sft", data, "--model", tiny_model_dir, "--run", run, "--held-out", held, *flags_of(options)]
    with Running(*command) as process:
        while process.poll() is None and (not (run / "metrics.jsonl").exists() or len(lines(run)) < 60):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=400)[1].decode()
    assert process.returncode == 143, errors
    (folder,) = (run / "checkpoints").glob("step-*")
    step = int(folder.name.removeprefix("step-"))
    assert step >= 60
    assert f"checkpoint of step {step} written before the end" in errors
    options |= {"model": str(tiny_model_dir), "held_out": held}
    call_stage("sft", data, run=run, **options)
    call_stage("sft", data, run=tmp_path / "whole", **options)
    assert lines(run) == lines(tmp_path / "whole")
    assert weights(run) == weights(tmp_path / "whole")


def test_an_adapter_names_its_model_from_any_folder_and_is_refused_as_a_model(tiny_model_dir, tmp_path, monkeypatch):
    peft = pytest.importorskip("peft")
    data = traces(tmp_path / "t.jsonl")
    (tmp_path / "base").symlink_to(tiny_model_dir)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    call_stage("sft", data, model="../base", run=Path("run"), lora=2, max_steps=2, **SHORT)
    with pytest.raises(EnvironmentFault, match=r"is a LoRA adapter of .*, not a model: give run/model, which has it"):
        call_stage("sft", data, model="run/adapter", run=Path("other"), **SHORT)
    shutil.copytree("run/adapter", tmp_path / "alone")
    with pytest.raises(EnvironmentFault, match="merge them, by python -c") as error:
        call_stage("generate", data, model=str(tmp_path / "alone"), output=tmp_path / "out.jsonl")
    assert "\n" not in str(error.value)
    monkeypatch.chdir(tmp_path)
    merged = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "alone").merge_and_unload()
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "work" / "run" / "model", dtype=torch.float32)
    name = "model.layers.0.self_attn.q_proj.weight"
    torch.testing.assert_close(merged.state_dict()[name].float(), ours.state_dict()[name])


def test_steps_their_time_and_the_end_are_said_at_the_first_step(tiny_model_dir, tmp_path, capsys):
    """A table of a few traces is several steps an epoch, also without --step-tokens."""
    options = {key: value for key, value in SHORT.items() if key != "step_tokens"} | {"quiet": False}
    call_stage("sft", traces(tmp_path / "t.jsonl"), model=str(tiny_model_dir), run=tmp_path / "run", **options)
    said = capsys.readouterr().err.splitlines()
    steps = lines(tmp_path / "run")
    assert len(steps) >= 2 * 8 - 2
    (plan,) = [line for line in said if " steps of about " in line]
    assert plan.startswith(f"sft: {len(steps)} steps of about ")
    (first,) = [line for line in said if line.startswith("sft: step 1 took ")]
    assert f"the other {len(steps) - 1} take about " in first
    assert said.index(plan) < said.index(first)


@pytest.mark.parametrize("finished", [True, False])
def test_the_way_to_go_on_with_other_settings_is_named_and_works(finished, tiny_model_dir, tmp_path):
    data = traces(tmp_path / "t.jsonl")
    run = tmp_path / "run"
    call_stage("sft", data, model=str(tiny_model_dir), run=run, **SHORT)
    if not finished:
        shutil.rmtree(run / "model")
    with pytest.raises(UsageError) as refused:
        call_stage("sft", data, model=str(tiny_model_dir), run=run, **SHORT | {"lr": 4e-3})
    start = re.search(r"with these settings: --model (\S+) --run NEW$", str(refused.value))[1]
    assert Path(start).parent == (run if finished else run / "checkpoints")
    call_stage("sft", data, model=start, run=tmp_path / "new", **SHORT | {"lr": 4e-3})
    assert lines(tmp_path / "new")[0]["loss"] < lines(run)[0]["loss"], "it starts from the trained weights"


def test_a_killed_run_continues_in_its_tracker_with_each_step_once(tiny_model_dir, tmp_path):
    table = traces(tmp_path / "traces.jsonl")
    options = SHORT | {"model": str(tiny_model_dir), "track": ["tensorboard"], "epochs": 3}
    took = seconds_of("sft", table, run=tmp_path / "whole", **options)
    run = tmp_path / "run"
    kill_and_resume(2, 0.8 * took, "sft", table, run=run, **options)
    steps, texts = tracked_steps(run)
    assert steps == [(line["step"], pytest.approx(line["loss"])) for line in lines(run)]
    assert texts == ["config/text_summary"]


def test_a_finished_run_can_be_uploaded_to_a_tracker(tiny_model_dir, tmp_path, capsys):
    table, run = traces(tmp_path / "traces.jsonl"), tmp_path / "run"
    options = SHORT | {"model": str(tiny_model_dir), "run": run}
    call_stage("sft", table, **options)
    assert not (run / "tensorboard").exists()
    for _ in range(2):
        call_stage("sft", table, **options, track=["tensorboard"], quiet=False)
        assert "sft: tensorboard run run-" in capsys.readouterr().err
        assert [step for step, _ in tracked_steps(run)[0]] == [line["step"] for line in lines(run)]
