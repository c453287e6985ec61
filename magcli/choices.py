"""The values of options that stages, plans and engines share: what a user asks for, and what is used.

What ``auto`` stands for is decided in ``magcli.plan``. Imports nothing of magcli, so that ``--help`` stays fast.
"""

from typing import Final, Literal

AUTO: Final = "auto"
"""The value of an option that is left to magcli."""

Switch = Literal["auto", "yes", "no"]

Format = Literal["bf16", "fp32"]
"""The number format of matrix products, or of weights that sample."""
AskedFormat = Literal["auto", "bf16", "fp32"]
SaveDtype = Literal["source", "bf16", "fp32"]
"""The number format of a saved model; ``source`` is that of the model that it was trained from."""

Attention = Literal["fastest", "sdpa", "varlen"]
"""Attention in training: by PyTorch's kernels for padded batches (sdpa), or by FlashAttention's for rows of sequences
in bf16 (varlen). The fastest is varlen where a device has the kernel and it computes what the model computes."""
AskedAttention = Literal["auto", "sdpa", "varlen"]

EngineName = Literal["torch", "vllm"]
"""An engine that samples; torch is the embedded one."""
AskedEngine = Literal["auto", "torch", "vllm"]

TransferName = Literal["file", "broadcast"]
"""How new weights reach a generator: as a file in shared memory, or from the trainer by NCCL or gloo."""
AskedTransfer = Literal["auto", "file", "broadcast"]

AdvantageNorm = Literal["minibatch", "group", "none", "leave-one-out", "global"]
"""What divides advantages, or which baseline they have; see ``magcli.rl.algorithm.advantages``."""
LossNorm = Literal["group", "token", "sample", "constant"]
"""What a loss is divided by; see ``magcli.rl.algorithm.token_weights``."""
DiverseBy = Literal["outcome", "reward", "none"]
"""In what the completions of a group must differ to be trained on."""
