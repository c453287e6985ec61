"""Models and tokenizers in Hugging Face layout: load and identify.

A model is named by a local folder or a hub id. Whatever is missing, damaged or too large for this machine raises an
``EnvironmentFault`` of one line that says what to do; transformers' progress bars and notices are suppressed. Only
what a function names of transformers is imported, when it does: its models take seconds, its tokenizers do not.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import torch
import transformers
from huggingface_hub import constants, snapshot_download
from safetensors import SafetensorError
from transformers.utils import cached_file, logging

from magcli.data.durable import atomic_folder
from magcli.data.inside import refuse_links
from magcli.data.seal import hash_text
from magcli.errors import EnvironmentFault, MagError, UsageError, first_line
from magcli.model import allocator
from magcli.model.chat.prompts import ChatTemplate, use_template
from magcli.model.settings import GENERATION, PATTERNS
from magcli.model.weights import nested
from magcli.model.weights.peft import adapter_advice
from magcli.model.weights.plain import (
    FAMILIES,
    DecoderConfig,
    decoder_config,
    nested_decoder_config,
    read_json,
    require_json,
    tokenizer_class,
)
from magcli.model.weights.sums import check_settings, setting_digests, weight_digests, weight_paths, write_sums
from magcli.model.weights.tensors import INDEX, Stored, has_weights, stored_tensors
from magcli.run import limits
from magcli.run.rundir import without_model

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

HUB_TIMEOUT = 5.0
MODEL_FILES = [*PATTERNS, "*.safetensors"]
OTHER_FORMATS = ["consolidated*", "original/*"]
"""Files of a hub's repository that have the same weights in the layout of another library."""

MISTRAL_TOKENIZER = "tekken.json"
PROCESSOR_TEMPLATE = "chat_template.json"

TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "*.tiktoken")
"""Patterns of which every folder with a tokenizer in Hugging Face layout has a file."""

HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)


def load_tokenizer(name: str, template: ChatTemplate | None = None) -> "PreTrainedTokenizerBase":
    """Load a model's tokenizer, to render prompts with ``template``, by default its own.

    Raises EnvironmentFault if it has no chat template or no end-of-sequence token.
    """
    with quiet_transformers(), _explained(name):
        tokenizer = _tokenizer(name)
    if template is not None:
        use_template(tokenizer, template)
    if tokenizer.chat_template is None:
        raise EnvironmentFault(f"model {name}: its tokenizer has no chat template; give one by --chat-template")
    if tokenizer.eos_token_id is None:
        raise EnvironmentFault(f"model {name}: its tokenizer has no eos_token; set it in tokenizer_config.json")
    return tokenizer


def vocabulary(name: str) -> dict[str, int]:
    """The ids of a model's tokens by their text; works without a chat template."""
    with quiet_transformers(), _explained(name):
        tokens: dict[str, int] = _tokenizer(name).get_vocab()
        return tokens


def _check_tokenizer_files(folder: Path, name: str) -> None:
    """Raise EnvironmentFault if a model folder has no tokenizer, or only one in another library's format."""
    if not (folder / "config.json").is_file() or _has_tokenizer_files(folder):
        return
    if (folder / MISTRAL_TOKENIZER).is_file():
        raise EnvironmentFault(
            f"model {name}: its tokenizer is only in {MISTRAL_TOKENIZER}, the format of mistral-common; copy "
            "tokenizer.json and tokenizer_config.json from a repository of this model in Hugging Face layout"
        )
    raise EnvironmentFault(f"model {name}: the folder has no tokenizer; add the model's tokenizer*.json")


def _has_tokenizer_files(folder: Path) -> bool:
    return any(any(folder.glob(pattern)) for pattern in TOKENIZER_FILES)


def is_config_alone(folder: Path) -> bool:
    """Whether a folder has a model's configuration and no tokenizer, so that only the model's sizes can be known.

    Raises:
        EnvironmentFault: the configuration is damaged.
    """
    has_tokenizer = _has_tokenizer_files(folder) or (folder / MISTRAL_TOKENIZER).is_file()
    return not has_tokenizer and read_json(folder / "config.json") is not None


