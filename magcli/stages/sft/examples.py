"""From traces to what `magcli sft` trains on: tokens with their loss masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from magcli.console import put
from magcli.data import table
from magcli.data.schema import require
from magcli.data.values import to_rows
from magcli.errors import DataError
from magcli.model.chat import targets
from magcli.model.chat.prompts import check_vocabulary
from magcli.model.chat.targets import TokensWithMask, show_mask
from magcli.run.job import Drops
from magcli.stages.shared import engines, tables
from magcli.train.sft import Example

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.model.model import Model
    from magcli.run.job import Job
    from magcli.stages.sft.spec import TraceSpec


def examples_of(
    spec: TraceSpec, model: Model, rows: Rows, schema: pa.Schema, job: Job, where: str
) -> Iterator[Example]:
    """Tokenized conversations with their loss masks; unusable ones are dropped with a reason.

    A conversation whose earlier turns the template rewrites has several examples; how many is said at the end.
    """
    require_traces(schema, where)
    system = engines.system_text(spec.system, model.thoughts)
    longest = min(spec.max_length, model.context)
    vocabulary_size = int(model.text_config.vocab_size)
    split_rows = split_examples = 0
    for batch in rows:
        for row in to_rows(batch):
            try:
                sequences = targets.examples(model.tokenizer, tables.conversation(row, system))
            except DataError as error:
                job.drops.row(str(row.get("id") or ""), "unusable-trace", row, error=str(error))
                continue
            for sequence in sequences:
                # An id beyond the embedding would fail in the middle of training.
                check_vocabulary(sequence.tokens, vocabulary_size)
            weight = _weight(row)
            if weight is None:
                job.drops.row(str(row.get("id") or ""), "no-weight", row)
                continue
            # All or nothing: the examples of a conversation are parts of one.
            if any(len(sequence.tokens) > longest for sequence in sequences):
                job.drops.row(str(row.get("id") or ""), "too-long", row)
                continue
            if len(sequences) > 1:
                split_rows += 1
                split_examples += len(sequences)
            for tokens, mask in sequences:
                yield Example(tuple(tokens), tuple(mask), weight)
    if split_rows:
        text = f"{split_rows:,} conversations make {split_examples:,} examples"
        why = "the chat template rewrites earlier turns"
        job.console.say(f"sft: {text}: {why}", event="split", conversations=split_rows, examples=split_examples)


def require_traces(schema: pa.Schema, where: str) -> None:
    """Raise DataError if a table has neither messages nor prompts with completions."""
    if "messages" not in schema.names:
        require(schema, ("prompt", "completion"), stage="sft", where=where)


def show(examples: Sequence[Example], model: Model, job: Job, where: str) -> None:
    """Print examples with their loss masks."""
    require_examples(examples, job.drops.summary(), where)
    for example in examples:
        sequence = TokensWithMask(list(example.tokens), list(example.mask))
        put(show_mask(model.tokenizer, sequence) + "\n\n")


def require_examples(examples: Sequence[Example], reasons: str, where: str) -> None:
    """Raise DataError if a table has no usable trace; ``reasons`` are those of dropped rows."""
    if not examples:
        dropped = f" (dropped {reasons})" if reasons else ""
        raise DataError(f"sft: no usable trace in {where}{dropped}")


def _weight(row: dict[str, Any]) -> float | None:
    """The weight of a trace, 1 by default; None if it is not a number above 0."""
    weight = row.get("weight")
    if weight is None:
        return 1.0
    is_number = isinstance(weight, int | float) and isfinite(weight)
    return float(weight) if is_number and weight > 0 else None


def held_out_examples(spec: TraceSpec, model: Model, job: Job) -> list[Example]:
    """The examples of --held-out, without its unusable rows, which are counted apart; none without that option.

    Raises:
        DataError: none of its traces is usable.
    """
    if spec.held_out is None:
        return []
    source = table.read(str(spec.held_out))
    # They are no rows of the input, among which its drops are counted.
    apart = replace(job, drops=Drops(keep=False))
    examples = list(examples_of(spec, model, source.rows, source.schema, apart, source.name))
    reasons = apart.drops.summary()
    # Without any the last model would silently be the result, not the best.
    require_examples(examples, reasons, source.name)
    if reasons:
        dropped = apart.drops.counts
        text = f"sft: {dropped.total():,} held-out traces of {source.name} are not used ({reasons})"
        job.console.say(text, event="held-out-dropped", dropped=dict(dropped))
    return examples
