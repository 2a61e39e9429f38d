"""A model of one layer and an activation, that tests change."""

import torch


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        y = self.layer(x)
        return torch.relu(y)


def build():
    torch.manual_seed(0)
    return Small().eval()
