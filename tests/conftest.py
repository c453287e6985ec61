"""What every test may use: a Llama of about 50k parameters with a character tokenizer, on disk.

Such small models are slower on several threads than on one, so tests run torch on one unless they ask for more.
Properties are tried on the same examples each time; ``make properties`` tries them on many others.
"""

import json
import os
import random
import shutil
import string
from pathlib import Path

import hypothesis
import pytest
from calling import TRAINED, call_stage, made_once, run_command_line

os.environ.setdefault("OMP_NUM_THREADS", "1")
hypothesis.settings.register_profile("same examples", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.register_profile("many examples", deadline=None, max_examples=2_000)
hypothesis.settings.load_profile("same examples")

SPECIAL_TOKENS = ["<unk>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<think>", "</think>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
INTEGRATION = {
    "stages", "plugins", "faults", "pipes", "cluster",
    "test_scale.py", "test_cli.py", "test_docs.py", "test_startup.py",
    "test_fleet.py", "test_ranks.py", "test_distributed.py", "test_reshard.py", "test_shard.py", "test_shutdown.py",
    "test_buckets.py",
    "test_verify_attacks.py", "test_verify_code.py", "test_verify_code_checkers.py", "test_verify_code_compiler.py",
    "test_verify_code_forgeries.py", "test_verify_pool.py", "test_verify_program.py",
    "test_cpp_calls.py", "test_cpp_ports.py",
}  # fmt: skip
"""Folders of ``tests`` and files that run stages, engines, compilers or other processes,"""
RUN = {"magcli", "guesser", "finished_run", "pipeline"}
"""and the fixtures that do."""


LONGEST = [
    "test_recipes_tiny.py", "test_fleet.py", "test_stage_rl.py", "test_ranks.py", "test_pipes.py",
    "test_cluster_ranks.py", "test_stage_sft_ranks.py", "test_endings.py", "test_trackers.py", "test_suite_tasks.py",
]  # fmt: skip
"""Files that take longest. They start first, so that no worker is left with one of them at the end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, and mark what ``make test-fast`` leaves out."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
    for item in items:
        top = item.path.relative_to(Path(__file__).parent).parts[0]
        by_place = {top, item.path.name} & INTEGRATION or top.startswith("test_recipes")
        if by_place or RUN & set(item.fixturenames):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in Hugging Face layout: random tied weights (seed 0, fp32, context 512), tokenizer, chat template.

    One token a character of printable ASCII, besides the special tokens; ``<|end|>`` ends a turn and is the EOS.
    """

    def make(folder: Path) -> None:
        _tokenizer().save_pretrained(folder)
        _model().save_pretrained(folder)

    return made_once(tmp_path_factory, "tiny", make)


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

    def make(folder: Path) -> None:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(folder)
        config = AutoConfig.from_pretrained(tiny_model_dir)
        config.hidden_size, config.head_dim = 128, 32
        with torch.random.fork_rng():
            torch.manual_seed(0)
            AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)

    return made_once(tmp_path_factory, "wide", make)


@pytest.fixture(scope="session")
def magcli():
    """Run the command line in a process of its own: ``magcli("convert", path, input=...)``; stdout is bytes.

    The process is forked from one that has imported what stages import; see ``run_command_line`` for its options.
    """
    return run_magcli


def run_magcli(*arguments: object, **options):
    """The finished process: ``returncode``, ``stdout`` (bytes), ``stderr`` (text)."""
    done = run_command_line(arguments, **options)
    done.stderr = done.stderr.decode()
    return done


@pytest.fixture(scope="session")
def guesser(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model after a second of SFT: it answers any letter with `<think>..</think>\\boxed{N}`, N one of 1 to 4.

    It begins and ends its answers well and is right a quarter of the time, so RL has something to do at once.
    """

    def make(folder: Path) -> None:
        choose = random.Random(0)
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

    return made_once(tmp_path_factory, "guesser", make) / "run" / "model"


@pytest.fixture(scope="session")
def opened_guesser(guesser: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guesser with a chat template that ends in `<think>`, as those of many reasoning models do."""

    def make(folder: Path) -> None:
        from transformers import AutoTokenizer

        shutil.copytree(guesser, folder, dirs_exist_ok=True)
        (folder / "SHA256SUMS").unlink()  # as the template is changed on purpose
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.chat_template = CHAT_TEMPLATE.replace("'<|assistant|>'", "'<|assistant|><think>'")
        tokenizer.save_pretrained(folder)

    return made_once(tmp_path_factory, "opened", make)


@pytest.fixture(scope="session")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight problems for the guesser, whose answer is always 3."""

    def make(folder: Path) -> None:
        rows = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": "3"} for i, letter in enumerate("abcdefgh")]
        (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    return made_once(tmp_path_factory, "letters", make) / "problems.jsonl"


@pytest.fixture(scope="session")
def finished_run(guesser: Path, letters: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of RL with ``TRAINED``, and its rollouts in ``rows.jsonl`` next to it; copy it to write in it."""

    def make(folder: Path) -> None:
        call_stage("rl", letters, model=str(guesser), run=folder / "run", output=folder / "rows.jsonl", **TRAINED)

    return made_once(tmp_path_factory, "trained", make) / "run"
