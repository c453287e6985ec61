"""Makes the receiving end of weight updates faulty, in all processes that have this folder on their PYTHONPATH.

``WEIGHTS_FAULT`` is ``drop`` or ``garble``: what happens to ``TENSOR`` in the third update that a process receives.
"""

import importlib.abc
import importlib.machinery
import os
import sys

TENSOR = "model.layers.1.self_attn.k_proj.weight"
FAULTY_UPDATE = 3
FAULT = os.environ.get("WEIGHTS_FAULT", "")


def garbled(tensor):
    tensor = tensor.clone()
    tensor[0, 0] += 1
    return tensor


def break_slot_model(module):
    """The embedded engine."""
    load, updates = module.SlotModel.load, []

    def faulty(model, weights):
        updates.append(1)
        if len(updates) == FAULTY_UPDATE:
            weights = dict(weights)
            if FAULT == "drop":
                del weights[TENSOR]
            else:
                weights[TENSOR] = garbled(weights[TENSOR])
        return load(model, weights)

    module.SlotModel.load = faulty


def break_vllm_worker(module):
    """vLLM's worker, with weights from a file or by gloo."""
    for transfer in (module.FileTransfer, module.GlooTransfer):
        break_transfer(transfer, vars(transfer)["_received"], [])


def break_transfer(transfer, received, updates):
    def faulty(self, info):
        updates.append(1)
        for name, tensor in received(self, info):
            is_hit = name == TENSOR and len(updates) == FAULTY_UPDATE
            if not is_hit:
                yield name, tensor
            elif FAULT == "garble":
                yield name, garbled(tensor)

    transfer._received = faulty


BREAK = {"magcli.generate.torch.slot_model": break_slot_model, "magcli.generate.vllm.worker": break_vllm_worker}


class Finder(importlib.abc.MetaPathFinder):
    """Breaks the modules of ``BREAK`` when they have been imported."""

    def find_spec(self, name, path, target=None):
        if name not in BREAK:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_and_break(module):
            execute(module)
            BREAK[name](module)

        spec.loader.exec_module = exec_and_break
        return spec


if FAULT:
    sys.meta_path.insert(0, Finder())
