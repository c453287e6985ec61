"""A finished model folder to the Hugging Face hub."""

import re
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils.tqdm import disable_progress_bars

from magcli.errors import EnvironmentFault, UsageError

REPOSITORY = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)
HTTP_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]
"""The base of what the HTTP library raises that the hub's client uses (httpx or its successor)."""


def check_name(repository: str) -> None:
    """Refuse what cannot be the name of a repository.

    Raises:
        UsageError: it is not OWNER/NAME in the letters that the hub allows.
    """
    if not REPOSITORY.fullmatch(repository):
        raise UsageError(f"{repository!r} is no name of a repository on the hub; give OWNER/NAME")


def push(folder: Path, repository: str, *, public: bool) -> str:
    """Send a folder to a repository, which is made if it is not there; returns its address.

    Raises:
        EnvironmentFault: the hub cannot be reached or refuses; the folder stays as it is.
    """
    disable_progress_bars()
    try:
        hub = HfApi()
        hub.create_repo(repository, private=not public, exist_ok=True)
        told = hub.upload_folder(repo_id=repository, folder_path=folder, commit_message="magcli export")
    except (HTTP_ERROR, OSError, ValueError, RuntimeError) as error:
        raise EnvironmentFault(
            f"{folder} is whole, but pushing it to {repository} failed: {_first_line(error)}; "
            "log in with `hf auth login` if that is missing; the same command pushes again"
        ) from error
    return str(told.repo_url if hasattr(told, "repo_url") else told)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0].rstrip(".")
