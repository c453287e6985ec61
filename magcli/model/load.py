"""Models and tokenizers in Hugging Face layout: open, save, identify.

A model is named by a local folder or a hub id. What is missing is an ``EnvironmentFault`` that says what to do, in
one line; transformers' own progress bars and notices stay quiet. Each function imports what it needs of transformers:
its models take seconds, its tokenizers do not.
"""

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from magcli.data.durable import whole_folder
from magcli.errors import EnvironmentFault
from magcli.model.memory import keep_freed_memory
from magcli.model.plain import FAMILIES, read_json, tokenizer_class

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

READ_BYTES = 1 << 22
HUB_SECONDS = 5.0
SETTINGS = (".json", ".jinja", ".txt", ".model")
"""Endings of what a model folder has besides weights."""
MODEL_FILES = ["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"]


def load_tokenizer(name: str) -> "PreTrainedTokenizerBase":
    """Open the tokenizer of a model folder or hub id.

    Raises:
        EnvironmentFault: it is not there, or has no chat template or no end-of-sequence token.
    """
    with _quiet(), _explained(name):
        tokenizer = _tokenizer(name)
    if tokenizer.chat_template is None:
        raise EnvironmentFault(f"model {name}: its tokenizer has no chat template; use an instruct model or add one")
    if tokenizer.eos_token_id is None:
        raise EnvironmentFault(f"model {name}: its tokenizer has no eos_token; set it in tokenizer_config.json")
    return tokenizer


def vocabulary(name: str) -> dict[str, int]:
    """The ids of a model's tokens by their text; the tokenizer needs no chat template for that.

    Raises:
        EnvironmentFault: there is no tokenizer.
    """
    with _quiet(), _explained(name):
        tokens: dict[str, int] = _tokenizer(name).get_vocab()
        return tokens


def _tokenizer(name: str) -> "PreTrainedTokenizerBase":
    """AutoTokenizer's choice, by the class itself where the files of a plain folder tell it."""
    import transformers

    kind = getattr(transformers, tokenizer_class(Path(name)) or "AutoTokenizer")
    tokenizer: PreTrainedTokenizerBase = kind.from_pretrained(name, local_files_only=_local_only(name))
    return tokenizer


def load_model(
    name: str, *, dtype: torch.dtype, device: str = "cpu", from_scratch: bool = False, seed: int = 0
) -> "PreTrainedModel":
    """Open a causal language model in evaluation mode, with weights of ``dtype`` on ``device``.

    ``from_scratch`` needs only the folder's ``config.json``: the weights are drawn anew from ``seed``, the same on
    every device and for every ``dtype``.

    Raises:
        EnvironmentFault: the folder, the weights, the memory or the device are not there.
    """
    from transformers import AutoModelForCausalLM

    if device == "cpu":
        keep_freed_memory()
    with _quiet(), _explained(name):
        if from_scratch:
            model = _initialised(load_config(name), dtype, seed)
        else:
            model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, local_files_only=_local_only(name))
        ready: PreTrainedModel = model.to(device=device).eval()  # no dtype: rotary frequencies must stay in float32
        return ready


def sees(name: str) -> bool:
    """Whether a model folder or hub id is a vision-language model."""
    if (read_json(Path(name) / "config.json") or {}).get("model_type") in FAMILIES:
        return False
    from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    config = load_config(name)
    return hasattr(config, "vision_config") and type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING


def load_vision_model(
    name: str, *, dtype: torch.dtype, device: str = "cpu"
) -> "tuple[PreTrainedModel, ProcessorMixin]":
    """Open a vision-language model in evaluation mode, and what turns images and text into its inputs.

    Raises:
        EnvironmentFault: the folder, the weights, the memory, the device or a package of the processor is not there.
    """
    from transformers import AutoModelForImageTextToText, AutoProcessor

    with _quiet(), _explained(name):
        try:
            processor = AutoProcessor.from_pretrained(name, local_files_only=_local_only(name))
        except ImportError as error:
            told = " ".join(str(error).split())[:120]
            raise EnvironmentFault(
                f"model {name}: its processor needs a package: pip install 'magcli[vision]' ({told})"
            ) from error
        local = _local_only(name)
        model = AutoModelForImageTextToText.from_pretrained(name, dtype=dtype, local_files_only=local)
        if getattr(processor, "tokenizer", None) is None or processor.chat_template is None:
            raise EnvironmentFault(
                f"model {name}: its processor has no chat template; use an instruct model or add one"
            )
        return model.to(device=device).eval(), processor


def load_config(name: str) -> Any:
    """The settings of a model folder or hub id, without its weights.

    Raises:
        EnvironmentFault: it is not there.
    """
    from transformers import AutoConfig

    with _quiet(), _explained(name):
        return AutoConfig.from_pretrained(name, local_files_only=_local_only(name))


def load_outline(name: str) -> "PreTrainedModel":
    """A model without its weights (they are on no device): its settings, parameters' names and shapes.

    Raises:
        EnvironmentFault: it is not there.
    """
    from transformers import AutoModelForCausalLM, GenerationConfig

    with _quiet(), _explained(name), torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(load_config(name))
        with suppress(OSError):  # a model may have no generation settings of its own
            model.generation_config = GenerationConfig.from_pretrained(name, local_files_only=_local_only(name))
        return model


