"""What the attention layers of a model do, and whether an attention function of ours computes what the model does.

Both are found by running the model on a few tokens, so that architectures need not be listed. ``record_attention``
notes which tokens each layer attends to, however far its window reaches. ``own_logits`` are what a forward pass of
ours is compared with; a model whose logits differ is refused, for example because something other than attention mixes
the tokens of different sequences.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from magcli.errors import EnvironmentFault, first_line
from magcli.model.attention import WINDOW, UnsupportedAttention, causal_attention, scores_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RECORDING = "magcli_recording"

CONTEXT_SAMPLE = 1024
"""Where the mask of a layer without a window is looked at."""

SEQUENCES, LENGTH = 2, 12
"""Size of a probe: enough for the second sequence to show what leaks into it from the first."""

TOLERANCE = 2e-3
"""Largest difference of float32 logits, relative to their spread; rounding makes about 1e-5."""

ROUNDED_TOLERANCE = 0.1
"""Root mean square difference of logits, relative to their spread, up to which 16-bit numbers count as equal."""

MaskFunction = Callable[[int, int, Tensor, Tensor], Tensor]
"""Of batch, head, query position and key positions: which keys are seen."""


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """One call of the attention function in a forward pass: the shapes (heads, head_dim) of keys and values."""

    keys: tuple[int, int]
    values: tuple[int, int]


def record_attention(model: "PreTrainedModel") -> list[AttentionCall]:
    """The attention calls of one forward pass, in order; notes the window of each attention module on it.

    The model keeps the recording attention function: set another one. Raises EnvironmentFault for a model whose
    attention ours cannot replace.
    """
    AttentionInterface.register(RECORDING, _record)
    AttentionMaskInterface.register(RECORDING, _mask_with_window)
    calls: list[AttentionCall] = []
    with explained(model), torch.no_grad():
        model.set_attn_implementation(RECORDING)
        model(input_ids=probe_tokens(model), use_cache=False, attention_calls=calls)
    if not calls:
        raise refusal(model, "it does not call transformers' attention interface")
    return calls


def probe_tokens(model: "PreTrainedModel") -> Tensor:
    """Token ids ``[SEQUENCES, LENGTH]``, always the same ones."""
    # Of its own, so that the process's random numbers stay as they are.
    draw = torch.Generator().manual_seed(0)
    size = model.get_input_embeddings().weight.shape[0]
    return torch.randint(size, (SEQUENCES, LENGTH), generator=draw).to(model.device)


@torch.no_grad()
def own_logits(model: "PreTrainedModel") -> Tensor:
    """Float32 logits ``[SEQUENCES, LENGTH, vocab]`` of the probe by the model's own attention code."""
    # Eager attention is the plain code of the family, on every device.
    ours = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        logits: Tensor = model(input_ids=probe_tokens(model), use_cache=False).logits.float()
    finally:
        model.set_attn_implementation(ours)
    return logits


def spread_of(logits: Tensor) -> Tensor:
    """The mean over tokens of the standard deviation of their logits."""
    return logits.std(dim=-1).mean()


def agree(ours: Tensor, theirs: Tensor, spread: Tensor, dtype: torch.dtype) -> bool:
    """Whether logits of a model of this dtype are equal but for rounding.

    Logits that are not finite cannot be compared: training and sampling report such weights themselves.
    """
    if not bool(theirs.isfinite().all()):
        return True
    off = ours - theirs
    if dtype == torch.float32:
        return bool(off.abs().max() <= TOLERANCE * spread)
    # In 16 bits some of many logits are far off; their mean square is not.
    root_mean_square = off.square().mean().sqrt()
    return bool(root_mean_square <= ROUNDED_TOLERANCE * spread)


def different(model: nn.Module, ours: Tensor, theirs: Tensor, spread: Tensor, subject: str) -> EnvironmentFault:
    """The error for a model whose logits differ from those of its own attention code."""
    least = torch.finfo(torch.float32).tiny  # all logits may be equal
    off = float((ours - theirs).abs().max() / spread.clamp(min=least))
    return refusal(model, f"{subject} would not compute what it computes: logits are off by {off:.1%} of their spread")


def refusal(model: nn.Module, reason: str) -> EnvironmentFault:
    """The error for a model whose architecture ours cannot run."""
    return EnvironmentFault(f"{type(model).__name__} is not supported: {reason}")


@contextmanager
def explained(model: nn.Module) -> Iterator[None]:
    """Turn whatever a model raises in a probe into a refusal: its code does not work with our attention."""
    try:
        yield
    except UnsupportedAttention as error:
        raise refusal(model, str(error)) from error
    except (EnvironmentFault, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise refusal(model, f"its code fails with another attention function ({first_line(error)})") from error


def _record(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    attention_calls: list[AttentionCall] | None = None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """An attention function that notes the window of its module; shapes as in transformers."""
    if attention_calls is None:
        raise UnsupportedAttention("it passes no arguments on to the attention function")
    # ``_mask_with_window`` has noted the window on the mask; a mask without it is another one.
    if attention_mask is not None and not hasattr(attention_mask, WINDOW):
        raise UnsupportedAttention("it changes the attention mask")
    setattr(module, WINDOW, getattr(attention_mask, WINDOW, None))
    _, key_heads, _, key_width = key.shape
    _, value_heads, _, value_width = value.shape
    call = AttentionCall(keys=(key_heads, key_width), values=(value_heads, value_width))
    attention_calls.append(call)
    kind = scores_of(module, query, scaling, others)
    return causal_attention(query, key, value, kind).transpose(1, 2), None


def _mask_with_window(
    *, q_length: int, kv_length: int, mask_function: MaskFunction, local_size: int | None = None, **others: Any
) -> Tensor:
    """A mask function of transformers: what matters is the window noted on the mask, not its values."""
    mask = torch.zeros(1, 1, q_length, kv_length, device=others.get("device"))
    setattr(mask, WINDOW, _window(mask_function, local_size))
    return mask


def _window(mask_function: MaskFunction, local_size: int | None) -> int | None:
    """The sliding window of a mask; raises UnsupportedAttention for a mask of another kind."""
    # The token in the middle of the third chunk of this size: a window hides other tokens from it than chunks do.
    size = local_size or CONTEXT_SAMPLE
    row = torch.tensor(2 * size + size // 2)
    columns = torch.arange(3 * size)
    # The mask of one query, for batch 0 and head 0.
    seen = torch.as_tensor(mask_function(0, 0, row, columns)).expand(len(columns))
    earlier = columns <= row
    if torch.equal(seen, earlier):
        return None
    if local_size is not None:
        # A chunked mask hides other tokens than a window of its size: see ``row``.
        in_window = earlier & (columns > row - local_size)
        if torch.equal(seen, in_window):
            return local_size
    raise UnsupportedAttention("its attention mask is neither causal nor a sliding window")
