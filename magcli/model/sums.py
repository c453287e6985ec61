"""The digests of a model's weights, in a file beside them that ``sha256sum --check`` reads.

They are written with the weights, and checked wherever all of the weights are read to identify the model: before
sampling and training, and at export.
"""

from pathlib import Path

from magcli.data.seal import hash_file
from magcli.errors import DataError

SUMS = "SHA256SUMS"


def write_sums(folder: Path) -> None:
    """Write the digests of a folder's files of weights."""
    lines = [f"{hash_file(path)}  {path.name}\n" for path in weight_paths(folder)]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def weight_digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of weights by name.

    Raises:
        DataError: a file does not match its digest in the folder, or is missing.
    """
    recorded = _read_sums(folder / SUMS)
    digests = {path.name: hash_file(path) for path in weight_paths(folder)}
    for name, digest in recorded.items():
        if digests.get(name) != digest:
            raise DataError(
                f"{folder / name} is damaged: it does not match {SUMS}; copy the model again, or remove {SUMS} if the "
                "weights were changed on purpose"
            )
    return digests


def weight_paths(folder: Path) -> list[Path]:
    """The files of weights, in the order of their names."""
    return sorted(folder.glob("*.safetensors"))


def _read_sums(path: Path) -> dict[str, str]:
    """The recorded digests by file name; none if there is no such file.

    Raises:
        DataError: the file is damaged.
    """
    if not path.is_file():
        return {}
    recorded = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        digest, separator, name = line.partition("  ")
        if not separator or Path(name).name != name:
            raise DataError(f"{path} is damaged; copy the model again, or remove it to use the weights unchecked")
        recorded[name] = digest
    return recorded
