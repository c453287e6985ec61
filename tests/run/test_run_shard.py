"""Parts of a table: none missing, none twice, in order; which of them are refused together, and what they tell."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.data.manifest import Input, Link
from magcli.data.source import Source
from magcli.errors import DataError, UsageError
from magcli.run.shard import Shard, bounds, history, parse, parts, resolved_options, slice_rows

SCHEMA = pa.schema([("n", pa.int64())])


def batches(*sizes):
    start = 0
    for size in sizes:
        yield pa.RecordBatch.from_pydict({"n": list(range(start, start + size))}, schema=SCHEMA)
        start += size


@settings(deadline=None)
@given(st.lists(st.integers(0, 7), max_size=6), st.integers(1, 9))
def test_shards_partition_the_table_in_order_and_evenly(sizes, out_of):
    total, found, counts = sum(sizes), [], []
    for number in range(1, out_of + 1):
        rows = [
            n for b in slice_rows(batches(*sizes), *bounds(Shard(number, out_of), total)) for n in b["n"].to_pylist()
        ]
        found += rows
        counts.append(len(rows))
    assert found == list(range(total))
    assert max(counts) - min(counts) <= 1


def test_every_shard_reads_the_table_to_its_end():
    read = []

    def rows():
        for batch in batches(2, 2, 2):
            read.append(batch.num_rows)
            yield batch

    assert [b.num_rows for b in slice_rows(rows(), 0, 1)] == [1]
    assert read == [2, 2, 2]


@pytest.mark.parametrize("text", ["1/1", "2/8", "08/8"])
def test_a_shard_is_a_number_of_a_count(text):
    assert str(parse(text)) == text.lstrip("0")


@pytest.mark.parametrize("text", ["", "0/2", "3/2", "1", "1/", "/2", "1/0", "-1/2", "1/2/3", "one/two"])
def test_an_invalid_shard_is_refused(text):
    with pytest.raises(UsageError, match=f"--shard: '{text}' is not I/N"):
        parse(text)


# ---- which shards make a whole ----

LINK = Link("grade", "1", {"seed": 0}, (Input("p.jsonl", "ab" * 32, 9),), 3, 2, {"wrong": 1})
PAST = (Link("convert", "1", {}),)


def source(number, out_of=3, *, past=PAST, schema=SCHEMA, config=(), **changes):
    link = replace(LINK, config={**LINK.config, **dict(config), "shard": f"{number}/{out_of}"}, **changes)
    return Source(f"part-{number}.arrow", schema, iter(()), (*past, link), f"{number}")


def test_joined_shards_have_the_history_of_one_run():
    found = parts([source(3, rows_in=4, dropped={"bad": 2}), source(1), source(2)])
    assert [part.shard.number for part in found] == [1, 2, 3]
    (*past, whole) = history(found)
    assert tuple(past) == PAST
    assert (whole.config, whole.rows_in, whole.rows_out, whole.dropped) == ({"seed": 0}, 10, 6, {"bad": 2, "wrong": 2})
    assert json.dumps(whole.dropped) == '{"bad": 2, "wrong": 2}', "in the order in which a whole run tells them"


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([source(1), source(3)], r"of 3 shards 2 is missing; .* the grade command of the others and --shard 2/3"),
        ([source(5, 12)], r"of 12 shards 1, 2, 3, 4, 6, 7, 8, 9 and 3 more are missing"),
        ([source(1), source(2), source(2), source(3)], r"part-2.arrow and part-2.arrow are both shard 2/3"),
        ([source(1), source(2, 4)], r"part-2.arrow belongs to another run than part-1.arrow: shards 4 \(other: 3\)"),
        ([source(1), source(2, config={"seed": 1})], r"part-2.arrow belongs to another run .*: seed 1 \(other: 0\)"),
        ([source(1), source(2, config={"new": 1})], r"part-2.arrow belongs to another run .*: new 1 \(other: None\)"),
        ([source(1), source(2, version="2")], r"part-2.arrow belongs to another run .*: version '2' \(other: '1'\)"),
        ([source(1), source(2, stage="generate")], r"part-2.arrow belongs to another run .*: stage 'generate'"),
        (
            [source(1), source(2, inputs=())],
            r"part-2.arrow belongs to another run .*: inputs \[\] \(other: \['p.jsonl abab",
        ),
        ([source(1), source(2, past=())], r"the input of part-2.arrow has another history"),
        ([source(1), source(2, schema=pa.schema([]))], r"part-2.arrow has other columns than part-1.arrow"),
        ([source(1), Source("x.jsonl", SCHEMA, iter(()))], r"x.jsonl is not a finished shard: it has no history"),
        (
            [Source("x.arrow", SCHEMA, iter(()), (LINK,))],
            r"x.arrow is not a finished shard: grade made it from a whole",
        ),
    ],
)
def test_incomplete_shards_are_refused_by_name(sources, message):
    with pytest.raises(DataError, match=message):
        parts(sources)


def test_number_formats_that_differ_between_shards_are_in_the_history():
    chosen = [source(n, config={"chosen": {"dtype": value}}) for n, value in ((1, "bf16"), (2, "fp32"), (3, "bf16"))]
    assert resolved_options(parts(chosen)) == {"dtype": "bf16, fp32"}
    assert history(parts(chosen))[-1].config == {"seed": 0, "chosen": {"dtype": "bf16, fp32"}}
    alike = [source(n, config={"chosen": {"dtype": "fp32"}}) for n in (1, 2, 3)]
    assert history(parts(alike))[-1].config["chosen"] == {"dtype": "fp32"}
