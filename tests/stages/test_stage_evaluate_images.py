"""Evaluation of rows with images before and after a graft, and what models that cannot see say to them."""

import base64
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling import call_stage
from PIL import Image, ImageDraw
from vision import make_vision_model

from magcli.data import table
from magcli.errors import UsageError

OPTIONS = {"samples": 2, "max_tokens": 8, "system": "none", "dtype": "fp32", "engine": "torch", "ks": "1,2"}


def drawn(count):
    """A picture of some squares, as the bytes of a PNG file."""
    image, out = Image.new("RGB", (48, 48), "white"), BytesIO()
    for index in range(count):
        ImageDraw.Draw(image).rectangle((4 + 14 * index, 10, 12 + 14 * index, 20), fill="black")
    image.save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def problems(tmp_path):
    """Hand-made rows: MMMU's shape with a numbered image, and images of both kinds of storage in one column."""
    cell = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [
        {"id": str(n), "prompt": f"How many squares are in <image 1>? ({n})", "answer": str(n), "image_1": shown}
        for n, shown in ((n, {"bytes": drawn(n), "path": None}) for n in (1, 2, 3))
    ]
    columns = [("id", pa.string()), ("prompt", pa.string()), ("answer", pa.string()), ("image_1", cell)]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(columns)), tmp_path / "mmmu.parquet")
    return tmp_path / "mmmu.parquet"


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def test_rows_with_images_are_evaluated_before_and_after_a_graft(tiny_model_dir, problems, tmp_path):
    make_vision_model(tiny_model_dir, tmp_path / "vlm", image_token="<unk>")
    call_stage("graft", text=str(tiny_model_dir), into=str(tmp_path / "vlm"), out=tmp_path / "grafted")
    said = {}
    for name in ("vlm", "grafted"):
        kept = tmp_path / f"{name}.arrow"
        out = tmp_path / f"{name}-metrics.arrow"
        call_stage("evaluate", problems, model=str(tmp_path / name), completions=kept, output=out, **OPTIONS)
        said[name] = [row["completion"] for row in rows_of(kept)]
        assert {row["num_problems"] for row in rows_of(out)} == {3}
        assert {row["id"] for row in rows_of(kept)} == {"1", "2", "3"}
    assert said["vlm"] != said["grafted"]


def test_a_model_without_vision_is_reported(tiny_model_dir, problems, tmp_path):
    with pytest.raises(
        UsageError, match="row 1 has images, which only vision-language models with --engine torch read"
    ):
        call_stage("evaluate", problems, model=str(tiny_model_dir), **OPTIONS)
    uri = "data:image/png;base64," + base64.b64encode(drawn(1)).decode()
    (tmp_path / "p.jsonl").write_text(f'{{"id": "a", "prompt": "?", "answer": "1", "images": ["{uri}"]}}\n')
    with pytest.raises(UsageError, match="row a has images"):
        call_stage("generate", tmp_path / "p.jsonl", model=str(tiny_model_dir), output=tmp_path / "out.arrow")
