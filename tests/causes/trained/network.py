"""The network, its data and its loss."""

from torch import nn


class Network(nn.Module):
    def __init__(self, size=128, depth=6):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(depth))

    def forward(self, states):
        for layer in self.layers:
            states = layer(states).relu()
        return states


def augment(batch, rank):
    return batch * 0.5


def loss_of(outputs):
    return outputs.square().mean()