def _tokenizer(name: str) -> "PreTrainedTokenizerBase":
    """AutoTokenizer's choice, or its class directly if the files of a plain folder determine it.

    A processor may hold the chat template, in a file of its own that tokenizers do not read. Mistral's own library,
    which transformers prefers where it is installed, has no chat template.
    """
    folder, local = Path(name), _local_only(name)
    if folder.is_dir():
        check_settings(folder)
    _check_tokenizer_files(folder, name)
    plain = tokenizer_class(folder)
    # The class of a plain folder does not know this argument.
    options = {} if plain else {"mistral_format": False}
    kind = getattr(transformers, plain or "AutoTokenizer")
    tokenizer: PreTrainedTokenizerBase = kind.from_pretrained(
        name, local_files_only=local, trust_remote_code=False, **options
    )
    # A processor's template is the one to use where the tokenizer has none.
    if tokenizer.chat_template is None:
        tokenizer.chat_template = _processor_template(name)
    return tokenizer


def _processor_template(name: str) -> str | None:
    """The chat template in the file of a processor."""
    file = cached_file(
        name,
        PROCESSOR_TEMPLATE,
        local_files_only=_local_only(name),
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    # The file belongs to a processor, and is an object with this one key.
    template = (read_json(Path(file)) or {}).get("chat_template") if file else None
    return template if isinstance(template, str) else None


def load_model(
    name: str, *, dtype: torch.dtype, device: str = "cpu", from_scratch: bool = False, seed: int = 0
) -> "PreTrainedModel":
    """Load a causal language model in evaluation mode, with weights of ``dtype`` on ``device``.

    Of a vision-language model it is the text model alone. ``from_scratch`` needs only the folder's ``config.json``: the
    weights are randomly initialized from ``seed``, the same on every device and for every ``dtype``.
    """
    prepare_device(device)
    # None for a model that is its own text model.
    whole = nested_config(name)
    _check_supported(name, whole)
    if whole is not None and from_scratch:
        raise UsageError(f"model {name}: its vision encoder would have no weights; train a text model from scratch")
    with quiet_transformers(), _explained(name):
        if from_scratch:
            model = _random_model(load_config(name), dtype, seed)
        elif whole is not None:
            model = nested.load_text_model(whole, local_folder(name), dtype)
        else:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                name, dtype=dtype, local_files_only=_local_only(name), trust_remote_code=False
            )
        ready: PreTrainedModel = model.to(device=device).eval()  # no dtype: rotary frequencies stay in float32
        return ready


def nested_config(name: str) -> Any:
    """The transformers configuration of a model whose text model is inside a larger one; None for any other model."""
    folder = Path(name)
    content = read_json(folder / "config.json")
    # From the file alone, since importing transformers' configurations takes much longer.
    is_text = content is not None and "vision_config" not in content
    if is_text or (folder / "adapter_config.json").exists():
        return None
    config = load_config(name)
    return config if nested.is_nested(config) else None


def _check_supported(name: str, nested_in: Any) -> None:
    """Raise EnvironmentFault for a vision-language model whose text model is not known to be usable alone."""
    content = read_json(Path(name) / "config.json") or {}
    if nested_in is None and "vision_config" in content and is_vision_model(name):
        raise EnvironmentFault(
            f"model {name}: the text model of {content.get('model_type')} cannot be used by itself, only of "
            f"{', '.join(nested.FAMILIES)}; save its text model as a folder of its own, and put it back by magcli graft"
        )


def is_vision_model(name: str) -> bool:
    """Whether a model folder or hub id is a vision-language model."""
    if (read_json(Path(name) / "config.json") or {}).get("model_type") in FAMILIES:
        return False
    config = load_config(name)
    return hasattr(config, "vision_config") and type(config) in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING


def load_vision_model(
    name: str, *, dtype: torch.dtype, device: str = "cpu"
) -> "tuple[PreTrainedModel, ProcessorMixin]":
    """Load a vision-language model in evaluation mode, and its processor."""
    with quiet_transformers(), _explained(name):
        try:
            processor = transformers.AutoProcessor.from_pretrained(
                name, local_files_only=_local_only(name), trust_remote_code=False
            )
        except ImportError as error:
            reason = one_line(error)[:120]
            raise EnvironmentFault(
                f"model {name}: its processor needs a package: pip install 'magcli[vision]' ({reason})"
            ) from error
        local = _local_only(name)
        model = transformers.AutoModelForImageTextToText.from_pretrained(
            name, dtype=dtype, local_files_only=local, trust_remote_code=False
        )
        # Some processors have only the image part.
        if getattr(processor, "tokenizer", None) is None or processor.chat_template is None:
            raise EnvironmentFault(
                f"model {name}: its processor has no chat template; use an instruct model or add one"
            )
        return model.to(device=device).eval(), processor


