import json
import os
import shutil

import pytest
import torch
from calling import call_stage, kill_and_resume, seconds_of
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from vision import logits_of, make_vision_model

from magcli.errors import DataError, EnvironmentFault, UsageError


@pytest.fixture(scope="module")
def vlm(tiny_model_dir, tmp_path_factory):
    """A vision-language model around the tiny text model's shape, with text weights of its own, in several shards."""
    folder = tmp_path_factory.mktemp("vlm") / "vlm"
    make_vision_model(tiny_model_dir, folder, image_token="<unk>", max_shard_size="60KB")
    return folder


def weights_of(folder):
    return {name: value for file in folder.glob("*.safetensors") for name, value in load_file(file).items()}


def test_text_logits_are_those_of_the_text_model_and_vision_is_unchanged(tiny_model_dir, vlm, tmp_path):
    assert len(list(vlm.glob("*.safetensors"))) > 2
    call_stage("graft", text=str(tiny_model_dir), into=str(vlm), out=tmp_path / "out")
    tokens = list(range(5, 60))
    text = logits_of(tiny_model_dir, tokens, vision=False)
    assert torch.equal(logits_of(tmp_path / "out", tokens, vision=True), text)
    assert not torch.allclose(logits_of(vlm, tokens, vision=True), text)
    before, after = weights_of(vlm), weights_of(tmp_path / "out")
    assert before.keys() == after.keys()
    seen = [name for name in before if not name.startswith("language_model.")]
    assert len(seen) > 30
    assert all(torch.equal(before[name], after[name]) for name in seen)
    others = [file.name for file in vlm.iterdir() if file.suffix != ".safetensors"]
    assert {"processor_config.json", "tokenizer.json", "chat_template.jinja", "config.json"} < set(others)
    assert all((vlm / name).read_bytes() == (tmp_path / "out" / name).read_bytes() for name in others)


def test_the_number_format_is_reported_with_its_rounding(tiny_model_dir, tmp_path, capsys):
    make_vision_model(tiny_model_dir, tmp_path / "vlm", image_token="<unk>", dtype=torch.bfloat16)
    options = {"text": str(tiny_model_dir), "into": str(tmp_path / "vlm"), "out": tmp_path / "out", "quiet": False}
    call_stage("graft", **options)
    assert "rounded from F32 to BF16" in capsys.readouterr().err
    made, text = weights_of(tmp_path / "out"), weights_of(tiny_model_dir)
    name = "layers.1.mlp.up_proj.weight"
    assert torch.equal(made[f"language_model.model.{name}"], text[f"model.{name}"].bfloat16())
    note = json.loads((tmp_path / "out" / "graft.json").read_text())
    assert note["tensors"][f"language_model.model.{name}"] == f"model.{name}"
    assert 0 < note["rounded"]["changed"] <= note["rounded"]["values"]
    weights = tmp_path / "out" / "model.safetensors"
    os.utime(weights, (0, 0))
    call_stage("graft", **options)
    assert "is up to date" in capsys.readouterr().err
    assert weights.stat().st_mtime > 0  # so that make does not ask again


def test_an_untied_head_is_grafted(tiny_model_dir, tmp_path):
    config = AutoConfig.from_pretrained(tiny_model_dir)
    config.tie_word_embeddings = False
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path / "text")
    AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(tmp_path / "text")
    make_vision_model(tmp_path / "text", tmp_path / "vlm", image_token="<unk>")
    call_stage("graft", text=str(tmp_path / "text"), into=str(tmp_path / "vlm"), out=tmp_path / "out")
    tokens = list(range(20))
    expected = logits_of(tmp_path / "text", tokens, vision=False)
    assert torch.equal(logits_of(tmp_path / "out", tokens, vision=True), expected)
    make_vision_model(tiny_model_dir, tmp_path / "tied", image_token="<unk>")
    with pytest.raises(DataError, match=r"lm_head.weight differs from its embeddings"):
        call_stage("graft", text=str(tmp_path / "text"), into=str(tmp_path / "tied"), out=tmp_path / "not")
    assert not (tmp_path / "not").exists()


def test_incompatible_models_are_one_line_errors(tiny_model_dir, wide_model_dir, vlm, tmp_path):
    def refused(kind, match, **options):
        given = {"text": str(tiny_model_dir), "into": str(vlm), "out": tmp_path / "out"} | options
        with pytest.raises(kind, match=match):
            call_stage("graft", **given)
        assert not (tmp_path / "out").exists()

    refused(DataError, "text model has head_dim 32, the vision-language model 12", text=str(wide_model_dir))
    refused(DataError, "no tensor .+ for the text model's model.embed_tokens.weight", into=str(bare(vlm, tmp_path)))
    refused(DataError, "token '</think>' is 5 for the text model and is 6", text=str(renamed(tiny_model_dir, tmp_path)))
    refused(EnvironmentFault, "no such folder", text=str(tmp_path / "none"))
    refused(UsageError, "--text is missing", text=None)
    refused(UsageError, "--into is missing", into=None)
    refused(UsageError, "-o is missing", out=None)
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="mine exists already and is a different graft"):
        call_stage("graft", text=str(tiny_model_dir), into=str(vlm), out=tmp_path / "mine")


def bare(vlm, folder):
    """A copy of a vision-language model whose text is gone."""
    shutil.copytree(vlm, folder / "bare")
    kept = {name: value for name, value in weights_of(vlm).items() if not name.startswith("language_model.")}
    for file in (folder / "bare").glob("model*"):
        file.unlink()
    save_file(kept, folder / "bare" / "model.safetensors")
    return folder / "bare"


def renamed(model, folder):
    """A copy of a text model whose tokenizer has two tokens exchanged."""
    shutil.copytree(model, folder / "renamed")
    file = folder / "renamed" / "tokenizer.json"
    swapped = file.read_text().replace("</think>", "<other>").replace("<think>", "</think>")
    file.write_text(swapped.replace("<other>", "<think>"))
    return folder / "renamed"


@pytest.mark.faults
def test_after_a_kill_the_folder_is_complete_or_missing(tiny_model_dir, vlm, tmp_path):
    options = {"text": str(tiny_model_dir), "into": str(vlm)}
    longest = seconds_of("graft", **options, out=tmp_path / "unbroken")
    kill_and_resume(4, longest, "graft", **options, out=tmp_path / "out")
    names = sorted(file.name for file in (tmp_path / "unbroken").iterdir())
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == names
    assert all((tmp_path / "out" / n).read_bytes() == (tmp_path / "unbroken" / n).read_bytes() for n in names)
    assert {path.name for path in tmp_path.iterdir()} == {"unbroken", "out"}
