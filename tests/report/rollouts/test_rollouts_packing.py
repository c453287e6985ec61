"""What a page of rollouts has inside, without a browser."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling import call_stage

from magcli.data import table
from magcli.errors import DataError
from magcli.report.rollouts import page, source, vocabulary
from magcli.report.rollouts.source import of_run, of_table
from magcli.report.rollouts.vocabulary import Vocabulary


def write_page(folder, rows):
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows), folder / "rows.parquet")
    page.write(folder / "page.html", of_table(folder / "rows.parquet", "Rows", ()))
    return folder / "page.html"


def test_every_text_is_in_the_page(rows, written, inside):
    found = inside(written)
    assert found.head["rows"] == len(rows) == sum(found.head["chunks"])
    texts = found.texts(0)
    assert [text.decode() for text in texts["completion"]] == [row["completion"] for row in rows]
    assert [text.decode() for text in texts["extracted"]] == [row["extracted"] for row in rows]
    assert [json.loads(text) for text in texts["messages"]] == [row["messages"] for row in rows]
    problems = [split.decode() for split in inside_problems(found, 2)]
    assert problems == [rows[0]["prompt"], rows[4]["prompt"]]


def inside_problems(found, place):
    lengths, text = found.parts("problems-0")[place : place + 2]
    ends = np.cumsum(np.frombuffer(lengths, "<u4")).tolist()
    return [text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def test_the_index_has_what_rows_are_filtered_by(rows, written, inside):
    found = inside(written)
    for name in ("reward", "step", "group", "num_tokens", "advantage"):
        assert found.column(name) == [row[name] for row in rows]
    for name in ("reason", "finish", "languages", "dropped"):
        assert found.column(name) == [row[name] for row in rows]
    assert found.column("version") == [row["step"] - 1 for row in rows]
    assert found.column("last_version") == [row["versions"][-1]["version"] for row in rows]
    assert found.head["problems"] == ["p0", "p1"]


def test_the_parts_of_a_custom_reward_replace_those_of_magclis(rows, written, inside):
    found = inside(written)
    parts = [column["name"] for column in found.head["columns"] if column.get("part")]
    assert parts == [
        "parts.correct",
        f"parts.{next(name for name in json.loads(rows[0]['reward_parts']) if '<' in name)}",
    ]
    assert found.column("parts.correct") == [row["reward"] for row in rows]


def test_tokens_have_their_values(rows, written, inside):
    counts, low, middle, high, lp_low, lp_high, *_ = inside(written).parts("tokens-0")
    assert np.frombuffer(counts, "<u4").tolist() == [len(row["tokens"]) for row in rows]
    codes = np.frombuffer(low, "u1").astype(int) | np.frombuffer(middle, "u1").astype(int) << 8
    assert set(high) == {0}
    pieces = pieces_of(inside(written))
    assert b"".join(pieces[code] for code in codes[:14]).decode(errors="replace").startswith("I think that the answer")
    halves = np.frombuffer(lp_low, "u1").astype(np.uint16) | np.frombuffer(lp_high, "u1").astype(np.uint16) << 8
    expected = np.concatenate([row["logprobs"] for row in rows])
    assert np.allclose(halves.astype("<u2").view("<f2"), expected, rtol=1e-3)


def pieces_of(found):
    lengths, text = found.parts("pieces")
    ends = np.cumsum(np.frombuffer(lengths, "<u4")).tolist()
    return [text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def test_no_text_ends_its_element(written):
    text = written.read_text()
    ours = text.count("<script>") + text.count('<script type="')
    assert text.count("</script>") == ours
    assert "document.title='broken'</script>" not in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


def test_a_table_of_completions_alone_has_a_page(tmp_path, inside):
    found = inside(write_page(tmp_path, [{"completion": "one"}, {"completion": None}]))
    assert [column["name"] for column in found.head["columns"]] == ["group"]
    assert found.head["problems"] == ["problem 1"]
    assert not found.head["hasTokens"]
    assert found.texts(0)["completion"] == [b"one", b""]


def test_columns_of_other_types_are_taken_or_left_out(tmp_path, inside):
    rows = [{"completion": f"c{i}", "reward": str(i), "step": "first", "prompt": [{"role": "user"}]} for i in range(2)]
    found = inside(write_page(tmp_path, rows))
    assert found.column("reward") == [0.0, 1.0]
    assert "step" not in [column["name"] for column in found.head["columns"]]
    assert json.loads(inside_problems(found, 2)[0]) == [{"role": "user"}]


def test_completions_of_a_problem_at_an_update_are_a_group(tmp_path, inside):
    rows = [{"id": "ab"[i % 2], "step": i // 4, "completion": "c"} for i in range(8)]
    assert inside(write_page(tmp_path, rows)).column("group") == [0, 1, 0, 1, 2, 3, 2, 3]


def test_no_rows_are_a_page(tmp_path, inside):
    found = inside(write_page(tmp_path, pa.table({"completion": pa.array([], pa.string())})))
    assert found.head["rows"] == 0


def test_values_that_are_not_one_a_token_are_left_out(tmp_path, inside):
    rows = [
        {"completion": "a", "tokens": [1 << 30, 2, 1], "logprobs": [-1.0]},
        {"completion": "b", "tokens": [2], "logprobs": [-1.0]},
        {"completion": "c", "tokens": None, "logprobs": None},
    ]
    found = inside(write_page(tmp_path, rows))
    assert pieces_of(found) == ["‹0›".encode(), "‹2›".encode(), "‹1›".encode()]
    assert found.parts("tokens-0")[5] == b"\x7e" * 3 + b"\xbc", "NaN three times, and -1"


def test_a_name_that_is_not_unicode_does_not_break_a_page(tmp_path, inside):
    pq.write_table(pa.table({"completion": ["a"]}), tmp_path / "rows.parquet")
    page.write(tmp_path / "page.html", of_table(tmp_path / "rows.parquet", "Rows \udcff", ()))
    assert inside(tmp_path / "page.html").head["title"] == "Rows \udcff"


def test_large_tables_are_several_chunks_and_huge_ones_are_thinned(tmp_path, inside, monkeypatch):
    rows = [{"completion": "x" * 1000, "group": i // 4} for i in range(8000)]
    found = inside(write_page(tmp_path, rows))
    assert len(found.head["chunks"]) > 2
    assert sum(found.head["chunks"]) == 8000
    monkeypatch.setattr(source, "MAX_BYTES", (tmp_path / "rows.parquet").stat().st_size // 2 + 1)
    found = inside(write_page(tmp_path, rows))
    assert set(found.column("group")) == set(range(0, 2000, 2))
    assert "one in 2 groups" in found.text


@pytest.fixture
def run(pipeline, tmp_path):
    """A copy of a run that was killed midway."""
    shutil.copytree(pipeline / "rl", tmp_path / "rl")
    shutil.rmtree(tmp_path / "rl" / "model")
    return tmp_path / "rl"


def test_a_run_that_was_killed_shows_what_it_has(pipeline, run, tmp_path, inside):
    (run / "rollouts" / "step-000006.arrow").unlink()
    (run / "groups" / "g-00000099.arrow").touch()
    found_source = of_run(run, "Run")
    written = page.write(tmp_path / "page.html", found_source)
    found = inside(tmp_path / "page.html")
    rows = [row for path in sorted((run / "rollouts").iterdir()) for row in read(path)]
    assert written.rows == len(rows) < len(read(pipeline / "rollouts.arrow"))
    assert [text.decode() for text in found.texts(0)["completion"]] == [row["completion"] for row in rows]
    assert "1 groups wait" in found.text
    assert found_source.tokenizer == run / "checkpoints" / "step-000006" / "tokenizer.json"


def read(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def test_a_run_without_rollouts_has_no_page(run, tmp_path):
    shutil.rmtree(run / "rollouts")
    assert of_run(run, "Run") is None
    call_stage("report", positional=[str(run)], out=tmp_path / "report.html")
    assert not (tmp_path / "report-rollouts.html").exists()
    assert 'id="rollouts"' not in (tmp_path / "report.html").read_text()


def test_damage_is_named(run, tmp_path):
    path = run / "rollouts" / "step-000003.arrow"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"step-000003\.arrow"):
        call_stage("report", positional=[str(run)], out=tmp_path / "report.html")
    call_stage("report", positional=[str(tmp_path)], out=tmp_path / "report.html")
    assert "Not in this report" in (tmp_path / "report.html").read_text()
    assert not (tmp_path / "report-rollouts.html").exists()


def test_a_table_that_is_named_has_a_page_also_of_another_tool(pipeline, tmp_path, inside, magcli):
    (tmp_path / "mine.jsonl").write_text('{"completion": "<b>"}\n')
    tables = [pipeline / "rollouts.arrow", pipeline / "eval-rl-completions.arrow", tmp_path / "mine.jsonl"]
    done = magcli("report", *tables, "-o", tmp_path / "a b.html")
    assert done.returncode == 0, done.stderr
    files = ["a b-rollouts.html", "a b-rollouts-2.html", "a b-rollouts-3.html"]
    assert [line.split(" (")[0] for line in done.stderr.splitlines()] == [
        f"report: {tmp_path / name}" for name in [*files, "a b.html"]
    ]
    assert [inside(tmp_path / name).head["rows"] for name in files] == [len(read(path)) for path in tables]
    assert 'href="a%20b-rollouts-2.html"' in (tmp_path / "a b.html").read_text()


def test_the_page_of_a_run_and_that_of_its_table_have_the_same_rows(pipeline, tmp_path, inside):
    call_stage("report", positional=[str(pipeline / "rl"), str(pipeline / "rollouts.arrow")], out=tmp_path / "r.html")
    one, other = inside(tmp_path / "r-rollouts.html"), inside(tmp_path / "r-rollouts-2.html")
    assert one.parts("index") == other.parts("index")
    assert one.texts(0) == other.texts(0)


def test_equal_rows_give_an_equal_page(pipeline, tmp_path):
    for name in ("a", "b"):
        page.write(tmp_path / name, of_run(pipeline / "rl", "Run"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_tokens_are_numbered_by_their_first_appearance():
    vocabulary = Vocabulary()
    assert vocabulary.codes(np.array([70_000, 5, 70_000, -3], np.int32)).tolist() == [0, 1, 0, 2]
    assert vocabulary.codes(np.array([5, 9, 1 << 30], np.int32)).tolist() == [1, 3, 2]
    assert vocabulary.ids == [70_000, 5, 0, 9]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"model": {"vocab": {"Ġa": 0, "Ã": 1, "©": 2}}, "decoder": {"type": "ByteLevel"}}, [b" a", b"\xc3", b"\xa9"]),
        ({"model": {"vocab": [["▁a", -1.0], ["<0x0A>", -2.0], ["é", -3.0]]}}, [b" a", b"\n", "é".encode()]),
        (
            {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1, "content": "<|end|>"}]},
            [b"a", b"<|end|>", "‹2›".encode()],
        ),
    ],
)
def test_the_texts_of_tokens_are_read_from_their_tokenizer(settings, expected, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(settings))
    assert vocabulary.texts(range(3), path) == expected


@pytest.mark.parametrize("text", ["{}", "[]", "no", '{"model": {"vocab": 3}}'])
def test_a_tokenizer_that_cannot_be_read_is_left_out(text, tmp_path):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match="is not a tokenizer"):
        vocabulary.texts([1], tmp_path / "tokenizer.json")


def test_the_texts_of_a_real_tokenizer_are_those_that_it_decodes(guesser, pipeline):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(guesser)
    for row in read(pipeline / "rollouts.arrow")[:20]:
        pieces = vocabulary.texts(row["tokens"], guesser / "tokenizer.json")
        assert b"".join(pieces).decode() == tokenizer.decode(row["tokens"], skip_special_tokens=False)
