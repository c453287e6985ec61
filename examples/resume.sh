#!/usr/bin/env bash
# A killed stage resumes where it stopped: the same command, the same rows, nothing computed twice.
set -euo pipefail
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
stage() {
  magcli generate ../recipes/tiny/data/held_out.jsonl --model model --system none --samples 8 --max-tokens 64 \
    --deterministic "$@"
}
timeout --signal KILL 8 "$(command -v magcli)" generate ../recipes/tiny/data/held_out.jsonl --model model --system none \
  --samples 8 --max-tokens 64 --deterministic -o "$out/killed.arrow" || echo "killed"
stage -o "$out/killed.arrow"
stage -o "$out/unbroken.arrow"
cmp "$out/killed.arrow" "$out/unbroken.arrow" && echo "the same bytes"
