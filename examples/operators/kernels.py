"""The operator of this project: a root-mean-square norm over the last dimension, and a scale."""

import torch

EPSILON = 1e-6


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    scale = torch.rsqrt(torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(EPSILON))
    return (x * scale.unsqueeze(-1)).mul_(weight)
