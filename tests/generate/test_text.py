"""Samples of an RL run that are not rollouts, as text."""

import asyncio

from thinking import BRACKETS as BRACKETS_TOKENS
from thinking import PLAIN_TEMPLATE, character_tokenizer

from magcli.generate.text import SamplerText
from magcli.generate.types import Rollout, Sampling
from magcli.model.chat.thoughts import BRACKETS

OPENING = "[THINK]"


class Sampler:
    """Samples the same tokens for each seed, the last seed first."""

    def __init__(self, tokens):
        self.tokens = tuple(tokens)

    async def sample(self, prompt, sampling, *, seeds):
        for index in reversed(range(len(seeds))):
            logprobs = (0.0,) * len(self.tokens)
            yield Rollout(index, tuple(prompt), self.tokens, logprobs, ((0, 0),), "stop", seeds[index])


def test_the_opening_tag_of_the_prompt_is_part_of_the_text():
    template = PLAIN_TEMPLATE.replace("|>' }}{% endif", f"|>{OPENING}' }}}}{{% endif")
    tokenizer = character_tokenizer(BRACKETS_TOKENS, template)
    tokens = tokenizer("one[/THINK]2<|end|>", add_special_tokens=False)["input_ids"]
    ended = []
    text = SamplerText(Sampler(tokens), tokenizer, {tokens[-1]}, BRACKETS, lambda count: None, ended.append)

    question = [{"role": "user", "content": "1+1?"}]
    completions = asyncio.run(text.complete(question, Sampling(8), seeds=[3, 4]))

    assert [completion.text for completion in completions] == [f"{OPENING}one[/THINK]2"] * 2
    assert [rollout.seed for rollout in ended] == [4, 3]
