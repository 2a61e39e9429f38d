import random

import torch
from model import Ranker

from perfgate import Workload


def build(device):
    torch.manual_seed(0)
    return Ranker().eval().to(device)


def inputs(batch, seed):
    words = random.Random(seed)
    return [
        " ".join(f"word{words.randrange(4000)}" for _ in range(60))
        for _ in range(batch)
    ]


ranker = Workload(build=build, inputs=inputs, batch=24)
