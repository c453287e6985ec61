"""An advantage and two losses of your own in `magcli rl`.

magcli rl problems.jsonl --model model --advantage objective.py:leave_one_out --loss objective.py:cispo

They replace `advantages` and `clipped_policy_loss` in `magcli/rl/algorithm.py`, a good place to start from.
"""

import torch
from torch import Tensor

from magcli.rl.algorithm import Tokens, clipped_policy_loss


def leave_one_out(rewards: list[float], groups: list[int]) -> list[float]:
    """RLOO (arXiv 2402.14740): each reward minus the mean reward of the other completions of its group."""
    total, size = dict.fromkeys(groups, 0.0), dict.fromkeys(groups, 0)
    for reward, group in zip(rewards, groups, strict=True):
        total[group] += reward
        size[group] += 1
    pairs = zip(rewards, groups, strict=True)
    return [reward - (total[group] - reward) / (size[group] - 1) for reward, group in pairs]


def cispo(tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """CISPO (arXiv 2506.13585): the ratio is clipped and has no gradient, so that no token loses its own."""
    ratio = (tokens.new.detach() - tokens.old).exp().clamp(1 - clip_low, 1 + clip_high)
    return -ratio * tokens.advantage * tokens.new


def gspo(tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """GSPO (arXiv 2507.18071): one ratio for each completion, the geometric mean of those of its tokens."""
    lengths = tokens.sequence.bincount()
    sums = torch.zeros(len(lengths), device=tokens.new.device).index_add(0, tokens.sequence, tokens.new - tokens.old)
    mean = (sums / lengths.clamp(min=1))[tokens.sequence]
    return clipped_policy_loss(tokens._replace(new=mean, old=torch.zeros_like(mean)), clip_low, clip_high)


if __name__ == "__main__":
    print("advantages:", leave_one_out([1.0, 0.0, 0.0, 0.5, 0.5], [0, 0, 0, 1, 1]))
    new = torch.tensor([-1.0, -0.6, -1.1], requires_grad=True)
    tokens = Tokens(new, torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([1.0, 1.0, -1.0]), torch.tensor([0, 0, 1]))
    for loss in (clipped_policy_loss, cispo, gspo):
        (gradient,) = torch.autograd.grad(loss(tokens, 0.2, 0.28).sum(), new)
        print(f"gradient of {loss.__name__}:", [round(value, 2) for value in gradient.tolist()])
