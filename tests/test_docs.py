"""What the README, the documentation, the examples and the recipes say is run as it stands."""

import ast
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
import typer

from magcli import config as configuration
from magcli import trl_names
from magcli.cli import app, with_stages
from magcli.command import stage_of

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run(command: str, cwd: Path, timeout: int = 240) -> subprocess.CompletedProcess[str]:
    """Run a line of shell as a user would, the project's own tools first on the path."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def hooks() -> ModuleType:
    """The module that makes the pages of the stages."""
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STAGES = hooks().PAGES
"""The stages of magcli, and those of other packages in this repository."""
GENERATED = hooks().pages()
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
WRITTEN = {"README.md": README, "SECURITY.md": SECURITY} | {
    f"docs/{path.name}": path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))
}


@cache
def flags_of(stage: str) -> set[str]:
    """Every flag of a stage's command."""
    command: Any = typer.main.get_command(with_stages(STAGES))
    names = {name for each in command.commands[stage].params for name in (*each.opts, *each.secondary_opts)}
    return {name for name in names if name.startswith("-")} | {"--help"}


def magcli_commands(text: str) -> list[str]:
    """The magcli commands in the blocks of shell of a page, without comments, pipes taken apart."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    lines = [line.split(" #")[0] for block in blocks for line in re.sub(r"\s*\\\n\s*", " ", block).splitlines()]
    parts = [part.strip() for line in lines for part in re.split(r"\||&&", line)]
    return [part[part.index("magcli ") :] for part in parts if "magcli " in part and "pip install" not in part]


def code_spans(text: str) -> list[str]:
    """What stands in single backticks outside blocks, each on one line."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]


def test_readme_is_short() -> None:
    assert len(README.encode()) <= 12 * 1024


def test_readme_says_on_its_first_page_what_is_not_tested() -> None:
    first = README.split("## ")[0]
    assert all(word in first for word in ("Not tested", "CUDA", "NCCL", "vLLM on a GPU"))


def test_pages_do_not_contradict_the_readme() -> None:
    """What is not tested, and the commands for one's own data, are the same on the pages that repeat them."""
    note = README.split("**On a GPU today:** ")[1].split("\n\n")[0]
    sentence = " ".join(note.replace("docs/gpu.md", "gpu.md").split())
    assert sentence in " ".join(WRITTEN["docs/index.md"].split())
    commands = README.split("## Your data, your model")[1].split("```")[1]
    assert commands in WRITTEN["docs/getting-started.md"]


def test_pages_list_the_extras_that_there_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"dev"}
    table = WRITTEN["docs/getting-started.md"].split("| extra | adds |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.M)
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} - {"train"} == extras - {"train"}
    named = README.split("\nExtras: ")[1].split("\n\n")[0]
    assert extras <= set(re.findall(r"`([\w-]+)`", named))


def test_sizes_of_the_installation_are_the_same_on_both_pages() -> None:
    line = next(line for line in README.splitlines() if line.startswith("pip install -e . "))
    assert line in WRITTEN["docs/getting-started.md"]


def test_readme_lists_every_stage_and_no_other() -> None:
    table = README.split("## Stages")[1].split("\n\n")[1]
    named = re.findall(r"^\| `([\w-]+)` \|", table, re.M)
    assert sorted(named) == sorted(entry.name for entry in STAGES)


def unlisted_flags(command: str) -> set[str]:
    """The flags by which options were once called, and those of keys for recipes, which have no line on a page."""
    unlisted = [*configuration.former_names(stage_of(command).Config), *stage_of(command).IN_RECIPE]
    flags = {configuration.flag_name(name) for name in unlisted}
    return flags | {f"--no-{flag[2:]}" for flag in flags}


def test_every_stage_has_a_page_with_all_of_its_options() -> None:
    for entry in STAGES:
        page = GENERATED[f"stages/{entry.name}.md"]
        listed = flags_of(entry.name) - {"--help"} - unlisted_flags(entry.name)
        assert all(f"`{flag}`" in page for flag in listed), entry.name
        assert all(f"`{key}`" in page for key in stage_of(entry.name).IN_RECIPE), entry.name
        assert f"({entry.name}.md)" in GENERATED["stages/index.md"]


