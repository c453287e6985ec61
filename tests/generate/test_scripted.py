"""The scripted double keeps to the protocol."""

import asyncio

import pytest

from magcli.errors import EnvironmentFault, MagError
from magcli.generate.scripted import ScriptedGenerator
from magcli.generate.types import Completion, Generator, Sampling

MESSAGES = [{"role": "user", "content": "1+2"}]


def test_it_answers_each_seed_in_order_and_remembers():
    generator = ScriptedGenerator(lambda messages, sampling, seed: Completion(f"{seed}", sampling.max_tokens, "stop"))
    as_protocol: Generator = generator
    completions = asyncio.run(as_protocol.complete(MESSAGES, Sampling(5), seeds=[3, 1, 2]))
    assert [completion.text for completion in completions] == ["3", "1", "2"]
    assert [seed for _, _, seed in generator.calls] == [3, 1, 2]


def test_what_the_handler_raises_comes_out():
    def broken(messages, sampling, seed):
        raise EnvironmentFault("the engine has caught fire")

    with pytest.raises(EnvironmentFault, match="fire"):
        asyncio.run(ScriptedGenerator(broken).complete(MESSAGES, Sampling(5), seeds=[1]))


def test_closed_it_refuses():
    async def scenario():
        generator = ScriptedGenerator(lambda *_: Completion("", 0, "stop"))
        await generator.close()
        with pytest.raises(MagError, match="closed"):
            await generator.complete(MESSAGES, Sampling(5), seeds=[1])

    asyncio.run(scenario())
