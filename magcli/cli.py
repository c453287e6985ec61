"""The command line: global options, then one line a stage."""

import errno
import io
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

from magcli import __version__, plugins, trl_names
from magcli.command import PLUGIN_PANEL, EndedBySignal, Entry, outline, register, register_plugins
from magcli.config import flag_name
from magcli.console import Console, discard_stdout, put
from magcli.data.durable import DISK_ERRORS
from magcli.errors import EnvironmentFault, MagError, UsageError, missing_package
from magcli.run.limits import exhausted, is_panic, memory_fault
from magcli.run.shutdown import ShutdownGuard

STAGES = (
    Entry("convert", "Data", "Convert tables between formats; rename or select columns."),
    Entry("split", "Data", "Split a table into training rows and held-out rows."),
    Entry("clean-math", "Data", "Keep complete, verifiable math problems; multiple choice becomes open questions."),
    Entry("filter-math", "Data", "Filter math problems by difficulty: sample each, keep a range of pass rates."),
    Entry("filter-code", "Data", "Run all solutions on all tests; keep the tests and problems that agree."),
    Entry("make-tests", "Data", "Generate tests for code problems that catch wrong solutions."),
    Entry("duplicate", "Data", "Ask for each code problem both in Python and in C++."),
    Entry("translate", "Data", "Translate a fraction of the problems, with checks."),
    Entry("generate", "Data", "Sample completions of problems from any model."),
    Entry("grade", "Data", "Compute the rewards of completions, with each part and a reason."),
    Entry("audit", "Analyse", "Check the rollouts that TRL, verl, prime-rl, NeMo-RL or OpenRLHF dumped."),
    Entry("commit", "Data", "Join the finished shards of a stage into one table."),
    Entry("cold-start", "Data", "Select traces for the SFT cold start."),
    Entry("sft", "Train", "Supervised fine-tuning on traces, or training from scratch."),
    Entry("rl", "Train", "Reinforcement learning with verifiable rewards (GRPO)."),
    Entry("evaluate", "Analyse", "pass@k, avg@n, maj@k with intervals, on completions or a model."),
    Entry("compare", "Analyse", "Runs or evaluations side by side: which options differ, which is better."),
    Entry("landscape", "Analyse", "Reward and length over the principal plane (PCA) of a run's checkpoints."),
    Entry("show", "Tools", "Print rows, statistics or the history of a table."),
    Entry("report", "Tools", "A whole pipeline on one HTML page, or its main figures in the terminal."),
    Entry("export", "Tools", "Publish a run's model with a model card."),
    Entry("graft", "Tools", "Put a trained text model back under its vision encoder."),
    Entry("doctor", "Tools", "Check what is installed and how fast this machine is."),
)

LISTS = (["--help"], ["-h"], ["--version"])
"""First arguments that ask for no stage."""

NAMES = [entry.name for entry in STAGES]

PACKAGES = {"simulate": "plugins/magcli-simulate"}
"""Stages in packages of their own, and where those are in this repository."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of writing to a stream, which has no name."""

HELP = (
    "Pipeline stages that train a reasoning model by the Magistral recipe. Each reads and writes Arrow tables, so "
    "stages chain in pipes: magcli generate problems.jsonl --model M | magcli grade | magcli show --stats"
)


def _version(wanted: bool) -> None:
    if wanted:
        put(f"magcli {__version__}\n")
        raise typer.Exit