def test_pages_of_stages_escape_text() -> None:
    escape = hooks().escape
    assert escape("with --a-b, see `magcli c --d`") == "with `--a-b`, see `magcli c --d`"
    assert escape("a<b> w* `x_y|z` [c]|d_e") == r"a&lt;b&gt; w\* `x_y|z` \[c]\|d\_e"
    assert hooks().wrapped("magcli a b --c d --e f g", 14).splitlines() == ["magcli a b \\", "  --c d \\", "  --e f g"]


@pytest.mark.parametrize("name", [entry.name for entry in STAGES])
def test_a_wrapped_example_is_the_same_command(name: str) -> None:
    example = stage_of(name).EXAMPLE
    assert [shlex.split(command) for command in magcli_commands(GENERATED[f"stages/{name}.md"])] == [
        shlex.split(example)
    ]


def test_the_levels_of_the_sandbox_and_what_they_need_are_those_of_the_security_page() -> None:
    from magcli.stages.shared.options import Sandbox
    from magcli.verify.sandbox.levels import REQUIRED

    section = SECURITY.split("| `--sandbox` |")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^\| `([a-z-]+)`.*\|(.*)\|$", section, re.M))
    assert set(rows) == set(get_args(Sandbox))
    for level, primitives in REQUIRED.items():
        needs = rows["dangerously-none" if level == "none" else level].lower()
        named = {"pidfd": "linux 5."}
        assert all(named.get(primitive, primitive) in needs for primitive in primitives), (level, needs)


def test_exit_codes_are_those_of_the_errors() -> None:
    from magcli import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MagError)]
    listed = WRITTEN["docs/reliability.md"].split("## Exit codes")[1]
    assert all(re.search(rf"^\| {kind.exit_code} \|", listed, re.M) for kind in kinds)


