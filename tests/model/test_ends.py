"""Where completions end: the generation config, the tokenizer, the chat template, and --stop."""

from types import SimpleNamespace

import pytest
import torch
from thinking import CHANNELS, CHANNELS_TEMPLATE, character_tokenizer

from magcli.errors import UsageError
from magcli.model.chat.ends import end_tokens, stop_tokens, turn_ends, unused_ends
from magcli.model.load import load_model, load_tokenizer

ENDS_WITH_THINK = "{% for m in messages %}<|user|>{{ m['content'] }}<think>{% endfor %}"


@pytest.fixture
def tokenizer(tiny_model_dir):
    return load_tokenizer(str(tiny_model_dir))


def test_the_end_of_turn_of_the_template_ends_a_completion(tiny_model_dir, tokenizer):
    """A base model: its end token is another than that of its chat template."""
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    model.generation_config.eos_token_id = 3
    tokenizer.eos_token = "<unk>"
    assert turn_ends(tokenizer) == (1,)
    assert end_tokens(model, tokenizer) == {0, 1, 3}
    assert end_tokens(model, tokenizer, ["<|system|>", "9"]) == {0, 1, 2, 3, 9}


def test_the_first_special_token_after_the_answer_is_the_end_of_turn(tokenizer):
    tokenizer.chat_template = (
        "{% for m in messages %}{{ '<|user|>' + m['content'] + ' \n<|end|>\n<|system|>' }}{% endfor %}"
    )
    assert turn_ends(tokenizer) == (1,)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m['content'] }}{% endfor %}",
        "{{ raise_exception('no') }}",
        "no messages at all",
        None,
    ],
)
def test_templates_without_an_end_of_turn_add_nothing(tokenizer, template):
    tokenizer.chat_template = template
    assert turn_ends(tokenizer) == ()


@pytest.mark.parametrize(
    ("item", "reason"), [("abc", "is 3 tokens, not one"), ("104", "its ids are 0 to 103"), ("", "is 0 tokens")]
)
def test_stop_takes_single_tokens(tokenizer, item, reason):
    with pytest.raises(UsageError, match=reason):
        stop_tokens(tokenizer, [item])


def test_names_of_unused_ends(tokenizer):
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|eot_id|>", "<|end_header_id|>", "<eos>", "<sep>"]})
    assert sorted(unused_ends(tokenizer, {1}).values()) == ["<eos>", "<|eot_id|>"]
    assert unused_ends(tokenizer, set()).keys() > {1}


def test_the_token_that_closes_thoughts_ends_nothing():
    """A template that writes ``<|end|>`` after every message, and that is also what closes the thoughts."""
    tokenizer = character_tokenizer(CHANNELS, CHANNELS_TEMPLATE.replace("<|return|>", "<|end|>"))
    model = SimpleNamespace(generation_config=None)
    assert turn_ends(tokenizer) == (2,)
    assert end_tokens(model, tokenizer) == {1}
    assert end_tokens(model, tokenizer, ["<|end|>"]) == {1, 2}
    assert unused_ends(tokenizer, {1}) == {}
    tokenizer.eos_token = "<|end|>"
    assert end_tokens(model, tokenizer) == {2}, "there is no other end"
