import json
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from magcli.errors import DataError, EnvironmentFault
from magcli.model.weights import tensors


def test_tensors_of_shards_are_found_through_the_index(tmp_path):
    save_file({"b": torch.arange(6.0).view(2, 3), "n": torch.tensor([7])}, tmp_path / "one.safetensors")
    save_file({"a": torch.ones(4, dtype=torch.bfloat16)}, tmp_path / "two.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "consolidated.safetensors")
    index = {"weight_map": {"b": "one.safetensors", "n": "one.safetensors", "a": "two.safetensors"}}
    (tmp_path / tensors.INDEX).write_text(json.dumps(index))
    found = tensors.stored_tensors(tmp_path)
    assert {name: (stored.kind, stored.shape) for name, stored in found.items()} == {
        "a": ("BF16", (4,)),
        "b": ("F32", (2, 3)),
        "n": ("I64", (1,)),
    }
    assert torch.cat(list(tensors.blocks(found["b"]))).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(DataError, match="n is I64"):
        list(tensors.blocks(found["n"]))


def test_blocks_are_bounded_and_complete(tmp_path, monkeypatch):
    monkeypatch.setattr(tensors, "BLOCK", 4)
    save_file({"a": torch.arange(10.0)}, tmp_path / tensors.SINGLE)
    parts = list(tensors.blocks(tensors.stored_tensors(tmp_path)["a"]))
    assert [len(part) for part in parts] == [4, 4, 2]
    assert torch.equal(torch.cat(parts), torch.arange(10.0))


def test_damaged_files_are_named(tmp_path):
    file = tmp_path / tensors.SINGLE
    with pytest.raises(EnvironmentFault, match="no safetensors weights"):
        tensors.stored_tensors(tmp_path)
    save_file({"a": torch.arange(10.0), "b": torch.ones(2)}, file)
    whole = file.read_bytes()
    for cut in (0, 4, 20, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=r"model\.safetensors"):
            tensors.stored_tensors(tmp_path)
    header = {"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(DataError, match="does not match its 8 bytes"):
        tensors.stored_tensors(tmp_path)
    text = b"[" * 100_000
    file.write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(DataError, match=r"not a safetensors file \(RecursionError"):
        tensors.stored_tensors(tmp_path)


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 3}'])
def test_a_damaged_index_is_named(tmp_path, index):
    (tmp_path / tensors.INDEX).write_text(index)
    with pytest.raises(DataError, match=r"index\.json: (not|expected) "):
        tensors.weight_files(tmp_path)


def test_an_empty_tensor_may_share_its_offset_with_the_next(tmp_path):
    header = {
        "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        "b": {"dtype": "F32", "shape": [0, 3], "data_offsets": [0, 0]},
    }
    text = json.dumps(header).encode()
    (tmp_path / tensors.SINGLE).write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    assert {name: stored.size for name, stored in tensors.stored_tensors(tmp_path).items()} == {"a": 1, "b": 0}


def test_a_written_header_is_read_back(tmp_path):
    entries = [tensors.Entry("a", "F32", (2, 3), 24), tensors.Entry("b", "I8", (5,), 5)]
    header, places = tensors.packed_header(entries, {"key": "value"})
    (tmp_path / tensors.SINGLE).write_bytes(header + bytes(29))
    found = tensors.stored_tensors(tmp_path)
    assert {name: (stored.kind, stored.shape, stored.begin) for name, stored in found.items()} == {
        "a": ("F32", (2, 3), places["a"]),
        "b": ("I8", (5,), places["b"]),
    }
    assert tensors.metadata(tmp_path / tensors.SINGLE) == {"key": "value"}
    assert load_file(tmp_path / tensors.SINGLE)["b"].tolist() == [0] * 5
