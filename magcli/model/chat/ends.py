"""The tokens at which a completion ends, for every engine, for training and for the files of a saved model."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from magcli.errors import DataError, usage
from magcli.model.chat.prompts import as_read, rendered, thought_form

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBE = "magcli"
"""The answer whose end is looked for in a rendered conversation."""

END_NAME = re.compile(r"</s>|(?<![a-z_])(eos|eot|eom|eod|(im_?)?end|end_?of_?\w+)(?!_?header)(_?id)?(?![a-z_])")
"""Names of tokens that end a turn or a text, such as <|im_end|>, <|eot_id|> and <end_of_turn>, in lower case."""


def end_tokens(model: Any, tokenizer: "PreTrainedTokenizerBase", stop: Sequence[str] = ()) -> frozenset[int]:
    """Token ids that end a sequence.

    These are the union of the generation config's, the tokenizer's, that which the chat template writes after an
    assistant message, and those of ``stop`` (see ``stop_tokens``). A token that closes the model's thoughts ends
    nothing as long as there is another.
    """
    configured = model.generation_config.eos_token_id if model.generation_config else None
    # transformers has one id, several or none here.
    listed = configured if isinstance(configured, list) else [configured]
    own = {token for token in (*listed, tokenizer.eos_token_id) if token is not None}
    candidates = own | set(turn_ends(tokenizer))
    closing_tag = thought_form(tokenizer).closing
    closing = {token for token in candidates if tokenizer.convert_ids_to_tokens(token) == closing_tag}
    # A model whose only end is that tag would never stop.
    ends = candidates - closing or candidates
    return frozenset(ends | set(stop_tokens(tokenizer, stop)))


def turn_ends(tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
    """The token that the chat template writes after an assistant message: the first special one.

    Empty without a template, if the template rejects the probe, and if it writes no special token there.
    """
    if tokenizer.chat_template is None:
        return ()
    conversation = [{"role": "user", "content": "?"}, {"role": "assistant", "content": PROBE}]
    try:
        turns = as_read(tokenizer, conversation)
        text = rendered(tokenizer.name_or_path, lambda: str(tokenizer.apply_chat_template(turns, tokenize=False)))
    except (DataError, ValueError, TypeError):  # a template for other conversations, or several without a default
        return ()
    # The last time: a template may quote earlier turns.
    _, answer, after = text.rpartition(PROBE)
    if not answer:
        return ()
    special = special_tokens(tokenizer)
    tokens = tokenizer(after, add_special_tokens=False)["input_ids"]
    # An engine stops at the first one, so it generates none that follows.
    return tuple(token for token in tokens if token in special)[:1]


def special_tokens(tokenizer: "PreTrainedTokenizerBase") -> set[int]:
    """The ids of the tokenizer's special tokens."""
    added = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | set(tokenizer.all_special_ids)


def stop_tokens(tokenizer: "PreTrainedTokenizerBase", stop: Sequence[str]) -> list[int]:
    """The ids of ``--stop``: each item is a token's text or its id.

    Raises:
        UsageError: an item is not a single token.
    """
    return [_stop_token(tokenizer, item) for item in stop]


def _stop_token(tokenizer: "PreTrainedTokenizerBase", item: str) -> int:
    size = len(tokenizer)
    if item.isdecimal():
        usage(int(item) < size, f"--stop {item}: the tokenizer has no such id; its ids are 0 to {size - 1}")
        return int(item)
    vocabulary = tokenizer.get_vocab()
    if item in vocabulary:
        return int(vocabulary[item])
    tokens = tokenizer(item, add_special_tokens=False)["input_ids"]
    usage(len(tokens) == 1, f"--stop {item!r} is {len(tokens)} tokens, not one; give a single token or its id")
    return int(tokens[0])


def unused_ends(tokenizer: "PreTrainedTokenizerBase", ends: Collection[int]) -> dict[int, str]:
    """Added tokens that look like the end of a turn or text by their name, but end nothing here; texts by id.

    Those that stand around thoughts are left out.
    """
    added: Mapping[int, Any] = tokenizer.added_tokens_decoder
    form = thought_form(tokenizer)
    # gpt-oss closes its thoughts with a token named like an end.
    around_thoughts = form.opening + form.ending
    unused = {}
    for index, token in added.items():
        text = str(token.content)
        looks_like_end = END_NAME.search(text.lower()) is not None
        if looks_like_end and index not in ends and text not in around_thoughts:
            unused[index] = text
    return unused
