"""SFT examples of a conversation: a target is what the engine would have generated.

The prompt of an assistant turn is that of ``prompt_tokens``. Its target is the assistant's text, thoughts included, as
the template writes it in the last turn, up to the end of turn. If the template does not keep the text (it strips
thoughts, or its generation prompt opens them), the target is the text itself, less what the prompt already opens.
Thoughts are in the model's form; those in another form of ``magcli.model.chat.thoughts`` are rewritten. Turns share one
sequence as long as the prompt of the next turn continues it; else each is an example of its own.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from magcli.errors import DataError
from magcli.model.chat.ends import special_tokens
from magcli.model.chat.messages import REASONING, THOUGHTS
from magcli.model.chat.prompts import (
    PROBES,
    as_read,
    common_prefix,
    once_a_template,
    prompt_tokens,
    render_text,
    rendered,
    takes_system,
    template_variables,
    thought_form,
    token_ids,
)
from magcli.model.chat.thoughts import ThoughtForm, rewritten

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    Message = Mapping[str, str]

MARKS = re.compile(r"{%-?\s*generation\s*-?%}")
"""The start of what a template marks as generated."""
LAST_TAG = re.compile(r"(<[\w -]+>|\[[A-Z_ -]+\])\s*\Z")
"""An opening tag at the end of a prompt, such as ``<think>``."""


class TokensWithMask(NamedTuple):
    """A sequence's token ids, and for each token whether it is a target."""

    tokens: list[int]
    mask: list[bool]


@dataclass(frozen=True, slots=True)
class Style:
    """What a template writes around the text of an assistant's turn, found by rendering a probe conversation.

    ``lead`` is the whitespace, or the opening of an answer, between the generation prompt and the text, ``end`` the end
    of turn. ``control`` are the special tokens that structure a conversation: an engine never generates one inside of
    thoughts or of an answer. ``form`` is the form of thoughts, ``thoughts_key`` the key beside the content from which
    they are rendered, empty if there is none.
    """

    lead: str
    end: str
    control: frozenset[int]
    form: ThoughtForm
    thoughts_key: str
    has_marks: bool


def examples(tokenizer: "PreTrainedTokenizerBase", messages: "Sequence[Message]") -> list[TokensWithMask]:
    """The SFT examples of a conversation of normalized messages (``messages.normalized``).

    Turns after the last assistant turn are left out, and so is a greeting before the first question.

    Raises:
        DataError: the conversation cannot be trained on; the message says why.
    """
    style = style_of(tokenizer)
    turns = [_as_rendered(message, style) for message in messages]
    is_assistant = [turn["role"] == "assistant" for turn in turns]
    answers = [index for index, is_answer in enumerate(is_assistant) if is_answer]
    if not answers:
        raise DataError("no token would be trained on: the conversation has no assistant turn")
    # A greeting before the first question has no prompt.
    after_question = [index for index in answers if not all(is_assistant[:index])]
    if not after_question:
        raise DataError("no message before the assistant's turn: a conversation starts with a prompt")
    sequences: list[TokensWithMask] = []
    for index in after_question:
        try:
            prompt, target = _turn(tokenizer, turns[: index + 1], style)
        except DataError as error:
            raise DataError(f"message {index}: {error}") from error
        _append(sequences, prompt, target)
    return sequences


@once_a_template
def style_of(tokenizer: "PreTrainedTokenizerBase") -> Style:
    """The style of the tokenizer's template."""
    question = {"role": "user", "content": PROBES[1]}
    answer = {"role": "assistant", "content": PROBES[2]}
    more = {"role": "user", "content": PROBES[3]}
    prompt = render_text(tokenizer, [question], add_generation_prompt=True)
    whole = render_text(tokenizer, [question, answer])
    if PROBES[2] not in whole:
        raise DataError("the chat template does not render the assistant's text")
    form = thought_form(tokenizer)
    before, _, after = whole.rpartition(PROBES[2])
    # Between the prompt and the answer a template may write whitespace, or the opening of an answer.
    lead = before.removeprefix(prompt) if before.startswith(prompt) else ""
    # gpt-oss: the prompt ends before the channel of the answer.
    opens_answer = lead != "" and form.answer_opening.endswith(lead)
    if not lead.isspace() and not opens_answer:
        lead = ""
    longer = _rendered_if_taken(tokenizer, [question, answer, more], add_generation_prompt=True) or whole + prompt
    _, _, between = longer.rpartition(PROBES[2])
    end = _end_of_turn(tokenizer, after, between)
    marks_generation = MARKS.search(str(tokenizer.chat_template)) is not None
    return Style(
        lead=lead,
        end=end,
        control=_control_tokens(tokenizer, longer + end, form),
        form=form,
        thoughts_key=_thoughts_key(tokenizer, question),
        has_marks=marks_generation and tokenizer.is_fast,  # slow tokenizers do not say which tokens are marked
    )


def _rendered_if_taken(
    tokenizer: "PreTrainedTokenizerBase", turns: "Sequence[Message]", *, add_generation_prompt: bool = False
) -> str:
    """The text of a conversation; empty if the template rejects it, as one that takes only single turns does."""
    try:
        return render_text(tokenizer, turns, add_generation_prompt=add_generation_prompt)
    except DataError:
        return ""


