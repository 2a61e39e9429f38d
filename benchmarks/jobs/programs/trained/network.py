"""A classifier of short sequences."""

import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self, size, length):
        super().__init__()
        self.across, self.within = nn.Linear(length, length), nn.Linear(size, size)

    def forward(self, states):
        states = states + self.across(states.transpose(1, 2)).transpose(1, 2).relu()
        return states + self.within(states).tanh()


class Classifier(nn.Module):
    def __init__(self, size=96, length=16, depth=6, classes=50):
        super().__init__()
        self.embed = nn.Embedding(256, size)
        self.mixers = nn.ModuleList(Mixer(size, length) for _ in range(depth))
        self.output = nn.Linear(size, classes)

    def forward(self, tokens):
        states = self.embed(tokens)
        for mixer in self.mixers:
            states = mixer(states)
        return self.output(states.mean(dim=1))


def accuracy(scores, labels):
    return (scores.argmax(dim=-1) == labels).to(torch.float32).mean()
