from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from magcli.config import as_json, convert, did_you_mean, opt, resolve
from magcli.errors import UsageError


@dataclass(frozen=True)
class Config:
    number: int = opt(3, "A number.")
    share: float = opt(0.5, "A share.")
    name: str = opt("x", "A name.")
    on: bool = opt(False, "A switch.")
    some: tuple[int, ...] = opt((), "Numbers.")
    place: Path | None = opt(None, "A place.")
    kind: Literal["a", "b"] = opt("a", "A choice.")


def test_defaults_then_recipe_then_flags() -> None:
    config = resolve(Config, "s", {"number": 4, "share": 1, "some": [1, 2]}, {"number": 5})
    assert config == Config(number=5, share=1.0, some=(1, 2))
    assert isinstance(config.share, float)


def test_dashes_and_underscores_are_one() -> None:
    @dataclass(frozen=True)
    class Two:
        two_words: int = opt(1, "")

    assert resolve(Two, "s", {"two-words": 2}, {}) == resolve(Two, "s", {"two_words": 2}, {})


@pytest.mark.parametrize(
    ("key", "value", "result"),
    [
        ("number", "7", 7),
        ("share", 2, 2.0),
        ("share", "1e-3", 0.001),
        ("some", "1, 2,3", (1, 2, 3)),
        ("some", [], ()),
        ("place", "a/b", Path("a/b")),
        ("place", None, None),
        ("kind", "b", "b"),
        ("on", True, True),
    ],
)
def test_values_are_converted(key: str, value: Any, result: Any) -> None:
    assert getattr(resolve(Config, "s", {}, {key: value}), key) == result


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("number", True),
        ("number", 1.5),
        ("number", "x"),
        ("share", "x"),
        ("name", 3),
        ("on", 1),
        ("on", "yes"),
        ("some", ["x"]),
        ("kind", "c"),
        ("place", 3),
        ("some", 3),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_name(key: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"s\.{key}"):
        resolve(Config, "s", {key: value}, {})


def test_an_unknown_key_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"unknown key 'numbr'; did you mean 'number'\?"):
        resolve(Config, "s", {"numbr": 1}, {})
    with pytest.raises(UsageError, match="known: kind, name, number"):
        resolve(Config, "s", {"zzz": 1}, {})


def test_suggestions() -> None:
    assert did_you_mean("filter_mat", ["filter-math", "show"]) == "; did you mean 'filter-math'?"
    assert did_you_mean("zzz", ["b", "a"]) == "; known: a, b"


def test_as_json_is_plain() -> None:
    assert as_json(Config(place=Path("x"), some=(1,)))["place"] == "x"
    assert as_json(Config(place=Path("x"), some=(1,)))["some"] == [1]
    assert convert(tuple[str, ...], "a,b", "n") == ("a", "b")
