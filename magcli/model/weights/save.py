"""Save a trained model: its own weights, and everything else as in the model that training started from.

Weights have the names, files and dtypes of the original's checkpoint, tensors that transformers does not load included;
other files are copied byte by byte (``magcli.model.settings``). So whatever reads the original reads the result.
"""

import json
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from magcli.choices import SaveDtype
from magcli.data.durable import disk_errors
from magcli.errors import EnvironmentFault
from magcli.model.load import atomic_model_folder, load_config, local_folder, quiet_transformers
from magcli.model.settings import (
    CONFIG,
    PATTERNS,
    Settings,
    declared_dtype,
    read_settings,
    require_config,
    with_dtype,
    with_ends,
    with_template,
    with_values,
    write_settings,
)
from magcli.model.weights.tensors import (
    BLOCK,
    FLOATS,
    INDEX,
    SINGLE,
    Entry,
    Stored,
    blocks,
    has_weights,
    raw_blocks,
    stored_tensors,
    write_file,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KINDS = {"bf16": "BF16", "fp32": "F32"}
NAMES = {"bf16": "bfloat16", "fp32": "float32"}
"""How config.json spells these dtypes."""
OTHER_KINDS = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32",
    torch.int64: "I64", torch.float64: "F64",
}  # fmt: skip
"""The format's names of types that are stored as they are."""
SHARD_BYTES = 5_000_000_000
"""Maximum size of a file of weights, if the original does not determine the files."""
GIGABYTE = 1e9


@dataclass(frozen=True, slots=True)
class Original:
    """The model that training started from, as far as a saved model takes it over.

    ``stored`` has its tensors by name, none if the weights were randomly initialized or are not in safetensors;
    ``dtype`` is the default for saving. ``text_places`` are as in ``Model``: the text tensors of a larger model, whose
    other tensors are copied.
    """

    name: str
    files: Settings
    stored: Mapping[str, Stored]
    index: bytes | None
    dtype: SaveDtype = "source"
    text_places: Mapping[str, str] = field(default_factory=dict)


def open_original(
    name: str,
    *,
    dtype: SaveDtype = "source",
    ends: Collection[int] = (),
    chat_template: str = "",
    from_scratch: bool = False,
    text_places: Mapping[str, str] | None = None,
) -> Original:
    """Read the small files of a model folder or hub id, and where its tensors are.

    ``ends`` are the end tokens that the generation config of the saved model must have; ``chat_template`` replaces its
    chat template unless it is empty; ``text_places`` are those of a nested text model, as in ``Model``.

    Raises:
        EnvironmentFault: the model is missing, or a configuration is damaged.
        DataError: a file of weights is damaged.
    """
    folder = local_folder(name, [*PATTERNS, SINGLE, INDEX, "model-*.safetensors"])
    files: Settings = read_settings(folder)
    require_config(files, name)
    stored = stored_tensors(folder) if has_weights(folder) and not from_scratch else {}
    index = (folder / INDEX).read_bytes() if stored and (folder / INDEX).is_file() else None
    if chat_template:
        files = with_template(files, chat_template)
    files = with_ends(files, ends)
    return Original(name, files, stored, index, dtype, text_places or {})


def save_model(
    model: "PreTrainedModel",
    original: Original,
    folder: Path,
    *,
    weights: Mapping[str, Tensor] | None = None,
    dtype: SaveDtype | None = None,
) -> None:
    """Write a model folder, which appears complete or not at all; an existing one is replaced.

    ``weights``, by parameter name, are written instead of the model's, which may be sharded. ``dtype`` replaces the
    original's default.

    Raises:
        EnvironmentFault: the disk is full or cannot be written, or the names of weights do not fit the original.
    """
    # The caller's wish, or what the run was opened with.
    chosen = dtype or original.dtype
    state = model.state_dict() if weights is None else weights
    tensors = _stored_names(model, state, original)
    with atomic_model_folder(folder) as temp:
        write_settings(_files(original, chosen), temp)
        _write_weights(tensors, original, chosen, temp)


