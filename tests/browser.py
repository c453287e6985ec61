"""The browser that pages are looked at in, without a window: Chromium, as Debian packages it."""

import shutil
from collections.abc import Callable

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt-get install chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
]


def in_browser(test: Callable[..., None]) -> Callable[..., None]:
    """A test that ``make test-browser`` runs; ``make test`` runs those of one page that only need a browser."""
    return pytest.mark.browser(needs_browser(test))
