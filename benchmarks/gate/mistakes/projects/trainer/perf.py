import torch
from train import Training

from perfgate import Workload


def inputs(batch, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2000, (batch, 24), generator=generator), torch.randint(
        0, 16, (batch, 24), generator=generator
    )


def call(training, batch):
    return training.step(*batch)


training = Workload(build=Training, inputs=inputs, call=call, batch=8, grad=True)
