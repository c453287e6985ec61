"""Symbolic links under magcli's own names are not followed; a folder output exists at every moment."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from magcli.data import durable
from magcli.errors import EnvironmentFault
from magcli.run.journal import Journal

OURS = "the user's own file"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the user to which somebody lets magcli's names point."""
    path = tmp_path / "victim"
    path.write_text(OURS)
    return path


def test_a_link_in_place_of_the_lock_is_refused_by_name(tmp_path: Path, victim: Path) -> None:
    output = tmp_path / "out.arrow"
    durable.lock_path(output).symlink_to(victim)
    with (
        pytest.raises(EnvironmentFault, match=r"out\.arrow\.lock is a symbolic link, .* remove it"),
        durable.locked(output),
    ):
        pass
    assert victim.read_text() == OURS


def test_a_link_in_place_of_the_journal_is_refused_by_name(tmp_path: Path, victim: Path) -> None:
    journal = tmp_path / ".out.arrow.journal"
    journal.symlink_to(victim)
    with pytest.raises(EnvironmentFault, match="journal is a symbolic link, which is not followed"):
        Journal.open(journal, pa.schema([]), {})
    assert victim.read_text() == OURS


def test_a_link_in_place_of_a_temporary_file_is_removed(tmp_path: Path, victim: Path) -> None:
    output = tmp_path / "out.arrow"
    durable.temp_path(output).symlink_to(victim)
    with durable.atomic_file(output) as file:
        file.write(b"rows")
    assert (output.read_bytes(), output.is_symlink(), victim.read_text()) == (b"rows", False, OURS)


def test_a_link_in_place_of_a_temporary_folder_is_removed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text(OURS)
    durable.temp_path(tmp_path / "out").symlink_to(elsewhere)
    with durable.atomic_folder(tmp_path / "out") as folder:
        (folder / "rows").write_text("rows")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rows"]
    assert [path.name for path in elsewhere.iterdir()] == ["kept"]


def write_folder(path: Path, content: str) -> None:
    with durable.atomic_folder(path) as folder:
        (folder / "rows").write_text(content)


def can_exchange(folder: Path) -> bool:
    (folder / "a").touch()
    (folder / "b").touch()
    return durable.exchange(folder / "a", folder / "b")


def test_a_folder_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_exchange(tmp_path):
        pytest.skip("this file system cannot exchange two names")
    output = tmp_path / "out"
    write_folder(output, "old")

    def refuse(*names: object) -> None:
        raise AssertionError(f"between two renames there is no output: {names}")

    monkeypatch.setattr(os, "replace", refuse)
    write_folder(output, "new")
    assert (output / "rows").read_text() == "new"
    assert not list(tmp_path.glob(".out.*"))


def test_a_folder_is_replaced_where_names_cannot_be_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "exchange", lambda first, second: False)
    write_folder(tmp_path / "out", "old")
    write_folder(tmp_path / "out", "new")
    assert (tmp_path / "out" / "rows").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_two_names_are_exchanged(tmp_path: Path) -> None:
    if not can_exchange(tmp_path):
        pytest.skip("this file system cannot exchange two names")
    (tmp_path / "a").write_text("first")
    (tmp_path / "b").write_text("second")
    assert durable.exchange(tmp_path / "a", tmp_path / "b")
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("second", "first")
    assert not durable.exchange(tmp_path / "a", tmp_path / "missing")


class Killed(BaseException):
    """Stands for a kill: nothing runs after it but what the next process does."""


def test_a_folder_that_was_set_aside_by_a_killed_process_gets_its_name_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    write_folder(output, "old")
    monkeypatch.setattr(durable, "exchange", lambda first, second: False)

    def killed(*names: object) -> None:
        raise Killed

    monkeypatch.setattr(durable, "rename", killed)
    monkeypatch.setattr(durable.shutil, "rmtree", lambda *folder, **options: None)
    with pytest.raises(Killed):
        write_folder(output, "new")
    assert not output.exists()

    monkeypatch.undo()
    with durable.atomic_folder(output) as folder:
        restored = (output / "rows").read_text()
        (folder / "rows").write_text("newer")
    assert (restored, (output / "rows").read_text()) == ("old", "newer")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
