"""The workload: a ranker that scores the items of a shopping session."""

import torch
from ranker import Ranker

from perfgate import Workload


def build(device):
    return Ranker(items=1000, width=96, heads=4, layers=2).eval().to(device)


def inputs(batch, seed, length=48):
    return torch.randint(0, 1000, (batch, length), generator=torch.Generator().manual_seed(seed))


def check(scores, sessions):
    assert scores.shape == sessions.shape, f"expected one score an item, got {tuple(scores.shape)}"
    assert torch.isfinite(scores).all(), "scores must be finite"


ranker = Workload(
    build=build, inputs=inputs, check=check, batch=8, shapes={"typical": {"length": 48}, "one-item": {"length": 1}}
)
