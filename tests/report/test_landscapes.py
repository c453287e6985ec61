import base64
import json
import re
import shutil

import pytest

from magcli.errors import DataError
from magcli.report import landscapes


@pytest.fixture
def folder(pipeline, tmp_path):
    return shutil.copytree(pipeline / "rl" / "landscape", tmp_path / "landscape")


@pytest.fixture
def older(folder):
    """A landscape of a version that did not store the triangles."""
    figures = json.loads((folder / "landscape.json").read_text())
    (folder / "landscape.json").write_text(json.dumps({**figures, "triangles": []}))
    return folder


def test_a_landscape_is_drawn_with_its_figures(pipeline):
    found = landscapes.read(pipeline / "rl" / "landscape")
    assert found.name == "rl/landscape"
    assert found.page.endswith("rl/landscape/index.html")
    assert [drawing.title for drawing in found.drawings] == ["Mean reward", "Mean length in tokens", "Reward by length"]
    assert found.pictures == []
    assert found.facts[0].startswith("4 checkpoints; relative drift ")
    assert "random walk" in found.facts[1]
    points = len((pipeline / "rl" / "landscape" / "points.csv").read_text().splitlines()) - 1
    assert re.match(rf"Reward 0\.\d+ to 0\.\d+ over {points} points; (the best, at a1|none has)", found.facts[2])
    assert any("completions equal" in fact for fact in found.facts)


def test_an_older_landscape_has_its_pictures_embedded(pipeline, older):
    found = landscapes.read(older)
    assert found.drawings == []
    reward, length, regression = found.pictures
    head, content = reward.url.split(",")
    assert head == "data:image/svg+xml;base64"
    assert base64.b64decode(content) == (pipeline / "rl" / "landscape" / "reward.svg").read_bytes()
    assert len({reward.url, length.url, regression.url}) == 3


def test_a_large_picture_is_replaced_by_a_bitmap_and_a_missing_one_by_nothing(older):
    (older / "length.svg").unlink()
    (older / "length.png").unlink()
    (older / "reward.svg").write_bytes(b" " * (landscapes.MAX_BYTES + 1))
    addresses = [picture.url[:20] for picture in landscapes.read(older).pictures]
    assert addresses == ["data:image/png;base6", "data:image/svg+xml;b"]


def test_a_plane_alone_has_facts_but_no_figures(tmp_path):
    figures = {"checkpoints": ["a", "b", "c"], "explained": [0.9, 0.1], "warnings": ["rounding alone"], "drift": None}
    (tmp_path / "plane.json").write_text(json.dumps(figures))
    found = landscapes.read(tmp_path)
    assert found.facts == ["3 checkpoints", "The two components explain 90.0 % and 10.0 % of the variance of the path"]
    assert (found.pictures, found.warnings, found.page) == ([], ["rounding alone"], "")


@pytest.mark.parametrize("text", ["{", "[]", '{"explained": "all"}', '{"origin_again": {"equal": 1}}'])
def test_damaged_figures_are_named(folder, text):
    (folder / "landscape.json").write_text(text)
    with pytest.raises(DataError, match=r"landscape\.json is damaged"):
        landscapes.read(folder)
