"""The small files of a model folder: configurations, tokenizer, chat templates, processor, licence.

They are copied byte by byte. A value that has to change is the only one that changes in its JSON file: the other keys
keep their order, also those that only other readers use.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from magcli.errors import EnvironmentFault

SUFFIXES = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".bpe", ".vocab")
LEGAL = ("LICENSE", "LICENCE", "NOTICE")
TEMPLATES = "additional_chat_templates"
"""The folder of chat templates other than the default one."""
NOT_SETTINGS = ("checkpoint.json", "state.json", "trainer_state.json")
"""Records of training, which a checkpoint has next to its settings."""
PATTERNS = ["*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.bpe", "*.vocab", "LICEN*", "NOTICE*"]
"""What to fetch from the hub to have all settings; ``*`` also matches files in folders."""

INDEX = "*.safetensors.index.json"
"""Which file of weights holds each tensor."""
_DECIDES = re.compile(r"config|token|vocab|merges|template|bpe|spiece|normalizer|emoji|tekken|params", re.IGNORECASE)
"""Words in the names of JSON and text files that transformers or an engine reads; others are records and notes."""

CONFIG = "config.json"
GENERATION = "generation_config.json"
TOKENIZER = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
DTYPE_KEYS = ("dtype", "torch_dtype")

Settings = Mapping[str, bytes]
"""The content of each file by its path in the folder."""


def setting_paths(folder: Path) -> list[Path]:
    """All files of a model folder other than weights and the model card."""
    files = [file for file in sorted(folder.iterdir()) if _is_setting(file)]
    return files + sorted((folder / TEMPLATES).glob("*.jinja"))


def code_paths(folder: Path) -> list[Path]:
    """The Python files that a model's configuration names as its own code; without ``auto_map`` there are none."""
    # Without ``auto_map`` transformers loads none of them.
    names_code = any(b'"auto_map"' in file.read_bytes() for file in folder.glob("*config.json"))
    return sorted(folder.glob("*.py")) if names_code else []


def deciding_paths(folder: Path) -> list[Path]:
    """The files other than weights that decide what a model samples or how it is trained.

    They are configurations, tokenizer, chat templates, processor and code, not licences, notes and records of training.
    """
    return [*filter(_decides, setting_paths(folder)), *code_paths(folder)]


def read_settings(folder: Path) -> dict[str, bytes]:
    """The contents of a model's settings and of its own code, by their paths in the folder."""
    files = [*setting_paths(folder), *code_paths(folder)]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def write_settings(files: Settings, folder: Path) -> None:
    """Write the files into an existing folder."""
    for name, content in files.items():
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)


def copy_settings(source: Path, target: Path) -> None:
    """Copy a model folder's files other than weights; no model card."""
    write_settings(read_settings(source), target)


def with_values(content: bytes, values: Mapping[str, Any]) -> bytes:
    """A JSON object with other values of some keys; new keys come last. Indentation is kept."""
    text = content.decode("utf-8")
    changed = json.loads(text) | dict(values)
    # The indentation of the first key is that of the file; without line breaks there is none.
    first_key = re.search(r'\n([ \t]+)"', text)
    indentation = first_key[1] if first_key else None
    # Other letters are escaped only in a file that has none.
    written = json.dumps(changed, indent=indentation, ensure_ascii=text.isascii())
    ending = text[len(text.rstrip()) :]  # a line break, or none
    return (written + ending).encode("utf-8")


def with_dtype(config: bytes, dtype: str) -> bytes:
    """A config.json that names this dtype of the weights, in the keys that it has.

    A config without such a key gets ``torch_dtype``, which all versions of transformers read.
    """
    content = json.loads(config)
    # Readers know one key or the other; a config that has both keeps both.
    changes: dict[str, Any] = _dtypes(content, dtype) or {"torch_dtype": dtype}
    text = content.get("text_config")
    if isinstance(text, dict):
        changes["text_config"] = text | _dtypes(text, dtype)
    if content == content | changes:
        return config
    return with_values(config, changes)


def _dtypes(content: Mapping[str, Any], dtype: str) -> dict[str, str]:
    """The keys of a configuration that name a dtype, with this one; null is no name."""
    return {key: dtype for key in DTYPE_KEYS if isinstance(content.get(key), str)}


def declared_dtype(config: bytes) -> str | None:
    """The dtype of the weights according to a config.json."""
    content = json.loads(config)
    return next((str(content[key]) for key in DTYPE_KEYS if content.get(key)), None)


def with_ends(files: Settings, ends: Collection[int]) -> Settings:
    """The files with a generation config that has all of these end tokens; unchanged if it has them already."""
    config = json.loads(files[CONFIG])
    # Without a generation config the ends are those of the model's configuration.
    content = json.loads(files[GENERATION]) if GENERATION in files else config
    listed = content.get("eos_token_id")  # one id, several or none
    if listed is None:
        listed = []
    present = listed if isinstance(listed, list) else [listed]
    missing = sorted(set(ends) - set(present))
    if not missing:
        return files
    all_ends = [*present, *missing]
    values = {"eos_token_id": all_ends if len(all_ends) > 1 else all_ends[0]}
    if GENERATION in files:
        generation = with_values(files[GENERATION], values)
    else:
        special_ids = {key: config[key] for key in SPECIAL_IDS if config.get(key) is not None}
        generation = (json.dumps(special_ids | values, indent=2) + "\n").encode()
    return {**files, GENERATION: generation}


def with_template(files: Settings, template: str) -> Settings:
    """The files with this chat template, also where older readers look for it."""
    changed = {**files, TEMPLATE: template.encode()}
    if TOKENIZER in files and "chat_template" in json.loads(files[TOKENIZER]):
        changed[TOKENIZER] = with_values(files[TOKENIZER], {"chat_template": template})
    return changed


def require_config(files: Settings, name: str) -> None:
    """Raise EnvironmentFault unless config.json and generation_config.json are JSON objects."""
    if CONFIG not in files:
        raise EnvironmentFault(f"model {name}: the folder has no {CONFIG}; give a model folder in Hugging Face layout")
    for file in (CONFIG, GENERATION):
        if file in files and not _is_object(files[file]):
            raise EnvironmentFault(f"model {name}: {file} is not a JSON object; copy the model again")


def _is_object(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):  # the latter for JSON that is nested too deep
        return False


def _is_setting(file: Path) -> bool:
    if not file.is_file() or file.name in NOT_SETTINGS or file.name.endswith(".index.json"):
        return False
    return file.suffix in SUFFIXES or file.name.upper().startswith(LEGAL)


def _decides(file: Path) -> bool:
    """Whether a file of settings is more than a record or a licence."""
    if file.name.upper().startswith(LEGAL):
        return False
    return file.suffix not in (".json", ".txt") or _DECIDES.search(file.name) is not None
