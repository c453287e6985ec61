"""A model: everything that its name stands for, looked up once and handed on instead of the name.

A name is a local folder, a hub id, or the URL of a server, of which only the name is known here.
``magcli.model.parts`` reads each part of a model. Nothing is read before it is asked for, and this module imports
neither torch nor transformers, so that a stage pays only for what it uses. A new fact about models is a new property
here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from magcli.model.chat.ends import end_tokens
from magcli.model.chat.prompts import ChatTemplate, thought_form
from magcli.model.chat.thoughts import THINK, ThoughtForm, form_named
from magcli.model.context import context_length
from magcli.model.weights.plain import DecoderConfig, decoder_config, end_token

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

    from magcli.model.parts import Parts


@dataclass(frozen=True)
class Model:
    """A model of this machine, of the hub or of a server; open it with ``Model.open``.

    ``template`` is how its prompts are rendered, ``stop`` are more tokens that end a completion, by their texts or ids
    (``magcli.model.chat.ends``). Each property raises EnvironmentFault, in one line, if that part of the model is
    missing or damaged. In another process (pickled) it is opened again.
    """

    name: str
    template: ChatTemplate = field(default_factory=ChatTemplate)
    stop: tuple[str, ...] = ()

    @classmethod
    def open(cls, name: str | Path, template: ChatTemplate | None = None, stop: Sequence[str] = ()) -> "Model":
        """The model of a folder, hub id or URL; a name without a model is an error of the first property."""
        return cls(str(name), template or ChatTemplate(), tuple(stop))

    def __reduce__(self) -> tuple[type["Model"], tuple[str, ChatTemplate, tuple[str, ...]]]:
        # A copy in another process reads the model anew: what was read here may be large.
        return Model, (self.name, self.template, self.stop)

    def with_template(self, template: ChatTemplate) -> "Model":
        """The same model with another way to render prompts; what was read of it is kept, except for the tokenizer."""
        copy = Model(self.name, template, self.stop)
        # ``cached_property`` keeps what was read in ``__dict__``.
        read = {name: value for name, value in self.__dict__.items() if name in UNRENDERED}
        copy.__dict__.update(read)
        return copy

    @property
    def is_url(self) -> bool:
        """Whether the model is served by a server, at this URL."""
        return self.name.startswith(("http://", "https://"))

    @property
    def is_local(self) -> bool:
        """Whether the model is a folder of this machine."""
        # The empty path is the working directory.
        return self.name != "" and Path(self.name).is_dir()

    @property
    def is_config_alone(self) -> bool:
        """Whether the model is a folder with a configuration and no tokenizer, which has its sizes alone."""
        return self.is_local and self._parts.is_config_alone

    @property
    def _parts(self) -> "Parts":
        """Reads the model with torch and transformers, which are imported here."""
        from magcli.model.parts import Parts

        return Parts(self.name)

    @cached_property
    def folder(self) -> Path:
        """The model's folder; for a hub id, that of the hub client's cache."""
        return self._parts.folder

    @cached_property
    def plain(self) -> DecoderConfig | None:
        """The configuration of a plain decoder's folder, for which transformers' models are not needed."""
        return decoder_config(Path(self.name))

    @cached_property
    def decoder(self) -> DecoderConfig | None:
        """The configuration with which magcli's own decoder computes the text model; None if it cannot.

        Unlike ``plain`` also that of a hub id, and of a decoder inside a larger model.
        """
        if self.plain:
            return self.plain
        if self.is_nested:
            return self._parts.nested_decoder(tied=bool(self.text_config.tie_word_embeddings))
        return self._parts.decoder()

    @cached_property
    def config(self) -> Any:
        """The configuration, of transformers' class."""
        return self._parts.config

    @cached_property
    def text_config(self) -> Any:
        """The configuration of the text model: sizes and context length."""
        if self.plain:
            return self.plain
        return self._parts.text_config(self.config)

    @cached_property
    def is_nested(self) -> bool:
        """Whether the text model is inside a larger one, for example of a vision-language model."""
        return self._parts.is_nested

    @cached_property
    def text_places(self) -> Mapping[str, str]:
        """The parameter of the text model for each text tensor of a larger checkpoint; none if it is not nested."""
        if not self.is_nested:
            return {}
        return self._parts.text_places(self.outline)

    @property
    def checkpoint_names(self) -> Mapping[str, str]:
        """The name in the checkpoint of each parameter of a nested text model; none for any other model."""
        return self._parts.checkpoint_names(self.text_places)

    def parameters_of(self, stored: "Mapping[str, torch.Tensor]") -> "Mapping[str, torch.Tensor]":
        """Tensors of the checkpoint by the names of the text model's parameters; those of a larger model are left out.

        A checkpoint may lack a head that is tied to the embeddings.
        """
        places = self.text_places
        # A head that is tied may be stored, too: it has the same parameter as the embeddings.
        return {places[name]: tensor for name, tensor in stored.items() if name in places} if places else stored

    @property
    def widths(self) -> tuple[int, int]:
        """The hidden size and the intermediate size."""
        hidden = int(self.text_config.hidden_size)
        # Where a configuration has no width, four times the hidden size is the usual one.
        return hidden, getattr(self.text_config, "intermediate_size", None) or 4 * hidden

    @property
    def context(self) -> int:
        """The maximum sequence length, prompt and completion together."""
        return context_length(self.text_config)

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The tokenizer, which has a chat template and an end-of-sequence token."""
        return self._parts.tokenizer(self.template)

    @cached_property
    def generation_config(self) -> Any:
        """The generation config, of which only ``eos_token_id`` is certain to be there."""
        if self.plain:
            # What ``end_tokens`` asks of it, without importing transformers.
            return SimpleNamespace(eos_token_id=end_token(Path(self.name)))
        return self._parts.generation_config(self.config)

    @cached_property
    def ends(self) -> frozenset[int]:
        """Token ids that end a sequence; DataError if ``stop`` does not name single tokens."""
        return end_tokens(self, self.tokenizer, self.stop)

    @cached_property
    def thoughts(self) -> ThoughtForm:
        """The form in which it writes its thoughts; that of a server is the template's choice or the recipe's."""
        # A server's tokenizer is not known here.
        if self.is_url:
            return form_named(self.template.thoughts) if self.template.thoughts else THINK
        return thought_form(self.tokenizer)

    @cached_property
    def outline(self) -> "PreTrainedModel":
        """The text model on the meta device, without weights: names and shapes of parameters."""
        return self._parts.outline(self.text_config if self.is_nested else None)

    @cached_property
    def is_vision(self) -> bool:
        """Whether it is a vision-language model."""
        return self._parts.is_vision

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all files that decide what it samples: weights, configurations, tokenizer, chat templates."""
        return self._parts.digest(self.folder, weights=True)

    @cached_property
    def config_digest(self) -> str:
        """SHA-256 of these files without the weights, for a model that is trained from scratch."""
        return self._parts.digest(self.folder, weights=False)

    def load(
        self, *, dtype: "torch.dtype", device: str = "cpu", from_scratch: bool = False, seed: int = 0
    ) -> "PreTrainedModel":
        """A new copy of the weights, as ``load_model`` describes."""
        return self._parts.load(dtype=dtype, device=device, from_scratch=from_scratch, seed=seed)

    def load_vision(self, *, dtype: "torch.dtype", device: str = "cpu") -> "tuple[PreTrainedModel, ProcessorMixin]":
        """A new copy of the weights of a vision-language model, and its processor."""
        return self._parts.load_vision(dtype=dtype, device=device)


UNRENDERED = (
    *("folder", "plain", "config", "text_config", "generation_config", "outline", "is_vision", "digest"),
    *("is_nested", "text_places"),
)
"""Properties that do not depend on the chat template."""
