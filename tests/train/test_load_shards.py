"""Ranks that read their own slices have the weights, buffers and losses of ranks that load the whole model."""

import resource
import shutil

import pytest
import torch
from families import FAMILIES, SIZES
from nested import make_nested
from safetensors.torch import load_file, save_file
from training_ranks import on_ranks
from transformers import AutoConfig, AutoModelForCausalLM

from magcli.errors import DataError, EnvironmentFault
from magcli.model.model import Model
from magcli.model.weights.slices import has_slices, sliced_tensors
from magcli.train.attention import use_packed_attention
from magcli.train.load_shards import load_shards
from magcli.train.logprobs import token_logprobs
from magcli.train.optim import autocast
from magcli.train.packing import pack
from magcli.train.shard import full_weights, shard

UNEVEN = {"vocab_size": 105, "hidden_size": 24, "intermediate_size": 33, "num_hidden_layers": 3, "head_dim": 8}
HEADS = {"num_attention_heads": 3, "num_key_value_heads": 1}
TRAINED = [family for family in FAMILIES if not family.training]
CONVERTED = {
    "deepseek_v2", "deepseek_v3", "dots1", "flex_olmo", "glm4_moe", "gpt_neox", "minimax_m2", "mixtral", "olmoe",
    "phimoe", "qwen2_moe", "qwen3_moe", "longcat_flash", "exaone_moe", "granitemoe", "granitemoeshared",
    "hunyuan_v1_moe", "mimo_v2_flash", "solar_open",
}  # fmt: skip
"""Families whose tensors transformers changes as it loads them: all but GPT-NeoX are mixtures of experts."""

UNSHARDED = {"gpt2": "GPT2LMHeadModel", "gpt_bigcode": "GPTBigCodeForCausalLM"}
"""Families that several ranks refuse, by the class that they name."""

PARTS = ("shards", "weights", "buffers", "settings", "loss", "gradients")
SEQUENCES = [[1, 5, 9, 2], [7, 7, 3]]


def loaded_whole(model, ranks, **options):
    weights = model.load(dtype=torch.float32, device=str(ranks.device))
    use_packed_attention(weights)
    return shard(weights, ranks, **options)


def content(ranks, folder, load, bf16):
    """What a rank computes with: its shards, full weights, buffers, settings, and a loss with its gradient."""
    whole = load(Model.open(folder), ranks, bf16=bf16, checkpoint_activations=bf16)
    model = whole.model
    parts = {name: parameter.to_local().clone() for name, parameter in model.named_parameters()}
    full = {name: tensor.clone() for name, tensor in full_weights(model, ranks).items()}
    with autocast(ranks.device, bf16):
        loss = whole(lambda model: -token_logprobs(model, pack(SEQUENCES)).values.sum())
    loss.backward()
    gradients = {
        name: None if parameter.grad is None else parameter.grad.to_local()
        for name, parameter in model.named_parameters()
    }
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    settings = model.config.to_dict() | {"training": model.training}
    settings.pop("_name_or_path", None)  # of a text model inside a larger one it is "None" or empty
    return parts, full, buffers, settings, loss.item(), gradients


def assert_alike(folder, bf16=False):
    """Both ways of loading give the same on both ranks, bit for bit."""
    assert has_slices(Model.open(folder))
    sliced = on_ranks(content, folder, load_shards, bf16)
    whole = on_ranks(content, folder, loaded_whole, bf16)
    for one, other in zip(sliced, whole, strict=True):
        assert differences(one, other) == []
    assert whole[0][1]
    assert any("inv_freq" in name for name in whole[0][2])


