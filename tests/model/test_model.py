"""What a model's name stands for is read when it is asked for, and once."""

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from magcli.errors import EnvironmentFault
from magcli.model.chat.prompts import ChatTemplate
from magcli.model.load import load_model
from magcli.model.model import Model

LIGHT = """
import sys
from magcli.model.model import Model
model = Model.open(sys.argv[1])
assert model.context == 512 and model.widths == (48, 96) and model.is_local
print(sorted({"torch", "transformers"} & set(sys.modules)))
"""
WHOLE = """
import sys
from magcli.model.model import Model
model = Model.open(sys.argv[1])
assert model.ends == {1} and model.digest and model.folder and not model.is_vision
print(sorted({"transformers.models", "transformers.generation", "vllm"} & set(sys.modules)))
"""


@pytest.fixture
def copy(tiny_model_dir, tmp_path) -> Path:
    return Path(shutil.copytree(tiny_model_dir, tmp_path / "copy"))


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def imported(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    return done.stdout


def test_opening_a_model_imports_neither_torch_nor_transformers(tiny_model_dir):
    assert imported(LIGHT, tiny_model_dir) == "[]\n"


def test_the_facts_of_a_plain_folder_need_no_models_of_transformers(tiny_model_dir):
    assert imported(WHOLE, tiny_model_dir) == "[]\n"


def test_plain_folders_have_the_facts_that_transformers_reads(copy):
    plain = Model.open(copy)
    assert plain.plain
    facts = (plain.context, plain.widths, plain.ends)
    assert facts == (512, (48, 96), frozenset({1}))
    edit(copy / "config.json", some_setting=1)
    other = Model.open(copy)
    assert not other.plain
    assert (other.context, other.widths, other.ends) == facts


def test_each_part_is_read_once(copy):
    model = Model.open(copy)
    tokenizer, config, digest, ends = model.tokenizer, model.config, model.digest, model.ends
    shutil.rmtree(copy)
    assert model.tokenizer is tokenizer
    assert model.config is config
    assert (model.digest, model.ends) == (digest, ends)


def test_a_pickled_model_is_opened_again(copy):
    model = Model.open(copy)
    context, tokenizer = model.context, model.tokenizer
    again = pickle.loads(pickle.dumps(model))
    assert again == model
    assert len(pickle.dumps(model)) < 200 + len(str(copy))
    assert again.context == context
    assert again.tokenizer is not tokenizer


def test_weights_are_read_when_asked_for(copy):
    expected = load_model(str(copy), dtype=torch.bfloat16).state_dict()
    loaded = Model.open(copy).load(dtype=torch.bfloat16).state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())
    (copy / "model.safetensors").unlink()
    model = Model.open(copy)
    assert (model.tokenizer.eos_token_id, model.context, model.ends) == (1, 512, {1})
    assert model.config_digest
    with pytest.raises(EnvironmentFault, match="no safetensors weights"):
        model.load(dtype=torch.float32)
    with pytest.raises(EnvironmentFault, match="safetensors"):
        _ = model.digest


def test_the_name_of_a_server_is_told_from_that_of_a_model():
    assert Model.open("http://host/v1#name").is_url
    assert not Model.open("some/hub-id").is_url


def test_another_template_keeps_what_was_read(tiny_model_dir):
    model = Model.open(tiny_model_dir, stop=["7"])
    config, tokenizer = model.config, model.tokenizer
    dated = model.with_template(ChatTemplate("{{ strftime_now('%Y') }}", date="2001-02-03"))
    assert dated.config is config
    assert dated.tokenizer is not tokenizer
    assert dated.tokenizer.chat_template == "{{ strftime_now('%Y') }}"
    assert dated.ends == model.ends == {1, 7}


def test_another_process_opens_it_with_its_template_and_end_tokens(tiny_model_dir):
    model = Model.open(tiny_model_dir, ChatTemplate("x", {"enable_thinking": False}), ["7"])
    assert pickle.loads(pickle.dumps(model)) == model
