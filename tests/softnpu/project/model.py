"""Three layers with an activation between each two."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 512)
        self.second = nn.Linear(512, 512)
        self.last = nn.Linear(512, 64)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.sigmoid(self.second(x))
        return self.last(x)
