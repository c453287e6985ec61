"""New inputs: always in the inferred format, of all sizes, and with the relations of the samples."""

from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.curate.inputs.format import infer, lines_of, read
from magcli.curate.inputs.mutate import MAX_BYTES, mutations, tree
from magcli.curate.inputs.values import accepts, constraints, describe

ROW = ["3\n1 5 2\n", "2\n7 4\n", "4\n1 1 9 3\n"]
EDGES = ["3 2\n1 2\n2 3\n", "4 0\n", "5 1\n5 1\n", "4 3\n4 4\n1 1\n2 4\n"]
TREES = ["4\n1 2\n1 3\n3 4\n", "5\n1 2\n2 3\n3 5\n3 4\n"]
SORTED = ["5\n1 2 4 7 9\n", "4\n3 4 6 8\n"]
WORDS = ["3 xyz\n", "2 zx\n", "4 zzyx\n", "1 y\n", "2 yy\n", "1 z\n"]
COMMANDS = ["2\nadd\n", "3\ntake\n", "4\nadd\n", "1\ntake\n", "5\nadd\n", "2\ntake\n"]


def described(texts, statement=""):
    format = infer(texts)
    assert format is not None
    return describe(format, texts, constraints(statement))


def made(texts, statement="", number=60):
    return list(islice(mutations(described(texts, statement), texts, "seed"), number))


@pytest.mark.parametrize("texts", [ROW, EDGES, TREES, SORTED, WORDS])
def test_new_inputs_are_new_in_the_format_and_the_same_for_a_seed(texts):
    inputs, found = described(texts), made(texts)
    assert all(accepts(inputs, text) for text in [*texts, *found])
    assert len(set(found) - set(texts)) == len(found) > 10
    assert made(texts) == found


def test_sizes_span_the_range_of_the_statement():
    found = made(ROW, "1 <= n <= 1000 and 0 <= a_i <= 50")
    sizes = {int(text.split()[0]) for text in found}
    assert {1, 1000} <= sizes
    assert {size.bit_length() for size in sizes} >= {1, 2, 3, 5, 10}
    values = {word for text in found for word in text.split()[1:]}
    assert {"0", "50"} <= values
    assert all(0 <= int(value) <= 50 for value in values)
    assert any(len(set(text.split()[1:])) == 1 < len(text.split()) - 1 for text in found)


def test_without_stated_ranges_those_of_the_samples_apply():
    found = made(ROW)
    assert {int(text.split()[0]) for text in found} <= {2, 3, 4}
    assert {int(word) for text in found for word in text.split()[1:]} <= set(range(1, 10))


def test_a_value_bounded_by_another_reaches_it():
    """Vertices of edges are up to n in the samples, so they are up to n where n is larger."""
    found = made(EDGES, "1 <= n <= 100000, 0 <= m <= 200000", 80)
    edges = [(int(text.split()[0]), [*map(int, text.split()[2:])]) for text in found]
    assert all(1 <= vertex <= n for n, vertices in edges for vertex in vertices)
    assert max(vertex for _, vertices in edges for vertex in vertices) > 1000


def test_edges_of_trees_stay_trees():
    found = made(TREES, "2 <= n <= 100")
    assert max(int(text.split()[0]) for text in found) == 100
    inputs = described(TREES)
    assert inputs.trees
    assert not accepts(inputs, "4\n1 2\n1 2\n3 4\n")


def test_order_and_distinctness_and_lengths_are_preserved():
    for text in made(SORTED, "1 <= n <= 20"):
        values = [*map(int, text.split()[1:])]
        assert values == sorted(set(values))
    for text in made(WORDS, "1 <= n <= 30"):
        number, word = text.split()
        assert len(word) == int(number)
        assert set(word) <= set("xyz")


def test_words_of_a_fixed_choice_are_never_invented():
    assert {text.split()[1] for text in made(COMMANDS)} <= {"add", "take"}


def test_large_inputs_are_bounded():
    found = made(ROW, "1 <= n <= 10^18", 40)
    assert 10_000 < max(map(len, found)) <= MAX_BYTES


@given(st.integers(0, 200), st.integers(0, 10**6))
def test_trees_connect_all_vertices(edges, seed):
    found = tree(edges, Random(seed))
    reached = {1}
    for _ in range(edges):
        reached |= {vertex for edge in found if reached & set(edge) for vertex in edge}
        if len(reached) == edges + 1:
            break
    assert reached == set(range(1, edges + 2))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(-99, 99), min_size=1, max_size=6), min_size=2, max_size=5), st.integers(0, 999))
def test_mutations_match_the_format_of_their_row(rows, seed):
    texts = [f"{len(row)}\n{' '.join(map(str, row))}\n" for row in rows]
    inputs = described(texts)
    for text in islice(mutations(inputs, texts, str(seed)), 12):
        assert accepts(inputs, text)
        assert read(inputs.format, lines_of(text))
