"""Folders that others wrote do not choose which files of this machine are read, nor how long it takes."""

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest

from magcli.data import card, table
from magcli.errors import DataError
from magcli.model.load import local_folder
from magcli.model.weights import plain
from magcli.model.weights.tensors import weight_files

OUTSIDE = "outside of"
ROW = '{"a": 1}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder beside a table that it must not reach."""
    (tmp_path / "secret.jsonl").write_text(ROW)
    with pa.OSFile(str(tmp_path / "secret.arrow"), "wb") as file, pa.ipc.new_stream(file, pa.schema([])) as writer:
        writer.write_table(pa.table({}))
    (tmp_path / "downloaded").mkdir()
    return tmp_path / "downloaded"


def _card(folder: Path, front: str) -> None:
    (folder / "README.md").write_text(f"---\n{front}\n---\nText.\n")


def _configuration(pattern: object) -> str:
    files = [{"split": "train", "path": pattern}]
    return "configs: " + json.dumps([{"config_name": "default", "data_files": files}])


def _state(folder: Path, name: object) -> None:
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))


@pytest.mark.parametrize("form", ["above", "absolute", "link"])
@pytest.mark.parametrize("source", ["state.json", "README.md"])
def test_a_file_outside_of_a_folder_is_refused(folder: Path, source: str, form: str) -> None:
    secret = folder.parent / ("secret.arrow" if source == "state.json" else "secret.jsonl")
    link = folder / f"train{secret.suffix}"
    link.symlink_to(secret)
    name = {"above": f"../{secret.name}", "absolute": str(secret), "link": link.name}[form]
    _state(folder, name) if source == "state.json" else _card(folder, _configuration(name))
    with pytest.raises(DataError, match=OUTSIDE):
        table.read(str(folder))


def test_links_without_a_card_are_refused(folder: Path) -> None:
    (folder / "train.jsonl").symlink_to("../secret.jsonl")
    with pytest.raises(DataError, match=OUTSIDE):
        table.read(str(folder))


def test_a_split_is_not_a_path(folder: Path) -> None:
    (folder / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(DataError, match=OUTSIDE):
        table.read(f"{folder}:../other")


def test_links_that_stay_inside_and_those_of_the_user_are_followed(folder: Path) -> None:
    (folder / "rows.txt").write_text(ROW)
    (folder / "train.jsonl").symlink_to("rows.txt")
    (folder.parent / "mine").symlink_to(folder)
    assert table.read(str(folder.parent / "mine")).total == 1
    (folder.parent / "mine.jsonl").symlink_to(folder / "rows.txt")
    assert table.read(f"{folder}/../mine.jsonl").total == 1


def test_the_cache_of_the_hub_client_is_read(tmp_path: Path) -> None:
    repository = tmp_path / "datasets--owner--name"
    snapshot = repository / "snapshots" / "revision" / "data"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "abc").write_text(ROW)
    (snapshot / "train.jsonl").symlink_to("../../../blobs/abc")
    assert table.read(str(snapshot.parent)).total == 1


# ---- models ----


@pytest.mark.parametrize("name", ["../secret.jsonl", "/etc/passwd", 5, "", "a\0b"])
def test_an_index_of_shards_names_files_of_its_folder(folder: Path, name: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    for read in (weight_files, plain.read_weights):
        with pytest.raises(DataError, match=r"outside of|not a file name"):
            read(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "additional_chat_templates/x.jinja"])
def test_a_model_with_a_link_to_another_folder_is_refused(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(folder.parent / "secret.jsonl")
    with pytest.raises(DataError, match=OUTSIDE):
        local_folder(str(folder))


def test_a_model_in_the_cache_of_the_hub_client_is_opened(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--owner--name" / "snapshots" / "revision"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--owner--name" / "blobs").mkdir()
    (tmp_path / "models--owner--name" / "blobs" / "abc").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    assert local_folder(str(snapshot)) == snapshot


# ---- cards ----


LISTS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
MERGED = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))


@pytest.mark.parametrize(
    "front",
    [LISTS, MERGED, "a: &a [*a]\n", "a: " + "[" * 3000 + "]" * 3000 + "\n"],
    ids=["lists", "merged", "self", "deep"],
)
def test_a_card_of_endless_values_is_one_error(folder: Path, front: str) -> None:
    (folder / "train.jsonl").write_text(ROW)
    _card(folder, front + _configuration("*.jsonl"))
    started = time.monotonic()
    with pytest.raises(DataError, match=r"README\.md: its front matter"):
        table.read(str(folder))
    assert time.monotonic() - started < 20


def test_aliases_of_a_card_are_read(folder: Path) -> None:
    _card(
        folder,
        "defaults: &d {split: train}\nconfigs:\n- config_name: c\n  data_files:\n  - <<: *d\n    path: a.jsonl\n",
    )
    (folder / "a.jsonl").write_text(ROW)
    assert card.read_card(folder)["configs"][0]["data_files"] == [{"split": "train", "path": "a.jsonl"}]
    assert table.read(str(folder)).total == 1


@pytest.mark.parametrize("pattern", ["**foo", "", "{" * 1000, "[", 5, ["a", "../b"], "**/a/**/b/**/c/**/d/**/*", "a\0"])
def test_bad_patterns_of_a_card_are_one_error(folder: Path, pattern: object) -> None:
    (folder / "a").write_text(ROW)
    _card(folder, _configuration(pattern))
    with pytest.raises(DataError, match=r"README\.md names"):
        table.read(str(folder))


@pytest.mark.parametrize("state", ["[" * 100_000, "[]", "5", '{"_data_files": 5}', '{"_data_files": [[]]}'])
def test_a_state_that_is_none_is_one_error(folder: Path, state: str) -> None:
    (folder / "state.json").write_text(state)
    with pytest.raises(DataError, match="is not a folder that"):
        table.read(str(folder))
