"""The command line: global options, then one line a stage."""

import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from magcli import __version__
from magcli.command import EndedBySignal, Entry, register
from magcli.console import Console, discard_stdout, put
from magcli.data.durable import DISK_ERRORS
from magcli.errors import EnvironmentFault, MagError, UsageError, missing_package
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
    Entry("commit", "Data", "Join the finished shards of a stage into one table."),
    Entry("cold-start", "Data", "Select traces for the SFT cold start."),
    Entry("sft", "Train", "Supervised fine-tuning on traces, or training from scratch."),
    Entry("rl", "Train", "Reinforcement learning with verifiable rewards (GRPO)."),
    Entry("simulate", "Train", "Predict throughput and staleness of an RL run on a described machine."),
    Entry("evaluate", "Analyse", "pass@k, avg@n, maj@k with intervals, on completions or a model."),
    Entry("landscape", "Analyse", "Reward and length over the principal plane (PCA) of a run's checkpoints."),
    Entry("show", "Tools", "Print rows, statistics or the history of a table."),
    Entry("report", "Tools", "A whole pipeline on one HTML page, or its main figures in the terminal."),
    Entry("export", "Tools", "Publish a run's model with a model card."),
    Entry("graft", "Tools", "Put a trained text model back under its vision encoder."),
    Entry("doctor", "Tools", "Check what is installed and how fast this machine is."),
)

app = typer.Typer(
    name="magcli",
    help="Pipeline stages that train a reasoning model by the Magistral recipe. Each reads and writes Arrow tables, "
    "so stages chain in pipes: magcli generate problems.jsonl --model M | magcli grade | magcli show --stats",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        put(f"magcli {__version__}\n")
        raise typer.Exit


@app.callback()
def _globals(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of magcli itself."""


for _entry in STAGES:
    register(app, _entry, [entry.name for entry in STAGES])


def _refuse_foreign_bytes(arguments: Sequence[str]) -> None:
    """Arguments that are not UTF-8 cannot be written to a table's history or a message."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the argument {argument!a} is not UTF-8; rename the file") from None


def _message(error: TyperException) -> str:
    """An error of the command line in one line, like every other error."""
    stage = next((name for name in sys.argv[1:2] if name in {entry.name for entry in STAGES}), "")
    command = f"magcli {stage}".strip()
    text = " ".join(error.format_message().split()).replace(": Value error, ", ": ")  # added by pydantic
    return f"{command}: {text.rstrip('.')}; see {command} --help"


def main() -> None:
    """Run the command line and exit with the documented code."""
    console = Console(as_json="--json" in sys.argv)
    guard = ShutdownGuard(console)
    try:
        _refuse_foreign_bytes(sys.argv[1:])
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False) or 0)
    except TyperException as error:
        console.error(_message(error), code=error.exit_code)
        sys.exit(error.exit_code)
    except MagError as error:
        console.error(str(error), code=error.exit_code)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        fault = missing_package(error)
        if fault is None:
            raise
        console.error(str(fault), code=fault.exit_code)
        sys.exit(fault.exit_code)
    except OSError as error:
        if error.errno not in DISK_ERRORS or error.filename is None:
            raise
        console.error(f"cannot use {error.filename}: {error.strerror}", code=EnvironmentFault.exit_code)
        sys.exit(EnvironmentFault.exit_code)
    except EndedBySignal as ended:
        if ended.signal != signal.SIGPIPE:
            guard.exit(ended.signal)
        discard_stdout()
        sys.exit(128 + ended.signal)
