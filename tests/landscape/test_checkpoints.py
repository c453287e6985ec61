"""Opening checkpoints: every layout that Hugging Face writes, and a one-line refusal of every damaged one."""

import json

import pytest
import torch
from safetensors.torch import save_file

from magcli.errors import DataError
from magcli.landscape.checkpoints import check_same, open_checkpoint, pieces, read_tensor

WEIGHTS = {"b.weight": torch.arange(12.0).view(3, 4), "a.weight": torch.tensor([-0.0, 1.5])}


@pytest.mark.parametrize("shards", [1, 2])
def test_every_tensor_is_found_in_sorted_order_and_read_back(tmp_path, save, shards):
    found = open_checkpoint(save(tmp_path / "c", WEIGHTS, shards=shards))
    assert list(found) == ["a.weight", "b.weight"]
    for name, stored in found.items():
        assert torch.equal(read_tensor(stored).view(torch.int32), WEIGHTS[name].view(torch.int32))


def test_files_without_an_index_are_read_together(tmp_path):
    for name, tensor in WEIGHTS.items():
        save_file({name: tensor}, tmp_path / f"{name[0]}.safetensors")
    assert list(open_checkpoint(tmp_path)) == ["a.weight", "b.weight"]


def test_scalars_and_empty_tensors_are_tensors(tmp_path, save):
    found = open_checkpoint(save(tmp_path / "c", {"scalar": torch.tensor(2.0), "empty": torch.zeros(0, 3)}))
    assert read_tensor(found["scalar"]) == 2
    assert read_tensor(found["empty"]).shape == (0, 3)


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_is_left_out(tmp_path, save, tied):
    tensors = {"model.embed_tokens.weight": torch.ones(2, 2), "lm_head.weight": torch.ones(2, 2)}
    folder = save(tmp_path / "c", tensors)
    (folder / "config.json").write_text(json.dumps({"tie_word_embeddings": tied}))
    assert ("lm_head.weight" in open_checkpoint(folder)) is not tied


def test_a_head_that_differs_from_the_embeddings_is_kept_whatever_the_config_says(tmp_path, save):
    tensors = {"model.embed_tokens.weight": torch.ones(2, 2), "lm_head.weight": torch.zeros(2, 2)}
    folder = save(tmp_path / "c", tensors)
    (folder / "config.json").write_text(json.dumps({"tie_word_embeddings": True}))
    assert "lm_head.weight" in open_checkpoint(folder)


def test_rows_of_mixed_dtypes_are_float32(tmp_path, save):
    dtypes = [torch.float32, torch.bfloat16, torch.float16]
    values = [(torch.arange(8.0) / 3).to(dtype) for dtype in dtypes]
    stack = [open_checkpoint(save(tmp_path / str(i), {"w": v}))["w"] for i, v in enumerate(values)]
    buffer = torch.empty(3 * 4 * 5, dtype=torch.uint8)
    (rows,) = pieces(stack, 2, 5, buffer)
    assert torch.equal(rows, torch.stack([v[2:7].float() for v in values]))
    assert next(pieces(stack[1:2], 2, 5, buffer[: 4 * 5])).dtype == torch.bfloat16


def test_pieces_are_as_wide_as_the_buffer_and_follow_each_other(tmp_path, save):
    values = torch.arange(22.0).view(2, 11)
    stack = [open_checkpoint(save(tmp_path / str(i), {"w": v.clone()}))["w"] for i, v in enumerate(values)]
    read = [rows.clone() for rows in pieces(stack, 1, 10, torch.empty(2 * 16, dtype=torch.uint8))]
    assert [rows.shape[1] for rows in read] == [4, 4, 2]
    assert torch.equal(torch.cat(read, 1), values[:, 1:])


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_truncated_file_is_named(tmp_path, save, cut):
    file = save(tmp_path / "c", WEIGHTS) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(DataError, match=r"model\.safetensors: truncated|not a safetensors file"):
        open_checkpoint(tmp_path / "c")


def test_a_file_with_more_bytes_than_its_header_says_is_refused(tmp_path, save):
    file = save(tmp_path / "c", WEIGHTS) / "model.safetensors"
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(DataError, match="longer than its header says"):
        open_checkpoint(tmp_path / "c")


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x02" + bytes(7) + b"[]", b"\xff" * 40])
def test_a_file_that_is_not_safetensors_is_refused(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(DataError, match=r"model\.safetensors"):
        open_checkpoint(tmp_path)


def test_a_missing_shard_is_named(tmp_path, save):
    folder = save(tmp_path / "c", WEIGHTS, shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(DataError, match=r"model-00002-of-00002\.safetensors: no such file"):
        open_checkpoint(folder)


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 3}'])
def test_a_broken_index_is_named(tmp_path, index):
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(DataError, match=r"index\.json: (not|expected) "):
        open_checkpoint(tmp_path)


def test_a_broken_config_is_named(tmp_path, save):
    folder = save(tmp_path / "c", WEIGHTS)
    (folder / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config\.json"):
        open_checkpoint(folder)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no \*\.safetensors here"):
        open_checkpoint(tmp_path / "nowhere")


def test_a_checkpoint_without_tensors_is_refused(tmp_path, save):
    with pytest.raises(DataError, match="contain no tensors"):
        open_checkpoint(save(tmp_path / "c", {}))


def test_a_tensor_in_two_files_is_refused(tmp_path):
    for name in ("one", "two"):
        save_file({"w": torch.ones(2)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(DataError, match=r"two\.safetensors: tensor w is also in one\.safetensors"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float64, torch.float8_e4m3fn])
def test_quantised_and_integer_tensors_are_refused_by_name(tmp_path, save, dtype):
    folder = save(tmp_path / "c", {"fine": torch.ones(2), "packed": torch.ones(2).to(dtype)})
    with pytest.raises(DataError, match=r"model\.safetensors: tensor packed is [IF]\d"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a.weight": None}, r"one: tensor a\.weight is missing, but present in .*last"),
        ({"c.weight": torch.ones(1)}, r"one: tensor c\.weight is not in .*last"),
        ({"a.weight": torch.ones(3)}, r"one/model\.safetensors: tensor a\.weight has shape \[3\], but \[2\] in .*last"),
    ],
)
def test_another_models_checkpoint_is_refused(tmp_path, save, change, message):
    other = {name: tensor for name, tensor in {**WEIGHTS, **change}.items() if tensor is not None}
    checkpoints = [open_checkpoint(save(tmp_path / name, w)) for name, w in [("one", other), ("last", WEIGHTS)]]
    with pytest.raises(DataError, match=message):
        check_same(checkpoints)
