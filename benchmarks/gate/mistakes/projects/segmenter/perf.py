import torch
from model import Segmenter

from perfgate import Workload


def build(device):
    torch.manual_seed(0)
    return Segmenter().eval().to(device)


def inputs(batch, seed):
    return torch.rand(batch, 3, 128, 128, generator=torch.Generator().manual_seed(seed))


segment = Workload(build=build, inputs=inputs, batch=4)
