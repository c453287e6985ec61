"""SFT targets in eight styles of chat templates: they are what the engine would have generated."""

import pytest
from templates import CHATML, GENERATE, MISTRAL, SPECIAL, STYLES
from thinking import BRACKETS, CHANNELS, CHANNELS_TEMPLATE, PLAIN_TEMPLATE, character_tokenizer
from tokenizers import AddedToken, Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from magcli.errors import DataError
from magcli.model.chat.messages import normalized
from magcli.model.chat.prompts import prompt_tokens
from magcli.model.chat.targets import TokensWithMask, examples, show_mask

THOUGHTFUL = "<think>\n1+2=3\n</think>\n\nIt is 3."
SYSTEM = {"role": "system", "content": "Be kind."}
QUESTION = {"role": "user", "content": "1+2?"}
MORE = {"role": "user", "content": "And 2+2?"}


def said(text):
    return {"role": "assistant", "content": text}


@pytest.fixture
def tokenizer(tiny_model_dir):
    loaded = AutoTokenizer.from_pretrained(tiny_model_dir)
    loaded.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    loaded.add_special_tokens({"eos_token": "</s>"})
    return loaded


@pytest.fixture(params=STYLES)
def style(request, tokenizer):
    tokenizer.chat_template = STYLES[request.param][0]
    return request.param


def targets(tokenizer, sequence):
    """The texts of the runs of targets."""
    shown, previous = [], False
    for token, target in zip(sequence.tokens, sequence.mask, strict=True):
        if target and not previous:
            shown.append([])
        if target:
            shown[-1].append(token)
        previous = target
    return [tokenizer.decode(tokens) for tokens in shown]


def squeezed(text):
    return "".join(text.split())


def prompt_of(sequence):
    return sequence.tokens[: len(sequence.tokens) - sum(sequence.mask)]


@pytest.mark.parametrize("system", [True, False])
def test_a_target_follows_the_prompt_of_inference(tokenizer, style, system):
    before = [SYSTEM, QUESTION] if system else [QUESTION]
    (sequence,) = examples(tokenizer, [*before, said(THOUGHTFUL)])
    assert prompt_of(sequence) == prompt_tokens(tokenizer, before)
    assert "Be kind." in tokenizer.decode(sequence.tokens) or not system


def test_a_target_has_thoughts_answer_and_end_of_turn(tokenizer, style):
    (sequence,) = examples(tokenizer, [QUESTION, said(THOUGHTFUL)])
    (target,) = targets(tokenizer, sequence)
    opened = "<think>" if style == "r1" else ""
    assert squeezed(opened + target) == squeezed(THOUGHTFUL) + STYLES[style][1]
    assert len(tokenizer.decode(sequence.tokens).split("<think>")) == 2


def test_a_plain_answer_ends_the_turn(tokenizer, style):
    (sequence,) = examples(tokenizer, [QUESTION, said("It is 3.")])
    (target,) = targets(tokenizer, sequence)
    assert target.endswith("It is 3." + STYLES[style][1])
    text = tokenizer.decode(sequence.tokens)
    assert text.count("<think>") == text.count("</think>"), "thoughts that the prompt opens are closed"


def test_each_turn_of_a_conversation_is_a_target_once(tokenizer, style):
    messages = [SYSTEM, QUESTION, said(THOUGHTFUL), MORE, said("<think>\n2+2=4\n</think>\n\nIt is 4.")]
    sequences = examples(tokenizer, messages)
    found = [target for sequence in sequences for target in targets(tokenizer, sequence)]
    assert len(found) == 2
    assert "1+2=3" in found[0]
    assert "2+2=4" in found[1]
    last = sequences[-1]
    end = len(last.tokens) - last.mask[::-1].index(False)
    assert last.tokens[:end] == prompt_tokens(tokenizer, messages[:-1])


def test_turns_share_a_sequence_unless_the_template_rewrites_them(tokenizer, style):
    sequences = examples(tokenizer, [QUESTION, said(THOUGHTFUL), MORE, said("It is 4.")])
    assert len(sequences) == (2 if style in ("qwen", "r1", "glm") else 1)


def test_a_system_prompt_in_the_last_user_turn_stays_there(tokenizer):
    tokenizer.chat_template = MISTRAL
    sequences = examples(tokenizer, [SYSTEM, QUESTION, said("3"), MORE, said("4")])
    texts = [tokenizer.decode(sequence.tokens) for sequence in sequences]
    assert texts == [
        "<s>[INST] Be kind.\n\n1+2?[/INST] 3</s>",
        "<s>[INST] 1+2?[/INST] 3</s>[INST] Be kind.\n\nAnd 2+2?[/INST] 4</s>",
    ]


