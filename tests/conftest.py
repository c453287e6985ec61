"""What every test may use: a Llama of about 50k parameters with a character tokenizer, on disk.

Such small models are slower on several threads than on one, so tests run torch on one unless they ask for more.
Properties are tried on the same examples each time; ``make properties`` tries them on many others.
"""

import json
import os
import shutil
import string
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from calling import call_stage

os.environ.setdefault("OMP_NUM_THREADS", "1")
hypothesis.settings.register_profile("same examples", deadline=None, derandomize=True)
hypothesis.settings.register_profile("many examples", deadline=None, max_examples=2_000)
hypothesis.settings.load_profile("same examples")

SPECIAL_TOKENS = ["<unk>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<think>", "</think>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in Hugging Face layout: random tied weights (seed 0, fp32, context 512), tokenizer, chat template.

    One token a character of printable ASCII, besides the special tokens; ``<|end|>`` ends a turn and is the EOS.
    """
    folder = tmp_path_factory.mktemp("models") / "tiny"
    _tokenizer().save_pretrained(folder)
    _model().save_pretrained(folder)
    return folder


def _tokenizer():
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    vocab = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *string.printable[:97]])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(SPECIAL_TOKENS[:5])
    backend.add_tokens(SPECIAL_TOKENS[5:])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        eos_token="<|end|>",
        pad_token="<|end|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _model():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(SPECIAL_TOKENS) + 97,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.15,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


@pytest.fixture(scope="session")
def wide_model_dir(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with heads of 32, the narrowest that vLLM's attention takes on a CPU; the same tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("models") / "wide"
    AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(folder)
    config = AutoConfig.from_pretrained(tiny_model_dir)
    config.hidden_size, config.head_dim = 128, 32
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def magcli():
    """Run the command line in a process of its own: ``magcli("convert", path, input=...)``; stdout is bytes."""
    return run_magcli


def run_magcli(*arguments: object, input: bytes = b"", timeout: float = 120, **more):
    """The finished process: ``returncode``, ``stdout`` (bytes), ``stderr`` (text)."""
    command = [sys.executable, "-m", "magcli", *map(str, arguments)]
    done = subprocess.run(command, input=input, capture_output=True, timeout=timeout, **more)
    done.stderr = done.stderr.decode()
    return done


@pytest.fixture(scope="session")
def guesser(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model after a second of SFT: it answers any letter with `<think>..</think>\\boxed{N}`, N one of 1 to 4.

    It begins and ends its answers well and is right a quarter of the time, so RL has something to do at once.
    """
    import random

    folder, choose = tmp_path_factory.mktemp("guesser"), random.Random(0)
    rows = [
        {
            "prompt": f"{choose.choice('abcdefgh')}?",
            "completion": f"<think>{'.' * choose.randrange(4)}</think>\\boxed{{{choose.choice('1234')}}}",
        }
        for _ in range(240)
    ]
    (folder / "traces.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"epochs": 12, "step_tokens": 512, "lr": 5e-3, "bf16": "no", "system": Path("none")}
    call_stage("sft", folder / "traces.jsonl", model=str(tiny_model_dir), run=folder / "run", **options)
    return folder / "run" / "model"


@pytest.fixture(scope="session")
def opened_guesser(guesser: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guesser with a chat template that ends in `<think>`, as those of many reasoning models do."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("opened") / "model"
    shutil.copytree(guesser, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT_TEMPLATE.replace("'<|assistant|>'", "'<|assistant|><think>'")
    tokenizer.save_pretrained(folder)
    return folder
