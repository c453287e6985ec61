"""How a run renders its prompts: from options to the chat template, its variables and its date."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.errors import EnvironmentFault
from magcli.stages.shared.options import template_source, template_variables

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from magcli.model.chat import ChatTemplate
    from magcli.run.job import Job, Notes
    from magcli.stages.shared.options import TemplateOptions

NO_SYSTEM = Path("none")
"""The option --system of a run without system prompt."""


def template_identity(config: TemplateOptions) -> dict[str, Any]:
    """The digest of --chat-template, which determines the rows as any option does."""
    text = template_source(config)
    return {"chat_template_sha256": hashlib.sha256(text.encode()).hexdigest()} if text else {}


def without_date(config: TemplateOptions) -> ChatTemplate:
    """The chat template of the options alone, which is enough to find its end of turn."""
    from magcli.model.chat import ChatTemplate

    return ChatTemplate(template_source(config), template_variables(config))


def chat_template(
    model: str,
    config: TemplateOptions,
    job: Job,
    unfinished: Sequence[Notes] | None = None,
    *,
    system: Path | None = NO_SYSTEM,
    date: str = "",
) -> ChatTemplate:
    """How a run renders its prompts.

    A template that prints today's date gets that of the run's start: ``date``, or what ``unfinished`` work recorded (as
    in ``Job.choose``). Says once where the system prompt goes if the template does not take it.
    """
    from magcli.model.chat import use_template

    template = without_date(config)
    if model.startswith(("http://", "https://")):
        return template
    from magcli.model.load import load_tokenizer  # imports torch, which a server's client does not need

    try:
        tokenizer = load_tokenizer(model, template)
    except EnvironmentFault:
        return template  # the stage that opens the model says what is wrong; a processor may have the template
    if "strftime_now" in str(tokenizer.chat_template):
        template = replace(template, date=_date(job, unfinished, date))
        use_template(tokenizer, template)
    if system is None or system != NO_SYSTEM:
        say_where_system_goes(tokenizer, job)
    return template


def _date(job: Job, unfinished: Sequence[Notes] | None, date: str) -> str:
    def today(_option: str) -> tuple[str, str]:
        return datetime.date.today().isoformat(), "the chat template prints it"

    return job.choose({"date": date or "auto"}, today, unfinished)["date"]


def say_where_system_goes(tokenizer: PreTrainedTokenizerBase, job: Job) -> None:
    """Say that the chat template does not take a system prompt, if so."""
    from magcli.model.chat import takes_system

    if not takes_system(tokenizer):
        text = "the chat template takes no system prompt; it is put before the text of the first user turn"
        job.console.say(f"{job.stage}: {text}", event="system-in-question")
