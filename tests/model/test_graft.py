from math import prod
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from magcli.errors import DataError
from magcli.model.weights import graft, tensors

LAYER = {"self_attn.q_proj.weight": (4, 4), "mlp.up_proj.weight": (6, 4), "input_layernorm.weight": (4,)}
TEXT = {"model.embed_tokens.weight": (9, 4), "model.norm.weight": (4,)} | {
    f"model.layers.{layer}.{name}": shape for layer in range(2) for name, shape in LAYER.items()
}
HEAD = {"lm_head.weight": (9, 4)}
VISION = {"vision_tower.layers.0.self_attn.q_proj.weight": (4, 4), "projector.weight": (4, 4)}


def laid(shapes, kind="F32"):
    """Tensors as in a header."""
    return {name: tensors.Stored(name, Path("file"), kind, s, 0, 4 * prod(s)) for name, s in shapes.items()}


def moved(shapes, **prefixes):
    """The same shapes under another prefix."""
    return {prefixes[name.split(".")[0]] + name.partition(".")[2]: shape for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("backbone", "head"),
    [
        ("language_model.model.", "language_model.lm_head."),
        ("model.language_model.", "lm_head."),
        ("model.text_model.", "lm_head."),
        ("text_model.", "lm_head."),
        ("model.", "lm_head."),
        ("language_model.", "head.lm_head."),
        ("", "lm_head."),
    ],
)
def test_the_prefix_that_fits_all_tensors_is_found(backbone, head):
    text = laid(TEXT | HEAD)
    vlm = laid(moved(TEXT | HEAD, model=backbone, lm_head=head) | VISION, "BF16")
    found = graft.plan(text, vlm)
    assert {name: stored.name for name, stored in found.items()} == {
        **{backbone + name.removeprefix("model."): name for name in TEXT},
        head + "weight": "lm_head.weight",
    }


def test_the_first_tensor_that_does_not_fit_is_named():
    vlm = laid(moved(TEXT, model="language_model.model.") | VISION)
    wide = TEXT | {"model.layers.1.mlp.up_proj.weight": (7, 4), "model.norm.weight": (5,)}
    with pytest.raises(DataError, match=r"layers.1.mlp.up_proj.weight is \[7, 4\], but language_model.+ is \[6, 4\]"):
        graft.plan(laid(wide), vlm)
    more = TEXT | {"model.layers.2.mlp.up_proj.weight": (6, 4)}
    with pytest.raises(DataError, match=r"has no tensor language_model.model.layers.2.mlp.up_proj.weight for"):
        graft.plan(laid(more), vlm)
    fewer = {name: shape for name, shape in TEXT.items() if ".1." not in name}
    with pytest.raises(DataError, match=r"no tensor for language_model.model.layers.1.input_layernorm.weight"):
        graft.plan(laid(fewer), vlm)
    with pytest.raises(DataError, match=r"no tensor for the text model's transformer.a"):
        graft.plan(laid({"transformer.a": (1,)}), vlm)
    with pytest.raises(DataError, match="it has no vision encoder"):
        graft.plan(laid(TEXT), laid(TEXT))
    twice = laid(moved(TEXT, model="a.") | moved(TEXT, model="b."))
    with pytest.raises(DataError, match=r"it fits a., b."):
        graft.plan(laid(TEXT), twice)


def test_a_tied_text_model_provides_a_stored_head(tmp_path):
    vlm = laid(moved(TEXT | HEAD, model="model.language_model.", lm_head="lm_head.") | VISION)
    assert graft.plan(laid(TEXT), vlm)["lm_head.weight"].name == "model.embed_tokens.weight"
    vlm["lm_head.weight"] = laid({"lm_head.weight": (8, 4)})["lm_head.weight"]
    with pytest.raises(DataError, match=r"no output head for lm_head.weight"):
        graft.plan(laid(TEXT), vlm)


def test_an_untied_head_needs_a_counterpart(tmp_path):
    values = {name: torch.randn(shape) for name, shape in TEXT.items()}
    vlm = laid(moved(TEXT, model="model.language_model.") | VISION)
    save_file(values | {"lm_head.weight": values["model.embed_tokens.weight"].clone()}, tmp_path / tensors.SINGLE)
    assert len(graft.plan(tensors.stored_tensors(tmp_path), vlm)) == len(TEXT)
    save_file(values | {"lm_head.weight": torch.randn(9, 4)}, tmp_path / tensors.SINGLE)
    with pytest.raises(DataError, match=r"lm_head.weight differs from its embeddings"):
        graft.plan(tensors.stored_tensors(tmp_path), vlm)


def shard(folder, **values):
    folder.mkdir()
    save_file(values, folder / tensors.SINGLE)
    return tensors.stored_tensors(folder)


@pytest.mark.parametrize("kept", [torch.bfloat16, torch.float16, torch.float32])
def test_text_is_rounded_once_and_everything_else_is_unchanged(tmp_path, monkeypatch, kept):
    monkeypatch.setattr(tensors, "BLOCK", 5)
    new = torch.randn(7, 3)
    text = shard(tmp_path / "text", **{"model.a": new})
    noise = torch.randint(0, 255, (9,), dtype=torch.uint8)
    shard(tmp_path / "vlm", a=torch.zeros(7, 3, dtype=kept), seen=noise, z=torch.full((4,), torch.nan))
    rounded = graft.write_shard(tmp_path / "vlm" / tensors.SINGLE, tmp_path / "out", {"a": text["model.a"]})
    made = load_file(tmp_path / "out")
    assert torch.equal(made["a"], new.to(kept))
    assert torch.equal(made["seen"], noise)
    assert made["z"].isnan().all()
    assert rounded.changed == (0 if kept == torch.float32 else int((new.to(kept).float() != new).sum()))
    assert rounded.values == (0 if kept == torch.float32 else 21)


@pytest.mark.parametrize(("value", "kept"), [(float("nan"), torch.bfloat16), (1e6, torch.float16)])
def test_values_that_would_not_be_finite_are_rejected(tmp_path, value, kept):
    text = shard(tmp_path / "text", **{"model.a": torch.tensor([1.0, value])})
    shard(tmp_path / "vlm", a=torch.zeros(2, dtype=kept))
    with pytest.raises(DataError, match=r"model.a has a value that is not finite in"):
        graft.write_shard(tmp_path / "vlm" / tensors.SINGLE, tmp_path / "out", {"a": text["model.a"]})


def test_quantised_weights_are_rejected(tmp_path):
    text = shard(tmp_path / "text", **{"model.a": torch.ones(2)})
    shard(tmp_path / "vlm", a=torch.zeros(2, dtype=torch.int8))
    with pytest.raises(DataError, match="a is I8"):
        graft.write_shard(tmp_path / "vlm" / tensors.SINGLE, tmp_path / "out", {"a": text["model.a"]})


def test_a_token_with_another_id_is_named():
    graft.check_tokens({"a": 0, "b": 1}, {"a": 0, "b": 1, "<image>": 2})
    with pytest.raises(DataError, match="token 'b' is 1 for the text model and is 2 in"):
        graft.check_tokens({"a": 0, "b": 1}, {"a": 0, "c": 1, "b": 2})
    with pytest.raises(DataError, match="token 'b' is 1 for the text model and does not exist in"):
        graft.check_tokens({"a": 0, "b": 1}, {"a": 0})
