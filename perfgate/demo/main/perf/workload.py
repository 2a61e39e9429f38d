"""The workload: a ranker that scores the items of eight shopping sessions at once."""

import torch
from ranker import Ranker

from perfgate import Workload


def build(device):
    return Ranker(items=1000, width=96, heads=4, layers=2).eval().to(device)


def inputs(batch, seed):
    return torch.randint(0, 1000, (batch, 48), generator=torch.Generator().manual_seed(seed))


def check(scores, sessions):
    assert scores.shape == sessions.shape, f"expected one score an item, got {tuple(scores.shape)}"
    assert torch.isfinite(scores).all(), "scores must be finite"


ranker = Workload(build=build, inputs=inputs, check=check, batch=8)
