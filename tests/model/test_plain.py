"""Tokenizers loaded by their class are those of AutoTokenizer."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from magcli.errors import EnvironmentFault
from magcli.model.load import load_tokenizer
from magcli.model.model import Model
from magcli.model.weights.plain import TOKENIZERS, read_json, tokenizer_class

TEXT = "<|user|>What is 3 + 4?\n It's  seven.<|end|><think>"


def folder_of(tiny_model_dir: Path, folder: Path, family: str, **settings: object) -> Path:
    shutil.copytree(tiny_model_dir, folder)
    for name, changes in (("config.json", {"model_type": family}), ("tokenizer_config.json", settings)):
        content = json.loads((folder / name).read_text()) | changes
        (folder / name).write_text(json.dumps({key: value for key, value in content.items() if value != "drop"}))
    return folder


@pytest.mark.parametrize("fast", ["", "Fast"])
@pytest.mark.parametrize(("family", "named"), TOKENIZERS)
def test_a_tokenizer_class_in_the_settings_gives_auto_tokenizers_result(tiny_model_dir, tmp_path, family, named, fast):
    folder = folder_of(tiny_model_dir, tmp_path / "model", family, tokenizer_class=named + fast)
    assert tokenizer_class(folder) == TOKENIZERS[family, named]
    own, theirs = load_tokenizer(str(folder)), AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert type(own) is type(theirs)
    assert own.get_vocab() == theirs.get_vocab()
    assert own.all_special_ids == theirs.all_special_ids
    assert own.encode(TEXT) == theirs.encode(TEXT)
    assert own.chat_template == theirs.chat_template
    for tokenizer, name in ((own, "own"), (theirs, "theirs")):
        tokenizer.save_pretrained(tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "theirs").iterdir())
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == files
    assert all((tmp_path / "own" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes() for file in files)


UNUSUAL = {
    "another family": ("mistral", {"tokenizer_class": "TokenizersBackend"}),
    "a class that is not in the table": ("llama", {"tokenizer_class": "LlamaTokenizerFast"}),
    "code of its own": ("llama", {"auto_map": {"AutoTokenizer": ["a.B", None]}}),
    "no class": ("llama", {"tokenizer_class": "drop"}),
}


@pytest.mark.parametrize(("family", "settings"), UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_tokenizers_are_left_to_auto_tokenizer(tiny_model_dir, tmp_path, family, settings):
    assert tokenizer_class(folder_of(tiny_model_dir, tmp_path / "model", family, **settings)) is None


def test_missing_files_are_left_to_auto_tokenizer(tiny_model_dir, tmp_path):
    folder = folder_of(tiny_model_dir, tmp_path / "model", "llama")
    assert tokenizer_class(folder) == "TokenizersBackend"
    (folder / "tokenizer.json").unlink()
    assert tokenizer_class(folder) is None
    (folder / "tokenizer_config.json").unlink()
    assert read_json(folder / "tokenizer_config.json") is None
    assert tokenizer_class(folder) is None
    assert tokenizer_class(tmp_path / "nowhere") is None


READERS = {
    "config.json": lambda model: model.context,
    "generation_config.json": lambda model: model.generation_config,
    "tokenizer_config.json": lambda model: model.tokenizer,
    "tokenizer.json": lambda model: model.tokenizer,
    "adapter_config.json": lambda model: model.load(dtype=torch.float32),
    "model.safetensors.index.json": lambda model: model.digest,
}
"""Which file each property of a model reads."""
DAMAGED = {"deep": "[" * 100_000 + "]" * 100_000, "cut": '{"a": ', "deep value": '{"a": ' + "[" * 100_000}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_json_file_is_named(tiny_model_dir, tmp_path, name, text):
    folder = Path(shutil.copytree(tiny_model_dir, tmp_path / "model"))
    (folder / name).write_text(text)
    with pytest.raises(EnvironmentFault, match=rf"model/{re.escape(name)} is not JSON \(.*\); copy the model again$"):
        READERS[name](Model.open(folder))


def test_a_damaged_generation_config_of_another_family_is_named(tiny_model_dir, tmp_path):
    folder = folder_of(tiny_model_dir, tmp_path / "model", "mistral", sliding_window=8)
    (folder / "generation_config.json").write_text("[1]")
    model = Model.open(folder)
    assert model.plain is None
    with pytest.raises(EnvironmentFault, match=r"generation_config\.json is not a JSON object; copy the model again"):
        _ = model.generation_config
