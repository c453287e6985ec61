"""A fresh tiny Llama for each test that trains one."""

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def model(tiny_model_dir) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(tiny_model_dir)
