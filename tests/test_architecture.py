"""The rules that keep the project simple, checked on its source."""

import ast
import dataclasses
import difflib
import re
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TypeGuard

import pytest

from magcli.cli import STAGES
from magcli.run.stage import Stage

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "magcli").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
TREES = {file: ast.parse(file.read_text(encoding="utf-8")) for file in FILES}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


def functions(tree: ast.AST) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def lines_of(function: Function) -> int:
    return function.end_lineno - function.lineno + 1


def test_imports_go_one_way() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports"))], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout
    assert "4 kept, 0 broken" in done.stdout


def test_files_and_functions_are_short() -> None:
    assert {name_of(f): n for f in FILES if (n := len(f.read_text(encoding="utf-8").splitlines())) > 500} == {}
    all_functions = [(name_of(file), f) for file, tree in TREES.items() for f in functions(tree)]
    assert {f"{file}:{f.name}": lines_of(f) for file, f in all_functions if lines_of(f) > 60} == {}
    lengths = [lines_of(f) for _, f in all_functions]
    assert len(lengths) > 300
    assert statistics.median(lengths) <= 13


def test_every_public_method_has_a_docstring() -> None:
    """Ruff looks at modules, classes and functions; its rule for methods knows no exception for protocols."""
    classes = [(name_of(file), c) for file, tree in TREES.items() for c in tree.body if is_public_class(c)]
    assert len(classes) > 100
    methods = [(file, c, f) for file, c in classes for f in c.body if is_public_method(f)]
    assert [f"{file}:{c.name}.{f.name}" for file, c, f in methods if not ast.get_docstring(f)] == []


def is_public_class(node: ast.stmt) -> TypeGuard[ast.ClassDef]:
    """Whether a class, and no protocol: what the methods of those do stands in the protocol's docstring."""
    return (
        isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and not any(ast.unparse(base).startswith("Protocol") for base in node.bases)
    )


def is_public_method(node: ast.stmt) -> TypeGuard[Function]:
    overload = isinstance(node, Function) and any("overload" in ast.unparse(d) for d in node.decorator_list)
    return isinstance(node, Function) and not node.name.startswith("_") and not overload


def test_exit_codes_are_defined_in_one_place() -> None:
    exits = ("sys.exit", "exit", "quit", "SystemExit", "typer.Exit")
    numbers = [
        f"{name_of(file)}:{node.lineno}"
        for file, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in exits
        and any(isinstance(argument, ast.Constant) for argument in node.args)
    ]
    assert numbers == [], "an exit code belongs into magcli/errors.py"


def test_nothing_is_a_stub() -> None:
    nodes = [(name_of(file), node) for file, tree in TREES.items() for node in ast.walk(tree)]
    assert [f"{f}:{n.lineno}" for f, n in nodes if isinstance(n, ast.Name) and n.id == "NotImplementedError"] == []


