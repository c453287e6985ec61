"""Suites as files: those that are shipped, variants, a user's own, and what is wrong with one."""

from pathlib import Path

import pytest

from magcli.errors import UsageError
from magcli.evaluation.suite import load, shipped_names

OWN = """
verifier = "math"
[[source]]
files = ["mine.jsonl"]
prompt = "{question}"
answer = "{answer}"
"""


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_suite_loads(name: str) -> None:
    for suite in load([name]):
        assert suite.name == name or suite.name.startswith(f"{name}-")
        assert suite.about
        assert suite.sampling.temperature == 0.7
        assert suite.sampling.top_p == (0.95 if suite.kind == "code" else 1.0)
        assert all("{variant}" not in source.prompt + "".join(source.files) + source.hub for source in suite.sources)


def test_a_name_means_all_variants_and_one_can_be_chosen() -> None:
    every = [suite.name for suite in load(["mgsm"])]
    assert every == ["mgsm-en", "mgsm-de", "mgsm-es", "mgsm-fr", "mgsm-ru", "mgsm-zh"]
    assert [suite.name for suite in load(["mgsm-fr", "mmath-aime-zh", "mgsm-fr"])] == ["mgsm-fr", "mmath-aime-zh"]
    assert load(["mgsm-fr"])[0].sources[0].files == ("mgsm_fr.tsv",)


def test_a_custom_suite_needs_no_code(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(OWN)
    (suite,) = load([str(tmp_path / "mine.toml")])
    assert (suite.name, suite.kind, suite.function, suite.sampling.samples) == ("mine", "math", "", 4)
    (tmp_path / "mine.toml").write_text(OWN.replace('"math"', '"check.py:right"'))
    assert load([str(tmp_path / "mine.toml")])[0].function == f"{tmp_path}/check.py:right"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("verifier = ", "is not valid TOML"),
        ('verifier = "math"', r"needs a verifier and at least one \[\[source\]\]"),
        (OWN + 'promt = "x"\n', "unknown key 'promt'; did you mean 'prompt'"),
        ("samples = 3\n" + OWN, "unknown key 'samples'"),
        (OWN + '[sampling]\nsamples = "many"\n', "expected int, got 'many'"),
        (OWN.replace('"math"', '"maths"'), "unknown verifier 'maths'; did you mean 'math'.* file.py:function"),
        (OWN.replace('answer = "{answer}"', ""), "with the verifier math a source needs an answer"),
        (OWN.replace('"math"', '"code"'), "with the verifier code a source needs tests"),
        ('language = "yes"\n' + OWN, "suite mine: language: expected"),
        (OWN.replace('files = ["mine.jsonl"]\n', ""), "a source needs a prompt, and files or a hub id"),
    ],
)
def test_errors_in_a_suite_are_reported(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        load([str(tmp_path / "mine.toml")])


def test_an_unknown_suite_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"'aime42' is neither a suite nor a .toml file; did you mean 'aime2"):
        load(["aime42"])


def test_two_suites_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder, text in (("one", OWN), ("two", OWN.replace("question", "problem"))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.toml").write_text(text)
    one, two = (str(tmp_path / folder / "mine.toml") for folder in ("one", "two"))
    with pytest.raises(UsageError, match=f"{one} and {two} are both called mine; rename one"):
        load([one, two])
    assert [suite.name for suite in load([one, one])] == ["mine"]