def test_readme_pipe_runs_as_written() -> None:
    block = README.split("## One pipe")[1].split("```")[1].removeprefix("sh\n")
    assert block in WRITTEN["docs/getting-started.md"]
    done = run(block.replace("source .venv/bin/activate\n", ""), ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("16 rows\n")


def resolve(commands: Iterable[str]) -> None:
    """Resolve commands in the working directory; what is wrong with one is raised."""
    for command in commands:
        missing = ["--allow-missing"] if "--model" in command else []
        app([*shlex.split(command)[1:], "--dry-run", *missing], standalone_mode=False)


@pytest.mark.parametrize("page", [page for page in WRITTEN if magcli_commands(WRITTEN[page])])
def test_commands_of_a_page_resolve(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    resolve(magcli_commands(WRITTEN[page]))
    assert [path.name for path in tmp_path.iterdir()] == ["recipes"]


def blocks(text: str, *languages: str) -> list[str]:
    """The blocks of code of a page in these languages."""
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", text, re.M | re.S)


def tutorial(heading: str) -> str:
    """A section of the tutorials."""
    return WRITTEN["docs/tutorials.md"].split(f"\n## {heading}\n")[1].split("\n## ")[0]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """An empty folder with what the tutorials take from the repository."""
    for name in ("examples", "recipes"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.parametrize(
    ("heading", "made", "said"),
    [
        ("Own data", "report.html", "avg@n"),
        ("Own reward", "runs/brief/model/config.json", "reward"),
        ("Own environment", "episodes.jsonl", "completion"),
        ("Compare two runs", "runs.html", "Options that differ"),
    ],
)
def test_a_tutorial_runs_in_an_empty_folder(heading: str, made: str, said: str, clone: Path) -> None:
    done = run("\n".join(blocks(tutorial(heading), "sh", "bash")), clone, timeout=500)
    assert done.returncode == 0, done.stderr
    assert (clone / made).exists()
    assert said in done.stdout + done.stderr


def test_the_notebook_runs_in_a_clone(clone: Path) -> None:
    cells = json.loads((ROOT / "examples" / "notebook.ipynb").read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (clone / "cells.py").write_text("\n\n".join([*code, "assert rollouts.num_rows == again.num_rows == 8"]))
    done = run(f"{sys.executable} cells.py", clone)
    assert done.returncode == 0, done.stderr


def test_the_tutorial_from_python_runs(clone: Path) -> None:
    (clone / "notebook.py").write_text("\n".join(blocks(tutorial("From Python"), "python")))
    done = run(f"{sys.executable} notebook.py", clone)
    assert done.returncode == 0, done.stderr
    assert "'correct'" in done.stdout.splitlines()[-1]


def test_the_tutorial_on_slurm_has_options_of_rl() -> None:
    (block,) = blocks(tutorial("On Slurm"), "bash")
    assert subprocess.run(["bash", "-n"], input=block, text=True, check=False).returncode == 0
    script, command = block.split("slurm.sh ")
    assert (ROOT / f"{script.split()[-1]}slurm.sh").exists()
    flags = {word for word in command.split() if word.startswith("--")}
    assert flags <= flags_of(command.split()[0])


def config_of_trl() -> dict[str, Any]:
    """The keywords of the GRPOConfig on the page about TRL."""
    (source, *_) = blocks(WRITTEN["docs/from-trl.md"], "python")
    call = ast.parse(source).body[0]
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.value.keywords}


def test_the_config_of_trl_and_the_recipe_beside_it_say_the_same(tmp_path: Path, monkeypatch: Any) -> None:
    theirs = config_of_trl()
    (recipe,) = blocks(WRITTEN["docs/from-trl.md"], "toml")
    ours = tomllib.loads(recipe)["rl"]
    assert set(theirs) <= {*trl_names.OURS, "lr_scheduler_type"}
    options = {name: trl_names.OURS[name].options for name in theirs if name in trl_names.OURS}
    pairs = {
        name: (theirs[name], ours[option]) for name, ours_of in options.items() for option in ours_of if option in ours
    }
    numbers = [pair for pair in pairs.values() if not isinstance(pair[0], str | bool)]
    assert len(numbers) >= 6
    assert all(their == our for their, our in numbers), pairs
    assert ours["n_batch"] == theirs["per_device_train_batch_size"] * theirs["gradient_accumulation_steps"]
    (tmp_path / "recipe.toml").write_text(recipe)
    (tmp_path / "rewards.py").write_text("def right(completion, row):\n    return 1.0\n")
    monkeypatch.chdir(tmp_path)
    resolve(part.strip() for part in blocks(WRITTEN["docs/from-trl.md"], "bash"))


def test_names_of_trl_on_its_page_are_those_that_flags_are_answered_with() -> None:
    table = WRITTEN["docs/from-trl.md"].split("## Names")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", table, re.M)
    assert len(rows) > 15
    for theirs, ours in rows:
        known = [trl_names.OURS.get(name.split("=")[0]) for name in re.findall(r"`([^`]+)`", theirs)]
        assert all(known), theirs
        options = {configuration.flag_name(option) for each in known if each for option in each.options}
        assert set(re.findall(r"`(--[\w-]+)", ours)) <= options, theirs


def test_pages_have_commands() -> None:
    counts = {page: len(magcli_commands(text)) for page, text in WRITTEN.items()}
    assert counts["README.md"] >= 9
    assert counts["docs/evaluation.md"] >= 3
    assert sum(counts.values()) >= 30


@pytest.mark.parametrize("page", WRITTEN)
def test_flags_that_a_page_names_exist(page: str) -> None:
    foreign = {"--nproc-per-node", "--install-completion", "--index-url", "--security-opt", "--version", "--small"}
    known = {flag for entry in STAGES for flag in flags_of(entry.name)} | foreign
    for span in code_spans(WRITTEN[page]):
        flags = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", span))
        assert flags <= known, span
        if (words := span.split())[0] == "magcli" and words[1:] and words[1] != "STAGE":
            assert words[1].startswith("--") or flags <= flags_of(words[1]), span


@pytest.mark.parametrize("page", WRITTEN)
def test_targets_that_a_page_names_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    spans = [*code_spans(WRITTEN[page]), *re.findall(r"^make .*$", WRITTEN[page], re.M)]
    named = {found[1] for span in spans if (found := re.match(r"(?:\w+=\w+ )*make (?:-j\d )?([a-z][a-z0-9-]*)", span))}
    assert named <= targets


def test_comparisons_that_pages_name_exist() -> None:
    from benchmarks.__main__ import NAMES

    spans = [span for text in WRITTEN.values() for span in code_spans(text)]
    named = " ".join(re.findall(r"python -m benchmarks ((?:[a-z][\w-]* ?)+)", "\n".join(spans))).split()
    named += re.findall(
        r"^\| `([a-z0-9-]+)` \|", WRITTEN["docs/benchmarks.md"].split("\n## Other tools")[1].split("\n## ")[0], re.M
    )
    assert len(named) > 40
    assert set(named) <= set(NAMES)


def test_headline_figures_are_those_of_the_benchmarks() -> None:
    rows = re.findall(r"^\|.*\*\*([\d.]+(?: to [\d.]+)?(?: times)?)\*\*.*`(?:python -m )?([\w. -]+)` \|$", README, re.M)
    assert len(rows) >= 6
    for figure, command in rows:
        lines = [line for line in WRITTEN["docs/benchmarks.md"].splitlines() if command in line]
        assert any(f"**{figure}**" in line for line in lines), command


@pytest.mark.parametrize("page", [*WRITTEN, *(f"docs/{path}" for path in GENERATED)])
def test_links_of_a_page_resolve(page: str) -> None:
    text = WRITTEN.get(page) or GENERATED[page.removeprefix("docs/")]
    targets = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith("http")]
    for target in filter(None, targets):
        path = os.path.normpath(Path(page).parent / target)
        assert (ROOT / path).exists() or path.removeprefix("docs/") in GENERATED, target


def test_sections_of_the_recipe_that_the_code_cites_exist() -> None:
    sections = set(re.findall(r"^## (\d)\. ", WRITTEN["docs/recipe.md"], re.M))
    sources = [
        path.read_text(encoding="utf-8")
        for top in ("magcli", "tests", "benchmarks")
        for path in (ROOT / top).rglob("*.py")
    ]
    cited = re.findall(r"recipe,\s+sections? (\d)(?: and (\d))?", " ".join(sources))
    assert len(cited) > 25
    assert {number for pair in cited for number in pair if number} <= sections


def test_names_in_the_glossary_exist() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "magcli").rglob("*.py"))
    cells = re.findall(r"^\|[^|]*\|[^|]*\|(.*)\|$", WRITTEN["docs/glossary.md"], re.M)
    named = [name for cell in cells for name in re.findall(r"(?<!-)`([a-z]+(?:_[a-z0-9]+)+)`", cell)]
    assert len(named) > 10
    assert all(f'"{name}"' in sources for name in named), [name for name in named if f'"{name}"' not in sources]


