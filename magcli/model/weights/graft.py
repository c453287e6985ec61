"""Replace the text weights of a vision-language model by trained ones (recipe, section 6: multimodal).

A vision-language model has its text model under another prefix (``language_model.model.layers``,
``model.language_model.layers``, ``model.layers`` ...). Exactly one prefix must fit all tensors of the text model in
name and shape. The files are then rewritten tensor by tensor: headers and other tensors, such as the vision encoder's,
byte by byte; text tensors in the type in which the vision-language model stores them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

import torch

from magcli.errors import DataError
from magcli.model.weights.tensors import BLOCK, FLOATS, Stored, blocks, finite_cast, raw_blocks, read_header

HEAD = "lm_head"
EMBEDDING = "embed_tokens.weight"
EQUAL = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps",
          "rope_theta")  # fmt: skip
"""Settings that affect a text model's output but no shape, and must be equal."""
EQUAL_IF_PRESENT = ("sliding_window", "layer_types", "query_pre_attn_scalar", "attn_logit_softcapping",
           "final_logit_softcapping")  # fmt: skip
"""Such settings of some model families."""


class Shaped(Protocol):
    """A tensor of a text model, as far as its place depends on it."""

    @property
    def shape(self) -> tuple[int, ...]: ...


T = TypeVar("T", bound=Shaped)

Plan = Mapping[str, Stored]
"""The tensors of the text model by the names of the tensors of the vision-language model that they replace."""


@dataclass
class Rounded:
    """Statistics of storing text tensors in other types: values cast, and those that changed."""

    values: int = 0
    changed: int = 0
    types: set[tuple[str, str]] = field(default_factory=set)


def plan(text: Mapping[str, Stored], vlm: Mapping[str, Stored]) -> Plan:
    """Find the place of each tensor of a text model in a vision-language model.

    A head of the vision-language model gets the embeddings of a text model without a head (tied embeddings).

    Raises:
        DataError: no prefix fits all tensors (the message names the first that does not fit), several do, the
            vision-language model has text tensors that the text model lacks, or it has no other tensors.
    """
    replacements = places(_untied(text, vlm), vlm)
    # Then it is a text model itself.
    if len(replacements) == len(vlm):
        raise DataError("all tensors of the vision-language model are text tensors: it has no vision encoder")
    return replacements


def places(text: Mapping[str, T], vlm: Mapping[str, Stored]) -> dict[str, T]:
    """``plan`` without regard to values: a head of the text model must have a place of its own."""
    parts: dict[str, dict[str, T]] = {}  # by the first part of the name: ``model`` and ``lm_head``
    for name, tensor in text.items():
        top, _, _ = name.partition(".")
        parts.setdefault(top, {})[name] = tensor

    replacements: dict[str, T] = {}
    for top, part in sorted(parts.items()):
        prefix = _prefix(top, part, vlm)
        for name, tensor in part.items():
            replacements[_renamed(name, prefix)] = tensor
        if top != HEAD:
            _check_covered(prefix, part, vlm)
    return replacements | _tied_head(replacements, text, vlm)


def _renamed(name: str, prefix: str) -> str:
    """A name with ``prefix`` instead of the part before its first dot."""
    return prefix + name.partition(".")[2]


def _prefix(top: str, part: Mapping[str, Shaped], vlm: Mapping[str, Stored]) -> str:
    """The prefix under which the vision-language model has all tensors of one part of the text model."""
    prefixes = _prefixes(top, part, vlm)
    if not prefixes:
        raise DataError(f"the vision-language model has no tensor for the text model's {min(part)}")
    num_fitting = {}
    for prefix in prefixes:
        num_fitting[prefix] = sum(_fits(name, tensor, prefix, vlm) for name, tensor in part.items())
    complete = [prefix for prefix, count in num_fitting.items() if count == len(part)]
    if len(complete) > 1:
        raise DataError(f"the text model's {top} is ambiguous: it fits {', '.join(complete)}")
    if not complete:
        # The prefix that fits most tensors tells most about the one that does not fit.
        best = max(prefixes, key=lambda prefix: num_fitting[prefix])
        raise DataError(_misfit(part, best, vlm))
    return complete[0]


