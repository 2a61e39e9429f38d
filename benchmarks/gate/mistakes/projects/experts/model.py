"""A layer of experts with a router."""

import torch
from torch import nn
from torch.nn import functional


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, rows):
        return self.narrow(functional.gelu(self.wide(rows), approximate="tanh"))


class Experts(nn.Module):
    def __init__(self, width=160, experts=6):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(Expert(width) for _ in range(experts))
        self.usage = torch.zeros(experts)

    def forward(self, rows):
        weights, chosen = self.router(rows).softmax(dim=-1).max(dim=-1)
        output = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            index = (chosen == number).nonzero(as_tuple=True)[0]
            output.index_add_(0, index, expert(rows[index]) * weights[index, None])
        return rows + output
