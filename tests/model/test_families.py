"""Tiny random models of every family, in training and in both engines, against transformers' own code.

A family that is refused must be refused for the reason that ``families.py`` gives; the table of docs/models.md has the
same content.
"""

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from families import FAMILIES, SIZES, Family, table
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from magcli.errors import EnvironmentFault
from magcli.generate.open import open_policy
from magcli.generate.spec import Spec
from magcli.generate.torch.engine import Engine
from magcli.generate.types import Rollout, Sampling
from magcli.model.model import Model
from magcli.train.attention import use_packed_attention
from magcli.train.logprobs import token_logprobs
from magcli.train.packing import pack, pack_completions

TOLERANCE = 1e-4
PROMPTS = [[3 + (7 * length + 5 * index) % 93 for index in range(length)] for length in (21, 1, 12)]
"""Prompts on both sides of the window of 8."""

SEQUENCES = [*PROMPTS[::2], [3 + 11 * index % 93 for index in range(40)]]
WIDE = {"vocab_size": 104, "hidden_size": 128, "head_dim": 32}
"""vLLM's attention needs heads of 32 on a CPU; the vocabulary is that of the tests' tokenizer."""


def every(families: Sequence[Family]) -> pytest.MarkDecorator:
    """Run a test for each family."""
    return pytest.mark.parametrize("family", families, ids=[family.label for family in families])


def build(family: Family, seed: int = 0, **sizes):
    """A random model with transformers' eager attention; norms and biases are random too."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family.kind, **SIZES | family.settings | sizes)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.15)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def own_logprobs(model, sequence):
    """Log-probabilities ``[length, vocab]`` of the next tokens by the model's own code."""
    return model(input_ids=torch.tensor([sequence]), use_cache=False).logits[0].float().log_softmax(-1)


def own_targets(model, sequence):
    """The log-probability of each token but the first."""
    return own_logprobs(model, sequence)[:-1].gather(1, torch.tensor(sequence)[1:, None])[:, 0]


def gradient(loss, model):
    """The gradient of all parameters in one vector; what the loss does not depend on has none."""
    parts = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return torch.cat([part.flatten() for part in parts if part is not None])


@every([family for family in FAMILIES if not family.training])
def test_training_computes_what_the_model_does(family):
    plain = build(family)
    trained = deepcopy(plain)
    use_packed_attention(trained)
    packed = pack(SEQUENCES)
    values = token_logprobs(trained, packed).values
    spans = zip(packed.starts, packed.lengths, strict=True)
    ours = torch.cat([values[start + 1 : start + length] for start, length in spans])
    theirs = torch.cat([own_targets(plain, sequence) for sequence in SEQUENCES])
    torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE)
    wanted = gradient(theirs.mean(), plain)
    assert (gradient(ours.mean(), trained) - wanted).norm() < 1e-3 * wanted.norm()


@every([family for family in FAMILIES if not family.training])
def test_completions_that_share_a_prompt_are_trained_as_alone(family):
    plain = build(family)
    trained = deepcopy(plain)
    use_packed_attention(trained)
    prompt, completions = SEQUENCES[2][:10], [SEQUENCES[0], SEQUENCES[2][10:]]
    packed = pack_completions([(prompt, completion) for completion in completions])
    with torch.no_grad():
        values = token_logprobs(trained, packed).values
        for start, completion in zip(packed.starts, completions, strict=True):
            theirs = own_targets(plain, prompt + completion)[len(prompt) - 1 :]
            torch.testing.assert_close(values[start : start + len(completion)], theirs, rtol=0, atol=TOLERANCE)


@torch.inference_mode()
def check(model, rollout: Rollout, *, greedy: bool) -> None:
    """Compare a rollout's log-probabilities, and if ``greedy`` its tokens, with the model's own."""
    logprobs = own_logprobs(model, [*rollout.prompt, *rollout.tokens])[len(rollout.prompt) - 1 : -1]
    chosen = logprobs.gather(1, torch.tensor(rollout.tokens)[:, None])[:, 0]
    if greedy:
        torch.testing.assert_close(chosen, logprobs.amax(-1), rtol=0, atol=TOLERANCE)
    else:
        torch.testing.assert_close(torch.tensor(rollout.logprobs), chosen, rtol=0, atol=TOLERANCE)


@every([family for family in FAMILIES if not family.embedded])
def test_the_embedded_engine_computes_what_the_model_does(family):
    plain = build(family)
    engine = Engine(deepcopy(plain), slots=4, ends=[2])
    greedy = engine.submit(PROMPTS[0], Sampling(30, temperature=0), [0])
    for prompt in PROMPTS:
        engine.submit(prompt, Sampling(30), [1])
    ended = []
    while engine.busy:
        ended += engine.step()
    assert len(ended) == 4
    for request, rollout in ended:
        check(plain, rollout, greedy=request == greedy)


@every([family for family in FAMILIES if family.training])
def test_training_refuses_what_it_cannot_do(family):
    with pytest.raises(EnvironmentFault, match=rf"\w+ is not supported: .*{family.training}.*; train a model of"):
        use_packed_attention(build(family))


@every([family for family in FAMILIES if family.embedded])
def test_the_embedded_engine_refuses_what_it_cannot_do(family):
    with pytest.raises(EnvironmentFault, match=rf"\w+ is not supported: .*{family.embedded}.*; use --engine vllm"):
        Engine(build(family), slots=4, ends=[2])


@pytest.mark.slow
@every([family for family in FAMILIES if family.vllm])
def test_vllm_computes_what_the_model_does_before_and_after_new_weights(family, tiny_model_dir, tmp_path):
    models = [build(family, seed, **WIDE) for seed in (0, 1)]
    models[0].save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(tmp_path)
    policy = open_policy(Spec(Model.open(tmp_path), engine="vllm", dtype="fp32", slots=4))

    async def sampled() -> list[Rollout]:
        rollouts = []
        for prompt in PROMPTS:
            rollouts += [rollout async for rollout in policy.sample(prompt, Sampling(30), seeds=[0])]
        return rollouts

    async def before_and_after() -> list[list[Rollout]]:
        try:
            before = await sampled()
            await policy.load(models[1].state_dict(), 1)
            return [before, await sampled()]
        finally:
            await policy.close()

    for model, rollouts in zip(models, asyncio.run(before_and_after()), strict=True):
        assert len(rollouts) == len(PROMPTS)
        for rollout in rollouts:
            check(model, rollout, greedy=False)


def test_the_table_of_the_documentation_is_that_of_the_tests():
    page = Path(__file__).parents[2] / "docs" / "models.md"
    assert table() in page.read_text(encoding="utf-8"), "print the table by python tests/families.py"