def try_saving(
    model: "PreTrainedModel",
    original: Original,
    folder: Path,
    *,
    weights: Mapping[str, Tensor] | None = None,
    more_bytes: int = 0,
) -> None:
    """Do all that ``save_model`` will do in ``folder``, except for writing the weights.

    The small files go to a temporary folder beside it and are read back. The disk must have space for the weights (of
    ``weights`` if given, as in ``save_model``) and ``more_bytes``, for example of a checkpoint.

    Raises:
        EnvironmentFault: saving would fail.
    """
    state = model.state_dict(keep_vars=True) if weights is None else weights
    shapes = {}
    for name, tensor in state.items():
        # Names and shapes are all that can go wrong; the values stay where they are.
        shapes[name] = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    tensors = _stored_names(model, shapes, original)
    with disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", suffix=".trial.tmp", dir=folder.parent) as trial:
            write_settings(_files(original, original.dtype), Path(trial))
            # Read back, since a changed value could make the configuration unreadable.
            load_config(trial)
        # Of the disk of the parent: the folder itself does not exist yet.
        free = shutil.disk_usage(folder.parent).free
    plan = _plan(tensors, original, original.dtype)
    size = more_bytes + _bytes_of(plan)
    if size > free:
        raise EnvironmentFault(
            f"cannot write {folder}: the result and a checkpoint take {size / GIGABYTE:.2f} GB, but only "
            f"{free / GIGABYTE:.2f} GB of the disk are free; free some, or name another folder"
        )


def _files(original: Original, dtype: SaveDtype) -> Settings:
    """The small files for weights of this dtype."""
    if dtype == "source":
        return original.files
    return {**original.files, CONFIG: with_dtype(original.files[CONFIG], NAMES[dtype])}


def _stored_names(model: "PreTrainedModel", state: Mapping[str, Tensor], original: Original) -> dict[str, Tensor]:
    """The tensors by their names in the original's checkpoint.

    transformers renames, fuses and splits tensors of some families when it loads them; this is reverted. Of tied
    tensors, those names are kept that the original stores, else the first one. A nested text model has the names of its
    places.

    Raises:
        EnvironmentFault: some names do not occur in the original, which stores others instead.
    """
    # The text model of a larger one: its tensors go back to their places.
    if original.text_places:
        text = {name: state[parameter] for name, parameter in original.text_places.items()}
        _check_kinds(text, original)
        return text
    first_names = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    tensors = _reverted(model, {name: tensor for name, tensor in state.items() if name in first_names})
    stored = original.stored
    if not stored:
        return tensors
    tied = _reverted(model, {name: tensor for name, tensor in state.items() if name not in first_names})
    also_stored = {name: tensor for name, tensor in tied.items() if name in stored}

    # A tensor of which the original stores another name only is not new.
    new = set()
    for name in tensors.keys() - stored.keys():
        if not any(_same(tensors[name], tensor) for tensor in also_stored.values()):
            new.add(name)
    named = {name: tensor for name, tensor in (tensors | also_stored).items() if name in stored or name in new}
    left = stored.keys() - named.keys()
    if new and left:
        raise EnvironmentFault(
            f"model {original.name}: {min(new)} cannot be saved under a name of its checkpoint, which has {min(left)} "
            "instead; save the model again with save_pretrained of this version of transformers, and train that"
        )
    _check_kinds(named, original)
    return named


def _check_kinds(tensors: Iterable[str], original: Original) -> None:
    for name in tensors:
        kind = original.stored[name].kind if name in original.stored else "F32"
        if kind not in FLOATS and kind not in OTHER_KINDS.values():
            raise EnvironmentFault(
                f"model {original.name}: {name} is quantised ({kind}); train a model in bf16 or fp32"
            )


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors may be the same tied one; on the meta device only shapes are known."""
    if one.is_meta or other.is_meta:
        return one.shape == other.shape
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape


def _reverted(model: "PreTrainedModel", state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as in checkpoints of the model's family."""
    from transformers.core_model_loading import revert_weight_conversion

    with torch.no_grad(), quiet_transformers():
        detached = {name: tensor.detach() for name, tensor in state.items()}
        reverted: dict[str, Tensor] = revert_weight_conversion(model, detached)
    return reverted


Source = Tensor | Stored
"""Where the values of a tensor come from: the trained model, or a file of the original."""
Plan = dict[str, list[tuple[Entry, Source]]]
"""The entries of each file, in order."""


def _plan(tensors: Mapping[str, Tensor], original: Original, dtype: SaveDtype) -> Plan:
    """The files to write: those of the original, or as few as ``SHARD_BYTES`` allows."""
    if not original.stored:
        return _new_shards(tensors, original, dtype)
    plan: Plan = {}
    for name, stored in original.stored.items():
        # A tensor that the model does not load is copied from the original.
        source: Source = tensors.get(name, stored)
        entry = _entry(name, source, stored.kind, dtype)
        plan.setdefault(stored.file.name, []).append((entry, source))

    # What the original does not store goes to the end of its last file.
    last_file = plan[max(plan)]
    # As the original's configuration says.
    kind = _default_kind(original)
    for name in sorted(tensors.keys() - original.stored.keys()):
        tensor = tensors[name]
        last_file.append((_entry(name, tensor, kind, dtype), tensor))
    return plan


