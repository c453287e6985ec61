"""The digests beside a model's weights: a flipped bit is refused wherever the model is identified."""

import json
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from calling import call_stage

from magcli.command import stage_of
from magcli.data.seal import hash_file
from magcli.errors import DataError
from magcli.model.load import atomic_model_folder, fingerprint
from magcli.model.weights.sums import SUMS, check_weights


@pytest.fixture
def model(tmp_path: Path) -> Path:
    with atomic_model_folder(tmp_path / "model") as folder:
        (folder / "config.json").write_text(json.dumps({"model_type": "llama", "note": "x" * 200}))
        (folder / "chat_template.jinja").write_text("{{ messages }}")
        (folder / "README.md").write_text("A card that people edit.")
        (folder / "model.safetensors").write_bytes(bytes(range(256)))
    return tmp_path / "model"


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100] ^= 4
    path.write_bytes(content)


def test_other_tools_can_check_the_model(model: Path) -> None:
    checked = subprocess.run(["sha256sum", "--check", SUMS], cwd=model, capture_output=True, text=True)
    assert checked.stdout.splitlines() == ["chat_template.jinja: OK", "config.json: OK", "model.safetensors: OK"]


@pytest.mark.parametrize("name", ["config.json", "chat_template.jinja"])
def test_damaged_settings_are_refused(model: Path, name: str) -> None:
    (model / name).write_bytes((model / name).read_bytes().replace(b"m", b"n", 1))
    with pytest.raises(DataError, match=rf"{name} is damaged: it does not match SHA256SUMS; copy the model again"):
        fingerprint(model)
    with pytest.raises(DataError, match=rf"{name} is damaged"):
        fingerprint(model, weights=False)
    (model / SUMS).unlink()
    fingerprint(model)


def test_digests_of_other_files_and_in_other_forms_are_read(model: Path) -> None:
    """As other tools write them: with a star or a dot, and with files that were not copied."""
    digest = hash_file(model / "model.safetensors")
    (model / SUMS).write_text(f"{'0' * 64}  README.md\n{'1' * 64}  other/x.bin\n{digest} *./model.safetensors\n")
    fingerprint(model)
    flip_bit(model / "model.safetensors")
    with pytest.raises(DataError, match=r"model\.safetensors is damaged"):
        fingerprint(model)


def test_models_are_checked_again_only_if_their_files_changed(model: Path) -> None:
    check_weights([model])
    flip_bit(model / "model.safetensors")
    with pytest.raises(DataError, match=r"model\.safetensors is damaged"):
        check_weights([model])


def test_damaged_weights_are_refused(model: Path) -> None:
    fingerprint(model)
    flip_bit(model / "model.safetensors")
    with pytest.raises(DataError, match=r"model\.safetensors is damaged: it does not match SHA256SUMS"):
        fingerprint(model)
    (model / SUMS).unlink()
    fingerprint(model)


def test_missing_weights_are_refused(model: Path) -> None:
    (model / "model.safetensors").rename(model / "other.safetensors")
    with pytest.raises(DataError, match=r"model\.safetensors is damaged"):
        fingerprint(model)


def test_damaged_digests_are_refused(model: Path) -> None:
    (model / SUMS).write_text("no digests\n")
    with pytest.raises(DataError, match="SHA256SUMS is damaged"):
        fingerprint(model)


@pytest.mark.parametrize("stage", ["generate", "export"])
def test_a_flipped_bit_of_a_finished_model_stops_the_stages_that_use_it(
    stage: str, finished_run: Path, letters: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    subprocess.run(["cp", "-r", str(finished_run), str(run)], check=True)
    flip_bit(run / "model" / "model.safetensors")
    sampled = {"max_tokens": 4, "system": Path("none"), "output": tmp_path / "out.jsonl"}
    commands = {
        "export": partial(call_stage, "export", run=run, out=tmp_path / "exported"),
        "generate": partial(call_stage, "generate", letters, model=str(run / "model"), **sampled),
    }
    with pytest.raises(DataError, match=r"model\.safetensors is damaged"):
        commands[stage]()


DECIDING = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "sentencepiece.bpe.model"),
    *("preprocessor_config.json", "processor_config.json", "chat_template.json", "qwen.tiktoken"),
    *("additional_chat_templates/tool_use.jinja", "modeling_own.py"),
)
RECORDS = ("LICENSE", "LICENSE.txt", "NOTICE", "trainer_state.json", "all_results.json", "notes.txt", "export.json")


@pytest.fixture
def whole_model(model: Path) -> Path:
    """A model with every kind of file that a model folder may have, without digests beside it."""
    (model / "additional_chat_templates").mkdir()
    for name in (*DECIDING, *RECORDS):
        (model / name).write_text('{"auto_map": {}}')
    (model / SUMS).unlink()
    return model


@pytest.mark.parametrize("name", [*DECIDING, "chat_template.jinja", "model.safetensors.index.json"])
def test_the_digest_covers_every_file_that_decides_what_is_sampled(whole_model: Path, name: str) -> None:
    before = fingerprint(whole_model)
    path = whole_model / name
    with path.open("a") as file:
        file.write(" " if path.stat().st_size else "{}")
    assert fingerprint(whole_model) != before


@pytest.mark.parametrize("name", [*RECORDS, "README.md", "train.log"])
def test_the_digest_covers_no_records_and_licences(whole_model: Path, name: str) -> None:
    before = fingerprint(whole_model)
    with (whole_model / name).open("a") as file:
        file.write(" ")
    assert fingerprint(whole_model) == before


def test_weights_do_not_count_for_a_model_trained_from_scratch(whole_model: Path) -> None:
    before = fingerprint(whole_model, weights=False)
    flip_bit(whole_model / "model.safetensors")
    (whole_model / "model.safetensors.index.json").write_text("{}")
    assert fingerprint(whole_model, weights=False) == before
    (whole_model / "tokenizer.json").write_text("{}")
    assert fingerprint(whole_model, weights=False) != before


def test_code_without_a_configuration_that_names_it_does_not_count(model: Path) -> None:
    before = fingerprint(model)
    (model / "convert.py").write_text("print(1)")
    assert fingerprint(model) == before


def test_a_changed_code_file_of_a_saved_model_is_refused(tmp_path: Path) -> None:
    with atomic_model_folder(tmp_path / "model") as folder:
        (folder / "config.json").write_text('{"auto_map": {"AutoConfig": "own.Config"}}')
        (folder / "own.py").write_text("class Config: pass\n")
        (folder / "model.safetensors").write_bytes(bytes(256))
    (tmp_path / "model" / "own.py").write_text("class Config: size = 1\n")
    with pytest.raises(DataError, match=r"own\.py is damaged: it does not match SHA256SUMS"):
        fingerprint(tmp_path / "model")


@pytest.mark.parametrize("file", ["chat_template.jinja", "tokenizer.json", "generation_config.json"])
@pytest.mark.parametrize("stage", ["generate", "evaluate", "rl", "sft", "filter-math", "make-tests", "clean-math"])
def test_every_stage_with_a_model_notices_a_changed_setting(
    stage: str, file: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(tiny_model_dir, tmp_path / "copy"))
    declared = stage_of(stage).with_work()
    before = declared.fingerprint(declared.Config(model=str(copy)))
    with (copy / file).open("a") as content:
        content.write(" ")
    assert declared.fingerprint(declared.Config(model=str(copy))) != before
