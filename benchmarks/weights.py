"""What an update of an engine's weights through ``ipc`` handles asks of the devices: ``python -m benchmarks.weights``.

Counts calls, not seconds, so a CPU tells what a GPU would do: the trainer packs and digests a random model with as many
tensors as SmolLM2-135M, makes handles, and the engine's end opens and digests them. A number or a list that Python
reads from a device counts as a synchronisation. Loading, which is vLLM's, is not counted.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.models import random_llama
from magcli.generate.weights import packed
from magcli.generate.weights.matching import names_in, untied

LAYERS = 30
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
COPIES = frozenset({"copy_", "_to_copy", "clone", "_foreach_copy_", "cat"})


class Operations(TorchDispatchMode):
    """Counts operations by what a GPU's host would do for them."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self._counts["operations"] += 1
        self._counts["copies"] += name in COPIES
        self._counts["synchronisations"] += name == "_local_scalar_dense"
        return func(*args, **(kwargs or {}))


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Counts of what is done in the block."""
    counts: Counter[str] = Counter()
    read = torch.Tensor.tolist

    def tolist(tensor: torch.Tensor) -> Any:
        counts["synchronisations"] += 1
        return read(tensor)

    with patch.object(torch.Tensor, "tolist", tolist), Operations(counts):
        yield counts


def count_update(make_handle: Callable[[torch.Tensor], str] = packed.handle_of) -> Counter[str]:
    """The counts of one update: those of the trainer and of the engine together, until the engine loads."""
    model = random_llama(vocab_size=128, num_hidden_layers=LAYERS, **SIZES)
    parameters = untied(dict(model.named_parameters()))
    with counting() as counts:
        sent = packed.pack(parameters, torch.bfloat16)
        proof = sent.digests()
        handles = [make_handle(buffer) for buffer in sent.buffers]
        buffers = [packed.open_handle(handle, torch.device("cpu")) for handle in handles]
        arrived = packed.PackedWeights.opened(buffers, sent.described())
        views = {name: arrived[source] for name, source in names_in(arrived, model).items()}
        assert arrived.digests() == proof
    counts["tensors"], counts["handles"] = len(views), len(handles)
    return counts


def main() -> int:
    """Print the counts."""
    counts = count_update()
    for name in ("tensors", "handles", "synchronisations", "copies", "operations"):
        print(f"{name:17} {counts[name]:6}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
