"""Opens vLLM: starts its engine, and chooses how new weights get there."""

from magcli.console import Console
from magcli.generate.spec import Spec
from magcli.generate.vllm.adapter import AdapterSender
from magcli.generate.vllm.policy import VllmPolicy
from magcli.generate.vllm.start import start
from magcli.generate.vllm.transfer import Sender, broadcast_backend, sender_for


def open_vllm(spec: Spec, console: Console) -> VllmPolicy:
    """vLLM in a process of its own; ``console`` and errors as in ``start``."""
    _ = spec.model.ends, spec.model.outline  # before the engine, which takes half a minute to start
    sender = _sender(spec)
    backend = broadcast_backend(spec.device) if spec.transfer == "broadcast" else sender.backend
    return VllmPolicy(spec, start(spec, backend=backend, console=console), sender)


def _sender(spec: Spec) -> Sender:
    if spec.lora_rank:
        return AdapterSender(spec.lora_alpha)
    return sender_for(spec.device, spec.torch_dtype, ranks=spec.tensor_parallel)
