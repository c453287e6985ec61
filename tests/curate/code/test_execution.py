"""Outputs that count as equal, by the problem's own rule."""

from hypothesis import given
from hypothesis import strategies as st

from magcli.curate.code.execution import _grouped
from magcli.curate.code.prepare import Prepared, prepare


def groups_of(outputs, *, compare="tokens", test=None):
    """Solutions with a wrong output, by group; and the output that stands for each group."""
    row = {"tests": [test or {"input": "", "output": "none of these"}], "solutions": ["pass"], "compare": compare}
    prepared = prepare(row)
    assert isinstance(prepared, Prepared)
    found = _grouped(prepared.plan, 0, dict(enumerate(outputs)))
    groups: dict[int, set[int]] = {}
    for solution, (group, _) in found.items():
        groups.setdefault(group, set()).add(solution)
    return {frozenset(group) for group in groups.values()}, {text for _, text in found.values()} - {None}


def test_text_is_compared_by_the_rule_and_represented_by_the_most_common_output():
    groups, texts = groups_of([b"Yes 1\n", b"yes  1", b"yes  1", b"no"])
    assert groups == {frozenset({0, 1, 2}), frozenset({3})}
    assert texts == {"yes  1", "no"}
    assert len(groups_of([b"Yes", b"yes"], compare="tokens-case")[0]) == 2


def test_outputs_within_a_tolerance_are_grouped_transitively():
    groups, _ = groups_of([b"1.00", b"1.18", b"1.09", b"2.0"], compare="floats:0.1")
    assert groups == {frozenset({0, 1, 2}), frozenset({3})}


def test_values_are_equal_as_values():
    call = {"call": "f(1)", "output": "0"}
    groups, texts = groups_of([b"0.30000000000000004", b"0.3", b'"0.3"', b'{"tuple":[1]}', b"[1]"], test=call)
    assert groups == {frozenset({0, 1}), frozenset({2}), frozenset({3, 4})}
    assert texts == {"0.3", "'0.3'", "[1]"}


def test_an_output_that_no_test_can_express_replaces_nothing():
    assert groups_of([b"\xff\xfe", b"\xff\xfe"]) == ({frozenset({0, 1})}, set())
    assert groups_of([b"{"], test={"call": "f(1)", "output": "0"}) == ({frozenset({0})}, set())


@given(
    st.lists(st.sampled_from([b"1", b"1.05", b"1.1", b"1.15", b"a", b"A", b""]), min_size=1), st.permutations(range(7))
)
def test_groups_do_not_depend_on_the_order_of_solutions(outputs, order):
    moved = [place for place in order if place < len(outputs)] + list(range(7, len(outputs)))
    groups, texts = groups_of(outputs, compare="floats:0.06")
    again, same = groups_of([outputs[place] for place in moved], compare="floats:0.06")
    assert {frozenset(moved[place] for place in group) for group in again} == groups
    assert same == texts