def load_config(name: str) -> Any:
    """The transformers configuration of a model folder or hub id."""
    with quiet_transformers(), _explained(name):
        local = _local_only(name)
        return transformers.AutoConfig.from_pretrained(name, local_files_only=local, trust_remote_code=False)


def nested_decoder(name: str, *, tied: bool) -> DecoderConfig | None:
    """The configuration of the plain decoder inside the larger model of a folder or hub id, if it is one."""
    return nested_decoder_config(_config_folder(name), tied=tied)


def plain_decoder(name: str) -> DecoderConfig | None:
    """The configuration of a folder's or hub id's plain decoder, whose weights need not be there."""
    return decoder_config(_config_folder(name))


def _config_folder(name: str) -> Path:
    """Where the configuration of a model is; for a hub id, in the hub client's cache."""
    if Path(name).is_dir():
        refuse_links(Path(name))
        return Path(name)
    with quiet_transformers(), _explained(name):
        return Path(cached_file(name, "config.json", local_files_only=_local_only(name))).parent


def load_text_config(name: str, config: Any) -> Any:
    """The configuration of the text model of a model folder or hub id, from its ``config``."""
    if not nested.is_nested(config):
        return config.get_text_config()
    with quiet_transformers(), _explained(name):
        return nested.text_config(config, _stored(name))


def load_outline(name: str, text_config: Any = None, dtype: torch.dtype | None = None) -> "PreTrainedModel":
    """A model on the meta device, without weights: configuration, names and shapes of parameters.

    ``text_config`` replaces the model's own configuration, for a text model inside a larger one. ``dtype`` is that of
    the parameters, by default the configuration's.
    """
    with quiet_transformers(), _explained(name):
        return nested.outline(load_config(name) if text_config is None else text_config, dtype)


def text_places(name: str, outline: "PreTrainedModel") -> dict[str, str]:
    """The parameter of a text model inside a larger one for each of the text tensors in the checkpoint."""
    with _explained(name):
        return nested.places(outline, _stored(name))


def _stored(name: str) -> dict[str, Stored]:
    """The tensors of a model's checkpoint; none if it has no weights."""
    folder = local_folder(name)
    return stored_tensors(folder) if has_weights(folder) else {}


def load_generation_config(name: str, config: Any) -> "GenerationConfig":
    """The generation config of a model folder or hub id; without one, that of its configuration ``config``."""
    with quiet_transformers(), _explained(name):
        # Of a damaged file transformers says that there is none.
        read_json(Path(name) / GENERATION)
        with suppress(OSError):  # not every model has a generation config
            return transformers.GenerationConfig.from_pretrained(name, local_files_only=_local_only(name))
        return transformers.GenerationConfig.from_model_config(config)


def local_folder(name: str, patterns: Sequence[str] = MODEL_FILES) -> Path:
    """The folder of a model; for a hub id, that of the hub client's cache, with the files that match ``patterns``."""
    if Path(name).is_dir():
        refuse_links(Path(name))
        return Path(name)
    with quiet_transformers(), _explained(name):
        return Path(
            # Only what transformers reads: repositories often have the same weights in several layouts.
            snapshot_download(
                name,
                local_files_only=_local_only(name),
                allow_patterns=list(patterns),
                ignore_patterns=OTHER_FORMATS,
            )
        )


def _random_model(config: Any, dtype: torch.dtype, seed: int) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    for parameter in model.parameters():
        # Drawn in float32 and rounded: each type has the same weights.
        parameter.data = parameter.data.to(dtype)
    return model


