"""Check that the packages of the verifier ``ifeval`` are installed; ``ifeval_checks`` imports them."""

import importlib.util
import sys

from magcli.errors import EnvironmentFault


def require() -> None:
    """Refuse if the checks or their sentence splitter's data are missing, as the harness would download the latter.

    Raises:
        EnvironmentFault: what is missing and how to install it.
    """
    packages = ("lm_eval", "nltk", "langdetect", "immutabledict")
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
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