def local_folder(name: str) -> Path:
    """The folder in which a model lies: itself, or where the hub's client keeps a hub id's files.

    Raises:
        EnvironmentFault: it is not there.
    """
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    with _quiet(), _explained(name):
        return Path(snapshot_download(name, local_files_only=_local_only(name), allow_patterns=MODEL_FILES))


def copy_settings(source: Path, target: Path) -> None:
    """Copy what a model folder has besides weights: configurations, tokenizer, processor, licence; no card."""
    for file in sorted(source.iterdir()):
        if file.is_file() and (file.suffix in SETTINGS or file.name.upper().startswith(("LICENSE", "NOTICE"))):
            shutil.copyfile(file, target / file.name)


def _initialised(config: Any, dtype: torch.dtype, seed: int) -> Any:
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def end_tokens(model: Any, tokenizer: "PreTrainedTokenizerBase") -> frozenset[int]:
    """Token ids that end a sequence: the tokenizer's and those of the model's generation settings."""
    configured = model.generation_config.eos_token_id if model.generation_config else None
    listed = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in (*listed, tokenizer.eos_token_id) if token is not None)


def context_length(model: Any) -> int:
    """Positions that the model was made for, prompt and answer together."""
    return int(model.config.max_position_embeddings)


def save_model(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    folder: Path,
    *,
    dtype: torch.dtype,
    weights: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write config, safetensors weights cast to ``dtype`` and tokenizer, as ``AutoModelForCausalLM`` reads them.

    The folder appears whole or not at all; an older one of that name is replaced. Tied weights are stored once.
    ``weights`` by the model's names take the place of its own, of which it may hold a share only.

    Raises:
        EnvironmentFault: the folder cannot be written or the disk is full.
    """
    names, given = _untied(model), model.state_dict() if weights is None else weights
    kept = {name: tensor.detach().to(dtype) for name, tensor in given.items() if name in names}
    own = model.config.dtype
    try:
        with whole_model(folder) as aside, _quiet():
            model.save_pretrained(aside, state_dict=kept)
            model.config.dtype = dtype
            model.config.save_pretrained(aside)
            tokenizer.save_pretrained(aside)
    finally:
        model.config.dtype = own


@contextmanager
def whole_model(folder: Path) -> Iterator[Path]:
    """A folder to write weights into, which appears whole or not at all.

    Raises:
        EnvironmentFault: the folder cannot be written or the disk is full.
    """
    try:
        with whole_folder(folder) as aside:
            yield aside
    except (SafetensorError, RuntimeError) as error:  # torch.save tells of a full disk by a RuntimeError
        if isinstance(error, RuntimeError) and "PytorchStreamWriter" not in str(error):
            raise
        raise EnvironmentFault(f"cannot write {folder}: {' '.join(str(error).split())[:200]}") from error


def _untied(model: "PreTrainedModel") -> set[str]:
    """The names of parameters and buffers, each shared tensor under one only."""
    return {name for name, _ in (*model.named_parameters(), *model.named_buffers())}


def fingerprint(folder: Path, *, weights: bool = True) -> str:
    """SHA-256 over a model folder's config and weights: equal for equal models, wherever they lie.

    ``weights`` False takes the config alone.

    Raises:
        EnvironmentFault: the folder has no config or no weights.
    """
    files = [folder / "config.json", *(sorted(folder.glob("*.safetensors")) if weights else ())]
    if len(files) < 1 + weights or not files[0].is_file():
        raise EnvironmentFault(f"{folder} is not a model folder: it needs config.json and safetensors weights")
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        with open(path, "rb") as file:
            while chunk := file.read(READ_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def _local_only(name: str) -> bool:
    """Whether to look on this machine only: for folders, and where the hub does not answer (its client would retry)."""
    if Path(name).is_dir():
        return True
    import httpx
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return True
    try:
        httpx.head(constants.ENDPOINT, timeout=HUB_SECONDS)
    except httpx.HTTPError:
        return True
    return False


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' bars and notices away from stdout and stderr; errors are raised anyway."""
    from transformers.utils import logging

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
    """Turn what transformers, the hub client and torch raise into one line that says what to do."""
    try:
        yield
    except EnvironmentFault:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, AssertionError, SafetensorError) as error:
        raise EnvironmentFault(_reason(name, error)) from error


def _reason(name: str, error: Exception) -> str:
    folder, first = Path(name), next(iter(str(error).splitlines()), type(error).__name__)
    if folder.is_dir() and not (folder / "config.json").is_file():
        return f"model {name}: the folder has no config.json; give a model folder in Hugging Face layout"
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
        return f"model {name}: the folder has no safetensors weights; train them, download them or start from scratch"
    if not folder.exists() and (isinstance(error, OSError) or folder.is_absolute()):
        return (
            f"model {name}: no such folder here, and not to be had from the hub; check the name, or go online ({first})"
        )
    return f"model {name} cannot be opened: {first}"
