#!/usr/bin/env bash
# Three learning rates with two seeds each, in a loop of the shell; the page says which won, with its interval.
# Give a folder to keep the runs and the page: bash sweep.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-$(mktemp -d)}
[ $# -gt 0 ] || trap 'rm -rf "$out"' EXIT
train=$out/train.arrow held_out=$out/held-out.arrow sampling="--system none --max-tokens 48"
mkdir -p "$out/evaluations"
magcli convert ../recipes/tiny/data/problems.jsonl --where 'source == "chain-5"' --limit 160 -q -o "$train"
magcli convert ../recipes/tiny/data/held_out.jsonl --where 'source == "chain-5"' -q -o "$held_out"
runs=()
for lr in 1e-5 2e-4 1e-3; do
  for seed in 0 1; do
    name=lr-$lr-seed-$seed
    runs+=("$out/runs/$name")
    magcli rl "$train" --model model --run "$out/runs/$name" --lr $lr --seed $seed --updates 8 --group-size 8 \
      --n-batch 128 --n-mini 128 --n-async 128 --warmup 0 --no-language --dtype fp32 $sampling
    magcli evaluate "$held_out" --model "$out/runs/$name/model" --samples 8 --temperature 1 $sampling \
      --completions "$out/evaluations/$name-completions.arrow" -o "$out/evaluations/$name.arrow"
  done
done
magcli compare "${runs[@]}"
magcli report "${runs[@]}" "$out/evaluations" --title "Three learning rates" -o "$out/report.html"