def saved(folder, kind, dtype=torch.float32, **settings):
    """A small random model of a family; its files are in shards if it takes more than 20 KB."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **UNEVEN, **HEADS, **settings)
    AutoModelForCausalLM.from_config(config, dtype=dtype).save_pretrained(folder, max_shard_size="20KB")
    return folder


@pytest.mark.parametrize("bf16", [False, True])
def test_a_tied_model(tiny_model_dir, bf16):
    assert_alike(tiny_model_dir, bf16)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("qwen3", {"attention_bias": True, "tie_word_embeddings": False}),
        ("gemma2", {"sliding_window": 4, "query_pre_attn_scalar": 8}),
        ("gemma3_text", {"sliding_window": 4, "query_pre_attn_scalar": 8, "sliding_window_pattern": 2}),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
    ],
)
def test_families_in_shards_of_uneven_sizes(tmp_path, kind, settings):
    folder = saved(tmp_path / kind, kind, **settings)
    assert (folder / "model.safetensors.index.json").exists()
    assert_alike(folder)


def compared(ranks, folders):
    """For each folder of a model: whether both ways of loading it are equal, or why it is not read in slices."""
    outcomes = {}
    for name, folder in folders.items():
        try:
            whole = content(ranks, folder, loaded_whole, False)
        except EnvironmentFault as error:
            outcomes[name] = str(error)
            continue
        if not has_slices(Model.open(folder)):
            assert load_shards(Model.open(folder), ranks) is None
            outcomes[name] = "loaded whole"
            continue
        sliced = content(ranks, folder, load_shards, False)
        outcomes[name] = differences(sliced, whole) or "equal"
    return outcomes


def differences(one, other):
    """What differs of the content of two ranks."""
    found = [name for name in ("settings", "loss") if one[PARTS.index(name)] != other[PARTS.index(name)]]
    for kind in ("shards", "weights", "buffers", "gradients"):
        mine, theirs = one[PARTS.index(kind)], other[PARTS.index(kind)]
        if mine.keys() != theirs.keys():
            found.append(f"names of {kind}")
            continue
        found += [f"{kind} {name}" for name, tensor in theirs.items() if not same(mine[name], tensor)]
    return found


def same(one, other):
    """Whether two tensors are equal in type and bits, or both missing."""
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and torch.equal(one, other)


def test_every_family_that_trains_is_the_same_or_loaded_whole(tmp_path):
    folders = {family.label: tmp_path / str(number) for number, family in enumerate(TRAINED)}
    for family in TRAINED:
        torch.manual_seed(0)
        config = AutoConfig.for_model(family.kind, **SIZES | family.settings)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folders[family.label])
    expected = {family.label: expected_outcome(family.kind) for family in TRAINED}
    assert on_ranks(compared, folders) == [expected, expected]


def expected_outcome(kind):
    if kind in UNSHARDED:
        return f"{UNSHARDED[kind]} has no list of layers to shard; use a model like Llama or Qwen"
    return "loaded whole" if kind in CONVERTED else "equal"


def test_weights_stored_in_bf16_become_float32(tmp_path):
    assert_alike(saved(tmp_path / "model", "llama", torch.bfloat16, tie_word_embeddings=False))


def test_the_text_model_of_a_vision_language_model(tiny_model_dir, tmp_path):
    assert_alike(make_nested("mistral3", tiny_model_dir, tmp_path / "vision"))


def test_models_that_are_not_stored_as_they_are_computed_are_loaded_whole(tiny_model_dir, tmp_path):
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
    mixture = saved(tmp_path / "mixture", "qwen3_moe", **experts)
    own_head = shutil.copytree(tiny_model_dir, tmp_path / "head")
    tensors = load_file(own_head / "model.safetensors")
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] * 2}, own_head / "model.safetensors")
    other_names = shutil.copytree(tiny_model_dir, tmp_path / "names")
    renamed = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    save_file(renamed, other_names / "model.safetensors")
    config_alone = tmp_path / "config"
    config_alone.mkdir()
    shutil.copy(mixture / "config.json", config_alone)
    for folder in (mixture, own_head, other_names, config_alone):
        assert not has_slices(Model.open(folder)), folder
        assert sliced_tensors(Model.open(folder)) == {}


def test_a_model_without_weights_would_be_read_in_slices(tiny_model_dir, tmp_path):
    shutil.copy(tiny_model_dir / "config.json", tmp_path)
    assert has_slices(Model.open(tmp_path))


def test_truncated_weights_are_refused(tiny_model_dir, tmp_path):
    folder = shutil.copytree(tiny_model_dir, tmp_path / "short")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"model\.safetensors: truncated"):
        has_slices(Model.open(folder))


LARGE = {"vocab_size": 64, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 16}


def growth(ranks, folder, load):
    """How many bytes a rank's resident memory grew at most while it loaded a model, and the bytes of its shards."""
    load(Model.open(folder.with_name("small")), ranks)  # imports, and buffers of collectives
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    whole = load(Model.open(folder), ranks)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * (after - before), sum(parameter.to_local().nbytes for parameter in whole.parameters())


def test_a_rank_needs_little_more_memory_than_its_shards(tmp_path):
    saved(tmp_path / "small", "llama")
    config = AutoConfig.for_model("llama", **LARGE, num_attention_heads=8, num_key_value_heads=8)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(tmp_path / "large")
    for grown, shards in on_ranks(growth, tmp_path / "large", load_shards):
        assert grown < 1.6 * shards
    for grown, shards in on_ranks(growth, tmp_path / "large", loaded_whole):
        assert grown > 2.5 * shards
