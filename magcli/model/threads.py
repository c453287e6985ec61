"""How many threads a model computes on: all that torch has, or one where its matrix products are too small to share."""

import os

import torch

SHARED = 1 << 22
"""Multiply-adds from which a matrix product gains by a second thread: 64 rows of a layer of 256 x 256. Half as many
take 20 microseconds on one core, of which sharing them out takes a good part."""


def use_threads(model: str, rows: int) -> int:
    """Have torch compute on as many threads as pay for products of ``rows`` rows; returns how many.

    The number depends on sizes alone, so that a run that goes on computes the same. ``OMP_NUM_THREADS`` wins.

    Raises:
        EnvironmentFault: the model's config cannot be read.
    """
    if "OMP_NUM_THREADS" not in os.environ and torch.get_num_threads() > 1:
        from magcli.model.load import load_config

        config = load_config(model).get_text_config()
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        if rows * config.hidden_size * inner < SHARED:
            torch.set_num_threads(1)
    return torch.get_num_threads()