def _prefixes(top: str, part: Mapping[str, Shaped], vlm: Mapping[str, Stored]) -> list[str]:
    """The candidate prefixes for a part in the vision-language model; a head keeps its name."""
    suffixes = {name if top == HEAD else name.partition(".")[2] for name in part}
    head = f"{HEAD}." if top == HEAD else ""
    prefixes: set[str] = set()
    for name in vlm:
        # Of the name, and of what follows each of its dots.
        starts = [0] + [dot.end() for dot in re.finditer(r"\.", name)]
        for start in starts:
            if name[start:] in suffixes:
                prefixes.add(name[:start] + head)
    return sorted(prefixes)


def _fits(name: str, tensor: Shaped, prefix: str, vlm: Mapping[str, Stored]) -> bool:
    counterpart = vlm.get(_renamed(name, prefix))
    return counterpart is not None and counterpart.shape == tensor.shape


def _misfit(part: Mapping[str, Shaped], prefix: str, vlm: Mapping[str, Stored]) -> str:
    """An error message for the first tensor that does not fit under the best prefix."""
    name = min(name for name, tensor in part.items() if not _fits(name, tensor, prefix, vlm))
    renamed = _renamed(name, prefix)
    counterpart = vlm.get(renamed)
    if counterpart is None:
        return f"the vision-language model has no tensor {renamed} for the text model's {name}"
    shape = list(part[name].shape)
    other = f"{counterpart.name} of the vision-language model is {list(counterpart.shape)}"
    return f"the text model's {name} is {shape}, but {other}: it is not this model's text model"


def _check_covered(prefix: str, part: Mapping[str, Shaped], vlm: Mapping[str, Stored]) -> None:
    """Reject an incomplete text model, which would leave some of the old text tensors in place."""
    names = {name.partition(".")[2] for name in part}
    modules = {name.partition(".")[0] for name in names}  # ``layers``, ``embed_tokens``, ``norm``
    of_text = tuple(f"{prefix}{module}." for module in modules)
    left = []
    for name in vlm:
        # Of the same modules, such as a layer more than the text model has.
        is_missing = name.startswith(of_text) and name.removeprefix(prefix) not in names
        # Old checkpoints store the rotary frequencies, which follow from the configuration.
        if is_missing and not name.endswith("inv_freq"):
            left.append(name)
    if left:
        raise DataError(f"the text model has no tensor for {min(left)} of the vision-language model")


def is_head(name: str) -> bool:
    """Whether a tensor's name is that of an output head."""
    return f".{name}".endswith(f".{HEAD}.weight")


def has_own_head(tensors: Mapping[str, Stored]) -> bool:
    """Whether a model stores an output head that differs from its embeddings."""
    heads, embedding = _heads(tensors), _embeddings(tensors)
    return bool(heads) and (embedding is None or not _equal(tensors[heads[0]], embedding))


def _heads(names: Iterable[str]) -> list[str]:
    return [name for name in names if is_head(name)]


def _embeddings(tensors: Mapping[str, T]) -> T | None:
    return next((stored for name, stored in tensors.items() if name.endswith(EMBEDDING)), None)


def _tied_head(replacements: Mapping[str, T], text: Mapping[str, T], vlm: Mapping[str, Stored]) -> dict[str, T]:
    """The embeddings for a stored head, if the text model has no head."""
    heads, embedding = _heads(vlm), _embeddings(replacements)
    if _heads(text) or not heads:
        return {}
    if embedding is None or len(heads) > 1 or vlm[heads[0]].shape != embedding.shape:
        raise DataError(f"the text model has no output head for {heads[0]} of the vision-language model")
    return {heads[0]: embedding}


