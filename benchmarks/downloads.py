"""Public files and packages that the comparisons need and this project does not ship: cached in ``.peers``.

Files are identified by repository, commit, path and SHA-256, files of packages by release.
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
"""A folder that may hold these files already, under ``GithubFile.shared``."""
TIMEOUT_SECONDS = 60.0
TRL_RELEASE = "1.16.0"
TRL_DATE = "2026-10-15"
"""The day on which the wheel of this release was built; what pip installs no longer has it."""
TRL_TITLE = f"TRL {TRL_RELEASE} ({TRL_DATE})"
"""As in the output."""

VERL_RELEASE = "0.9.1"
VERL_NEEDS = (
    "tensordict==0.10.0",
    "omegaconf==2.3.0",
    "antlr4-python3-runtime==4.9.3",
    "codetiming==1.4.0",
    "pyvers==0.1.0",
    "orjson==3.11.4",
    "cloudpickle==3.1.2",
)
"""What verl's losses import and magcli's environment lacks, or has in another release."""


class Unavailable(Exception):
    """A public file or package that cannot be downloaded; the message says which and why."""


@dataclass(frozen=True, slots=True)
class GithubFile:
    """One file of one commit of a public repository."""

    repository: str
    commit: str
    path: str
    sha256: str
    shared: str = ""

    def text(self) -> str:
        """Its content; raises as ``fetch`` does."""
        return self.fetch().read_text()

    def fetch(self) -> Path:
        """Its local copy, downloaded unless the cache or ``SHARED`` has it.

        Raises:
            Unavailable: the download failed or has another checksum.
        """
        cached = CACHE / self.repository / self.commit / self.path
        for path in (cached, SHARED / self.shared):
            if path.is_file() and self._matches(path.read_bytes()):
                return path
        data = self._download()
        cached.parent.mkdir(parents=True, exist_ok=True)
        cached.write_bytes(data)
        return cached

    def _matches(self, data: bytes) -> bool:
        return hashlib.sha256(data).hexdigest() == self.sha256

    def _download(self) -> bytes:
        url = f"https://raw.githubusercontent.com/{self.repository}/{self.commit}/{self.path}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
                data: bytes = response.read()
        except (OSError, urllib.error.URLError) as error:
            raise Unavailable(f"{url}: {error}") from error
        if not self._matches(data):
            raise Unavailable(f"{url}: its SHA-256 is not {self.sha256}")
        return data


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a package's source distribution."""

    package: str
    release: str
    path: str

    def text(self) -> str:
        """Its content; raises as ``fetch`` does."""
        return self.fetch().read_text()

    def fetch(self) -> Path:
        """Its local copy, extracted from the cached source distribution.

        Raises:
            Unavailable: the distribution cannot be downloaded or lacks the file.
        """
        stem = f"{self.package.replace('-', '_')}-{self.release}"
        file, archive = CACHE / stem / self.path, CACHE / f"{stem}.tar.gz"
        if not archive.is_file():
            _pip_download(self.package, self.release, "--no-binary")
        if not file.is_file():
            try:
                with tarfile.open(archive) as files:
                    files.extractall(CACHE, members=[files.getmember(f"{stem}/{self.path}")], filter="data")
            except (OSError, KeyError, tarfile.TarError) as error:
                raise Unavailable(f"{archive.name}: {error}") from error
        return file


def wheel(package: str, release: str) -> zipfile.ZipFile:
    """A package's wheel, downloaded but not installed.

    Raises:
        Unavailable: the wheel cannot be downloaded.
    """
    path = CACHE / f"{package.replace('-', '_')}-{release}-py3-none-any.whl"
    if not path.is_file():
        _pip_download(package, release, "--only-binary")
    return zipfile.ZipFile(path)


def trl_path() -> str:
    """A folder with TRL alone, to be put on ``sys.path``; its dependencies are in magcli's environment.

    Raises:
        Unavailable: TRL cannot be installed.
    """
    folder = CACHE / f"trl-{TRL_RELEASE}"
    if not (folder / "trl").is_dir():
        _pip("install", "--no-deps", "--target", str(folder), f"trl=={TRL_RELEASE}")
    return str(folder)


def verl_path() -> str:
    """A folder with verl and what its losses import, to be put first on ``sys.path``.

    Raises:
        Unavailable: verl cannot be installed.
    """
    folder = CACHE / f"verl-{VERL_RELEASE}"
    if not (folder / "verl").is_dir():
        _pip("install", "--no-deps", "--target", str(folder), *VERL_NEEDS, f"verl=={VERL_RELEASE}")
    return str(folder)


def hide_vllm() -> None:
    """Call before importing TRL, which imports any installed vLLM and does not know a release as new as magcli's."""
    sys.modules["vllm"] = None  # type: ignore[assignment]


def _pip_download(package: str, release: str, kind: str) -> None:
    _pip("download", "--no-deps", kind, ":all:", "-d", str(CACHE), f"{package}=={release}")


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"pip {arguments[-1]}: {done.stderr.strip().splitlines()[-1] if done.stderr else 'failed'}")
