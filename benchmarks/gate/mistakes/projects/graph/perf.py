import torch
from model import Network

from perfgate import Workload


def build(device):
    torch.manual_seed(0)
    return Network().eval().to(device)


def inputs(batch, seed):
    generator = torch.Generator().manual_seed(seed)
    nodes = 200 * batch
    edges = torch.randint(0, nodes, (2, 6 * nodes), generator=generator)
    return torch.randn(nodes, 96, generator=generator), edges[0], edges[1]


def call(model, batch):
    return model(batch)


network = Workload(build=build, inputs=inputs, call=call, batch=2)
