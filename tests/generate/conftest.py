"""Models for engines that the tiny one does not suit."""

from pathlib import Path

import pytest


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
