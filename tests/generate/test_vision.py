"""Vision-language models: completions depend on the images and on the sample's own seed."""

import asyncio
from io import BytesIO

import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer, LlavaForConditionalGeneration
from vision import make_vision_model

from magcli.errors import DataError, PromptTooLong, UsageError
from magcli.generate.open import NestedGenerator, open_generator, open_vision
from magcli.generate.spec import Spec
from magcli.generate.torch import vision
from magcli.generate.torch.policy import TorchPolicy
from magcli.generate.types import Sampling, VisionModel
from magcli.model.model import Model

ASKED = [{"role": "system", "content": "s"}, {"role": "user", "content": "what?"}]


def picture(shade, size=40):
    out = BytesIO()
    Image.linear_gradient("L").resize((size, size)).point(lambda value: (value + shade) % 256).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="module")
def model_dir(tiny_model_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vision") / "model"
    make_vision_model(tiny_model_dir, folder, image_token="<unk>")
    return folder


@pytest.fixture
def generator(model_dir):
    made = open_vision(Spec(Model.open(model_dir), dtype="fp32"))
    yield made
    asyncio.run(made.close())


def say(generator, images, sampling, seeds, messages=ASKED):
    return asyncio.run(generator.complete_with_images(messages, images, sampling, seeds=seeds))


def test_only_vision_language_models_accept_images(model_dir, tiny_model_dir, generator):
    assert isinstance(generator, VisionModel)
    text = open_generator(Spec(Model.open(tiny_model_dir), dtype="fp32", slots=1))
    assert isinstance(text, TorchPolicy)
    assert not isinstance(text, VisionModel)
    asyncio.run(text.close())


def test_prompts_without_images_are_sampled_by_the_text_model(model_dir, generator):
    both = open_generator(Spec(Model.open(model_dir), dtype="fp32", slots=2))
    assert isinstance(both, NestedGenerator)
    sampling = Sampling(12, temperature=0)
    (seen,) = say(both, [picture(0)], sampling, [1])
    assert [seen] == say(generator, [picture(0)], sampling, [1])
    assert isinstance(both._vision, vision.VisionGenerator)
    assert both._text is None
    (read,) = asyncio.run(both.complete(ASKED, sampling, seeds=[1]))
    assert isinstance(both._text, TorchPolicy)
    assert [read] == say(generator, [], sampling, [1])
    assert both.num_finished == 2
    asyncio.run(both.close())


def test_images_need_the_embedded_engine(model_dir):
    both = open_generator(Spec(Model.open(model_dir), engine="vllm"))
    with pytest.raises(UsageError, match="use --engine torch"):
        say(both, [picture(0)], Sampling(4), [1])


def test_greedy_tokens_are_those_of_the_model_itself(model_dir, generator):
    (made,) = say(generator, [picture(0)], Sampling(12, temperature=0), [1])
    model = LlavaForConditionalGeneration.from_pretrained(model_dir)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    processor = generator._processor
    pixels = processor.image_processor(Image.open(BytesIO(picture(0))).convert("RGB"), return_tensors="pt")
    text = "<|system|>s<|user|>" + "<unk>" * 16 + "what?<|assistant|>"
    tokens = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
    start = tokens.shape[1]
    for _ in range(made.num_tokens):
        with torch.no_grad():
            logits = model(input_ids=tokens, pixel_values=pixels["pixel_values"]).logits[0, -1]
        tokens = torch.cat([tokens, logits.argmax()[None, None]], dim=1)
    answer = tokens[0, start:].tolist()
    body = answer[:-1] if made.finish == "stop" else answer
    assert tokenizer.decode(body, skip_special_tokens=False) == made.text


def test_a_sample_depends_on_its_image_and_seed(generator):
    sampling = Sampling(16, temperature=1.0)
    one, other = (say(generator, [picture(shade)], sampling, [3, 4]) for shade in (0, 128))
    assert [made.text for made in one] != [made.text for made in other]
    assert one[0].text != one[1].text
    assert say(generator, [picture(0)], sampling, [4]) == one[1:]
    assert all(made.num_tokens == 16 for made in one if made.finish == "length")
    assert say(generator, [], sampling, [3]) == asyncio.run(generator.complete(ASKED, sampling, seeds=[3]))


def test_images_are_at_their_placeholders():
    one, two = Image.new("RGB", (1, 1)), Image.new("RGB", (2, 2))
    parts = list(vision._parts("see <image 2> and <image 9>", [one, two]))
    assert [part.get("image", part.get("text")) for part in parts] == [one, "see ", two, " and ", "<image 9>"]
    assert [part["type"] for part in vision._parts("none", [one, two])] == ["image", "image", "text"]


def test_invalid_images_are_errors(generator):
    with pytest.raises(DataError, match="image of 4 bytes cannot be decoded"):
        say(generator, [b"none"], Sampling(4), [1])
    with pytest.raises(PromptTooLong, match="does not fit"):
        say(generator, [picture(0)], Sampling(4), [1], [{"role": "user", "content": "x" * 600}])
