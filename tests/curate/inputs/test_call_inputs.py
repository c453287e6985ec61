"""New arguments of calls."""

import ast
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.curate.inputs.calls import mutations, shape_of
from magcli.curate.inputs.values import constraints

PLAIN = st.recursive(
    st.integers(-50, 50) | st.booleans() | st.text("abc", max_size=4) | st.floats(-5, 5, allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=6,
)


def made(calls, statement="", number=80):
    return list(islice(mutations(calls, constraints(statement), "seed"), number))


def arguments(call):
    return [ast.literal_eval(each) for each in ast.parse(call, mode="eval").body.args]


def test_arguments_keep_their_structure():
    calls = ["f([1, 2, 3], 'ab', (1, True))", "f([4], 'ba', (2, False))"]
    found = made(calls)
    assert len(set(found) - set(calls)) == len(found) == 80
    for call in found:
        numbers, text, (one, other) = arguments(call)
        assert all(type(number) is int for number in numbers)
        assert (set(text) <= set("ab"), type(one), type(other)) == (True, int, bool)
    assert made(calls) == found


def test_keywords_have_the_ranges_of_the_statement_and_methods_stay():
    calls = ["Solution().twoSum(nums=[2, 7], target=9)", "Solution().twoSum(nums=[3, 2, 4], target=6)"]
    found = made(calls, "2 <= nums.length <= 40\n0 <= nums[i] <= 30\n-5 <= target <= 60")
    lengths = set()
    for call in found:
        node = ast.parse(call, mode="eval").body
        assert ast.unparse(node.func) == "Solution().twoSum"
        values = {each.arg: ast.literal_eval(each.value) for each in node.keywords}
        assert all(0 <= number <= 30 for number in values["nums"])
        assert -5 <= values["target"] <= 60
        lengths.add(len(values["nums"]))
    assert {2, 40} <= lengths <= set(range(2, 41))


def test_lists_of_equal_length_keep_equal_lengths():
    for call in made(["f([1, 2], ['a', 'b'], 3)", "f([1], ['c'], 5)", "f([1, 5, 5], ['c', 'a', 'a'], 5)"]):
        one, other, _ = arguments(call)
        assert len(one) == len(other)


def test_a_sign_does_not_change():
    numbers = [arguments(call)[0] for call in made(["f(1)", "f(12)"], number=20)]
    assert min(numbers) >= 1
    assert max(numbers) > 12


def test_literals_inside_helpers_are_changed_and_the_helpers_stay():
    found = made(["set(f(list_node([1, 2])))", "set(f(list_node([3])))"], number=20)
    assert all(call.startswith("set(f(list_node([") for call in found)


def test_the_text_that_a_method_is_called_on_is_changed():
    new_calls = made(["'abc'.find('b')", "'cab'.find('a')"])
    assert all(call.endswith(")") and ".find('" in call for call in new_calls)
    assert len({call.split(".find(")[0] for call in new_calls}) > 10


def test_calls_without_literals_have_no_mutations():
    assert made(["f()", "f()"]) == []
    assert made(["f(x)"]) == []


@settings(max_examples=50, deadline=None)
@given(st.lists(PLAIN, min_size=1, max_size=4), st.integers(0, 99))
def test_new_calls_can_be_read_and_have_as_many_arguments(values, seed):
    calls = [f"f({value!r}, 1)" for value in values]
    for call in islice(mutations(calls, [], str(seed)), 10):
        found = arguments(call)
        assert len(found) == 2
        if len({type(value) for value in values}) == 1:
            assert type(found[0]) is type(values[0])


def test_values_of_mixed_types_are_kept_as_they_are():
    assert shape_of([1, "a"]).kind == "same"
    assert shape_of([[], []]).kind == "same"
    assert shape_of([1, 2.5]).kind == "float"