def _new_shards(tensors: Mapping[str, Tensor], original: Original, dtype: SaveDtype) -> Plan:
    kind = _default_kind(original)
    shards: list[list[tuple[Entry, Source]]] = [[]]
    size = 0  # of the newest shard
    for name, tensor in tensors.items():
        entry = _entry(name, tensor, kind, dtype)
        # A tensor that is larger by itself has a file of its own.
        if shards[-1] and size + entry.size > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append((entry, tensor))
        size += entry.size
    if len(shards) == 1:
        return {SINGLE: shards[0]}
    count = len(shards)
    return {f"model-{number:05d}-of-{count:05d}.safetensors": shard for number, shard in enumerate(shards, 1)}


def _bytes_of(plan: Plan) -> int:
    """The size of all tensors, without the headers of the files."""
    return sum(entry.size for entries in plan.values() for entry, _ in entries)


def _default_kind(original: Original) -> str:
    """The type of tensors that the original does not store: that of its config.json."""
    declared = declared_dtype(original.files[CONFIG])
    for kind, dtype in FLOATS.items():
        if str(dtype) == f"torch.{declared}":
            return kind
    return "F32"


def _entry(name: str, source: Source, kind: str, dtype: SaveDtype) -> Entry:
    """The header entry of a tensor; ``kind`` is its type in the original, which floats keep with ``source``."""
    shape = tuple(source.shape)
    size = prod(shape)
    if isinstance(source, Stored):
        # Copied as it is, unless floats are asked for in another type.
        if source.kind not in FLOATS or dtype == "source":
            num_bytes = source.end - source.begin
            return Entry(name, source.kind, shape, num_bytes)
    elif not source.is_floating_point():
        num_bytes = size * source.dtype.itemsize
        return Entry(name, OTHER_KINDS[source.dtype], shape, num_bytes)
    saved_kind = kind if dtype == "source" else KINDS[dtype]
    num_bytes = size * FLOATS[saved_kind].itemsize
    return Entry(name, saved_kind, shape, num_bytes)


def _write_weights(tensors: Mapping[str, Tensor], original: Original, dtype: SaveDtype, folder: Path) -> None:
    plan = _plan(tensors, original, dtype)
    for file, entries in plan.items():
        write_file(folder / file, [(entry, _values(entry, source)) for entry, source in entries])
    if len(plan) > 1 or original.index is not None:
        (folder / INDEX).write_bytes(_index(plan, original.index))


def _values(entry: Entry, source: Source) -> Iterator[memoryview | bytearray]:
    """The bytes of a tensor in the type of its entry, a block at a time."""
    if isinstance(source, Stored) and source.kind == entry.kind:
        yield from raw_blocks(source, BLOCK)
        return
    # In blocks, so that no tensor is in memory twice as a whole.
    if isinstance(source, Stored):
        parts = blocks(source)
    else:
        flat = source.detach().reshape(-1)
        parts = iter(torch.split(flat, BLOCK))
    for part in parts:
        cast = part.to(FLOATS[entry.kind]) if entry.kind in FLOATS else part
        on_cpu = cast.contiguous().cpu()
        yield on_cpu.view(torch.uint8).numpy().data


def _index(plan: Plan, original: bytes | None) -> bytes:
    """The index of the shards: the original's, with another map or size only if these differ."""
    size = _bytes_of(plan)
    file_of = {}
    for file, entries in plan.items():
        for entry, _ in entries:
            file_of[entry.name] = file
    if original is None:
        content = {"metadata": {"total_size": size}, "weight_map": dict(sorted(file_of.items()))}
        return (json.dumps(content, indent=2) + "\n").encode()

    content = json.loads(original)
    metadata = content.get("metadata") or {}
    changes: dict[str, object] = {}
    # Unchanged keys leave the file as it is, byte by byte.
    if metadata.get("total_size") != size:
        changes["metadata"] = metadata | {"total_size": size}
    if content["weight_map"] != file_of:
        changes["weight_map"] = content["weight_map"] | file_of
    return with_values(original, changes) if changes else original
