"""Tiny models whose thoughts are in other forms than the recipe's: brackets, as special tokens, and channels."""

import json
import random
import string
from pathlib import Path

from calling import call_stage

BRACKETS = ("<unk>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "[THINK]", "[/THINK]")
CHANNELS = ("<unk>", "<|return|>", "<|end|>", "<|start|>", "<|message|>", "<|channel|>")

PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
CHANNELS_TEMPLATE = (
    "{% for m in messages %}{% if m.role != 'assistant' %}"
    "{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% else %}"
    "{% if '<|channel|>' in m.content %}{{ raise_exception('give channels in keys') }}{% endif %}"
    "{% if m.thinking and loop.last %}"
    "{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + m.content }}"
    "{{ '<|return|>' if loop.last else '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
)
"""Thoughts are a key beside the content, and only kept in the last turn; the final answer ends otherwise there."""


def character_tokenizer(special, template):
    """One token a character of printable ASCII, besides the special tokens; the second of these is the EOS."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: index for index, token in enumerate([*special, *string.printable[:97]])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(list(special))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        eos_token=special[1],
        pad_token=special[1],
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def save_model(folder: Path, special, template) -> None:
    """A random Llama of about 50k parameters, context 2048."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    character_tokenizer(special, template).save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(special) + 97,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.15,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)


def train_guesser(model: Path, folder: Path, form) -> Path:
    """The model after a second of SFT: it answers any letter with a boxed number of 1 to 4, thoughts in ``form``."""
    choose = random.Random(0)
    rows = []
    for _ in range(240):
        thoughts = "." * choose.randrange(1, 4)
        answer = f"\\boxed{{{choose.choice('1234')}}}"
        rows.append({"prompt": f"{choose.choice('abcdefgh')}?", "completion": form.join(thoughts, answer)})
    traces = folder / "traces.jsonl"
    traces.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"epochs": 12, "step_tokens": 512, "lr": 5e-3, "bf16": "no", "system": Path("none")}
    call_stage("sft", traces, model=str(model), run=folder / "run", **options)
    return folder / "run" / "model"
