"""Formats of inputs, inferred from samples."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.curate.inputs.format import Line, Mismatch, Repeat, Size, infer, is_int, lines_of, read

ROW = (Line((0,)), Line((), 1, Size(0)))
EDGES = (Line((0, 1)), Repeat(Size(1), (Line((2, 3)),)))


@pytest.mark.parametrize(
    ("texts", "format"),
    [
        (["3 4\n", "1 2\n"], (Line((0, 1)),)),
        (["3\n1 2 3\n", "2\n5 6\n"], ROW),
        (["3 2\n1 2\n2 3\n", "4 0\n", "5 1\n5 1\n"], EDGES),
        (["3\n1 2\n2 3\n", "1\n", "4\n1 2\n1 3\n1 4\n"], (Line((0,)), Repeat(Size(0, -1), (Line((1, 2)),)))),
        (["3 1 2 3\n", "1 7\n"], (Line((0,), 1, Size(0)),)),
        (["2 3\nabc\ndef\n", "3 1\na\nb\nc\n"], (Line((0, 1)), Repeat(Size(0), (Line((2,)),)))),
        (
            ["2\n3\n1 2 3\n1\n9\n", "1\n2\n4 5\n", "3\n1\n1\n1\n1\n2\n7 8\n"],
            (Line((0,)), Repeat(Size(0), (Line((1,)), Line((), 2, Size(1))))),
        ),
        (["8 7\n3 4\n", "5 6\n", "9 9\n8 8\n7 7\n"], (Line((0, 1)), Repeat(Size(None), (Line((2, 3)),)))),
    ],
)
def test_relations_are_found(texts, format):
    assert infer(texts) == format
    assert all(read(format, lines_of(text)) for text in texts)


def test_without_samples_there_is_no_format():
    assert infer([]) is None
    assert infer(["\n"]) is None


@pytest.mark.parametrize("text", ["3\n1 2\n", "2\n1 2\n3\n", "x\n1\n", ""])
def test_other_inputs_do_not_match(text):
    with pytest.raises(Mismatch):
        read(ROW, lines_of(text))


def test_a_piece_knows_its_integers_and_those_before_it():
    first, second, third = read(EDGES, lines_of("4 2\n1 2\n3 4\n"))
    assert first.scope == {0: 4, 1: 2}
    assert (second.head, third.scope) == (("1", "2"), {0: 4, 1: 2, 2: 3, 3: 4})
    assert first.run == 0
    assert second.run == third.run > 0


def test_integers_are_written_as_programs_write_them():
    assert [word for word in ("0", "-5", "007", "-0", "1.0", "", "-", "٣", "12") if is_int(word or "x")] == [
        "0",
        "-5",
        "12",
    ]


def grid(random, cases):
    """Cases of a number of rows and columns, then so many rows."""
    lines = [str(cases)]
    for _ in range(cases):
        height, width = random.randint(1, 4), random.randint(1, 4)
        lines.append(f"{height} {width}")
        lines += [" ".join(str(random.randint(0, 9)) for _ in range(width)) for _ in range(height)]
    return "\n".join(lines) + "\n"


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_an_inferred_format_parses_all_samples(seed):
    random = Random(seed)
    texts = [grid(random, random.randint(1, 4)) for _ in range(5)]
    found = infer(texts)
    assert found is not None
    assert all(len(read(found, lines_of(text))) == len(lines_of(text)) for text in texts)
