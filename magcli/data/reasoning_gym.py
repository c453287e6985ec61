"""Problems that reasoning-gym generates, as a table: ``reasoning-gym:NAME?size=500&seed=0&OPTION=VALUE``.

The column ``reasoning_gym`` has what the library's scorer needs: the family, its options, the answer, and the metadata.
``magcli.environments.reasoning_gym`` grades by it. Some families have no answer, as many are right.
"""

from collections.abc import Iterator
from dataclasses import fields
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from magcli.data.generated import Request, missing, problems_with, source, unknown
from magcli.data.source import Source
from magcli.errors import UsageError, first_line

LIBRARY = "reasoning-gym"
COLUMN = "reasoning_gym"
SIZE, SEED = 500, 0
"""The number of problems, as in the library, and the seed, which the library draws."""


def library() -> Any:
    """reasoning-gym itself, whose import takes seconds.

    Raises:
        EnvironmentFault: it is not installed.
    """
    if find_spec("reasoning_gym") is None:
        raise missing(LIBRARY)
    import reasoning_gym

    return reasoning_gym


def read(request: Request) -> Source:
    """The problems that a name asks for.

    Raises:
        UsageError: there is no such family or option, or a value does not fit.
        EnvironmentFault: the library is not installed.
    """
    size = request.whole_number("size", SIZE, 1)
    seed = request.whole_number("seed", SEED, 0)
    gym = library()
    options = {key: value for key, value in request.options.items() if key not in ("size", "seed")}
    data = _created(gym, request, {**options, "size": size, "seed": seed})

    def rows() -> Iterator[dict[str, Any]]:
        for index in range(len(data)):
            yield _row(request.name, seed, index, options, data[index])

    return source(request, problems_with(COLUMN), rows(), version(LIBRARY), len(data))


def _created(gym: Any, request: Request, options: dict[str, Any]) -> Any:
    families = gym.factory.DATASETS
    if request.name not in families:
        raise unknown(request, "family", request.name, list(families))
    # The library registers a data set with its configuration, whose fields are the options.
    accepted = [field.name for field in fields(families[request.name][1])]
    for option in options:
        if option not in accepted:
            raise unknown(request, f"option of {request.name}", option, accepted)
    try:
        return gym.create_dataset(request.name, **options)
    except Exception as error:
        reason = first_line(error)
        raise UsageError(f"{request.text}: {request.name} cannot be made with these options: {reason}") from None


def _row(name: str, seed: int | None, index: int, options: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    answer = entry["answer"]
    return {
        "id": f"{name}-{seed}-{index}",
        "prompt": entry["question"],
        "answer": None if answer is None else str(answer),
        "source": f"{LIBRARY}:{name}",
        COLUMN: {"name": name, "options": options, "answer": answer, "metadata": entry["metadata"]},
    }
