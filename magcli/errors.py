"""Exceptions and their exit codes.

    MagError                 1  a bug in magcli
    |- UsageError            2  a wrong flag, recipe key or combination of them
    |- DataError             3  a table, row or column that cannot be used, or no row that was kept
    |  '- PromptRefused         the model refuses a prompt; stages drop its row
    |     '- PromptTooLong      it is too long for the model
    |- EnvironmentFault      4  a model, device, server, package, disk or memory that is missing or failed
    '- Stopped               5  a rule ended the run, such as divergence; the same command stops there again

A process ended by a signal exits with 128 + its number: 130 SIGINT, 141 SIGPIPE, 143 SIGTERM. If a call into C holds
the GIL, the signal itself ends it; a shell reports the same numbers.
"""


class MagError(Exception):
    """An error with a one-line message: what is wrong, where, and what to do."""

    exit_code = 1


class UsageError(MagError):
    """The command line or the recipe asks for something that does not exist, or contradicts itself."""

    exit_code = 2


class DataError(MagError):
    """A table is damaged, incomplete, or lacks what the stage needs."""

    exit_code = 3


class PromptRefused(DataError):
    """A server refuses a prompt, for example by a content filter; ``reason`` is why its row is dropped."""

    reason = "refused"


class PromptTooLong(PromptRefused):
    """A prompt leaves no room for a completion in the model's context."""

    reason = "prompt-too-long"


class EnvironmentFault(MagError):
    """A model, package, server, device or disk is missing or failed, or memory ran out."""

    exit_code = 4


class Stopped(MagError):
    """A rule ended the run; finished work is kept, and the same command stops there again."""

    exit_code = 5


EXTRA_OF = {
    "torch": "train",
    "transformers": "train",
    "safetensors": "train",
    "numba": "train",
    "matplotlib": "train",
    "PIL": "train",
    "datasets": "hub",
    "huggingface_hub": "train",
    "ray": "cluster",
}
"""The extra that brings a package which an installation for data and grading alone lacks."""


def missing_package(error: ModuleNotFoundError) -> EnvironmentFault | None:
    """What to install for a package of an extra that is missing; None for any other module."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRA_OF:
        return None
    extra = EXTRA_OF[package]
    return EnvironmentFault(f"this needs the package {package}, which is not installed: pip install 'magcli[{extra}]'")


def usage(condition: bool, message: str) -> None:
    """Raise UsageError with the message unless a condition on the options holds."""
    if not condition:
        raise UsageError(message)


def first_line(error: BaseException | None) -> str:
    """The first line of another library's error message, or the error's type if it has none."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)[:300]
