"""What fits an engine: prompts into its context, sampling settings into reason, weights into its model."""

from collections.abc import Sequence

from torch import Tensor, nn

from magcli.errors import DataError, MagError, PromptTooLong, UsageError
from magcli.generate.types import Sampling, Weights

Names = tuple[str, ...]
"""All names of one parameter: the first is the one it goes by, the others those that it is tied to."""


def room(prompt: Sequence[int], sampling: Sampling, context: int) -> int:
    """Tokens that an answer may have: ``max_tokens``, or fewer where the context ends before.

    Raises:
        DataError: the prompt is empty.
        PromptTooLong: the prompt leaves no room in the context.
        UsageError: the sampling settings make no sense.
    """
    if sampling.max_tokens < 1 or sampling.temperature < 0 or not 0 < sampling.top_p <= 1 or sampling.top_k < 0:
        raise UsageError(f"{sampling}: needs max_tokens >= 1, temperature >= 0, 0 < top_p <= 1 and top_k >= 0")
    if not prompt:
        raise DataError("a prompt without a token cannot be continued")
    if len(prompt) >= context:
        raise PromptTooLong(f"a prompt of {len(prompt)} tokens does not fit the model's context of {context}")
    return min(sampling.max_tokens, context - len(prompt))


def parameter_names(model: nn.Module) -> dict[str, Names]:
    """For each name of a parameter, that name and then the names of what it is tied to."""
    named = list(model.named_parameters(remove_duplicate=False))
    return {name: (name, *(o for o, other in named if other is tensor and o != name)) for name, tensor in named}


def name_in(weights: Weights, names: Names, parameter: Tensor) -> str:
    """The name under which weights hold a parameter; of tied parameters any one name is enough.

    Raises:
        MagError: they lack it, or hold it in another shape.
    """
    name = next((name for name in names if name in weights), None)
    if name is None:
        raise MagError(f"weights to load lack {names[0]}, which the engine's model has")
    if (shape := weights[name].shape) != parameter.shape:
        raise MagError(f"weights to load: {names[0]} is {tuple(shape)}, the engine's is {tuple(parameter.shape)}")
    return name


def names_in(weights: Weights, model: nn.Module) -> dict[str, str]:
    """For each parameter of the model the name under which the weights hold it; errors as in ``name_in``."""
    every = parameter_names(model)
    return {name: name_in(weights, every[name], parameter) for name, parameter in model.named_parameters()}
