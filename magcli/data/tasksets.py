"""The tasks of a taskset of Prime Intellect's ``verifiers`` (0.4) as a table: ``verifiers:NAME?size=100&OPTION=VALUE``.

NAME is what ``verifiers`` itself calls the taskset: a package that is installed, or a folder of the working directory.
The column ``verifiers`` has the task, as the library's traces have it; ``magcli.environments.tasksets`` grades by it.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from typing import Any

from magcli.data.generated import Request, missing, problems_with, source
from magcli.data.source import Source
from magcli.errors import DataError, EnvironmentFault, UsageError, first_line, usage

LIBRARY = "verifiers"
COLUMN = "verifiers"
SHIPPED = ("harbor", "nemo-gym", "openenv", "textarena")
"""The tasksets that ``verifiers`` itself has."""


def library() -> Any:
    """The part of ``verifiers`` that users import, which takes seconds.

    Raises:
        EnvironmentFault: it is not installed, or older than its tasksets of version 1.
    """
    if find_spec(LIBRARY) is None:
        raise missing(LIBRARY)
    try:
        import verifiers.v1 as vf
    except ModuleNotFoundError as error:
        if error.name == "verifiers.v1":
            raise EnvironmentFault("verifiers is older than 0.4: pip install --upgrade verifiers") from None
        raise EnvironmentFault(f"verifiers needs the package {error.name}, which is not installed") from None
    return vf


def read(request: Request) -> Source:
    """The tasks that a name asks for.

    Raises:
        UsageError: there is no such taskset or option, or it has no end and no size is given.
        EnvironmentFault: the library, or a package that the taskset needs, is not installed.
    """
    size = request.whole_number("size", None, 1)
    options = {key: value for key, value in request.options.items() if key != "size"}
    taskset = taskset_of(request.name, json.dumps(options, sort_keys=True))
    usage(size is not None or taskset.bounded, f"{request.text}: the taskset has no end; add ?size=100")

    def rows() -> Iterator[dict[str, Any]]:
        for number, task in enumerate(islice(taskset, size)):
            yield _row(request, number, task.data, options)

    return source(request, problems_with(COLUMN), rows())


# The options are text, because the arguments of a cache need a hash.
@lru_cache(maxsize=32)
def taskset_of(name: str, options: str = "{}") -> Any:
    """The taskset of a name with these options, in JSON; a dot leads into an option: ``task.similarity_power``.

    Raises:
        UsageError: there is no such taskset or option.
        EnvironmentFault: the library, or a package that the taskset needs, is not installed.
    """
    vf = library()
    # A taskset may be a module of the working directory.
    working_directory = os.getcwd()
    if working_directory not in sys.path:
        sys.path.append(working_directory)
    subject = f"verifiers:{name}"
    try:
        config_type = vf.taskset_config_type(name)
        config = config_type.model_validate({**_nested(json.loads(options)), "id": name})
        return vf.load_taskset(config)
    except ModuleNotFoundError as error:
        raise _not_found(subject, name, error) from None
    except Exception as error:
        raise UsageError(f"{subject} cannot be loaded: {type(error).__name__}: {_one_line(error)}") from None


def _not_found(subject: str, name: str, error: ModuleNotFoundError) -> UsageError | EnvironmentFault:
    """The error for a taskset that is not there, or that needs another package."""
    cause = error.__cause__
    lacking = cause.name if isinstance(cause, ModuleNotFoundError) else error.name
    # From ``owner/some-name@version`` to ``some_name``.
    module = name.rpartition("/")[2].partition("@")[0].replace("-", "_").lower()
    if lacking and lacking.rpartition(".")[2] != module:
        return EnvironmentFault(f"{subject} needs the package {lacking}, which is not installed")
    shipped = ", ".join(SHIPPED)
    return UsageError(f"{subject}: no taskset of this name is installed; verifiers has {shipped}, others are packages")


def _one_line(error: Exception) -> str:
    """What an exception says; of pydantic's the first option that is wrong."""
    if not hasattr(error, "errors"):
        return first_line(error)
    problem = error.errors()[0]
    return f"option {'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def _nested(options: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in options.items():
        *above, last = path.split(".")
        level = nested
        for key in above:
            level = level.setdefault(key, {})
        level[last] = value
    return nested


def _row(request: Request, number: int, data: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a task.

    Raises:
        DataError: its prompt is no text.
    """
    if not isinstance(data.prompt, str):
        kind = "no prompt: its user opens the conversation" if data.prompt is None else "a prompt of several messages"
        raise DataError(f"{request.text}: task {number} has {kind}; magcli runs tasks whose prompt is a text")
    answer = getattr(data, "answer", None)
    before = f"{data.system_prompt}\n\n" if data.system_prompt else ""
    return {
        "id": f"{request.name}-{number}",
        "prompt": before + data.prompt,
        "answer": None if answer is None else str(answer),
        "source": f"{LIBRARY}:{request.name}",
        COLUMN: {
            "taskset": request.name,
            "options": dict(options),
            "data": data.model_dump(mode="json", exclude_defaults=True),
        },
    }
