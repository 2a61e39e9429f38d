"""The workload: a small network on the device that perfgate.toml names."""

import torch
from model import Model

from perfgate import Traffic, Workload


def build(device):
    return Model().eval().to(device)


def inputs(batch, seed):
    return torch.randn(batch, 256, generator=torch.Generator().manual_seed(seed))


def check(output, batch):
    assert output.shape == (batch.shape[0], 64)
    assert torch.isfinite(output).all()


def preprocess(batch):
    return (batch - batch.mean()) / batch.std()


model = Workload(build=build, inputs=inputs, check=check, batch=16, batch_sizes=(8, 16, 32))

# Everything that a workload can say of itself, so that no step has nothing to measure.
served = Workload(
    build=build,
    inputs=inputs,
    check=check,
    batch=16,
    batch_sizes=(8, 16, 32),
    preprocess=preprocess,
    traffic=Traffic(rate=50),
    ranks=2,
)
