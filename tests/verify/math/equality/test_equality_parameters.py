"""Renaming a free parameter never changes a verdict, unless the new name is already used."""

from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.verify.math import equal

LETTERS = st.sampled_from(["k", "n", "m", "l", "j"])
DOMAINS = st.sampled_from(["Z", "N", "R"])
BODIES = st.sampled_from(
    [
        r"\frac{\pi}{4}+?\pi",
        r"x=?\pi",
        r"2?+1",
        r"x=\pm\frac{\pi}{3}+2?\pi",
        r"(1+?, 2-?)",
        r"x=?\pi, x=\frac{\pi}{2}+?\pi",
        r"60^\circ+360^\circ ?",
        "3?^2-x",
        r"y?+y",
    ]
)


@settings(max_examples=150, deadline=None)
@given(BODIES, BODIES, LETTERS, LETTERS, DOMAINS, DOMAINS)
def test_renaming_a_bound_parameter_never_changes_a_verdict(
    body: str, other: str, one: str, two: str, domain: str, second: str
) -> None:
    left, right = (
        rf"{text.replace('?', letter)}, {letter}\in\mathbb{{{values}}}"
        for text, letter, values in ((body, one, domain), (other, two, second))
    )
    assert equal(left, right) == (body == other and domain == second)


@settings(max_examples=60, deadline=None)
@given(BODIES, LETTERS, LETTERS, st.sampled_from("ZN"))
def test_a_domain_of_whole_numbers_may_be_unwritten_on_one_side(body: str, one: str, two: str, domain: str) -> None:
    assert equal(rf"{body.replace('?', one)}, {one}\in\mathbb{{{domain}}}", body.replace("?", two))
    assert not equal(rf"{body.replace('?', one)}, {one}\in\mathbb{{{domain}}}", body.replace("?", "a"))


REAL = st.sampled_from(["t", "s", "r", r"\lambda "])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["(1+?, 2-?)", "2?+1", r"x=1+?, y=2?"]), REAL, REAL)
def test_a_real_domain_may_be_unwritten_unless_the_letter_counts_periods(body: str, one: str, two: str) -> None:
    assert equal(rf"{body.replace('?', one)}, {one}\in\mathbb{{R}}", body.replace("?", two))
    assert not equal(rf"{one}\pi, {one}\in\mathbb{{R}}", r"k\pi")


@settings(max_examples=60, deadline=None)
@given(BODIES, LETTERS, DOMAINS)
def test_a_parameter_is_not_renamed_to_a_used_letter(body: str, letter: str, domain: str) -> None:
    rename_symbol = body.replace("?", letter)
    taken = "x" if "x" in body else "y" if "y" in body else ""
    if taken:
        assert not equal(rf"{rename_symbol}, {letter}\in\mathbb{{{domain}}}", body.replace("?", taken))


@settings(max_examples=60, deadline=None)
@given(LETTERS, LETTERS)
def test_given_letters_are_not_renamed(one: str, two: str) -> None:
    for body in ("2?+1", "?^2", "(?, 2?)", r"\frac{?(?+1)}{2}"):
        assert equal(body.replace("?", one), body.replace("?", two)) == (one == two)
