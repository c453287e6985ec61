"""The index of a sharded checkpoint, as JSON: which part of which tensor is where in which file.

``torch.distributed.checkpoint`` stores it as a pickle, which can run code when it is read. These subclasses of its
writer and reader store the same facts in a format that is only data; the parts themselves are read with
``weights_only``.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.storage import WriteResult

from magcli.errors import DataError

INDEX = "index.json"
PICKLE = ".metadata"
"""The file that the library writes, which ``IndexWriter`` replaces."""


class IndexWriter(FileSystemWriter):
    """Writes tensors in shards, and the index as JSON."""

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the index; rank 0 calls this after all shards are written."""
        super().finish(metadata, results)
        folder = Path(self.path)
        tensors = {}
        for name, stored in metadata.state_dict_metadata.items():
            if isinstance(stored, TensorStorageMetadata):
                tensors[name] = _tensor_record(stored)
        parts = [_part_record(index, info) for index, info in metadata.storage_data.items()]
        record = {"tensors": tensors, "parts": parts}
        (folder / INDEX).write_text(json.dumps(record), encoding="utf-8")
        # The index has replaced it, and nothing is to read it.
        (folder / PICKLE).unlink()


class IndexReader(FileSystemReader):
    """Reads what ``IndexWriter`` wrote; nothing in the folder is unpickled."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The index.

        Raises:
            DataError: it is missing or damaged.
        """
        folder = Path(self.path)
        file = folder / INDEX
        tensors: dict[str, STORAGE_TYPES] = {}
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            for name, fields in record["tensors"].items():
                tensors[name] = _tensor(fields)
            parts = dict(_part(fields, folder) for fields in record["parts"])
        # RecursionError: JSON that is nested too deep.
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{file} is missing or damaged ({error})") from None
        return Metadata(tensors, storage_data=parts, storage_meta=StorageMeta(load_id=self.load_id))


def _tensor_record(stored: TensorStorageMetadata) -> dict[str, Any]:
    dtype = str(stored.properties.dtype).removeprefix("torch.")
    chunks = [[list(chunk.offsets), list(chunk.sizes)] for chunk in stored.chunks]
    return {"dtype": dtype, "size": list(stored.size), "chunks": chunks}


def _tensor(fields: dict[str, Any]) -> TensorStorageMetadata:
    dtype = getattr(torch, fields["dtype"])
    # ``torch`` has other attributes, which a damaged index could name.
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{fields['dtype']} is not a dtype")
    properties = TensorProperties(dtype=dtype)
    size = torch.Size(fields["size"])
    chunks = []
    for offsets, sizes in fields["chunks"]:
        chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
    return TensorStorageMetadata(properties, size, chunks)


def _part_record(index: MetadataIndex, info: _StorageInfo) -> dict[str, Any]:
    return {
        "tensor": index.fqn,
        "offsets": None if index.offset is None else list(index.offset),
        "file": info.relative_path,
        "start": info.offset,
        "bytes": info.length,
    }


def _part(fields: dict[str, Any], folder: Path) -> tuple[MetadataIndex, _StorageInfo]:
    """Where a part of a tensor is stored; its file must be in the folder itself."""
    file = fields["file"]
    # A path would lead out of the folder.
    if Path(file).name != file or not (folder / file).is_file():
        raise ValueError(f"{file!r} is not a file of the checkpoint")
    info = _StorageInfo(file, int(fields["start"]), int(fields["bytes"]))
    return MetadataIndex(fields["tensor"], fields["offsets"]), info
