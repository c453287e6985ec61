"""Supervised fine-tuning on traces, or training from scratch.

Rows are conversations (messages) or problems with a completion. Sequences are packed without padding; weights
are float32 with bf16 matrix products; the run's folder holds metrics, checkpoints and the resulting model: the
best by --eval-table or --held-out, else the last. With --lora only adapters are trained; the model has them merged
in, and they are also in the folder adapter. The same command resumes exactly.

On many GPUs use torchrun: `torchrun --nproc-per-node 8 -m -- magcli sft ...`
"""

from magcli.stages.sft.config import RUNTIME, Config, beside, check, looks, makes, reads, settings
from magcli.stages.sft.train import follow, run, schema

INPUTS = "Traces: column messages, or prompt and completion; - is stdin."
OUTPUT = "the metrics of each step (also in the run's folder)"
DEFAULT_OUTPUT = None
RESTART = "Delete the run's folder, a finished model and its checkpoints included, and begin anew."
EXAMPLE = "magcli sft examples/traces.jsonl --model examples/model --run runs/sft --epochs 2 --step-tokens 512"

__all__ = [
    "RUNTIME",
    "Config",
    "beside",
    "check",
    "follow",
    "looks",
    "makes",
    "reads",
    "run",
    "schema",
    "settings",
]