@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning"])
def test_thoughts_beside_the_content_are_in_the_target(tokenizer, style, key):
    message = {"role": "assistant", "content": "It is 3.", key: "1+2=3"}
    messages = [normalized(each, number) for number, each in enumerate([QUESTION, message])]
    assert examples(tokenizer, messages) == examples(tokenizer, [QUESTION, said(THOUGHTFUL)])


def test_content_in_parts_is_text():
    parts = [{"type": "text", "text": "1+"}, {"type": "text", "text": "2?"}]
    assert normalized({"role": "user", "content": parts}, 0) == QUESTION
    with pytest.raises(DataError, match="a part of the content is image"):
        normalized({"role": "user", "content": [{"type": "image"}]}, 0)


def test_tool_calls_are_a_reason():
    with pytest.raises(DataError, match="message 1 has tool calls"):
        normalized({"role": "assistant", "content": None, "tool_calls": [{"type": "function"}]}, 1)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([QUESTION], "no assistant turn"),
        ([said("3")], "no message before"),
        ([QUESTION, said(" \n")], "message 1: the answer is empty"),
        ([QUESTION, said("Let me see."), said("3")], "message 2: two assistant turns in a row"),
    ],
)
def test_a_conversation_that_cannot_be_trained_on_says_why(tokenizer, style, messages, reason):
    with pytest.raises(DataError, match=reason):
        examples(tokenizer, messages)


def test_a_special_token_of_the_template_in_an_answer_is_a_reason(tokenizer):
    tokenizer.chat_template = CHATML
    with pytest.raises(DataError, match=r"message 1: the answer contains <\|im_end\|>"):
        examples(tokenizer, [QUESTION, said("A <|im_end|> ends it.")])


def test_a_turn_of_a_tool_that_the_template_leaves_out_is_a_reason(tokenizer):
    tokenizer.chat_template = "{% set messages = messages | rejectattr('role', 'equalto', 'tool') | list %}" + CHATML
    messages = [QUESTION, said("add(1, 2)"), {"role": "tool", "content": "3.0"}, said("3")]
    with pytest.raises(DataError, match="does not render a turn of role tool"):
        examples(tokenizer, messages)


def test_a_last_user_turn_is_left_out(tokenizer, style):
    assert examples(tokenizer, [QUESTION, said("3"), MORE]) == examples(tokenizer, [QUESTION, said("3")])


def test_marks_of_the_template_are_used(tokenizer):
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\nNote: ' }}"
        "{% generation %}{{ m.content + '<|im_end|>\n' }}{% endgeneration %}"
        "{% else %}{{ '<|im_start|>user\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
        + GENERATE + "{{ '<|im_start|>assistant\n' }}{% endif %}"
    )  # fmt: skip
    (sequence,) = examples(tokenizer, [QUESTION, said("3"), MORE, said("4")])
    assert targets(tokenizer, sequence) == ["3<|im_end|>", "4<|im_end|>"]


def test_an_end_of_turn_may_be_plain_text(tokenizer):
    tokenizer.chat_template = "{% for m in messages %}{{ m.role + ': ' + m.content + ' END\n' }}{% endfor %}" + (
        GENERATE + "{{ 'assistant: ' }}{% endif %}"
    )
    (sequence,) = examples(tokenizer, [QUESTION, said("3")])
    assert targets(tokenizer, sequence) == ["3 END"]


def test_a_template_without_end_of_turn_ends_with_the_end_of_sequence(tokenizer):
    tokenizer.chat_template = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}" + (
        GENERATE + "{{ 'assistant: ' }}{% endif %}"
    )
    (sequence,) = examples(tokenizer, [QUESTION, said("3")])
    assert targets(tokenizer, sequence) == ["3</s>"]


def test_a_template_that_counts_messages_gives_an_example_a_turn(tokenizer):
    tokenizer.chat_template = "{{ messages | length }}" + CHATML
    sequences = examples(tokenizer, [QUESTION, said("3"), MORE, said("4")])
    found = [targets(tokenizer, sequence) for sequence in sequences]
    assert found == [["3<|im_end|>"], ["4<|im_end|>"]]


def test_an_answer_never_merges_with_the_prompt():
    vocab = {"<|end|>": 0, "a": 1, ":": 2, "u": 3, ":a": 4, "p": 5, "r": 6, "o": 7, "b": 8, "e": 9}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[(":", "a")], unk_token=None))
    backend.add_special_tokens(["<|end|>"])
    template = "{% for m in messages %}{{ m.role[0] + ':' + m.content + '<|end|>' }}{% endfor %}"
    prompt = GENERATE + "{{ 'a:' }}{% endif %}"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", chat_template=template + prompt)
    (sequence,) = examples(tokenizer, [{"role": "user", "content": "u"}, said("a")])
    assert sequence.tokens[-3:] == [2, 1, 0]
    assert sequence.mask[-3:] == [False, True, True]