@pytest.mark.parametrize("folder", sorted({file.parent for file in TESTS}), ids=name_of)
def test_every_test_can_fail(folder: Path) -> None:
    for file in folder.glob("test_*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        checking = checkers(tree)
        idle = [f.name for f in functions(tree) if f.name.startswith("test_") and not checks(f, checking)]
        assert idle == [], file


def test_test_files_have_unique_names() -> None:
    """They are imported by it."""
    names = Counter(file.name for file in TESTS)
    assert [name for name, count in names.items() if count > 1] == []


def checkers(tree: ast.AST) -> set[str]:
    """The functions of a test file that assert something themselves, called by tests."""
    found: set[str] = set()
    for _ in range(3):
        found |= {f.name for f in functions(tree) if checks(f, found)}
    return found


def checks(function: Function, helpers: set[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and (
            ast.unparse(node.func).split(".")[-1]
            in ("raises", "fail", "assert_close", "assert_allclose", "assert_equal")
            or ast.unparse(node.func).split(".")[-1] in helpers
            or any(keyword.arg == "check" and ast.unparse(keyword.value) == "True" for keyword in node.keywords)
        ):
            return True
    return False


STAGE_FOLDER = ROOT / "magcli" / "stages"
SHARED = "shared"
"""The package of what several stages share."""


def files_of(stage: str) -> list[Path]:
    """The one file of a stage, or the files of its package."""
    path = STAGE_FOLDER / stage.replace("-", "_")
    return sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def test_stages_are_one_file_or_one_package_each_and_import_no_other() -> None:
    names = {path.stem for path in STAGE_FOLDER.iterdir()} - {"__init__", "__pycache__", SHARED}
    assert names == {stage.name.replace("-", "_") for stage in STAGES}
    for stage in names:
        for file in files_of(stage):
            modules = {node.module for node in ast.walk(TREES[file]) if isinstance(node, ast.ImportFrom)}
            stages = {module.split(".")[2] for module in modules if module and module.startswith("magcli.stages.")}
            assert stages <= {stage, SHARED}, file
            assert "magcli.stages" not in modules, file


@pytest.mark.parametrize("stage", ["rl", "sft"])
def test_what_works_by_a_run_spec_takes_no_config(stage: str) -> None:
    declares = {"__init__.py", "config.py", "spec.py", "plan.py", "identity.py"}
    hooks = {field.name for field in dataclasses.fields(Stage)}
    folder = ROOT / "magcli" / "stages" / stage
    workers = {file: tree for file, tree in TREES.items() if file.parent == folder and file.name not in declares}
    assert len(workers) > 2
    assert [
        f"{name_of(file)}:{function.name}"
        for file, tree in workers.items()
        for function in functions(tree)
        if function.name not in hooks | {"of"} and "Config" in annotations(function)
    ] == []


def annotations(function: Function) -> list[str]:
    parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [ast.unparse(parameter.annotation) for parameter in parameters if parameter.annotation]


def test_every_default_of_an_option_is_declared_once() -> None:
    for file in sorted(STAGE_FOLDER.rglob("*.py")):
        classes = [node for node in TREES[file].body if isinstance(node, ast.ClassDef)]
        for node in [node for node in classes if node.name == "Config" or node.name.endswith("Options")]:
            assert "frozen=True" in ast.unparse(node.decorator_list[0])
            fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
            options = [field for field in fields if not ast.unparse(field.annotation).startswith("ClassVar")]
            assert all(isinstance(option.value, ast.Call) for option in options), file


def documented_hooks() -> set[str]:
    """The names that CONTRIBUTING.md says a stage may have."""
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## A new stage")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)", cell)}


def test_every_hook_of_a_stage_is_documented() -> None:
    """CONTRIBUTING.md lists what a stage may declare, no more and no less."""
    assert {field.name for field in dataclasses.fields(Stage)} - {"name", "doc", "Config", "work"} == documented_hooks()


@pytest.mark.parametrize("stage", [stage.name for stage in STAGES])
def test_no_hook_of_a_stage_is_misspelt(stage: str) -> None:
    hooks = {field.name for field in dataclasses.fields(Stage)}
    nodes = [node for file in files_of(stage) for node in TREES[file].body]
    defined = [node.name for node in nodes if isinstance(node, Function)]
    defined += [ast.unparse(node.targets[0]) for node in nodes if isinstance(node, ast.Assign)]
    for name in (name for name in defined if not name.startswith("_") and name not in hooks):
        assert not difflib.get_close_matches(name, hooks, cutoff=0.8), f"{stage}: {name} is never used"


LOADERS = (
    "from_pretrained",
    "from_config",
    "load_dataset",
    "load_dataset_builder",
    "AsyncEngineArgs",
    "EngineArgs",
    "LLM",
)
"""What transformers, vLLM and datasets call their functions that may run code of a model or of a data set."""

PLAIN_LOADERS = ("transformers.GenerationConfig.from_pretrained",)
"""Of these names, the functions that take no ``trust_remote_code`` and run no code."""


def trusting_calls(tree: ast.AST) -> list[str]:
    """The calls that may run code of a model or of a data set: they do not pass ``trust_remote_code=False``."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    trusting = []
    for call in calls:
        name = ast.unparse(call.func)
        options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        loads = name.split(".")[-1] in LOADERS and name not in PLAIN_LOADERS
        trusts = options.get("trust_remote_code", "False" if not loads else "missing") != "False"
        if trusts:
            trusting.append(f"line {call.lineno}: {name}")
    return trusting


def test_no_code_of_a_model_or_data_set_is_trusted() -> None:
    """Without the argument transformers asks on stdout whether to run a model's code, and reads the answer on stdin."""
    scripts = sorted((ROOT / "benchmarks").rglob("*.py")) + sorted((ROOT / "examples").rglob("*.py"))
    trees = TREES | {file: ast.parse(file.read_text(encoding="utf-8")) for file in scripts}
    assert {name_of(file): calls for file, tree in trees.items() if (calls := trusting_calls(tree))} == {}
    loaders = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.keyword)]
    assert sum(keyword.arg == "trust_remote_code" for keyword in loaders) >= 12, "the names of LOADERS are outdated"


@pytest.mark.parametrize(
    "call",
    [
        "AutoModel.from_pretrained(name)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "AutoModel.from_config(config, trust_remote_code=trust)",
        "AsyncEngineArgs(model=name)",
        "load_dataset(name)",
        "anything(trust_remote_code=None)",
    ],
)
def test_calls_that_trust_code_are_recognised(call: str) -> None:
    assert trusting_calls(ast.parse(call)) == [f"line 1: {call.partition('(')[0]}"]
