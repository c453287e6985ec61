#!/bin/sh
# Guess: an optimizer step counts as a change of each weight (`_version`), so what is derived from weights, such as bf16
# copies for the next forward passes, can be renewed when the count has changed.
# Seen: it does, except for fused=True, whose steps leave the count where it was although the weights change.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0
cd "$folder" && venv/bin/python - <<'PYTHON'
import torch

print("torch", torch.__version__)
counts = {}
for name in ("AdamW", "Adam", "SGD"):
    for how in ({}, {"foreach": True}, {"fused": True}):
        weight = torch.nn.Parameter(torch.ones(4))
        optimizer = getattr(torch.optim, name)([weight], lr=0.1, **how)
        before = weight._version
        for _ in range(3):
            weight.grad = torch.ones(4)
            optimizer.step()
        assert weight.max() < 1, "the weights changed"
        counts[name, "".join(how)] = weight._version - before
        print(name, how, "changes counted in three steps:", counts[name, "".join(how)])
assert all((counted == 0) == (how == "fused") for (_, how), counted in counts.items())
PYTHON