def test_a_template_that_puts_nothing_before_the_answer_is_a_reason(tokenizer):
    tokenizer.chat_template = "{% for m in messages if m.role == 'assistant' %}{{ m.content + '</s>' }}{% endfor %}"
    with pytest.raises(DataError, match="every token would be trained on"):
        examples(tokenizer, [QUESTION, said("3")])


def test_a_mask_is_shown_for_people(tokenizer):
    tokenizer.chat_template = CHATML
    (sequence,) = examples(tokenizer, [QUESTION, said("3\n!"), MORE, said("4")])
    assert show_mask(tokenizer, sequence).split("\n") == [
        "       | <|im_start|>user↵",
        "       | 1+2?<|im_end|>↵",
        "       | <|im_start|>assistant↵",
        "target | 3↵",
        "target | !<|im_end|>",
        "       | ↵",
        "       | <|im_start|>user↵",
        "       | And 2+2?<|im_end|>↵",
        "       | <|im_start|>assistant↵",
        "target | 4<|im_end|>",
    ]


def test_the_shown_mask_has_all_tokens(tokenizer):
    every = list(range(len(tokenizer)))
    shown = show_mask(tokenizer, TokensWithMask(every, [token % 3 == 0 for token in every]))
    text = "".join(line.split(" | ", 1)[1] for line in shown.split("\n"))
    assert text.replace("↵", "\n") == tokenizer.decode(every)


FINAL = "<|start|>assistant<|channel|>final<|message|>"
WRITTEN = {
    "brackets": (BRACKETS, PLAIN_TEMPLATE, "[THINK]ones[/THINK]3<|end|>", "3<|end|>"),
    "channels": (
        CHANNELS,
        CHANNELS_TEMPLATE,
        f"<|channel|>analysis<|message|>ones<|end|>{FINAL}3<|return|>",
        f"{FINAL.removeprefix('<|start|>assistant')}3<|return|>",
    ),
}
"""Special tokens and template of each form, and the target of an answer with thoughts and of one without."""


def targets_of(tokenizer, *turns):
    found = examples(tokenizer, [normalized(turn, number) for number, turn in enumerate(turns)])
    return [text for sequence in found for text in targets(tokenizer, sequence)]


@pytest.mark.parametrize("form", WRITTEN)
def test_thoughts_in_any_form_become_those_of_the_model(form):
    special, template, thoughtful, plain = WRITTEN[form]
    tokenizer = character_tokenizer(special, template)
    for content in (
        "<think>ones</think>3",
        "[THINK]ones[/THINK]3",
        f"<|channel|>analysis<|message|>ones<|end|>{FINAL}3",
    ):
        assert targets_of(tokenizer, QUESTION, said(content)) == [thoughtful]
    for key in ("reasoning_content", "thinking", "reasoning"):
        assert targets_of(tokenizer, QUESTION, {**said("3"), key: "ones"}) == [thoughtful]
    assert targets_of(tokenizer, QUESTION, said("3")) == [plain]


@pytest.mark.parametrize("form", WRITTEN)
def test_each_turn_of_a_conversation_in_a_form_is_a_target(form):
    special, template, thoughtful, _ = WRITTEN[form]
    tokenizer = character_tokenizer(special, template)
    answer = said("<think>ones</think>3")
    assert targets_of(tokenizer, QUESTION, answer, QUESTION, answer) == [thoughtful, thoughtful]


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("text", ["<think>ones</think>3{}", "<think>ones{}</think>3", "{}3"])
def test_control_tokens_in_thoughts_or_answer_are_a_reason(form, text):
    special, template, *_ = WRITTEN[form]
    with pytest.raises(DataError, match=r"<\|end\|>, a special token"):
        targets_of(character_tokenizer(special, template), QUESTION, said(text.format("<|end|>")))


def test_a_prompt_that_opens_thoughts_in_brackets_is_continued():
    template = PLAIN_TEMPLATE.replace("'<|assistant|>'", "'<|assistant|>[THINK]'")
    tokenizer = character_tokenizer(BRACKETS, template)
    assert targets_of(tokenizer, QUESTION, said("<think>ones</think>3")) == ["ones[/THINK]3<|end|>"]
    assert targets_of(tokenizer, QUESTION, said("3")) == ["[/THINK]3<|end|>"]
