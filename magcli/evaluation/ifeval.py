"""Whether the checks of IFEval, the verifier ``ifeval`` of a suite, are installed; ``ifeval_checks`` makes them."""

import importlib.util
import sys

from magcli.errors import EnvironmentFault


def require() -> None:
    """Refuse where the checks, or the data that they split sentences by, are not installed.

    Without its data the harness would download it when it is imported.

    Raises:
        EnvironmentFault: which is missing and how to get it.
    """
    if missing := [name for name in ("lm_eval", "nltk", "langdetect", "immutabledict") if not _installed(name)]:
        raise EnvironmentFault(
            f"evaluate: the suite ifeval needs {missing[0]}; install its checks: pip install 'magcli[ifeval]'"
        )
    import nltk

    try:
        nltk.data.find("tokenizers/punkt_tab")
    except LookupError:
        raise EnvironmentFault(
            "evaluate: the suite ifeval needs NLTK's data punkt_tab; get it once: "
            f"{sys.executable} -m nltk.downloader punkt_tab"
        ) from None


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
