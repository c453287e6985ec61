"""The work of `magcli cold-start`, once its options are checked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magcli.choices import AUTO
from magcli.console import counted
from magcli.curate import traces
from magcli.curate.published import check_distinct, columns_read, readable, texts_of, traces_of
from magcli.curate.tables import read_lenient, spilled_rows
from magcli.curate.traces import Candidate
from magcli.data.schema import TRACE, require
from magcli.data.seal import hash_text
from magcli.data.values import to_rows
from magcli.errors import DataError
from magcli.layouts.convert import selected
from magcli.model.model import Model
from magcli.run.layout import Converted
from magcli.run.validation import UNREAD
from magcli.stages.cold_start import Config
from magcli.stages.shared import engines, forms, graders, options, tables
from magcli.verify.format import gate
from magcli.verify.types import UNGRADED

if TYPE_CHECKING:
    from magcli.curate.tables import SpilledRows
    from magcli.curate.traces import MixedRow, Pick, Selection
    from magcli.data.source import Rows, Source
    from magcli.model.chat.thoughts import ThoughtForm
    from magcli.run.job import Job
    from magcli.verify.grader import Grader

    Row = dict[str, Any]

BATCH = 512
"""Rows of an output batch."""


def settings(config: Config) -> dict[str, Any]:
    """Digests of the instructions, of the system prompt and of a local tokenizer."""
    identity = engines.system_identity(config.system) | tables.table_identity("instructions", config.instructions)
    model = Model.open(config.tokenizer)
    # A hub id and an empty name are not local. Lengths do not depend on weights.
    return identity | {"tokenizer_sha256": model.config_digest} if model.is_local else identity


def layouts(config: Config, input_schemas: Sequence[pa.Schema]) -> list[dict[str, str] | Converted | DataError]:
    """The columns of the traces of each table, without large ones that are not needed (tokens and log-probs)."""
    return [_layout(table) for table in input_schemas]


def _layout(table: pa.Schema) -> dict[str, str] | Converted | DataError:
    """The columns of one table by name, or how it is converted from another layout."""
    converted = tables.layout_of(table, tables.TRACE_ROLES, natively=True)
    if isinstance(converted, DataError):
        return converted
    names = (converted.schema if converted else table).names
    answer = _answer_column(names)
    columns = {"answer" if name == answer else name: name for name in columns_read(names, answer)}
    if converted is None or not converted.layout:
        try:
            check_distinct(names)
        except DataError as error:
            return error
    return selected(converted, columns) if converted else columns


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """Traces."""
    return TRACE


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Select and mix traces, each as a conversation; reports the mix by source."""
    assert job.inputs is not None
    for source, columns, named in zip(job.sources, job.inputs.schemas, job.inputs.named, strict=True):
        if not named.layout:
            _check_columns(columns, source.name)
    form, rows = _form(config, rows, job)
    with spilled_rows() as traces, spilled_rows() as general:
        yield from _mixed(config, rows, traces, general, form, job)


def _form(config: Config, rows: Rows, job: Job) -> tuple[ThoughtForm, Rows]:
    """The form of thoughts of the model to train, and all rows."""
    # The model that is to be trained decides, not what wrote the traces.
    if config.tokenizer and config.thoughts == AUTO:
        form = Model.open(config.tokenizer).thoughts
        forms.record(form, job)
        return form, rows

    def texts(batch: pa.RecordBatch) -> Iterator[Any]:
        for row in to_rows(batch):
            yield from texts_of(row)

    return forms.form_of_rows(config.thoughts, rows, job, texts)