def _thoughts_key(tokenizer: "PreTrainedTokenizerBase", question: "Message") -> str:
    """The key beside the content from which the template renders thoughts; empty if it renders none of them."""
    for key in THOUGHTS:
        thoughtful = {"role": "assistant", "content": PROBES[2], key: PROBES[4]}
        if PROBES[4] in _rendered_if_taken(tokenizer, [question, thoughtful]):
            return key
    return ""


def _end_of_turn(tokenizer: "PreTrainedTokenizerBase", after: str, between: str) -> str:
    """The end of turn that the template writes: up to its first added token, else its text.

    ``after`` is what follows the last assistant's text, ``between`` what follows it in a conversation that goes on. A
    template that writes only whitespace leaves the end to the tokenizer's end-of-sequence token.
    """
    # Also those that are not special: some templates end turns with such a token.
    added = {token.content for token in tokenizer.added_tokens_decoder.values()}
    added.add(str(tokenizer.eos_token))
    ends = [after.index(token) + len(token) for token in added if token in after]
    if ends:
        return after[: min(ends)]
    common = common_prefix(after, between) or after
    return common.rstrip() or str(tokenizer.eos_token)


def _control_tokens(tokenizer: "PreTrainedTokenizerBase", text: str, form: ThoughtForm) -> frozenset[int]:
    """The special tokens of a conversation, and the end-of-sequence token; not tags that are only used for thoughts."""
    used = special_tokens(tokenizer) & {*token_ids(tokenizer, text), tokenizer.eos_token_id}
    tags = [] if form.answer_opening else [form.opening, form.closing]
    not_control = {*tokenizer.convert_tokens_to_ids(tags), tokenizer.unk_token_id}
    return frozenset(used - not_control)


def _as_rendered(message: "Message", style: Style) -> dict[str, str]:
    """A message as the template gets it: with its thoughts in the content, unless the template renders them.

    In a form whose answer has an opening of its own, a template that renders thoughts writes all markers itself.
    """
    turn = dict(message)
    form = style.form
    thoughts = turn.pop(REASONING, "")
    if turn["role"] == "assistant" and not thoughts:
        turn["content"] = rewritten(turn["content"], form)
        writes_markers = form.answer_opening != "" and style.thoughts_key != ""
        if writes_markers and form.opens(turn["content"]):
            thoughts, turn["content"] = form.split(turn["content"])
    # A template that knows thoughts writes them where the model would.
    if thoughts and style.thoughts_key:
        turn[style.thoughts_key] = thoughts
    elif thoughts:
        turn["content"] = form.join(thoughts, turn["content"])
    return turn


def _turn(tokenizer: "PreTrainedTokenizerBase", turns: "Sequence[Message]", style: Style) -> tuple[list[int], Any]:
    """The prompt's tokens and the target of the last turn."""
    # The last turn is the target; what stands before it is its prompt.
    *before, answer = turns
    if before[-1]["role"] == "assistant":
        raise DataError("two assistant turns in a row: the second has no prompt of its own")
    thoughts = answer.get(style.thoughts_key, "")
    text = style.form.join(thoughts, answer["content"]) if thoughts else answer["content"]
    if not text.strip():
        raise DataError("the answer is empty")
    prompt = render_text(tokenizer, before, add_generation_prompt=True)
    _check_rendered(prompt, before)
    start = prompt_tokens(tokenizer, before)
    if not start:
        raise DataError("every token would be trained on: the chat template puts nothing before the assistant's turn")
    _check_control(tokenizer, text, style)
    return start, _target(tokenizer, turns, text, prompt, style)


def _check_rendered(prompt: str, before: "Sequence[Message]") -> None:
    """Refuse turns of tools that the template leaves out: the answer would follow from nothing."""
    for turn in before:
        usual = turn["role"] in ("system", "user", "assistant")
        if not usual and turn["content"].strip() not in prompt:
            raise DataError(f"the chat template does not render a turn of role {turn['role']}")


def _check_control(tokenizer: "PreTrainedTokenizerBase", text: str, style: Style) -> None:
    """Refuse a text with a token that structures conversations: the engine would have stopped there."""
    # Without the tags of thoughts, which may be special tokens themselves.
    for part in style.form.split(text):
        for token in token_ids(tokenizer, part):
            if token in style.control:
                name = tokenizer.convert_ids_to_tokens(token)
                raise DataError(f"the answer contains {name}, a special token of the chat template")


def _target(
    tokenizer: "PreTrainedTokenizerBase", turns: "Sequence[Message]", text: str, prompt: str, style: Style
) -> TokensWithMask:
    """The target of the last turn; with marks of the template, some of its tokens are not targets."""
    whole = _rendered_if_taken(tokenizer, turns)  # its prompt was taken, the conversation may be rejected
    # None: the template strips thoughts, or writes the text in another way.
    stop = _kept_until(whole, prompt, text, style.form)
    if stop is None:
        return _all_targets(tokenizer, _own_text(text, prompt, style) + style.end)
    if style.has_marks:
        marked = _marked(tokenizer, turns, prompt)
        if marked is not None:
            return _until(token_ids(tokenizer, style.end), marked)
    # Between the text and the end of the turn a template may write more, such as a newline, which is a target too.
    end = whole.find(style.end, stop)
    if end >= 0:
        stop = end
    return _all_targets(tokenizer, whole[len(prompt) : stop] + style.end)


