"""The parts of a model that torch, transformers or the hub's client reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.model import load
from magcli.model.weights import nested

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

    from magcli.model.chat.prompts import ChatTemplate
    from magcli.model.weights.plain import DecoderConfig


@dataclass(frozen=True, slots=True)
class Parts:
    """What ``magcli.model.load`` reads of the model with a name; its results and errors are described there."""

    name: str

    @property
    def is_config_alone(self) -> bool:
        """Whether its folder has a configuration and no tokenizer."""
        return load.is_config_alone(Path(self.name))

    @property
    def is_nested(self) -> bool:
        """Whether the text model is inside a larger one."""
        return load.nested_config(self.name) is not None

    @property
    def is_vision(self) -> bool:
        """Whether it is a vision-language model."""
        return load.is_vision_model(self.name)

    @property
    def folder(self) -> Path:
        """Its folder."""
        return load.local_folder(self.name)

    @property
    def config(self) -> Any:
        """The configuration."""
        return load.load_config(self.name)

    def text_config(self, config: Any) -> Any:
        """The configuration of the text model, from the whole one."""
        return load.load_text_config(self.name, config)

    def generation_config(self, config: Any) -> Any:
        """The generation config, or that of the configuration."""
        return load.load_generation_config(self.name, config)

    def decoder(self) -> DecoderConfig | None:
        """The configuration of a plain decoder."""
        return load.plain_decoder(self.name)

    def nested_decoder(self, *, tied: bool) -> DecoderConfig | None:
        """The configuration of the plain decoder inside a larger model."""
        return load.nested_decoder(self.name, tied=tied)

    def tokenizer(self, template: ChatTemplate) -> PreTrainedTokenizerBase:
        """The tokenizer, to render prompts with a template."""
        return load.load_tokenizer(self.name, template)

    def outline(self, text_config: Any) -> PreTrainedModel:
        """The model on the meta device; ``text_config``: of a text model inside a larger one."""
        return load.load_outline(self.name, text_config)

    def text_places(self, outline: PreTrainedModel) -> Mapping[str, str]:
        """The parameter of a nested text model for each text tensor of the checkpoint."""
        return load.text_places(self.name, outline)

    def checkpoint_names(self, text_places: Mapping[str, str]) -> Mapping[str, str]:
        """The name in the checkpoint of each parameter of a nested text model."""
        return nested.checkpoint_names(text_places)

    def digest(self, folder: Path, *, weights: bool) -> str:
        """SHA-256 of all files that decide what it samples, or of those without the weights."""
        return load.fingerprint(folder, weights=weights)

    def load(self, *, dtype: torch.dtype, device: str, from_scratch: bool, seed: int) -> PreTrainedModel:
        """A new copy of the weights."""
        return load.load_model(self.name, dtype=dtype, device=device, from_scratch=from_scratch, seed=seed)

    def load_vision(self, *, dtype: torch.dtype, device: str) -> tuple[PreTrainedModel, ProcessorMixin]:
        """A new copy of the weights of a vision-language model, and its processor."""
        return load.load_vision_model(self.name, dtype=dtype, device=device)