def _mixed(config: Config, rows: Rows, spilled: SpilledRows, general: SpilledRows, form: ThoughtForm, job: Job) -> Rows:
    system = engines.system_text(config.system, form)
    measure = _measure(config)
    # Rows pass through these filters one by one, onto the disk: a table of traces may not fit into memory.
    judged = _without_foreign_scores(_traces(rows, form), job)
    decided = _decided(judged, job)
    consistent = _consistent(decided, job)
    usable = _usable(consistent, system, job)
    candidates = _candidates(_spill(usable, spilled), config, measure)
    selection = _select(config, spilled, candidates, job)
    _check_format(config, [spilled[number] for number in selection.copies], form, job)

    instructions = _usable(_instructions(config, form, job), system, job)
    keys = [_key(row) for row in _spill(instructions, general)]
    num_copies = sum(selection.copies.values())
    # Their share of the whole mix, not of the traces.
    wanted = traces.num_instructions(num_copies, config.fraction) if keys else 0
    if len(keys) < wanted:
        text = f"{len(keys):,} instructions are fewer than the {wanted:,} of {config.fraction:.0%}"
        job.console.warn(f"cold-start: {text}")
    used = traces.sample(keys, wanted, seed=config.seed)
    picks = traces.mix({"traces": selection.copies, "instructions": used}, seed=config.seed)

    # Batch by batch, as the rows of a mix may not fit into memory either.
    tables_by_name = {"traces": spilled, "instructions": general}
    mixed: list[MixedRow] = []
    for start in range(0, len(picks), BATCH):
        batch = []
        for pick in picks[start : start + BATCH]:
            row = tables_by_name[pick.source][pick.row]
            trace = _trace(row, pick, system)
            mixed.append(traces.MixedRow(trace["source"], pick.copy, measure(trace), trace["weight"]))
            batch.append(trace)
        yield pa.RecordBatch.from_pylist(batch, TRACE)
    _report_rows(len(spilled), selection, len(keys), len(used), job)
    _report_mix(mixed, "tokens" if config.tokenizer else "characters", job)


def _spill(rows: Iterable[Row], spilled: SpilledRows) -> Iterator[Row]:
    """Pass rows on, and write each to disk."""
    for row in rows:
        spilled.append(row)
        yield row


def _trace(row: Row, pick: Pick, system: str | None) -> Row:
    source = pick.source
    if source == "traces" and row.get("step") is not None:  # of a run of magcli rl
        # The table of a run has its steps.
        source = "rollouts"
    return {
        "id": _key(row),
        "messages": tables.conversation(row, system),
        "source": str(row.get("source") or source),
        "weight": 1.0,
    }


def _check_columns(schema: pa.Schema, where: str) -> None:
    if not readable(schema.names, _answer_column(schema.names)):
        require(schema, ("prompt", "completion"), stage="cold-start", where=where)


def _answer_column(names: Sequence[str]) -> str | None:
    """The column with the answers of problems."""
    accepted = ("answer", *tables.ALIASES["answer"])
    return next((name for name in accepted if name in names), None)


def _traces(rows: Rows, form: ThoughtForm) -> Iterator[Row]:
    """All traces in the rows."""
    for batch in rows:
        for row in to_rows(batch):
            yield from traces_of(row, form)


def _without_foreign_scores(rows: Iterable[Row], job: Job) -> Iterator[Row]:
    """The rows; without their verdicts where these are scores, of which one is outside 0 to 1: it is a rating.

    All rows are read before the first is returned if the table has scores.
    """
    assert job.inputs is not None
    # Whether scores are verdicts is known after the last row, so rows wait on the disk.
    if not any("score" in table.names for table in job.inputs.schemas):
        yield from rows
        return
    with spilled_rows() as kept:
        outside = 0
        for row in rows:
            # Rows without a score count as within.
            outside += not 0 <= row.get("score", 0) <= 1
            kept.append(row)
        if outside:
            text = f"cold-start: column score is no verdict: {outside:,} values are not within 0 to 1"
            job.console.say(text, event="scores", outside=outside)
        for row in kept:
            if outside and "score" in row:  # its verdict is by a rating
                row.pop("correct", None)
                row.pop("unclear", None)
            yield row


def _decided(rows: Iterable[Row], job: Job) -> Iterator[Row]:
    """The rows without a verdict or with a true or false one; the others may be wrong, and are dropped."""
    for row in rows:
        if "unclear" in row:
            job.drops.row(_key(row), "unclear-verdict", row)
        else:
            yield row


def _consistent(rows: Iterable[Row], job: Job) -> Iterator[Row]:
    """The rows without a worked solution, or with one that arrives at the answer; the others are dropped."""
    with ExitStack() as stack:
        grader: Grader | None = None
        for row in rows:
            own_answer = row.get("own_answer")
            if own_answer and own_answer != row["answer"]:
                # Most tables have no such row, and starting workers takes a while.
                grader = grader or stack.enter_context(graders.open_grader(options.GraderOptions(workers=1)))
                if not grader.equal(own_answer, row["answer"]):
                    job.drops.row(_key(row), "other-answer", row)
                    continue
            yield row