def _globals(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of magcli itself."""


def with_stages(entries: Sequence[Entry] = STAGES) -> typer.Typer:
    """The application with some stages, whose declarations it imports."""
    application = _without_stages()
    for entry in entries:
        register(application, entry, NAMES)
    return application


def _without_stages() -> typer.Typer:
    application = typer.Typer(
        name="magcli",
        help=HELP,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    application.callback()(_globals)
    return application


def _list_of_stages() -> typer.Typer:
    """The application for the list of commands alone: no stage is imported."""
    application = _without_stages()
    for entry in STAGES:
        outline(application, entry)
    return application


def app(arguments: Sequence[str], *, standalone_mode: bool = True, console: Console | None = None) -> Any:
    """Run a command line.

    For a fast start it imports only the stage that the first argument names, and for the list of stages none. Otherwise
    it imports all stages. With a ``console`` for warnings about them, it adds those of other packages.

    Raises:
        EnvironmentFault: the stage is in a package that is not installed.
    """
    named = _named(arguments[0]) if arguments else []
    application = _list_of_stages() if arguments[:1] in LISTS else with_stages(named or STAGES)
    if not named and console is not None:
        register_plugins(application, NAMES, console)
    return application(arguments, standalone_mode=standalone_mode)


def _named(name: str) -> list[Entry]:
    """The stage of that name, of magcli or of another package; none for any other argument."""
    if own := [entry for entry in STAGES if entry.name == name]:
        return own
    if name in plugins.points().names:
        return [Entry(name, PLUGIN_PANEL, "")]
    if name in PACKAGES:
        raise EnvironmentFault(f"{name} is in a package that is not installed: pip install {PACKAGES[name]}")
    return []


def _refuse_foreign_bytes(arguments: Sequence[str]) -> None:
    """Arguments that are not UTF-8 cannot be written to a table's history or a message."""
    for argument in arguments:
        try:
            # Python decodes foreign bytes to lone surrogates, which UTF-8 cannot encode.
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the argument {argument!a} is not UTF-8; rename the file") from None


def _message(error: TyperException) -> str:
    """An error of the command line in one line, like every other error."""
    # The name of a stage, if there is one, is the first argument.
    stage = next((name for name in sys.argv[1:2] if name in (*NAMES, *plugins.points().names)), "")
    command = f"magcli {stage}".strip()
    text = " ".join(error.format_message().split()).replace(": Value error, ", ": ")  # added by pydantic
    if name := _of_trl(error):
        text = f"No such option: {name}"
    return f"{command}: {text.rstrip('.')}; see {command} --help"


def _of_trl(error: TyperException) -> str:
    """An unknown option with its name here, if it is one of TRL's; empty otherwise."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if not option or context is None:
        return ""
    present = [parameter.name for parameter in context.command.params]
    answer = trl_names.answer(option.lstrip("-").replace("-", "_"), present, flag_name)
    return f"{option}{answer}" if answer else ""


def _run(arguments: Sequence[str], console: Console) -> int:
    """Run the command line; returns the exit code.

    Raises:
        EndedBySignal: the reader of stdout has gone while help was printed.
    """
    try:
        return int(app(arguments, standalone_mode=False, console=console) or 0)
    except SystemExit as ended:
        if ended.code == 1:  # the library that prints help ends so on a closed pipe
            raise EndedBySignal(signal.SIGPIPE) from None
        raise


def _write_utf8() -> None:
    """Make stdout and stderr accept every character: UTF-8, or on a terminal its own encoding with escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("_", "-") != "utf-8":
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def _fault_of(error: BaseException) -> EnvironmentFault | None:
    """What an exception of Python or a library says about this machine; None for a bug of magcli."""
    if isinstance(error, ModuleNotFoundError):
        return missing_package(error)
    # Memory comes first: that a thread cannot start may be due to a limit on it.
    fault = memory_fault(error) or exhausted(error)
    if fault is not None or not isinstance(error, OSError):
        return fault
    # A write to a stream: tables have names.
    if error.filename is None and error.errno in FULL:
        return EnvironmentFault(f"cannot use stdout: {error.strerror}")
    if error.filename is not None and error.errno in DISK_ERRORS:
        return EnvironmentFault(f"cannot use {error.filename}: {error.strerror}")
    return None


def _started_guard(console: Console) -> ShutdownGuard:
    """The guard of this process; if its watchdog cannot be started, the process ends with a one-line error."""
    try:
        return ShutdownGuard(console)
    except (OSError, RuntimeError) as error:
        fault = exhausted(error)
        if fault is None:
            raise
        _fail(console, str(fault), fault.exit_code)


def _fail(console: Console, text: str, code: int) -> NoReturn:
    console.error(text, code=code)
    sys.exit(code)


def main() -> None:
    """Run the command line and exit with the documented code."""
    _write_utf8()
    # Errors before the options are parsed are events too.
    console = Console(as_json="--json" in sys.argv)
    guard = _started_guard(console)
    try:
        _refuse_foreign_bytes(sys.argv[1:])
        sys.exit(_run(sys.argv[1:] or ["--help"], console))
    except TyperException as error:
        _fail(console, _message(error), error.exit_code)
    except MagError as error:
        _fail(console, str(error), error.exit_code)
    except EndedBySignal as ended:
        # The reader of a closed pipe does not want to hear about it.
        if ended.signal != signal.SIGPIPE:
            guard.exit(ended.signal)
        discard_stdout()
        sys.exit(128 + ended.signal)
    except BaseException as error:  # a panic of a library in Rust is no Exception
        fault = _fault_of(error) if isinstance(error, Exception) or is_panic(error) else None
        if fault is None:
            raise
        if isinstance(error, OSError):
            discard_stdout()
        _fail(console, str(fault), fault.exit_code)
