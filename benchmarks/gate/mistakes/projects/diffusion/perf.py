import torch
from model import Denoiser

from perfgate import Workload


def build(device):
    torch.manual_seed(0)
    return Denoiser().eval().to(device)


def inputs(batch, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 4, 32, 32, generator=generator), torch.rand(
        batch, generator=generator
    ) * 1000


def call(model, batch):
    return model(batch)


denoiser = Workload(build=build, inputs=inputs, call=call, batch=2)