def _check_format(config: Config, traces: Sequence[Row], form: ThoughtForm, job: Job) -> None:
    """Report the traces that break the format of the reward.

    Raises:
        DataError: most traces do, and --any-format is not given.
    """
    faults: Counter[str] = Counter()
    for row in traces:
        fault = gate(_answer(row), "code" if row.get("kind") == "code" else "math", form)
        # Else it is the parts of a completion in the format.
        if isinstance(fault, str):
            faults[fault] += 1
    if not faults:
        return
    broken = faults.total()
    text = f"{broken:,} of {len(traces):,} traces break the format of the reward ({counted(faults)})"
    # A few may be wrong; if most are, the model would learn to fail the reward.
    if 2 * broken > len(traces) and not config.any_format:
        raise DataError(
            f"cold-start: {text}, which is {form} and then a \\boxed{{}}; give worked solutions with their answers, "
            "or allow it by --any-format"
        )
    job.console.result(f"cold-start: {text}", event="format", **faults)


def _usable(rows: Iterable[Row], system: str | None, job: Job) -> Iterator[Row]:
    """The rows that are conversations; the others are dropped."""
    for row in rows:
        try:
            turns = tables.conversation(row, system)
            if not any(turn["role"] == "assistant" for turn in turns):
                raise DataError("the conversation has no turn of the assistant")
        except DataError as error:
            job.drops.row(_key(row), "unusable-trace", row, error=str(error))
        else:
            yield row


def _key(row: Mapping[str, Any]) -> str:
    """A key of a row that does not depend on its position."""
    id, group, sample = (row.get(name) for name in ("id", "group", "sample"))
    if id is None or id == "":
        # Without an id the text itself tells rows apart.
        content = json.dumps([row.get("messages"), row.get("prompt"), row.get("completion")])
        id = hash_text(content)[:16]
    parts = [str(part) for part in (id, group, sample) if part is not None]
    return "/".join(filter(None, parts))


def learned(_config: Config) -> pa.Schema:
    """Dropped rows are traces, of which a row may have several."""
    return pa.schema([(name, pa.string()) for name in ("id", "prompt", "completion")])


def _select(config: Config, spilled: SpilledRows, candidates: list[Candidate], job: Job) -> Selection:
    """The traces of the mix and their numbers of copies; the others are dropped with their reasons."""
    selection = traces.select(
        candidates,
        seed=config.seed,
        from_step=config.from_step,
        shortest=config.shortest,
        per_problem=config.per_problem,
        hardest=config.hardest,
        same=traces.near_duplicates(lambda number: _answer(spilled[number]), config.near),
    )
    for number, reason in selection.dropped.items():
        row = spilled[number] if job.drops.keep else {}  # which is read from disk
        job.drops.row(candidates[number].key, reason, row)
    count = job.drops.counts["near-identical"]
    if count:
        text = f"cold-start: {count:,} near-identical traces by --near {config.near:g}; a higher one keeps more"
        job.console.say(text, event="near-identical", dropped=count, near=config.near)
    return selection


def _candidates(rows: Iterable[Row], config: Config, measure: Callable[[Row], int]) -> list[Candidate]:
    """The facts about each trace that selection needs.

    Lengths are column num_tokens if all correct traces have it and no tokenizer is given, else as measured: lengths in
    different units are never mixed.
    """
    candidates = []
    lengths = []
    for number, row in enumerate(rows):
        candidates.append(_candidate(number, row))
        lengths.append(measure(row) if row.get("correct") else 0)  # selection ranks only correct traces by length
    # A single one in characters would be ranked among tokens.
    have_lengths = all(candidate.num_tokens for candidate in candidates if candidate.correct)
    if have_lengths and not config.tokenizer:
        return candidates
    return [candidate._replace(num_tokens=length) for candidate, length in zip(candidates, lengths, strict=True)]


