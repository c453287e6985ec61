"""Supervised fine-tuning on traces, or training from scratch.

Rows are conversations (messages) or problems with a completion. Sequences are packed without padding; weights
are float32 with bf16 matrix products; the run's folder holds metrics, checkpoints and the resulting model: the
best by --eval-table or --held-out, else the last. With --lora only adapters are trained; the model has them merged
in, and they are also in the folder adapter. The same command resumes an interrupted run exactly.

On many GPUs use torchrun: `torchrun --nproc-per-node 8 -m -- magcli sft ...`
"""

from magcli.stages.sft.config import Config, check, settings, side_outputs
from magcli.stages.sft.run import run, schema, serve_rank

INPUTS = "Traces: column messages, or prompt and completion; - is stdin."
OUTPUT = "the metrics of each step (also in the run's folder)"
EXAMPLE = "magcli sft examples/traces.jsonl --model examples/model --run runs/sft --epochs 2 --step-tokens 512"

__all__ = ["Config", "check", "run", "schema", "serve_rank", "settings", "side_outputs"]