@pytest.mark.parametrize(
    "name",
    [
        "pipe.sh",
        pytest.param("resume.sh", marks=pytest.mark.slow),
        pytest.param("environment.sh", marks=pytest.mark.slow),
        pytest.param("sweep.sh", marks=pytest.mark.slow),
        "reward.py",
        "objective.py",
    ],
)
def test_examples_run(name: str) -> None:
    done = run(f"{sys.executable if name.endswith('.py') else 'bash'} {name}", ROOT / "examples", timeout=550)
    assert done.returncode == 0, done.stderr
    expected = {
        "pipe.sh": "16 rows",
        "resume.sh": "the same bytes",
        "sweep.sh": "Options that differ",
        "environment.sh": "target | look<|end|>",
        "reward.py": "correct",
        "objective.py": "gradient of cispo: [-1.0, -1.28, 0.9]",
    }
    assert expected[name] in done.stdout
    if name == "sweep.sh":
        assert re.search(r"held-out.arrow: lr .* (is best|has the highest accuracy)", done.stderr)


def commands_of(recipe: str, target: str) -> list[str]:
    """Every magcli command that a recipe's target would run."""
    listed = run(f"make -n --no-print-directory -C recipes/{recipe} {target} MAGCLI=magcli OUT=out-of-tests", ROOT)
    assert listed.returncode == 0, listed.stderr
    text = listed.stdout.replace("\\\n", " ")
    return [part.strip() for line in text.splitlines() for part in line.split("|") if part.strip().startswith("magcli")]


@pytest.mark.parametrize(
    ("recipe", "target"),
    [
        ("tiny", "demo"),
        ("tiny", "learning"),
        ("tiny", "lora"),
        ("tiny", "languages"),
        ("smollm2", "all"),
        ("magistral-small", "all"),
    ],
)
def test_every_command_of_the_recipes_resolves(recipe: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = commands_of(recipe, target)
    stages = {shlex.split(command)[1] for command in commands}
    assert {"sft", "rl", "evaluate", "report"} <= stages
    monkeypatch.chdir(ROOT / "recipes" / recipe)
    resolve(dict.fromkeys(commands))
    assert not (ROOT / "recipes" / recipe / "out-of-tests").exists()
