from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from magcli.config import as_json, check_keys, convert, did_you_mean, has_flag, opt, read_recipe, removed_in, resolve
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


def test_dashes_and_underscores_are_equivalent() -> None:
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


@dataclass(frozen=True)
class Part:
    number: int | None = None
    two_words: str | None = None
    place: Path | None = None


@dataclass(frozen=True)
class Parted:
    """Options with an array of tables among them."""

    number: int = opt(1, "A number.")
    part: tuple[Part, ...] = opt((), "")


def parted(tmp_path: Path, text: str) -> Parted:
    (tmp_path / "recipe.toml").write_text(text)
    return resolve(Parted, "s", read_recipe(tmp_path / "recipe.toml", ["s"]).get("s", {}), {})


def test_an_option_may_be_an_array_of_tables(tmp_path: Path) -> None:
    config = parted(tmp_path, "[[s.part]]\nnumber = 2\ntwo-words = 'x'\n[[s.part]]\nplace = 'a/b'\n[[s.part]]\n")
    assert config == Parted(part=(Part(number=2, two_words="x"), Part(place=Path("a/b")), Part()))
    assert parted(tmp_path, "[s]\nnumber = 2") == Parted(number=2)


def test_an_array_of_tables_is_plain_json_without_omitted_keys() -> None:
    config = Parted(part=(Part(place=Path("x")), Part()))
    assert as_json(config) == {"number": 1, "part": [{"place": "x"}, {}]}
    assert resolve(Parted, "s", as_json(config), {}) == config


def test_an_array_of_tables_comes_only_from_the_recipe() -> None:
    assert not has_flag(tuple[Part, ...])
    assert all(map(has_flag, (int, str | None, tuple[int, ...], Literal["a"], Path | None)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[s.part]]\n[[s.part]]\ntwo_word = 'x'", r"s\.part 2: unknown key 'two_word'; did you mean 'two_words'\?"),
        ("[[s.part]]\nnumber = true", r"s\.part 1\.number: expected int, got True"),
        ("[[s.parts]]\nnumber = 1", r"recipe table \[s\]: unknown key 'parts'; did you mean 'part'\?"),
        ("[s.part]\nnumber = 1", r"s\.part: expected tables, each under a line \[\[s\.part\]\], got \{'number': 1\}"),
        ("[s]\npart = [1]", r"s\.part: expected tables"),
        ("[s]\npart = 'a,b'", r"s\.part: expected tables"),
    ],
)
def test_a_table_of_an_array_is_refused_by_its_number_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parted(tmp_path, text)


@pytest.mark.parametrize("value", ["[" * 100_000 + "]" * 100_000, "9" * 5000, "{"], ids=["deep", "digits", "cut"])
def test_a_recipe_that_cannot_be_parsed_is_named(tmp_path: Path, value: str) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"[s]\nnumber = {value}\n")
    with pytest.raises(UsageError, match=r"recipe .*recipe\.toml is not valid TOML: "):
        read_recipe(recipe, ["s"])


def test_a_folder_is_not_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"recipe {tmp_path} cannot be read: Is a directory"):
        read_recipe(tmp_path, ["s"])


@dataclass(frozen=True)
class Renamed:
    activation_checkpointing: Literal["auto", "yes", "no"] = opt("auto", "", former="recompute")


@pytest.mark.parametrize(
    ("recipe", "flags", "expected"),
    [
        ({}, {}, "auto"),
        ({"recompute": True}, {}, "yes"),
        ({"recompute": False}, {}, "no"),
        ({}, {"recompute": True}, "yes"),
        ({"recompute": True}, {"activation_checkpointing": "no"}, "no"),
        ({"activation-checkpointing": "yes"}, {"recompute": False}, "no"),
        ({"recompute": False}, {"recompute": False, "activation_checkpointing": "yes"}, "yes"),
    ],
)
def test_a_switch_that_became_a_choice_keeps_its_former_name(recipe, flags, expected):
    assert resolve(Renamed, "sft", recipe, flags).activation_checkpointing == expected


@dataclass(frozen=True)
class Sizes:
    group_size: int = opt(16, "", former="group")
    tis_cap: float = opt(0.0, "", former="is_cap")


@pytest.mark.parametrize(
    ("recipe", "flags", "expected"),
    [
        ({}, {}, Sizes()),
        ({"group": 4, "is-cap": 2}, {}, Sizes(4, 2.0)),
        ({}, {"group": 4, "is_cap": 2.0}, Sizes(4, 2.0)),
        ({"group": 4}, {"group_size": 8}, Sizes(8)),
        ({"group-size": 8}, {"group": 4}, Sizes(4)),
        ({"group": 4, "group-size": 8}, {}, Sizes(8)),
    ],
)
def test_an_option_keeps_its_former_name(recipe, flags, expected):
    assert resolve(Sizes, "rl", recipe, flags) == expected


def test_a_value_of_the_wrong_type_under_a_former_name_is_refused():
    with pytest.raises(UsageError, match=r"rl\.group_size: expected int, got True"):
        resolve(Sizes, "rl", {"group": True}, {})


@dataclass(frozen=True)
class Fewer:
    REMOVED: ClassVar[Mapping[str, str]] = {"old_rule": "there is one rule"}
    points: int = opt(4, "")


def test_an_option_that_is_gone_is_ignored_in_a_recipe_but_not_as_a_flag():
    table = {"old-rule": "x", "points": 5}
    assert removed_in(table, Fewer) == {"old-rule": "there is one rule"}
    assert resolve(Fewer, "s", table, {}) == Fewer(5)
    check_keys(Fewer, "s", table)
    with pytest.raises(UsageError, match="unknown key 'older'"):
        resolve(Fewer, "s", {"older": 1}, {})


@dataclass(frozen=True)
class Bounded:
    count: int = opt(1, "", gt=0)
    rate: float = opt(0.0, "", ge=0)
    points: int = opt(4, "", ge=4)
    share: float = opt(0.5, "", gt=0, le=1)
    part: float = opt(0.5, "", ge=0, lt=1)
    ks: tuple[int, ...] = opt((1,), "", gt=0)
    samples: int | None = opt(None, "", gt=0)
    from_: int = opt(1, "", gt=0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "s.count: 0 is not positive"),
        ({"rate": -0.1}, "s.rate: -0.1 is negative"),
        ({"points": 3}, "s.points: 3 is less than 4"),
        ({"share": 0.0}, "s.share: 0.0 is not in (0, 1]"),
        ({"part": 1.0}, "s.part: 1.0 is not in [0, 1)"),
        ({"ks": "1,0"}, "s.ks: 0 is not positive"),
        ({"samples": -1}, "s.samples: -1 is not positive"),
        ({"from": 0}, "s.from: 0 is not positive"),
    ],
)
def test_a_number_out_of_its_bounds_is_refused_from_flag_and_recipe(values: dict[str, Any], message: str) -> None:
    for recipe, flags in ((values, {}), ({}, {name.replace("from", "from_"): value for name, value in values.items()})):
        with pytest.raises(UsageError) as refused:
            resolve(Bounded, "s", recipe, flags)
        assert str(refused.value) == message


def test_numbers_at_their_bounds_are_accepted() -> None:
    flags = {"count": 1, "rate": 0.0, "points": 4, "share": 1.0, "part": 0.0, "ks": "1", "samples": 1}
    assert resolve(Bounded, "s", {}, flags) == Bounded(rate=0.0, share=1.0, part=0.0, samples=1)
