"""vLLM through magcli beside vLLM's own offline ``LLM.generate``: the same 64 requests on a random 135M model, bf16.

magcli's side is what data stages call, ``complete`` of the engine that ``--engine vllm`` opens; the peer gets the token
ids of the same prompts, the same sampling and the same arguments of the engine, and decodes its answers to text as
well. Every request takes the same number of tokens. Each side is a process of its own, both with an engine that is
warm, and works while the other waits. ``LLM`` puts its engine into a second process by default, or keeps it in its own
(``VLLM_ENABLE_V1_MULTIPROCESSING=0``, as magcli does on a CPU): the peer is the faster of the two.
"""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.pairs import Result, Side, compare, report

REQUESTS = 64
NEW_TOKENS = 64
PAIRS = 7
VOCABULARY = 49152
CONTEXT = 2048
SEEDS = range(1000, 1000 + REQUESTS)


def against_generate(pairs: int = PAIRS) -> Result:
    """Seconds of whole calls, both sides making the same number of tokens."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as held:
        make_model(Path(folder) / "model")
        ours = _process("magcli", f"{folder}/model", held)
        arms = {name: _process(name, f"{folder}/model", held) for name in ("offline", "offline-one-process")}
        seconds = {name: min(arm() for _ in range(2)) for name, arm in arms.items()}
        print(f"  vllm-vs-offline: trials {', '.join(f'{name} {each:.2f} s' for name, each in seconds.items())}")
        theirs = arms[min(seconds, key=lambda name: seconds[name])]
        tokens = REQUESTS * NEW_TOKENS
        return compare("vllm-vs-offline", ours, theirs, amount=tokens, unit="tokens", pairs=pairs)


def _process(name: str, folder: str, held: ExitStack) -> Side:
    """A side in a process of its own, warm: each line that it gets makes it do the work and tell the seconds."""
    command = [sys.executable, "-m", "benchmarks.offline", name, folder]
    process = held.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    assert process.stdin is not None
    assert process.stdout is not None
    held.callback(process.stdin.close)
    given, told = process.stdin, process.stdout

    def side() -> float:
        given.write("\n")
        given.flush()
        return float(told.readline())

    side()
    return side


def make_model(folder: Path) -> None:
    """A Llama of SmolLM2-135M's shape with random weights, and a tokenizer with a word for each of its ids."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    from magcli.model.load import save_model

    vocabulary = {"<unk>": 0, "<end>": 1} | {f"w{index}": index for index in range(2, VOCABULARY)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    names = {"unk_token": "<unk>", "eos_token": "<end>", "chat_template": template}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **names)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    save_model(LlamaForCausalLM(config), tokenizer, folder, dtype=torch.bfloat16)


def prompts() -> list[list[int]]:
    """Token ids of the requests, 16 to 64 each."""
    choose = random.Random(1)
    return [[choose.randrange(2, VOCABULARY) for _ in range(choose.randint(16, 64))] for _ in range(REQUESTS)]


def magcli_work(folder: str) -> Callable[[], int]:
    """The stages' path: all problems at once, each one question of one sample."""
    from magcli.generate.open import open_generator
    from magcli.generate.types import Sampling

    generator = open_generator(folder, engine="vllm", dtype="bf16", slots=REQUESTS)
    chats = [[{"role": "user", "content": " ".join(f"w{token}" for token in prompt)}] for prompt in prompts()]
    runner = asyncio.Runner()

    async def work() -> int:
        asked = [
            generator.complete(chat, Sampling(NEW_TOKENS), seeds=[seed])
            for chat, seed in zip(chats, SEEDS, strict=True)
        ]
        return sum(completion.num_tokens for found in await asyncio.gather(*asked) for completion in found)

    return lambda: runner.run(work())


def offline_alone_work(folder: str) -> Callable[[], int]:
    """vLLM's own path with its engine in this process."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return offline_work(folder)


def offline_work(folder: str) -> Callable[[], int]:
    """vLLM's own path: one call with all prompts."""
    from vllm import LLM, SamplingParams, TokensPrompt

    from magcli.generate.vllm_start import cpu_settings

    own = cpu_settings(REQUESTS, CONTEXT)
    llm = LLM(
        folder,
        **{name: own[name] for name in ("enforce_eager", "enable_chunked_prefill", "max_num_batched_tokens")},
        dtype="bfloat16",
        max_model_len=CONTEXT,
        max_num_seqs=REQUESTS,
        kv_cache_memory_bytes=1 << 30,
        generation_config="vllm",
    )
    given = [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts()]
    settings = [SamplingParams(max_tokens=NEW_TOKENS, temperature=1.0, seed=seed) for seed in SEEDS]

    def work() -> int:
        found = llm.generate(given, settings, use_tqdm=False)
        assert all(output.outputs[0].text for output in found)
        return sum(len(output.outputs[0].token_ids) for output in found)

    return work


def main(name: str, folder: str) -> None:
    """Serve one side: a line on stdin, the seconds on stdout; whatever else is said goes to stderr."""
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    sides = {"magcli": magcli_work, "offline": offline_work, "offline-one-process": offline_alone_work}
    work = sides[name](folder)
    for _ in sys.stdin:
        begun = time.perf_counter()
        made = work()
        seconds = time.perf_counter() - begun
        assert made == REQUESTS * NEW_TOKENS, f"{name} made {made} tokens"
        print(seconds, file=told, flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        report(against_generate)
    else:
        main(*sys.argv[1:])