@contextmanager
def atomic_model_folder(folder: Path, *, sums: bool = True) -> Iterator[Path]:
    """A temporary folder to write weights into, which then appears complete as ``folder`` or not at all.

    ``sums``: with the digests of its files; a checkpoint has its own.
    """
    try:
        with atomic_folder(folder) as temp:
            yield temp
            if sums:
                write_sums(temp)
    except (SafetensorError, RuntimeError) as error:  # torch.save raises RuntimeError when the disk is full
        if isinstance(error, RuntimeError) and "PytorchStreamWriter" not in str(error):
            raise
        raise EnvironmentFault(f"cannot write {folder}: {one_line(error)}") from error


def fingerprint(folder: Path, *, weights: bool = True) -> str:
    """SHA-256 of all files that decide what a model samples or how it is trained, independent of its location.

    They are configurations, tokenizer, chat templates, code and, with ``weights``, the weights.

    Raises:
        EnvironmentFault: it is not a model folder, or its index of shards is no JSON object.
        DataError: the weights or other files are damaged.
    """
    config = folder / "config.json"
    if not config.is_file() or (weights and not weight_paths(folder)):
        needs = without_model(folder) or "it needs config.json and safetensors weights"
        advice = adapter_advice(folder) or f"is not a model folder: {needs}"
        raise EnvironmentFault(f"{folder} {advice}")
    if weights:
        # Raises if it is damaged.
        read_json(folder / INDEX)  # some readers prefer a file of all weights to it
    digests = setting_digests(folder, weights=weights)
    if weights:
        digests |= weight_digests(folder)
    # Names too, so that files cannot change places; the zero byte stands in no name.
    return hash_text("".join(f"{name}\0{digest}\0" for name, digest in digests.items()))


def _local_only(name: str) -> bool:
    """Whether to look only on this machine: for folders, and when the hub does not answer (its client would retry)."""
    if Path(name).is_dir():
        return True
    # The user's own switch.
    if constants.HF_HUB_OFFLINE:
        return True
    try:
        httpx.head(constants.ENDPOINT, timeout=HUB_TIMEOUT)
    except httpx.HTTPError:
        return True
    return False


def one_line(error: BaseException) -> str:
    """The beginning of another library's error message, all of its lines as one."""
    return " ".join(str(error).split())[:200]


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppress transformers' progress bars and notices; errors are raised anyway."""
    # Both are settings of the process, so they are put back.
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn errors of transformers, tokenizers, the hub client and torch into one line that says what to do.

    On damaged files these libraries raise exceptions of all types.
    """
    try:
        yield
    except MagError:
        raise
    # MemoryError and torch's error for it have a message of their own.
    except Exception as error:
        raise limits.exhausted(error) or EnvironmentFault(_reason(name, error)) from error


def _reason(name: str, error: Exception) -> str:
    """Why a model cannot be loaded, and what to do.

    Raises:
        EnvironmentFault: one of its JSON files is damaged, which is the reason.
    """
    folder, reason = Path(name), first_line(error)
    # The most certain reason first; later ones are guesses by what the folder has.
    if "trust_remote_code" in str(error):
        return (
            f"model {name} needs Python code of its own, which magcli never runs: use a model of a family that "
            "transformers knows, or serve this one and give the server's URL"
        )
    of_adapter = adapter_advice(folder)
    if of_adapter:
        return f"model {name} {of_adapter}"
    of_folder = without_model(folder)
    if of_folder:
        return f"model {name}: {of_folder}"
    if folder.is_dir() and not (folder / "config.json").is_file():
        return f"model {name}: the folder has no config.json; give a model folder in Hugging Face layout"
    if folder.is_dir():
        require_json(folder)
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
        return f"model {name}: the folder has no safetensors weights; download them or train from scratch"
    if not folder.exists() and not HUB_NAME.fullmatch(name):
        return f"model {name}: no such folder"
    if not folder.exists() and isinstance(error, OSError):
        return (
            f"model {name}: no such folder, and not available from the hub; check the name or the connection ({reason})"
        )
    return f"model {name} cannot be loaded: {reason}"


def prepare_device(device: str) -> None:
    """Settings of this process for models on a device.

    On a GPU attention does without cuDNN, which on recent GPUs is PyTorch's first choice and builds an execution plan
    of almost half a second for every new shape: nearly every micro-batch has a new one.
    """
    if device.startswith("cuda"):
        torch.backends.cuda.enable_cudnn_sdp(False)
    else:
        allocator.keep_freed_memory()
