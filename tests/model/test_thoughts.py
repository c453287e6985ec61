"""The table of forms of thoughts: reading, writing, finding and adding one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thinking import BRACKETS as BRACKETS_TOKENS
from thinking import CHANNELS as CHANNELS_TOKENS
from thinking import CHANNELS_TEMPLATE, PLAIN_TEMPLATE, character_tokenizer

from magcli.errors import DataError, UsageError
from magcli.model.chat import prompts
from magcli.model.chat.messages import normalized
from magcli.model.chat.prompts import (
    ChatTemplate,
    completion_text,
    prompt_tokens,
    system_prompt,
    thought_form,
    use_template,
)
from magcli.model.chat.thoughts import (
    BRACKETS,
    CHANNELS,
    FORMS,
    THINK,
    count_forms,
    find,
    form_named,
    form_of_text,
    rewritten,
)

OWN = form_named("<reason>\\n...</reason><answer>")
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="<>[]|")).map(str.strip)
TEXTS = {
    THINK: "<think>\none\n</think>\n\n2",
    BRACKETS: "[THINK]one[/THINK]2",
    CHANNELS: "<|channel|>analysis<|message|>one<|end|><|start|>assistant<|channel|>final<|message|>2",
    OWN: "<reason>\none\n</reason><answer>2",
}


@pytest.mark.parametrize("form", TEXTS, ids=str)
def test_a_completion_in_each_form(form):
    assert form.join("one", "2") == TEXTS[form]
    assert form.split(TEXTS[form]) == ("one", "2")
    assert form.answer(TEXTS[form]).strip() == "2"
    assert form.opens(f" {TEXTS[form]}")
    assert form.split("2") == ("", "2")


@given(thoughts=PLAIN, answer=PLAIN, form=st.sampled_from(list(TEXTS)))
def test_what_is_joined_is_split_again(thoughts, answer, form):
    assert form.split(form.join(thoughts, answer)) == (thoughts, answer)


@given(thoughts=PLAIN, answer=PLAIN, source=st.sampled_from(FORMS), target=st.sampled_from(FORMS))
def test_thoughts_are_rewritten_in_another_form(thoughts, answer, source, target):
    text = source.join(thoughts, answer)
    assert rewritten(text, target) == target.join(thoughts, answer)
    assert form_of_text(text) == source


@pytest.mark.parametrize("text", ["2", "say <think> and </think>", "<think>never closed", "a</think>2"])
def test_texts_that_do_not_begin_with_closed_thoughts_stay_as_they_are(text):
    assert rewritten(text, BRACKETS) == text


def test_forms_have_names_and_opening_tags():
    assert [form_named(form.name) for form in FORMS] == list(FORMS)
    assert [form_named(form.opening) for form in FORMS] == list(FORMS)
    assert (OWN.opening, OWN.closing, OWN.inside) == ("<reason>", "</reason><answer>", "\n")
    assert str(BRACKETS) == "[THINK]...[/THINK]"


@pytest.mark.parametrize("text", ["", "thinking", "...</a>", "<a>...", "..."])
def test_what_is_no_form_is_refused(text):
    with pytest.raises(UsageError, match=r"give think, brackets, channels, or .* as OPENING\.\.\.CLOSING"):
        form_named(text)


@pytest.mark.parametrize(
    ("template", "tokens", "form"),
    [
        ("{{ '<think>' }}", {"[THINK]", "[/THINK]"}, THINK),
        ("{{ '[THINK]' }}", {"<think>", "</think>"}, BRACKETS),
        ("{{ '[THINK]' }}", set(), BRACKETS),
        ("{{ '<|channel|>' }}", set(), CHANNELS),
        ("{{ '<|end|>' }}", {"<|end|>", "<|start|>"}, THINK),
        ("no tags", {"[THINK]", "[/THINK]"}, BRACKETS),
        ("no tags", {"[THINK]", "<think>"}, THINK),
        ("{{ '<think>' or '[THINK]' }}", {"[THINK]"}, BRACKETS),
        ("no tags", set(), THINK),
    ],
)
def test_the_template_decides_then_the_tokens_then_the_recipe(template, tokens, form):
    assert find(template, tokens) == form


def test_forms_of_completions_are_counted():
    counts = count_forms([*TEXTS.values(), "one[/THINK]2", "2"])
    assert counts == {THINK: 1, BRACKETS: 2, CHANNELS: 1}


def test_a_tokenizer_has_the_form_of_its_template_unless_told_otherwise(tiny_model_dir):
    tokenizer = character_tokenizer(BRACKETS_TOKENS, PLAIN_TEMPLATE)
    assert thought_form(tokenizer) == BRACKETS
    tokenizer.chat_template = PLAIN_TEMPLATE + "{{ '<think>' }}"
    assert thought_form(tokenizer) == THINK
    use_template(tokenizer, ChatTemplate(thoughts="channels"))
    assert thought_form(tokenizer) == CHANNELS
    assert thought_form(character_tokenizer(CHANNELS_TOKENS, CHANNELS_TEMPLATE)) == CHANNELS


@pytest.mark.parametrize("prefill", ["", "[THINK]", "[THINK]\n", "[THINK][/THINK]"])
def test_special_tags_survive_decoding_and_the_prompts_tag_is_put_back(prefill):
    tokenizer = character_tokenizer(
        BRACKETS_TOKENS, PLAIN_TEMPLATE.replace("|>' }}{% endif", f"|>{prefill}' }}}}{{% endif")
    )
    prompt = prompt_tokens(tokenizer, [{"role": "user", "content": "1+1?"}])
    tokens = tokenizer("one[/THINK]2<|end|>", add_special_tokens=False)["input_ids"]
    assert set(tokens) & set(tokenizer.all_special_ids)
    assert completion_text(tokenizer, prompt, tokens, {1}, BRACKETS) == f"{prefill}one[/THINK]2"


def test_the_system_prompt_names_the_form(tmp_path):
    recipe = system_prompt(None)
    assert system_prompt(None, BRACKETS) == recipe.replace("<think>", "[THINK]").replace("</think>", "[/THINK]")
    channels = system_prompt(None, CHANNELS)
    assert "analysis channel" in channels
    assert "<" not in channels, "a marker in a prompt would be a special token"
    own = tmp_path / "own.txt"
    own.write_text("Write <think>.")
    assert system_prompt(own, BRACKETS) == "Write <think>."


def test_thoughts_in_parts_of_the_content():
    inner = [{"type": "text", "text": "o"}, {"type": "text", "text": "ne"}]
    parts = [{"type": "thinking", "thinking": inner}, {"type": "text", "text": "2"}]
    message = {"role": "assistant", "content": parts}
    assert normalized(message, 0) == {"role": "assistant", "content": "2", "reasoning_content": "one"}
    for role, kind in (("assistant", "image"), ("system", "thinking")):
        with pytest.raises(DataError, match=f"a part of the content is {kind}"):
            normalized({"role": role, "content": [{"type": kind}]}, 0)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_thoughts_that_the_content_repeats_are_read_once(form):
    message = {"role": "assistant", "content": form.join("one", "2"), "thinking": "one"}
    assert "reasoning_content" not in normalized(message, 0)


def test_a_form_is_looked_up_once(monkeypatch):
    tokenizer = character_tokenizer(BRACKETS_TOKENS, PLAIN_TEMPLATE)
    assert thought_form(tokenizer) == BRACKETS
    monkeypatch.setattr(prompts, "find", None)
    assert thought_form(tokenizer) == BRACKETS
