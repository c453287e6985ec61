"""A user's function belongs to a run with all files that it imports from its own folder or package."""

import os
from pathlib import Path

import pytest
from calling import call_stage

from magcli.data import table
from magcli.errors import UsageError
from magcli.stages.shared.graders import function_identity
from magcli.verify.custom import digests

SCORE = "\ndef score(completion, row):\n    return 1.0\n"


def written(folder: Path, **files: str) -> Path:
    """Write modules; two underscores are a folder, START is the first file of a package."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/').replace('START', '__init__')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def imports(spec: str) -> list[str]:
    return list(digests(spec).get("reward_imports", {}))


def test_helpers_beside_the_file_count_through_other_helpers(tmp_path: Path) -> None:
    written(
        tmp_path,
        beside_score=f"import json, beside_one\n{SCORE}",
        beside_one="def later():\n    from beside_two import FACTOR\n    return FACTOR\n",
        beside_two="import importlib\nmore = importlib.import_module('beside_three')\nFACTOR = 1\n",
        beside_three="import beside_score\n",
        unrelated="X = 1\n",
        json="X = 1\n",
    )
    spec = f"{tmp_path}/beside_score.py:score"
    assert imports(spec) == ["beside_one.py", "beside_three.py", "beside_two.py"]
    before = digests(spec)
    (tmp_path / "unrelated.py").write_text("X = 2\n")
    assert digests(spec) == before
    (tmp_path / "beside_three.py").write_text("import beside_score\nX = 2\n")
    after = digests(spec)
    assert after["reward_sha256"] == before["reward_sha256"]
    assert {name for name in imports(spec) if after["reward_imports"][name] != before["reward_imports"][name]} == {
        "beside_three.py"
    }


def test_a_function_without_helpers_has_the_digest_of_its_file_only(tmp_path: Path) -> None:
    written(tmp_path, lonely=f"import math\nimport numpy\n{SCORE}")
    assert list(digests(f"{tmp_path}/lonely.py:score")) == ["reward_sha256"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with relative imports, and a module beside it; installed packages are in a folder inside."""
    written(
        tmp_path,
        ownpack__START="from .words import WORDS\n",
        ownpack__words="WORDS = 1\n",
        ownpack__inner__START="",
        ownpack__inner__score=f"from ..numbers import two\nfrom . import near\nimport ownshared, vendored\n{SCORE}",
        ownpack__inner__near="X = 1\n",
        ownpack__numbers__START="",
        ownpack__numbers__two="X = 1\n",
        ownpack__numbers__three="X = 1\n",
        ownshared="X = 1\n",
    )
    written(tmp_path / "site-packages", vendored="X = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    return tmp_path


def test_modules_of_the_own_package_count(package: Path) -> None:
    assert imports("ownpack.inner.score:score") == [
        *("ownpack/__init__.py", "ownpack/inner/__init__.py", "ownpack/inner/near.py", "ownpack/numbers/__init__.py"),
        *("ownpack/numbers/two.py", "ownpack/words.py", "ownshared.py"),
    ]


def test_a_function_that_the_named_file_imports_counts_with_the_file(tmp_path: Path) -> None:
    written(tmp_path, front="from behind import score\n", behind=SCORE)
    spec = f"{tmp_path}/front.py:score"
    before = digests(spec)
    assert imports(spec) == ["behind.py"]
    (tmp_path / "front.py").write_text("from behind import score\nX = 1\n")
    assert digests(spec)["reward_sha256"] != before["reward_sha256"]


def test_advantage_and_loss_count_with_their_helpers(tmp_path: Path) -> None:
    written(tmp_path, terms="import terms_helper\ndef f(*_):\n    return 0\n", terms_helper="X = 1\n")
    spec = f"{tmp_path}/terms.py:f"
    identity = function_identity(advantage=spec, loss=spec)
    assert list(identity) == ["advantage_sha256", "advantage_imports", "loss_sha256", "loss_imports"]


def test_a_changed_helper_is_named_and_the_table_made_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, graded_by=f"import graded_factor\n{SCORE}", graded_factor="FACTOR = 1\n")
    data = tmp_path / "c.jsonl"
    data.write_text('{"id": "a", "prompt": "1+1?", "answer": "2", "completion": "2"}\n')
    options = {"reward": f"{tmp_path}/graded_by.py:score", "output": tmp_path / "out.jsonl", "quiet": False}
    call_stage("grade", data, **options)
    call_stage("grade", data, **options)
    assert "is up to date" in capsys.readouterr().err
    (tmp_path / "graded_factor.py").write_text("FACTOR = -1\n")
    call_stage("grade", data, **options)
    said = capsys.readouterr().err
    assert "is up to date" not in said
    assert "was made with reward_imports graded_factor.py '" in said
    imported = table.read(str(tmp_path / "out.jsonl")).chain[-1].config["reward_imports"]
    assert list(imported) == ["graded_factor.py"]


def test_a_moved_function_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "c.jsonl"
    data.write_text('{"id": "a", "prompt": "1+1?", "answer": "2", "completion": "2"}\n')
    written(tmp_path / "old", moved_by=SCORE)
    options = {"output": tmp_path / "out.jsonl", "quiet": False}
    call_stage("grade", data, reward=f"{tmp_path}/old/moved_by.py:score", **options)
    os.rename(tmp_path / "old", tmp_path / "new")
    call_stage("grade", data, reward=f"{tmp_path}/new/moved_by.py:score", **options)
    assert "is up to date" in capsys.readouterr().err


def test_a_missing_function_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be imported"):
        digests(f"{tmp_path}/nowhere.py:score")
