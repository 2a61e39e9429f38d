import torch
from model import Recogniser

from perfgate import Workload


def build(device):
    torch.manual_seed(0)
    return Recogniser().eval().to(device)


def inputs(batch, seed):
    return torch.randn(batch, 40, 96, generator=torch.Generator().manual_seed(seed))


recogniser = Workload(build=build, inputs=inputs, batch=4)
