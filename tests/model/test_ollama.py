"""Chat templates as Go templates for Ollama: the same prompts, as a small reader of Go templates writes them."""

import re

import pytest
from templates import STYLES
from transformers import AutoTokenizer

from magcli.model.ollama import CHECKED, go_template, modelfile

ACTION = re.compile(r"\{\{ (.*?) \}\}", re.S)
WITH_DEFAULT = (
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
    + STYLES["chatml"][0]
)
FIRST_TURN = (
    "{% set rest = messages %}{% set first = '' %}{% if messages[0].role == 'system' %}"
    "{% set first = messages[0].content + '\n\n' %}{% set rest = messages[1:] %}{% endif %}"
    "{% for m in rest %}{{ '<turn>' + m.role + '\n' }}{% if loop.first %}{{ first }}{% endif %}"
    "{{ m.content + '</turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<turn>assistant\n' }}{% endif %}"
)
STYLES_WITH_GO = {
    "chatml": STYLES["chatml"][0],
    "llama": STYLES["llama"][0],
    "phi": STYLES["phi"][0],
    "default system prompt": WITH_DEFAULT,
    "system prompt in the first turn": FIRST_TURN,
}


def executed(template, conversation):
    """What a Go template writes for a conversation; it knows if, else if, else, range, eq, not and variables."""
    system = next((text for role, text in conversation if role == "system"), "")
    parts = ACTION.split(template)
    names = {".System": system}
    return run(parts, 0, names, conversation)[0]


def value(term, names):
    if term.startswith("eq "):
        name, wanted = term.split()[1:]
        return names[name] == wanted.strip('"')
    return not names[term[4:]] if term.startswith("not ") else names[term]


def run(parts, at, names, conversation, *, active=True):
    """The text up to the end of a block, and where it ends: at an ``end`` or ``else``, or after the last part."""
    out = []
    while True:
        out.append(parts[at] if active else "")
        if at + 1 == len(parts):
            return "".join(out), at
        term = parts[at + 1]
        if term == "end" or term.startswith("else"):
            return "".join(out), at + 1
        at += 2
        if term == "range .Messages":
            end = run(parts, at, names, conversation, active=False)[1]
            for role, text in conversation if active else ():
                names |= {".Role": role, ".Content": text}
                out.append(run(parts, at, names, conversation)[0])
            at = end + 1
        elif term.startswith("if "):
            text, at = branches(parts, at, term[3:], names, conversation, active)
            out.append(text)
        elif "=" in term:
            name, source = re.split(r" :?= ", term)
            if active:
                names[name] = "" if source == '""' else names[source]
        elif active:
            out.append(names[term])


def branches(parts, at, condition, names, conversation, active):
    """The text of the first branch whose condition holds, and where the if ends."""
    chosen, taken = "", False
    while True:
        holds = active and not taken and bool(condition == "" or value(condition, names))
        text, at = run(parts, at, names, conversation, active=holds)
        chosen, taken = (text, True) if holds else (chosen, taken)
        if parts[at] == "end":
            return chosen, at + 1
        condition = parts[at].removeprefix("else").strip().removeprefix("if ")
        at += 1


@pytest.fixture
def tokenizer(tiny_model_dir):
    return AutoTokenizer.from_pretrained(tiny_model_dir)


@pytest.mark.parametrize("style", STYLES_WITH_GO)
def test_a_go_template_writes_the_prompts_of_the_chat_template(style, tokenizer):
    tokenizer.chat_template = STYLES_WITH_GO[style]
    template = go_template(tokenizer)
    for conversation in CHECKED:
        messages = [{"role": role, "content": text} for role, text in conversation]
        expected = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert executed(template, conversation) == expected


@pytest.mark.parametrize("style", ["qwen", "r1", "glm", "mistral"])
def test_a_template_that_changes_turns_has_no_go_template(style, tokenizer):
    tokenizer.chat_template = STYLES[style][0]
    assert go_template(tokenizer) == ""


def test_a_template_with_braces_of_go_has_no_go_template(tokenizer):
    tokenizer.chat_template = STYLES["chatml"][0].replace("<|im_start|>", "{% raw %}<{{x}}>{% endraw %}")
    assert go_template(tokenizer) == ""


def test_a_model_without_a_chat_template_has_no_go_template(tokenizer):
    tokenizer.chat_template = None
    assert go_template(tokenizer) == ""


def test_texts_cannot_end_their_quotes_in_a_modelfile():
    text = modelfile(
        "m.gguf", "note", template="", stops=["<|end|>", '"\nFROM x'], temperature=None, system='"""\nFROM x'
    )
    assert text == '# note\nFROM ./m.gguf\nPARAMETER stop "<|end|>"\n'
