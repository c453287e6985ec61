"""The ranges of statements."""

import pytest

from magcli.curate.inputs.values import constraints


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"an integer $n$ ($1 \le n \le 10^5$)", [("n", 1, 100_000)]),
        (r"$(3\leq n \leq10^5, 0\leq m\leq2\cdot10^5)$", [("n", 3, 100_000), ("m", 0, 200_000)]),
        (r"$-10^{9} \leqslant a_i, b_i < 10^{9}$", [("a_i", -(10**9), 10**9 - 1), ("b_i", -(10**9), 10**9 - 1)]),
        ("1 <= nums.length <= 10^4, 0 <= nums[i] <= 50", [("nums.length", 1, 10_000), ("nums[i]", 0, 50)]),
        (r"$1 \leq m \leq n \leq 100\,000$", [("m", 1, 100_000), ("n", 1, 100_000)]),
        (r"1 ≤ |s| ≤ 2 000", [("|s|", 1, 2000)]),
        (r"(0 &le; x &le; 2<sup>3</sup>), 1 &le; k &lt; 2^31 - 1", [("k", 1, 2**31 - 2)]),
        (r"$0 < p < 1$", [("p", 0, 1)]),
        (r"$1 \leq n \leq 10^{18}$", [("n", 1, 10**18)]),
        ("5 < n and n is at most 10", []),
    ],
)
def test_ranges_are_read_in_the_order_of_the_statement(text, found):
    read = [tuple(each) for each in constraints(text) if each.name != "x"]
    assert read == found
    assert all(isinstance(end, int) for _, *ends in read for end in ends)


def test_a_repeated_name_counts_only_with_its_first_range():
    text = "1 <= n <= 10, 0 <= p <= 1, 1 <= n <= 5, 0 <= p <= 1"
    assert [each.name for each in constraints(text)] == ["n", "p", "p"]
