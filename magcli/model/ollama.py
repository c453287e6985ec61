"""A Modelfile for Ollama: the chat template as a Go template, the texts that end a turn, and the system prompt.

A Go template is derived from the model's own chat template, by rendering conversations and looking at what stands
between their texts, and it is kept only if it gives the same prompts for all of ``CHECKED``. Otherwise the Modelfile
has none: GGUF files have the original template, which Ollama may know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magcli.errors import DataError, EnvironmentFault
from magcli.model.chat.prompts import common_prefix, render_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Conversation = Sequence[tuple[str, str]]
"""Roles and texts, in order; ``system`` only first."""

CHECKED: Sequence[Conversation] = (
    [("user", "Question?")],
    [("system", "Rules."), ("user", "Question?")],
    [("user", "Question?"), ("assistant", "Answer."), ("user", "More?")],
    [("system", "Rules."), ("user", "1"), ("assistant", "2"), ("user", "3"), ("assistant", "4"), ("user", "5")],
    [("user", "Question?"), ("assistant", "<think>\nThoughts.\n</think>\n\nAnswer."), ("user", "More?")],
)
"""Conversations whose prompts have to be the same by both templates, one with thoughts in an earlier turn."""

SYSTEM, FIRST, ANSWER, NEXT = "\u00abS\u00bb", "\u00abU\u00bb", "\u00abA\u00bb", "\u00abV\u00bb"
"""Texts that stand in no template."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """What a chat template writes around the texts of a conversation.

    Attributes:
        head: at the start of a conversation without a system prompt.
        before_system, after_system: around the system prompt.
        before_user: before a user's text.
        system_in_user: the system prompt is inside the first user's turn, after ``before_user``.
        before_answer, after_answer: around an assistant's text, which a user's text precedes.
        end: after the last user's text, where the assistant's turn begins.
    """

    head: str
    before_system: str
    after_system: str
    before_user: str
    system_in_user: bool
    before_answer: str
    after_answer: str
    end: str

    def render(self, conversation: Conversation) -> str:
        """The prompt of a conversation that ends with a user's turn; what ``go`` makes Ollama write."""
        system = next((text for role, text in conversation if role == "system"), "")
        opening = f"{self.before_system}{system}{self.after_system}" if system else self.head
        inside_turn = ""  # what the next user's turn begins with
        parts = []
        if system and self.system_in_user:
            inside_turn = opening
        else:
            parts.append(opening)
        for role, text in conversation:
            if role == "user":
                parts += [self.before_user, inside_turn, text]
                inside_turn = ""
            elif role == "assistant":
                parts += [self.before_answer, text, self.after_answer]
        return "".join([*parts, self.end])

    def go(self) -> str:
        """The same as a template of Go, with Ollama's variables."""
        system = f"{self.before_system}{{{{ .System }}}}{self.after_system}"
        if self.system_in_user:
            head = f"{{{{ if not .System }}}}{self.head}{{{{ end }}}}" if self.head else ""
            opening = f"{{{{ $system := .System }}}}{head}"
            system = system.replace(".System", "$system")
            # Only in the first turn: the variable is emptied there.
            inside = f'{{{{ if $system }}}}{system}{{{{ $system = "" }}}}{{{{ end }}}}'
        else:
            head = f"{{{{ else }}}}{self.head}" if self.head else ""
            opening = f"{{{{ if .System }}}}{system}{head}{{{{ end }}}}"
            inside = ""
        user = f'{{{{ if eq .Role "user" }}}}{self.before_user}{inside}{{{{ .Content }}}}'
        answer = f'{{{{ else if eq .Role "assistant" }}}}{self.before_answer}{{{{ .Content }}}}{self.after_answer}'
        return f"{opening}{{{{ range .Messages }}}}{user}{answer}{{{{ end }}}}{{{{ end }}}}{self.end}"

    @property
    def is_plain(self) -> bool:
        """Whether no piece has characters with a meaning in a Go template or in a Modelfile."""
        system = self.before_system + self.after_system
        answer = self.before_answer + self.after_answer
        text = self.head + system + self.before_user + answer + self.end
        return not any(special in text for special in ("{{", "}}", '"""'))


