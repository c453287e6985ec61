"""The tokens between two turns of the policy: what an environment says, in the form of the model's chat template.

What the policy wrote stays the tokens that it sampled; only what follows is rendered, and appended. That is right for
templates that append: the text of a conversation must begin with that of its beginning. One that, for example, removes
the thoughts of earlier turns is refused, as the model would be trained on prompts that it never gets.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from magcli.errors import DataError, UsageError
from magcli.model.chat.prompts import PROBES, common_prefix, render_text, token_ids
from magcli.model.chat.thoughts import ThoughtForm

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOOL, USER = "tool", "user"
"""The roles of a tool's result and of the user."""
EXCERPT = 30
"""Characters of a template's text in messages."""

Turn = dict[str, Any]
"""A message as templates read it: ``role``, ``content``, and for tools their calls."""


@dataclass(frozen=True)
class TurnRenderer:
    """Renders what follows the policy's turns, in conversations that begin with the system prompt, if there is one.

    ``ends`` are the ids of the tokens that end a turn of the policy.
    """

    tokenizer: "PreTrainedTokenizerBase"
    ends: Collection[int]
    system: str | None
    thoughts: ThoughtForm

    @cached_property
    def shows_tools(self) -> bool:
        """Whether the template shows the results of tools."""
        result = {"role": TOOL, "content": PROBES[3]} | _result_of(TOOL)
        try:
            return PROBES[3] in render_text(self.tokenizer, [*self._question(), self._answer([result]), result])
        except DataError:
            return False

    def shown(self, replies: Sequence[Mapping[str, str]]) -> list[Turn]:
        """The replies as the template can show them: without turns for tools their results are turns of the user."""
        if self.shows_tools:
            return [dict(reply) for reply in replies]
        as_user = [{"role": USER, "content": reply["content"]} for reply in replies if reply["role"] == TOOL]
        return as_user if len(as_user) == len(replies) else [dict(reply) for reply in replies]

    def after(self, replies: Sequence[Turn]) -> tuple[int, ...]:
        """The tokens from the end of a turn of the policy, with its end token, to the beginning of the next one.

        Raises:
            DataError: the template rejects the replies, or is not append-only for them.
        """
        # A probe stands for what the policy wrote, whose tokens are kept as they are.
        turns = [*self._question(), self._answer(replies)]
        before = self._closed(render_text(self.tokenizer, turns), PROBES[2])
        whole = render_text(self.tokenizer, [*turns, *replies], add_generation_prompt=True)
        if fault := _change(before, whole):
            raise DataError(f"the chat template is not append-only: {fault}")
        return tuple(token_ids(self.tokenizer, whole[len(before) :]))

    def check(self, roles: Collection[str]) -> None:
        """Refuse a template that cannot show the turns of these roles, or changes what is before them.

        Raises:
            UsageError: it does; the message says what it changes.
        """
        advice = "give one that only appends with --chat-template"
        # What ``shown`` makes of them.
        shown = {USER if role == TOOL and not self.shows_tools else role for role in roles}
        for role in sorted(shown):
            try:
                fault = self._fault(role)
            except DataError as error:
                fault = str(error)
            if fault:
                raise UsageError(f"the environment has turns of the role {role}, but {fault}; {advice}")

    def _fault(self, role: str) -> str:
        """What the template does with turns of a role besides appending them; empty if nothing.

        Raises:
            DataError: it rejects them.
        """
        question = self._question()
        reply = {"role": role, "content": PROBES[3]} | _result_of(role)
        turns = [*question, self._answer([reply]), reply, self._answer([reply]), reply]
        # Of the conversation as it grows, from the question alone to all turns.
        texts = [self._beginning(turns[:length]) for length in range(len(question), len(turns) + 1)]
        # The question and one answer; and all turns.
        after_answer, whole = texts[1], texts[-1]
        if PROBES[3] not in whole:
            return "the chat template does not show them"
        if PROBES[4] not in after_answer:
            return "the chat template removes the thoughts of turns before them"
        for before, after in pairwise(texts):
            change = _change(before, after)
            if change:
                return f"the chat template is not append-only: {change}"
        self.after([reply])
        return ""

    def _question(self) -> list[Turn]:
        question: Turn = {"role": "user", "content": PROBES[1]}
        if not self.system:
            return [question]
        return [{"role": "system", "content": self.system}, question]

    def _answer(self, replies: Sequence[Turn]) -> Turn:
        """A turn of the policy, with the calls that these replies answer; templates may ask for these."""
        # With thoughts, since templates treat these differently in earlier turns.
        answer: Turn = {"role": "assistant", "content": self.thoughts.join(PROBES[4], PROBES[2])}
        results = [reply for reply in replies if reply["role"] == TOOL]
        if not results:
            return answer
        with_calls: Turn = answer | {"tool_calls": [_call(number, reply) for number, reply in enumerate(results)]}
        try:
            render_text(self.tokenizer, [*self._question(), with_calls, *replies])
        except DataError:
            return answer
        return with_calls

    def _beginning(self, turns: Sequence[Turn]) -> str:
        """The text of the beginning of a conversation, up to the end of its last turn."""
        last = turns[-1]["content"]
        if PROBES[2] in last:  # an answer, whose thoughts the template may write in another way
            last = PROBES[2]
        return self._closed(render_text(self.tokenizer, turns), last)

    def _closed(self, text: str, content: str) -> str:
        """A text up to the end token after the last turn, which has this content, or to its end without one."""
        content_start = text.rfind(content)
        if content_start < 0:
            return text
        content_stop = content_start + len(content)
        stops = []
        for token in self.ends:
            end = str(self.tokenizer.decode([token], skip_special_tokens=False))
            position = text.find(end, content_stop)
            if end and position >= 0:
                # The first end token after the content ends the turn.
                stops.append(position + len(end))
        return text[: min(stops, default=content_stop)]


def _call(number: int, result: Turn) -> Turn:
    """A call that a result may answer."""
    name = result.get("name") or "probe"
    function = {"name": name, "arguments": {"value": "1"}}
    return {"type": "function", "id": result.get("tool_call_id") or call_id(number), "function": function}


def _result_of(role: str) -> dict[str, str]:
    """What a reply of a tool has besides: the name of the tool and the first call."""
    return {"name": "probe", "tool_call_id": call_id(0)} if role == TOOL else {}


def call_id(number: int) -> str:
    """The id of a call: nine letters and digits, which is what Mistral's templates ask for."""
    return f"call{number:05d}"


def _change(before: str, after: str) -> str:
    """What a longer conversation changes in the text of a shorter one; empty if it only appends."""
    if after.startswith(before):
        return ""
    # An excerpt from the first difference on.
    same = len(common_prefix(before, after))
    old, new = before[same : same + EXCERPT], after[same : same + EXCERPT]
    return f"the next turn changes {old!r} of an earlier one to {new!r}"
