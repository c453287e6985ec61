"""The form of thoughts of a run: that of its model or its input, reported if it is not the recipe's, and recorded.

A run records the form as the choice ``thoughts``: in its folder or journal, and in the history of its table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from magcli.choices import AUTO
from magcli.model.chat.thoughts import FORMS, THINK, ThoughtForm, count_forms, form_named
from magcli.run.settings import CHOSEN

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows, Source
    from magcli.run.job import Job
    from magcli.run.types import Notes

    TextsOf = Callable[[pa.RecordBatch], Iterable[Any]]
    """The completions in a batch, and values that are no text."""

THOUGHTS = "thoughts"
"""The option, and the name under which the form is recorded."""
LOOKED_AT = 1024
"""Rows at the start of a table whose completions tell their form."""
LOOKED_AT_IN_PIPE = 64
"""The same for a pipe, whose first rows should not wait for many more."""


def record(form: ThoughtForm, job: Job, unfinished: Sequence[Notes] | None = None) -> None:
    """Record the form of a run's model; report it if it is not the recipe's; ``unfinished`` as in ``Job.choose``."""
    job.record({THOUGHTS: form.name}, unfinished)
    # The usual form needs no mention.
    if form != THINK:
        job.console.say(f"{job.stage}: thoughts are in the form {form}", event=THOUGHTS, form=form.name)


def _completions(batch: pa.RecordBatch) -> Iterable[Any]:
    completions: list[Any] = batch.column("completion").to_pylist()
    return completions


def form_of_rows(option: str, rows: Rows, job: Job, texts_of: TextsOf = _completions) -> tuple[ThoughtForm, Rows]:
    """The form of the thoughts in the completions of a table, and all of its rows.

    It is that of ``--thoughts``, or of the table's history, or of most of the first completions; in the last case a
    message says which it is. A resumed run keeps its form.
    """
    name = _form_name(option, job.sources)
    if name != AUTO:
        job.record({THOUGHTS: name})
        return form_named(name), rows
    is_pipe = job.total is None
    first, rows = _start(rows, LOOKED_AT_IN_PIPE if is_pipe else LOOKED_AT)
    values = chain.from_iterable(map(texts_of, first))
    texts = [value for value in values if isinstance(value, str)]
    name = _form_name(option, job.sources)  # the history of a short pipe has been read by now
    chosen = job.choose({THOUGHTS: name}, lambda _: _most_frequent(texts))
    return form_named(chosen[THOUGHTS]), rows


def recorded_form(sources: Sequence[Source]) -> ThoughtForm:
    """The form that the tables' histories name last, the recipe's if none does."""
    return form_of_option(_form_name(AUTO, sources))


def form_of_option(option: str) -> ThoughtForm:
    """The form that an option names, the recipe's if it leaves that to magcli and there are no rows to look at."""
    return THINK if option == AUTO else form_named(option)


def _form_name(option: str, sources: Sequence[Source]) -> str:
    """The form of an option, else that which the tables' histories name last; ``auto`` if none does."""
    if option != AUTO:
        return option
    name = AUTO
    for source in sources:
        for link in source.chain:
            # Links are from the oldest stage to the newest.
            name = recorded_choice(link.config, THOUGHTS) or name
    return name


def recorded_choice(record: Mapping[str, Any], option: str) -> str:
    """What an option left to ``auto`` resolved to in the record of a run or a stage; empty if it does not say."""
    chosen = record.get(CHOSEN)
    return str(chosen.get(option, "")) if isinstance(chosen, dict) else ""


def _start(rows: Rows, number: int) -> tuple[list[pa.RecordBatch], Rows]:
    """The batches with this number of first rows, or more, and all rows."""
    first: list[pa.RecordBatch] = []
    for batch in rows:
        first.append(batch)
        if sum(part.num_rows for part in first) >= number:
            break
    # ``rows`` is an iterator, which goes on after the batches that were taken.
    return first, chain(first, rows)


def _most_frequent(texts: Sequence[str]) -> tuple[str, str]:
    """The name of the form of most completions, the recipe's if none has thoughts, and the reason for a message."""
    counts = count_forms(texts)
    if not counts:
        # Such as bare answers.
        return THINK.name, f"{THINK}, the recipe's form: the {len(texts):,} completions have no other"
    # Of equal counts the form that is listed first.
    form = max(counts, key=lambda form: (counts[form], -FORMS.index(form)))
    return form.name, f"{form}: in {counts[form]:,} of {len(texts):,} completions"