def go_template(tokenizer: "PreTrainedTokenizerBase") -> str:
    """A model's chat template as a Go template for Ollama; empty if no faithful one is found."""
    try:
        pieces = _pieces(tokenizer)
        if pieces is None or not pieces.is_plain:
            return ""
        for conversation in CHECKED:
            if pieces.render(conversation) != _prompt(tokenizer, conversation):
                return ""
    except (DataError, EnvironmentFault, ValueError):  # no template, or one that takes other conversations
        return ""
    return pieces.go()


def _prompt(tokenizer: "PreTrainedTokenizerBase", conversation: Conversation) -> str:
    """The prompt of a conversation, without a first token that the tokenizer adds by itself, as Ollama does."""
    messages = [{"role": role, "content": text} for role, text in conversation]
    text = render_text(tokenizer, messages, add_generation_prompt=True)
    bos = tokenizer.bos_token
    adds_bos = bos and tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    return text.removeprefix(str(bos)) if adds_bos else text


def _pieces(tokenizer: "PreTrainedTokenizerBase") -> Pieces | None:
    """What the chat template writes around texts; None if it does not keep them whole and in order."""
    turns = [("user", FIRST), ("assistant", ANSWER), ("user", NEXT)]
    alone = _between(_prompt(tokenizer, turns), [FIRST, ANSWER, NEXT])
    with_system = _between(_prompt(tokenizer, [("system", SYSTEM), *turns]), [SYSTEM, FIRST, ANSWER, NEXT])
    if alone is None or with_system is None:
        return None
    start, before_answer, after_answer, end = alone
    before_system, after_system = with_system[:2]
    # It stands before the first question and after an answer, each time at the end.
    before_user = _common_end(start, after_answer)
    # Where no user's turn begins after the system prompt, it is inside the first one.
    in_user = not after_system.endswith(before_user)
    if in_user:
        before_user = _common_end(before_system, before_user)
    return Pieces(
        head=start.removesuffix(before_user),
        before_system=before_system.removesuffix(before_user) if in_user else before_system,
        after_system=after_system if in_user else after_system.removesuffix(before_user),
        before_user=before_user,
        system_in_user=in_user,
        before_answer=before_answer,
        after_answer=after_answer.removesuffix(before_user),
        end=end,
    )


def _common_end(one: str, other: str) -> str:
    """The longest text with which both end."""
    reversed_end = common_prefix(one[::-1], other[::-1])
    return reversed_end[::-1]


def _between(text: str, marks: Sequence[str]) -> list[str] | None:
    """What stands before, between and after marks; None if they are not in the text in this order, once each."""
    pieces = []
    for mark in marks:
        if text.count(mark) != 1:
            return None
        piece, _, text = text.partition(mark)
        pieces.append(piece)
    return [*pieces, text]


def modelfile(
    gguf: str, note: str, *, template: str, stops: Sequence[str], temperature: float | None, system: str | None
) -> str:
    """The text of a Modelfile.

    Args:
        gguf: name of the GGUF file, in the same folder.
        note: first line, a comment.
        template: as ``go_template``; empty leaves it to Ollama.
        stops: texts of the tokens that end a turn.
        temperature: that of the samples that the model was trained on; None leaves Ollama's.
        system: the system prompt; None leaves it out.
    """
    lines = [f"# {note}", f"FROM ./{gguf}"]
    if template:
        lines.append(f'TEMPLATE """{template}"""')
    if system and '"""' not in system:
        lines.append(f'SYSTEM """{system}"""')
    for stop in stops:
        if '"' not in stop and "\n" not in stop:  # it could not be quoted
            lines.append(f'PARAMETER stop "{stop}"')
    if temperature is not None:
        lines.append(f"PARAMETER temperature {temperature:g}")
    return "\n".join(lines) + "\n"
