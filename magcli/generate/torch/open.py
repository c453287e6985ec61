"""Opens the embedded engine."""

from magcli.generate.spec import Spec
from magcli.generate.torch.adapted import adapted_decoder
from magcli.generate.torch.decoder import open_decoder
from magcli.generate.torch.policy import TorchPolicy
from magcli.generate.types import Weights


def open_torch(spec: Spec) -> TorchPolicy:
    """The embedded engine with a copy of the weights of its own."""
    model, dtype = spec.model, spec.torch_dtype
    _ = model.tokenizer  # before the weights, which take longer: a tokenizer that cannot be used is an error at once
    decoder = open_decoder(model, dtype=dtype, device=spec.device) or model.load(dtype=dtype, device=spec.device)
    return TorchPolicy(spec, decoder)


def open_adapted(spec: Spec, frozen: Weights) -> TorchPolicy:
    """The embedded engine on the weights that LoRA trains on top of in this process; it samples with adapters.

    ``frozen`` are the weights by name, which the engine uses without copying them.
    """
    assert spec.model.decoder is not None, "only plain decoders share their weights"
    decoder = adapted_decoder(spec.model.decoder, frozen, rank=spec.lora_rank, alpha=spec.lora_alpha)
    return TorchPolicy(spec, decoder)
