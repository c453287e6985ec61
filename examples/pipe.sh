#!/usr/bin/env bash
# Problems through a model, a verifier and a counter, with nothing on disk in between.
set -euo pipefail
cd "$(dirname "$0")"
magcli generate problems.jsonl --model model --system none --samples 4 --max-tokens 64 |
  magcli grade --no-language |
  magcli show --stats
