import torch
from model import Forecaster

from perfgate import Workload


def build(device):
    torch.manual_seed(0)
    return Forecaster().eval().to(device)


def inputs(batch, seed):
    noise = torch.randn(batch, 48, 7, generator=torch.Generator().manual_seed(seed))
    return noise.cumsum(1)


forecast = Workload(build=build, inputs=inputs, batch=32)
