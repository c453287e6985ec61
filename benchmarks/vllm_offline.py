"""vLLM through magcli against vLLM's offline ``LLM.generate``: the same 64 requests to a random 135M model, bf16.

magcli's side is ``complete`` of the engine that ``--engine vllm`` opens, as data stages call it. The peer gets the
token ids of the same prompts, the same sampling parameters and engine arguments, and decodes its completions too. All
requests want the same number of tokens. Each side is a process with a warm engine that idles while the other works.
``LLM`` runs its engine in a second process by default, or in its own (``VLLM_ENABLE_V1_MULTIPROCESSING=0``, as magcli
does on a CPU): the peer is the faster of the two.
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

from benchmarks.models import SMOLLM2_135M, random_llama
from benchmarks.pairs import Result, Side, compare

REQUESTS = 64
NEW_TOKENS = 64
PAIRS = 7
VOCABULARY = SMOLLM2_135M["vocab_size"]
CONTEXT = 2048
SEEDS = range(1000, 1000 + REQUESTS)


def against_generate() -> Result:
    """Wall time of whole calls."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        save_random_model(Path(folder) / "model")
        ours = _process("magcli", f"{folder}/model", stack)
        arms = {name: _process(name, f"{folder}/model", stack) for name in ("offline", "offline-one-process")}
        seconds = {name: min(arm() for _ in range(2)) for name, arm in arms.items()}
        print(f"  vllm-vs-offline: trials {', '.join(f'{name} {least:.2f} s' for name, least in seconds.items())}")
        theirs = arms[min(seconds, key=lambda name: seconds[name])]
        tokens = REQUESTS * NEW_TOKENS
        return compare("vllm-vs-offline", ours, theirs, amount=tokens, unit="tokens", pairs=PAIRS)


def _process(name: str, folder: str, stack: ExitStack) -> Side:
    """A warm side in its own process, which does the work and prints its seconds for each line on stdin."""
    command = [sys.executable, "-m", "benchmarks.vllm_offline", name, folder]
    process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    assert process.stdin is not None
    assert process.stdout is not None
    stack.callback(process.stdin.close)
    requests, seconds = process.stdin, process.stdout

    def side() -> float:
        requests.write("\n")
        requests.flush()
        return float(seconds.readline())

    side()
    return side


def save_random_model(folder: Path) -> None:
    """A random Llama of SmolLM2-135M's shape, with a tokenizer that has one word per token id."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<unk>": 0, "<end>": 1} | {f"w{index}": index for index in range(2, VOCABULARY)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    names = {"unk_token": "<unk>", "eos_token": "<end>", "chat_template": template}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **names)
    model = random_llama(**SMOLLM2_135M, max_position_embeddings=CONTEXT, pad_token_id=0)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def prompts() -> list[list[int]]:
    """Token ids of the requests, 16 to 64 each."""
    choose = random.Random(1)
    return [[choose.randrange(2, VOCABULARY) for _ in range(choose.randint(16, 64))] for _ in range(REQUESTS)]


def magcli_work(folder: str) -> Callable[[], int]:
    """As data stages generate: all problems concurrently, one completion each."""
    from magcli.generate.open import open_generator
    from magcli.generate.spec import Spec
    from magcli.generate.types import Sampling
    from magcli.model.model import Model

    generator = open_generator(Spec(Model.open(folder), engine="vllm", dtype="bf16", slots=REQUESTS))
    chats = [[{"role": "user", "content": " ".join(f"w{token}" for token in prompt)}] for prompt in prompts()]
    runner = asyncio.Runner()

    async def work() -> int:
        requests = [
            generator.complete(chat, Sampling(NEW_TOKENS), seeds=[seed])
            for chat, seed in zip(chats, SEEDS, strict=True)
        ]
        return sum(completion.num_tokens for done in await asyncio.gather(*requests) for completion in done)

    return lambda: runner.run(work())


def offline_one_process_work(folder: str) -> Callable[[], int]:
    """``LLM.generate`` with the engine in this process."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return offline_work(folder)


def offline_work(folder: str) -> Callable[[], int]:
    """``LLM.generate`` with all prompts."""
    from vllm import LLM, SamplingParams, TokensPrompt

    from magcli.generate.spec import Spec
    from magcli.generate.vllm.start import cpu_settings
    from magcli.model.model import Model

    ours = cpu_settings(Spec(Model.open(folder), slots=REQUESTS))
    llm = LLM(
        folder,
        trust_remote_code=False,
        **{name: ours[name] for name in ("enforce_eager", "enable_chunked_prefill")},
        max_num_batched_tokens=max(CONTEXT, REQUESTS),
        dtype="bfloat16",
        max_model_len=CONTEXT,
        max_num_seqs=REQUESTS,
        kv_cache_memory_bytes=1 << 30,
        generation_config="vllm",
    )
    inputs = [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts()]
    settings = [SamplingParams(max_tokens=NEW_TOKENS, temperature=1.0, seed=seed) for seed in SEEDS]

    def work() -> int:
        outputs = llm.generate(inputs, settings, use_tqdm=False)
        assert all(output.outputs[0].text for output in outputs)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return work


def main(name: str, folder: str) -> None:
    """Serve one side: seconds on stdout for each line on stdin; the library's output goes to stderr."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    sides = {"magcli": magcli_work, "offline": offline_work, "offline-one-process": offline_one_process_work}
    work = sides[name](folder)
    for _ in sys.stdin:
        started = time.perf_counter()
        generated = work()
        seconds = time.perf_counter() - started
        assert generated == REQUESTS * NEW_TOKENS, f"{name} generated {generated} tokens"
        print(seconds, file=results, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
