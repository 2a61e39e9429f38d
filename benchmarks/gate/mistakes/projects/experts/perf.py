import torch
from model import Experts

from perfgate import Workload


def build(device):
    torch.manual_seed(0)
    return Experts().eval().to(device)


def inputs(batch, seed):
    return torch.randn(batch, 160, generator=torch.Generator().manual_seed(seed))


experts = Workload(build=build, inputs=inputs, batch=96)
