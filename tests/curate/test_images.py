import base64

import pytest

from magcli.curate.sampling import images_of
from magcli.errors import DataError


def test_images_come_as_bytes_mappings_uris_and_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.png").write_bytes(b"file")
    uri = "data:image/png;base64," + base64.b64encode(b"uri").decode()
    given = [b"raw", {"bytes": b"cell", "path": "gone.png"}, {"bytes": None, "path": "a.png"}, uri, "a.png", None]
    assert images_of({"images": given}) == [b"raw", b"cell", b"file", b"uri", b"file"]
    assert images_of({"images": b"one"}) == [b"one"]


def test_rows_shaped_as_mmmu_and_mathvista_are_read():
    cell = {"bytes": b"x", "path": None}
    assert images_of({"id": "mmmu", "image_1": cell, "image_3": {"bytes": b"z"}, "image_2": None}) == [b"x", b"z"]
    assert images_of({"image": "images/1.jpg", "decoded_image": {"bytes": b"m", "path": "1.jpg"}}) == [b"m"]
    assert images_of({"prompt": "2+2?", "image": "ignored"}) == []
    assert images_of({"images": []}) == []
    assert images_of({"images": None}) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("none.png", "row r: image 1: cannot read none.png"),
        (7, "row r: image 1 is int"),
        ({"bytes": None, "path": None}, "row r: image 1 is NoneType"),
        ("data:image/png,abc", "without ;base64"),
        ("data:image/png;base64,%%", "row r: image 1 is not base64"),
    ],
)
def test_an_unreadable_image_is_named(value, message):
    with pytest.raises(DataError, match=message):
        images_of({"id": "r", "images": [value]})
