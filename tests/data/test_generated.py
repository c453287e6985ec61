"""Names of tables that a library makes: what they ask for, and errors in one line."""

import sys

import pytest

from magcli.data import table
from magcli.data.generated import is_generated, requested
from magcli.errors import EnvironmentFault, UsageError


def test_a_name_has_the_library_what_it_makes_and_options():
    request = requested("reasoning-gym:maze?size=3&min_dist=2&style=plain&lengths=[1, 2]&partial=true")
    assert (request.library, request.name) == ("reasoning-gym", "maze")
    assert request.options == {"size": 3, "min_dist": 2, "style": "plain", "lengths": [1, 2], "partial": True}


def test_only_names_of_libraries_are_generated_and_no_pattern():
    assert is_generated("verifiers:glossary")
    assert not is_generated("verifiers.jsonl")
    assert not is_generated("data:train")
    assert table.expand(["reasoning-gym:maze?size=3"]) == ["reasoning-gym:maze?size=3"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("reasoning-gym:", "name what reasoning-gym should make, as reasoning-gym:NAME"),
        ("reasoning-gym:maze?size", "after the question mark are options, as size=100&seed=0"),
        ("reasoning-gym:maze?size=1&size=2", "size is given twice"),
        ("reasoning-gym:maze?size=0", "size is 0, not a whole number from 1 on"),
        ("reasoning-gym:maze?size=many", "size is 'many', not a whole number from 1 on"),
        ("reasoning-gym:maze?size=2.0", "size is 2.0, not a whole number"),
        ("reasoning-gym:maze?seed=-1", "seed is -1, not a whole number from 0 on"),
        ("verifiers:sums?size=true", "size is True, not a whole number from 1 on"),
    ],
)
def test_a_name_that_asks_for_nothing_is_refused(name, problem):
    with pytest.raises(UsageError, match=problem.replace("?", r"\?").replace("[", r"\[")):
        table.read(name)


@pytest.mark.parametrize(("library", "module"), [("reasoning-gym", "reasoning_gym"), ("verifiers", "verifiers")])
def test_a_library_that_is_not_installed_is_named_with_its_command(library, module, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EnvironmentFault, match=f"{library} is not installed: pip install {library}$"):
        table.read(f"{library}:anything")