def _untied(text: Mapping[str, Stored], vlm: Mapping[str, Stored]) -> Mapping[str, Stored]:
    """The text model's tensors, without a head equal to its embeddings if the vision-language model has no head."""
    heads, embedding = _heads(text), _embeddings(text)
    if not heads or _heads(vlm):
        return text
    if embedding is None or not _equal(text[heads[0]], embedding):
        raise DataError(
            f"the text model's {heads[0]} differs from its embeddings, but the vision-language model ties the two: "
            "it has no tensor for the head"
        )
    return {name: stored for name, stored in text.items() if name not in heads}


def _equal(one: Stored, other: Stored) -> bool:
    if (one.kind, one.shape) != (other.kind, other.shape):
        return False
    # Block by block: an embedding may have gigabytes.
    return all(a == b for a, b in zip(raw_blocks(one, BLOCK), raw_blocks(other, BLOCK), strict=True))


def check_settings(text: Any, vlm: Any) -> None:
    """Raise DataError if settings of a text model's transformers configuration differ from the text settings of the
    vision-language model's."""
    ours = _settings(text.get_text_config())
    theirs = _settings(vlm.get_text_config())
    for name, value in ours.items():
        if name in theirs and value != theirs[name]:
            raise DataError(f"the text model has {name} {value}, the vision-language model {theirs[name]}")


def _settings(config: Any) -> dict[str, Any]:
    """The settings that affect a text model's output, by name; RoPE parameters of some families are per layer type."""
    settings = {name: getattr(config, name, None) for name in EQUAL}
    settings |= _flat(getattr(config, "rope_parameters", None))
    settings["head_dim"] = settings["head_dim"] or config.hidden_size // config.num_attention_heads
    for name in EQUAL_IF_PRESENT:
        if hasattr(config, name):
            settings[name] = getattr(config, name)
    if settings.get("layer_types") is None:  # some configurations have the key without a value
        settings.pop("layer_types", None)
    return settings


def _flat(parameters: Mapping[str, Any] | None, start: str = "") -> dict[str, Any]:
    """Nested parameters with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in (parameters or {}).items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{start}{name}.")
        else:
            flat[start + name] = value
    return flat


def check_tokens(text: Mapping[str, int], vlm: Mapping[str, int]) -> None:
    """Raise DataError if a token of the text model has another id in the vision-language model's tokenizer."""
    for token, index in sorted(text.items(), key=lambda item: item[1]):
        if vlm.get(token) != index:
            there = f"is {vlm[token]}" if token in vlm else "does not exist"
            raise DataError(f"token {token!r} is {index} for the text model and {there} in the vision-language model")


def write_shard(file: Path, target: Path, planned: Plan) -> Rounded:
    """Write one file of a vision-language model, replacing the planned tensors; DataError if one is quantised."""
    rounded = Rounded()
    tensors = read_header(file)
    with file.open("rb") as source, target.open("wb") as out:
        # The header stays valid: types and sizes are those of the tensors that are replaced.
        header_bytes = tensors[0].begin if tensors else file.stat().st_size
        out.write(source.read(header_bytes))
        for tensor in tensors:
            if tensor.name in planned:
                _write_cast(planned[tensor.name], tensor, out, rounded)
            else:
                out.writelines(raw_blocks(tensor, BLOCK))
    return rounded


def _write_cast(stored: Stored, replaced: Stored, out: BinaryIO, rounded: Rounded) -> None:
    if replaced.kind not in FLOATS:
        raise DataError(
            f"{replaced.file}: tensor {replaced.name} is {replaced.kind}; only float tensors can be replaced"
        )
    for values in blocks(stored):
        cast = finite_cast(values, stored, replaced.kind)
        if stored.kind != replaced.kind:
            is_changed = cast.to(values.dtype) != values
            rounded.values += values.numel()
            rounded.changed += int(is_changed.sum())
            rounded.types.add((stored.kind, replaced.kind))
        out.write(cast.view(torch.uint8).numpy().data)


def total(parts: Sequence[Rounded]) -> Rounded:
    """The statistics of all files together."""
    types = {pair for part in parts for pair in part.types}
    return Rounded(sum(part.values for part in parts), sum(part.changed for part in parts), types)
