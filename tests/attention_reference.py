"""A reference in the place of FlashAttention's kernel for rows of sequences, which PyTorch has for GPUs only."""

import torch

from magcli.train import varlen

CALLS = []


def reference(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale, window_size, enable_gqa):
    """What the documentation of ``varlen_attn`` says, sequence by sequence; the mask is aligned at the end."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    left, right = window_size
    assert right == 0
    assert int(cu_seq_q[-1]) == len(query)
    assert int(cu_seq_k[-1]) == len(key) == len(value)
    assert int(cu_seq_q.diff().max()) == max_q
    assert int(cu_seq_k.diff().max()) == max_k
    CALLS.append((len(query), len(key)))
    groups = query.shape[1] // key.shape[1]
    assert enable_gqa == (groups > 1)
    outputs = []
    for number in range(len(cu_seq_q) - 1):
        queries = query[cu_seq_q[number] : cu_seq_q[number + 1]]
        keys, values = (
            tensor[cu_seq_k[number] : cu_seq_k[number + 1]].repeat_interleave(groups, 1) for tensor in (key, value)
        )
        scores = torch.einsum("qhd,khd->hqk", queries, keys) * scale
        row = torch.arange(len(queries))[:, None] + len(keys) - len(queries)
        column = torch.arange(len(keys))
        seen = column <= row
        if left >= 0:
            seen &= column >= row - left
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        outputs.append(torch.einsum("hqk,khd->qhd", weights, values))
    return torch.cat(outputs)


def on_a_cpu(monkeypatch):
    """Use the reference, in float32 and without asking for a GPU."""
    monkeypatch.setattr(varlen, "_kernel", lambda: reference)
    monkeypatch.setattr(varlen, "KERNEL_DTYPE", torch.float32)
    monkeypatch.setattr(varlen, "require", lambda device: None)
