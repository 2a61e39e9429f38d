"""The workload of the small model, with a check of its output."""

import torch
from model import build

from perfgate import Workload


def check(output, inputs):
    assert output.shape == (inputs.shape[0], 64)
    assert (output >= 0).all(), "relu gives nothing below zero"


small = Workload(
    build=lambda device: build().to(device),
    inputs=lambda batch, seed: torch.randn(batch, 64, generator=torch.Generator().manual_seed(seed)),
    check=check,
    batch=8,
)