def _candidate(number: int, row: Row) -> Candidate:
    """The facts about a trace; its problem is a hash of the question, as ids of two tables may collide."""
    # All turns but the answer.
    question = [turn["content"] for turn in row["messages"][:-1]] if row.get("messages") else row["prompt"]
    return Candidate(
        number,
        hash_text(json.dumps(question)),
        _key(row),
        _number(row, "num_tokens") or 0,
        row.get("correct"),
        _number(row, "step"),
        cut=row.get("finish") == "length",
        gradable=row.get("reason") not in UNGRADED,
    )


def _number(row: Row, name: str) -> int | None:
    """A count in a column, possibly as text.

    Raises:
        DataError: it is not a number.
    """
    value = row.get(name)
    if value is None or value == "":
        return None
    try:
        # CSV and JSON tables may have "12" or 12.0.
        return int(float(value))
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"cold-start: {name} of trace {_key(row)} is {value!r}, expected a number") from None


def _answer(row: Row) -> str:
    return str(row["messages"][-1]["content"] if row.get("messages") else row["completion"])


def _instructions(config: Config, form: ThoughtForm, job: Job) -> Iterator[Row]:
    if config.instructions is not None:
        source = read_lenient(config.instructions, lambda text: job.console.warn(f"cold-start: {text}"))
        yield from _traces(_in_layout(source, job), form)


def _in_layout(source: Source, job: Job) -> Rows:
    """The rows of the instructions in the columns that are read; those that cannot be read are dropped.

    Raises:
        DataError: the layout of the table is ambiguous, or it has no traces.
    """
    layout = _layout(source.schema)
    if isinstance(layout, DataError):
        raise DataError(f"cold-start: {source.name}: {layout}")
    if not isinstance(layout, Converted) or not layout.layout:
        _check_columns(source.schema, source.name)
    if not isinstance(layout, Converted):
        names = list(layout)
        yield from (batch.select(names) for batch in source.rows)
        return
    for batch in layout.rows(source.rows):
        # Null in rows that could be read.
        why = batch.column(UNREAD)
        for row in to_rows(batch.filter(why.is_valid())):
            # "reason<tab>what is wrong".
            reason, _, detail = row.pop(UNREAD).partition("\t")
            job.drops.row(_key(row), reason, row, error=detail)
        yield batch.filter(why.is_null()).drop_columns([UNREAD])


def _measure(config: Config) -> Callable[[Row], int]:
    """The length of an answer: in tokens of --tokenizer, else in characters."""
    if not config.tokenizer:
        return lambda row: len(_answer(row))

    tokenizer = Model.open(config.tokenizer).tokenizer
    return lambda row: len(tokenizer(_answer(row), add_special_tokens=False)["input_ids"])


def _report_rows(num_traces: int, selection: Selection, num_instructions: int, num_used: int, job: Job) -> None:
    """Report the traces selected and dropped, and the rows of the mix."""
    reasons: Counter[str] = Counter(selection.dropped.values())
    dropped = sum(job.drops.counts[reason] for reason in reasons)
    text = f"cold-start: {num_traces:,} traces in = {len(selection.copies):,} selected + {dropped:,} dropped"
    if reasons:
        text += f" ({counted(reasons)})"
    job.console.result(text, event="selected", **dict(reasons.most_common()))
    copies = sum(selection.copies.values())
    # A trace of a harder problem may have several copies.
    text = f"cold-start: selected traces make {copies:,} rows"
    if num_instructions:
        text += f", and {num_used:,} of {num_instructions:,} instructions"
    job.console.result(text, event="rows", traces=copies, instructions=num_used)


def _report_mix(mixed: list[MixedRow], unit: str, job: Job) -> None:
    """Report the mix by source, and the lengths of its answers."""
    if not mixed:
        job.console.result("cold-start: nothing selected", event="mix", mix={})
        return
    shares = traces.shares(mixed)
    table = "\n".join(traces.mix_table(shares, unit))
    mix = {source: vars(share) for source, share in shares.items()}
    job.console.result(table, event="mix", mix=mix, unit=unit)
    bins = traces.histogram(row.length for row in mixed)
    histogram = "\n".join(traces.histogram_lines(bins, unit))
    job.console.result(histogram, event="lengths", lengths=bins, unit=unit)
