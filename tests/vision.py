"""Tiny vision-language models around a text model: random vision tower (CLIP), projector, processor, chat template.

`python tests/vision.py` makes `examples/model-vision`, whose text weights are zero: `magcli graft` fills them in.
"""

import sys
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    CLIPVisionConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

IMAGE_SIZE, PATCH = 32, 8


def template(turns: dict[str, str], image: str, end: str) -> str:
    """A chat template for turns whose content is text or a list of images and texts."""
    part = f"{{% if part['type'] == 'image' %}}{image}{{% else %}}{{{{ part['text'] }}}}{{% endif %}}"
    parts = f"{{% for part in message['content'] %}}{part}{{% endfor %}}"
    body = f"{{% if message['content'] is string %}}{{{{ message['content'] }}}}{{% else %}}{parts}{{% endif %}}"
    roles = "".join(
        f"{{% if message['role'] == '{role}' %}}{mark}{body}{end if role == 'assistant' else ''}{{% endif %}}"
        for role, mark in turns.items()
    )
    asked = f"{{% if add_generation_prompt %}}{turns['assistant']}{{% endif %}}"
    return f"{{% for message in messages %}}{roles}{{% endfor %}}{asked}"


def make_vision_model(text: Path, folder: Path, *, image_token: str, dtype=torch.float32, zero_text=False, **more):
    """Write a Llava around a text model's shape; ``more`` goes to ``save_pretrained``. Returns the model."""
    tokenizer, config = AutoTokenizer.from_pretrained(text), AutoConfig.from_pretrained(text)
    config.name_or_path = ""  # else the place of this machine's folder is written into the new model's settings
    turns = {role: f"<|{role}|>" for role in ("system", "user", "assistant")}
    tokenizer.chat_template = template(turns, image_token, "<|end|>")
    image = CLIPImageProcessorPil(size={"shortest_edge": IMAGE_SIZE}, crop_size=IMAGE_SIZE)
    LlavaProcessor(
        image,
        tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token=image_token,
        chat_template=tokenizer.chat_template,
    ).save_pretrained(folder)
    model = _llava(config, tokenizer.convert_tokens_to_ids(image_token)).to(dtype)
    if zero_text:
        for parameter in model.model.language_model.parameters():
            parameter.data.zero_()
    model.config.dtype = dtype
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder, **more)
    return model


def _llava(config, image_token_id):
    vision = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=IMAGE_SIZE,
        patch_size=PATCH,
        projection_dim=32,
    )
    tied = config.tie_word_embeddings
    whole = LlavaConfig(
        vision_config=vision, text_config=config, image_token_id=image_token_id, tie_word_embeddings=tied
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return LlavaForConditionalGeneration(whole).eval()


def logits_of(folder: Path, tokens: list[int], *, vision: bool) -> torch.Tensor:
    """The logits of a text by a text model, or by a vision-language model that is shown no image."""
    kind = LlavaForConditionalGeneration if vision else AutoModelForCausalLM
    with torch.no_grad():
        return kind.from_pretrained(folder, dtype=torch.float32)(torch.tensor([tokens])).logits[0]


if __name__ == "__main__":
    examples = Path(__file__).parent.parent / "examples"
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else examples / "model-vision"
    make_vision_model(examples / "model", place, image_token="<|pad|>", dtype=torch.bfloat16, zero_text=True)
