"""What follows a turn of the policy, in the styles of published templates; others are refused."""

import pytest
from templates import SPECIAL, STYLES
from transformers import AutoTokenizer

from magcli.errors import UsageError
from magcli.model.chat.prompts import render_text
from magcli.model.chat.thoughts import THINK
from magcli.model.chat.turns import TurnRenderer, call_id

QUESTION, ANSWER = {"role": "user", "content": "2+3?"}, {"role": "assistant", "content": "<think>x</think>Hm"}
REPLY = {"role": "user", "content": "It is 5."}
APPENDING = ("chatml", "llama", "gemma", "phi", "glm")
TOOLS = (
    "{% for m in messages %}{% if m.role == 'tool' %}{% set before = messages[loop.index0 - 1] %}"
    "{% if before.role == 'assistant' and not before.tool_calls %}"
    "{{ raise_exception('a result needs its call') }}{% endif %}{{ '[RESULT]' + m.tool_call_id + m.content }}"
    "{% else %}{{ '<|' + m.role + '|>' + m.content }}"
    "{% for c in m.tool_calls or [] %}{{ '[CALL]' + c.id + c.function.name }}{% endfor %}{{ '<|end|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def renderer_of(folder, template, end, system=None):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    tokenizer.chat_template = template
    return TurnRenderer(tokenizer, {tokenizer.convert_tokens_to_ids(end)}, system, THINK)


@pytest.mark.parametrize("style", APPENDING)
def test_the_tokens_after_a_turn_continue_it_as_the_template_does(style, tiny_model_dir):
    template, end = STYLES[style]
    renderer = renderer_of(tiny_model_dir, template, end)
    renderer.check(["user"])
    after = renderer.tokenizer.decode(renderer.after([REPLY]))
    whole = render_text(renderer.tokenizer, [QUESTION, ANSWER, REPLY], add_generation_prompt=True)
    assert whole.endswith(after)
    assert "It is 5." in after
    written = whole.removesuffix(after)
    assert written.endswith(end) or style == "glm"
    assert "Hm" in written


@pytest.mark.parametrize(
    ("style", "problem"),
    [("qwen", r"is not append-only: the next turn changes"), ("r1", "removes the thoughts of turns before them")],
)
def test_a_template_that_drops_thoughts_of_earlier_turns_is_refused(style, problem, tiny_model_dir):
    with pytest.raises(UsageError, match=rf"turns of the role user, but the chat template {problem}"):
        renderer_of(tiny_model_dir, *STYLES[style]).check(["user"])


def test_a_template_that_moves_the_system_prompt_is_refused(tiny_model_dir):
    renderer_of(tiny_model_dir, *STYLES["mistral"]).check(["user"])
    with pytest.raises(UsageError, match="not append-only"):
        renderer_of(tiny_model_dir, *STYLES["mistral"], system="Be kind.").check(["user"])


def test_results_of_tools_follow_their_calls(tiny_model_dir):
    renderer = renderer_of(tiny_model_dir, TOOLS, "<|end|>")
    renderer.check(["tool"])
    assert renderer.shows_tools
    texts = {call_id(number): text for number, text in enumerate("ab")}
    results = [{"role": "tool", "content": texts[call], "name": "f", "tool_call_id": call} for call in texts]
    text = renderer.tokenizer.decode(renderer.after(renderer.shown(results)))
    assert text == "[RESULT]call00000a[RESULT]call00001b<|assistant|>"


def test_results_are_turns_of_the_user_where_a_template_has_none_of_tools(tiny_model_dir):
    template = TOOLS.replace("{% for m in messages %}", "{% for m in messages if m.role != 'tool' %}", 1)
    renderer = renderer_of(tiny_model_dir, template, "<|end|>")
    assert not renderer.shows_tools
    assert renderer.shown([{"role": "tool", "content": "5"}]) == [{"role": "user", "content": "5"}]
    renderer.check(["tool"])


def test_a_role_that_a_template_does_not_show_is_refused(tiny_model_dir):
    template = TOOLS.replace("{% for m in messages %}", "{% for m in messages if m.role != 'critic' %}", 1)
    with pytest.raises(UsageError, match="role critic, but the chat template does not show them"):
        renderer_of(tiny_model_dir, template, "<|end|>").check(["critic"])