def _all_targets(tokenizer: "PreTrainedTokenizerBase", text: str) -> TokensWithMask:
    tokens = token_ids(tokenizer, text)
    return TokensWithMask(tokens, [True] * len(tokens))


def _kept_until(whole: str, prompt: str, text: str, form: ThoughtForm) -> int | None:
    """Where the assistant's text ends in the rendered conversation; None if the template does not keep all of it."""
    if not whole.startswith(prompt):
        return None
    thoughts, answer = form.split(text)
    position = len(prompt)
    for part in (thoughts, answer.strip()):
        index = whole.find(part, position) if part else position
        if index < 0:
            return None
        position = index + len(part)
    return position


def _own_text(text: str, prompt: str, style: Style) -> str:
    """The text less what the prompt opens; a text without thoughts first closes those that the prompt opens."""
    form = style.form
    tag = _last_tag(prompt, form)
    if not tag:
        opens_answer = not style.lead.isspace()
        has_opening = opens_answer and form.opens(text)
        return text if has_opening else style.lead + text
    stripped = text.lstrip()
    if stripped.startswith(tag):
        opened = prompt[prompt.rindex(tag) :]  # the tag and the whitespace after it
        if stripped.startswith(opened):
            return stripped.removeprefix(opened)
        return stripped.removeprefix(tag).lstrip("\n")
    if tag == form.opening and form.ending not in text:
        return f"{form.inside}{form.ending}{form.after}{text}"
    return text


def _last_tag(prompt: str, form: ThoughtForm) -> str:
    """The opening tag at the end of a prompt, that of thoughts or any other; empty if there is none."""
    if prompt.rstrip().endswith(form.opening):
        return form.opening
    tag = LAST_TAG.search(prompt)
    return tag[1] if tag else ""


def _marked(tokenizer: "PreTrainedTokenizerBase", turns: "Sequence[Message]", prompt: str) -> TokensWithMask | None:
    """The last turn by the template's marks of what is generated; None if it has none there."""
    variables = template_variables(tokenizer)
    if turns[0]["role"] == "system" and not takes_system(tokenizer):
        return None
    conversation = as_read(tokenizer, turns)
    output = rendered(
        tokenizer.name_or_path,
        lambda: tokenizer.apply_chat_template(
            conversation, tokenize=True, return_dict=True, return_assistant_tokens_mask=True, **variables
        ),
    )
    # The whole conversation: the last turn is what follows the prompt.
    tokens = list(output["input_ids"])
    mask = [bool(value) for value in output["assistant_masks"]]
    prompt_ids = token_ids(tokenizer, prompt)
    start = len(prompt_ids)
    marked = [index for index, is_target in enumerate(mask) if is_target and index >= start]
    if tokens[:start] != prompt_ids or not marked:
        return None
    stop = marked[-1] + 1
    return TokensWithMask(tokens[start:stop], mask[start:stop])


def _until(end: list[int], target: TokensWithMask) -> TokensWithMask:
    """The target up to the last end of turn, where the engine stops; all of it if it has none."""
    tokens, mask = target
    # From the back: an answer may quote an end of turn.
    for stop in range(len(tokens), len(end) - 1, -1):
        if tokens[stop - len(end) : stop] == end:
            return TokensWithMask(tokens[:stop], mask[:stop])
    return target


def _append(sequences: list[TokensWithMask], prompt: list[int], target: TokensWithMask) -> None:
    """Add a turn to the last sequence if its prompt continues that one, else as a sequence of its own."""
    tokens = prompt + target.tokens
    if sequences:
        last = sequences[-1]
        size = len(last.tokens)
        if prompt[:size] == last.tokens:
            # What stands between the turns is given, not generated.
            between = [False] * (len(prompt) - size)
            sequences[-1] = TokensWithMask(tokens, last.mask + between + target.mask)
            return
    sequences.append(TokensWithMask(tokens, [False] * len(prompt) + target.mask))


def show_mask(tokenizer: "PreTrainedTokenizerBase", sequence: TokensWithMask) -> str:
    """The sequence for people to read: line breaks are shown as ``↵``, lines of targets begin with ``target``."""
    pairs = zip(sequence.tokens, sequence.mask, strict=True)
    parts = []
    for is_target, run in groupby(pairs, key=lambda pair: pair[1]):
        text = tokenizer.decode([token for token, _ in run])
        parts.append(_gutter(text, is_target))
    return "\n".join(parts)


def _gutter(text: str, target: bool) -> str:
    label = "target" if target else "      "
    lines = text.replace("\n", "↵\n").removesuffix("\n").split("\n")
    return "\n".join(f"{label} | {line}" for line in lines)
