"""How a run renders its prompts: from options to the chat template, its variables and its date."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.choices import AUTO
from magcli.errors import EnvironmentFault
from magcli.model.chat.prompts import ChatTemplate, takes_system
from magcli.model.model import Model
from magcli.stages.shared.options import template_source, template_variables
from magcli.verify.environment import terms_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from magcli.run.job import Job
    from magcli.run.types import Notes

NO_SYSTEM = Path("none")
"""The option --system of a run without system prompt."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model as options name it: its chat template, the form of its thoughts, and more tokens that end a completion.

    ``thoughts`` empty are those of the template and the tokenizer; ``environment`` has tools that templates list.
    """

    name: str
    chat_template: str
    variables: Mapping[str, Any]
    thoughts: str
    environment: str
    stop: Sequence[str]

    @classmethod
    def of(cls, config: Any) -> ModelSpec:
        """The model of a stage's ``TemplateOptions``, and of ``model`` and ``environment`` where it has them."""
        return cls(
            getattr(config, "model", ""),
            template_source(config),
            template_variables(config),
            "" if config.thoughts == AUTO else config.thoughts,
            getattr(config, "environment", ""),
            config.stop,
        )

    def open(self, name: str | Path | None = None) -> Model:
        """The model, or another one in its place.

        A template that prints today's date has none yet (see ``with_date``).
        """
        variables = {**self.variables, **_tools_of(self.environment)}
        template = ChatTemplate(self.chat_template, variables, thoughts=self.thoughts)
        return Model.open(self.name if name is None else name, template, self.stop)


def open_model(config: Any, name: str | Path | None = None) -> Model:
    """A stage's model, or another one, as its options name it."""
    return ModelSpec.of(config).open(name)


def _tools_of(environment: str) -> dict[str, Any]:
    """The variable of the chat template with the tools of an environment; none without any."""
    if not environment:
        return {}
    tools = [dict(tool) for tool in terms_of(environment).tools]
    return {"tools": tools} if tools else {}


def with_date(
    model: Model,
    job: Job,
    unfinished: Sequence[Notes] | None = None,
    *,
    system: Path | None = NO_SYSTEM,
    date: str = "",
) -> Model:
    """The model as a run renders its prompts.

    A template that prints today's date gets that of the run's start: ``date``, or what ``unfinished`` work recorded (as
    in ``Job.choose``). Reports once where the system prompt goes if the template does not take it.
    """
    if model.is_url:
        return model
    try:
        tokenizer = model.tokenizer
    except EnvironmentFault:
        return model  # the stage that opens the model says what is wrong; a processor may have the template
    # The function by which templates print the date; its use makes prompts differ from day to day.
    if "strftime_now" in str(tokenizer.chat_template):
        model = model.with_template(replace(model.template, date=_date(job, unfinished, date)))
    # None is magcli's own system prompt.
    if system is None or system != NO_SYSTEM:
        say_where_system_goes(model.tokenizer, job)
    return model


def _date(job: Job, unfinished: Sequence[Notes] | None, date: str) -> str:
    def today(_option: str) -> tuple[str, str]:
        return datetime.date.today().isoformat(), "the chat template prints it"

    # As an option left to ``auto``: a resumed run keeps its date.
    return job.choose({"date": date or "auto"}, today, unfinished)["date"]


def say_where_system_goes(tokenizer: PreTrainedTokenizerBase, job: Job) -> None:
    """Report it if the chat template does not take a system prompt."""
    if not takes_system(tokenizer):
        text = "the chat template takes no system prompt; it is put before the text of the first user turn"
        job.console.say(f"{job.stage}: {text}", event="system-in-question")
