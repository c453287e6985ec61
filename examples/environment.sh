#!/usr/bin/env bash
# The toy model learns to use a tool: a cold start in which it looks under the cup in every fourth trace, then RL.
set -euo pipefail
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
python environment.py "$out"
magcli sft "$out/traces.jsonl" --model model --system none --run "$out/sft" --epochs 8 --lr 1e-3 --step-tokens 500 \
  --bf16 no
magcli rl "$out/cups.jsonl" --model "$out/sft/model" --system none --run "$out/rl" --environment environment.py:Cup \
  --updates 12 --group-size 8 --n-batch 64 --n-mini 64 --n-async 64 --max-tokens 40 --lr 3e-4 --no-language --dtype fp32
magcli rl "$out/cups.jsonl" --model "$out/sft/model" --system none --run "$out/rl" --show-mask 1
for model in sft rl; do
  magcli evaluate "$out/cups.jsonl" --model "$out/$model/model" --system none --samples 4 --temperature 1 \
    --max-tokens 40 --environment environment.py:Cup
done
