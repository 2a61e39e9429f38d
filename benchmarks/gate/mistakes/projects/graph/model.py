"""Messages along the edges of a graph."""

import torch
from torch import nn


class Convolution(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(width, width)
        self.own = nn.Linear(width, width)

    def forward(self, nodes, source, target):
        messages = self.message(nodes)[source]
        gathered = torch.zeros_like(nodes).index_add_(0, target, messages)
        return torch.relu(self.own(nodes) + gathered)


class Network(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.layers = nn.ModuleList(Convolution(width) for _ in range(3))
        self.head = nn.Linear(width, 4)

    def forward(self, graph):
        nodes, source, target = graph
        for layer in self.layers:
            nodes = layer(nodes, source, target)
        return self.head(nodes.mean(dim=0))
