"""Compiled layers compute what they do by themselves, and one compilation serves all layers and lengths."""

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from magcli.train import compiled
from magcli.train.attention import use_packed_attention
from magcli.train.compiled import LateCompiler, compile_layers
from magcli.train.distributed import Ranks
from magcli.train.sft import Example, accumulate
from magcli.train.shard import shard

pytestmark = pytest.mark.filterwarnings("ignore")  # an error in the place of a warning ends the compilation

SIZES = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip
GRAPHS = 4
"""The parts of a layer that attention separates, and of its attention module."""

CONFIGS = {"llama": LlamaConfig(**SIZES), "qwen2": Qwen2Config(**SIZES)}


@pytest.fixture(autouse=True)
def forget_compilations():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def opened(name, **options):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[name]).train()
    use_packed_attention(model)
    return shard(model, Ranks(), **options)


def gradients(whole, *, bf16):
    """The losses of three steps of other lengths, and the gradient of their sum."""
    losses = []
    for length in (9, 14, 30):
        batches = [[Example(tuple(range(size)), (False,) + (True,) * (size - 1))] * 2 for size in (length, length - 4)]
        losses.append(accumulate(whole, batches, total=50.0, bf16=bf16))
    return losses, {name: parameter.grad for name, parameter in whole.model.named_parameters()}


@pytest.mark.parametrize(("name", "recomputes", "bf16"), [("llama", True, False), ("qwen2", False, True)])
def test_compiled_layers_have_the_gradients_of_the_layers(name, recomputes, bf16):
    options = {"bf16": bf16, "checkpoint_activations": recomputes}
    losses, expected = gradients(opened(name, **options), bf16=bf16)
    whole = opened(name, **options)
    compile_layers(whole.model.get_decoder().layers, backend="aot_eager")
    own, found = gradients(whole, bf16=bf16)
    assert 0 < counters["stats"]["unique_graphs"] <= 2 * GRAPHS, "with and without recomputation"
    tolerance = 2e-2 if bf16 else 1e-5
    assert own == pytest.approx(losses, rel=tolerance)
    for parameter, gradient in expected.items():
        assert (found[parameter] - gradient).norm() <= tolerance * gradient.norm()


def test_one_compilation_serves_all_layers_and_lengths():
    whole = opened("llama")
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compile_layers(whole.model.get_decoder().layers, backend=backend)
    gradients(whole, bf16=False)
    assert len(graphs) == GRAPHS
    operations = [node for graph in graphs for node in graph.graph.nodes if node.op != "placeholder"]
    assert len(operations) > 30, "norms, projections, rotary embeddings and the network are inside"


def test_a_run_is_compiled_once_it_has_trained_for_a_while(monkeypatch):
    times, asked = iter([100.0, 130.0, 159.0, 161.0, 300.0]), []
    monkeypatch.setattr(compiled.time, "monotonic", lambda: next(times))
    monkeypatch.setattr(compiled, "compile_layers", asked.append)
    layers = [torch.nn.Linear(1, 1)]
    compiler = LateCompiler(layers, seconds=60.0)
    counts = []
    for _ in range(4):
        compiler.compile_if_due()
        counts.append(len(asked))
    assert counts == [0, 0, 1, 1]


def test_on_a_cpu_nothing_is_compiled():
    assert opened("llama")._compiler is None
