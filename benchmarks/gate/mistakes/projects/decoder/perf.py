import torch
from model import Decoder

from perfgate import Workload


def build(device):
    torch.manual_seed(0)
    return Decoder().eval().to(device)


def inputs(batch, seed):
    return torch.randint(
        0, 512, (batch, 4), generator=torch.Generator().manual_seed(seed)
    )


decoder = Workload(build=build, inputs=inputs, batch=8)
