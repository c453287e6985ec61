"""Tests of code problems in the forms of public data sets, among them pickles that are read without pickle."""

import base64
import json
import os
import pickle
import zlib

import pytest

from magcli.errors import DataError
from magcli.layouts.pickled import packed_json, plain_data
from magcli.layouts.tests import Called, read_tests

FEED = {"input": "1 2\n", "output": "3\n", "call": None, "assert": None}
FUNCTION = Called(function="add")
METHOD = Called(function="add", starter_code="class Solution:\n    def add(self, a, b):")


def packed(value):
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def called(call, output):
    return {"input": None, "output": output, "call": call, "assert": None}


def asserted(source):
    return {"input": None, "output": None, "call": None, "assert": source}


PYTEST = """
from solution import add
import math

def test_sum():
    '''It adds.'''
    numbers = (1, 2)
    total = add(*numbers)
    assert total == 3
    assert isinstance(total, int)

def test_zero():
    assert add(0, 0) == 0
"""

FORMS = {
    "mappings": ([{"input": "1 2\n", "output": "3\n"}], [FEED]),
    "streams": ([{"input": {"stdin": "1 2\n"}, "output": {"stdout": "3\n"}}], [FEED]),
    "by column": ({"inputs": ["1 2\n"], "outputs": ["3\n"]}, [FEED]),
    "lines": ({"inputs": [["1 2", ""]], "outputs": [["3", ""]]}, [FEED]),
    "JSON text": ('{"inputs": ["1 2\\n"], "outputs": ["3\\n"]}', [FEED]),
    "a Python literal": ("{'test_cases': [{'type': 'stdin_stdout', 'input': '1 2\\n', 'output': '3\\n'}]}", [FEED]),
    "types": ([{"type": "stdin_stdout", "input": "1 2\n", "output": "3\n", "fn_name": None}], [FEED]),
    "asserts": (["assert add(1, 2) == 3"], [asserted("assert add(1, 2) == 3")]),
    "a function": ({"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}, [called("add(1, 2)", "3")]),
    "a value in a list": (
        {"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]},
        [asserted("assert add(1, 2) in ([3], 3)")],
    ),
    "PrimeIntellect's calls": (
        [{"type": "function_call", "fn_name": "add", "input": [1, 2], "output": "3"}],
        [called("add(1, 2)", "3")],
    ),
    "LiveCodeBench's calls": (
        [{"testtype": "functional", "input": '"a"\n[1, null]', "output": "true", "metadata": {"func_name": "f"}}],
        [called("f('a', [1, None])", "True")],
    ),
    "a pytest script": (
        PYTEST,
        [
            asserted("assert add(*(1, 2)) == 3"),
            asserted("assert isinstance(add(*(1, 2)), int)"),
            asserted("assert add(0, 0) == 0"),
        ],
    ),
    "a pickle": (packed(json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}])), [FEED]),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_are_read(form):
    given, expected = FORMS[form]
    assert list(read_tests(given)) == expected


def test_functions_may_be_named_outside_of_the_tests_and_be_methods():
    given = {"inputs": [[1, 2]], "outputs": [3]}
    assert list(read_tests(given, FUNCTION)) == [called("add(1, 2)", "3")]
    assert list(read_tests(given, METHOD)) == [called("Solution().add(1, 2)", "3")]


REFUSED = {
    "a function without a name": (
        [{"testtype": "functional", "input": "1", "output": "1"}],
        "whose name is not stated",
    ),
    "files": ("def test_it(tmp_path):\n    assert add(1, 2) == 3", "they need files"),
    "no assertion": ("def test_it():\n    for i in (1, 2):\n        add(i, i)", "they assert nothing"),
    "unequal numbers": ({"inputs": ["1"], "outputs": []}, "1 inputs but 0 outputs"),
    "a number": (17, "expected tests as a list or a script, got int"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_read_is_refused_with_its_reason(what):
    given, reason = REFUSED[what]
    with pytest.raises(DataError, match=reason):
        list(read_tests(given))


SUITES = {
    "a loop": "def test_it():\n    for i in (1, 2):\n        assert add(i, i) == 2 * i",
    "an object with state": "def test_it():\n    box = Box()\n    one = box.take()\n    assert box.take() == 2",
    "rows": "import pytest\n@pytest.mark.parametrize('a', [1])\ndef test_it(a):\n    assert add(a, a) == 2",
    "a class": "from unittest import TestCase as C\nclass T(C):\n    def test_it(self):\n        self.assertTrue(f())",
}


@pytest.mark.parametrize("what", SUITES)
def test_a_script_that_is_more_than_asserts_stays_a_suite(what):
    assert [test["assert"] for test in read_tests(SUITES[what])] == [SUITES[what]]


def test_independent_tests_of_a_suite_are_tests_of_their_own():
    head = "import pytest\nX = 2\n\n@pytest.fixture\ndef two():\n    return X\n\n"
    one = "def test_one(two):\n    assert add(two, 1) == 3\n"
    other = "class TestMore:\n    @pytest.mark.slow\n    def test_other(self):\n        assert add(X, 2) == 4"
    tests = [test["assert"] for test in read_tests(f"{head}{one}{other}")]
    assert tests == [f"{head}{one}".rstrip(), f"{head}{other}"]
    shared = f"{head}{one}{other}".replace("X = 2", "X = []")
    assert [test["assert"] for test in read_tests(shared)] == [shared]


class Call:
    """Would call a function when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch called",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_of_every_protocol(protocol):
    shared = ["x", "é" * 300]
    value = {"a": [1, 2.5, None, True, False, -(2**70), "text", shared, shared], "b": (1, 2, 3, 4), "c": {}, "d": ()}
    assert plain_data(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_that_call_something_are_refused_and_call_nothing(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"opcode (GLOBAL|STACK_GLOBAL)"):
        plain_data(pickle.dumps([Call()], protocol))
    assert not (tmp_path / "called").exists()


DAMAGED = {
    "no base64": ("eJ?", "neither JSON nor a compressed pickle"),
    "truncated": (packed("x" * 5000)[:-24], "truncated, or larger|neither JSON"),
    "no pickle": (base64.b64encode(zlib.compress(b"plain")).decode(), "damaged|truncated"),
    "no JSON": (packed("plain"), "not JSON"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_pickles_are_refused(what):
    text, reason = DAMAGED[what]
    with pytest.raises(DataError, match=reason):
        packed_json(text)
