"""Score items for users by two towers."""

import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, rows, width=64):
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.layers = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def forward(self, ids):
        return self.layers(self.table(ids))


class TwoTowers(nn.Module):
    def __init__(self, users=5000, items=8000):
        super().__init__()
        self.users = Tower(users)
        self.items = Tower(items)

    def forward(self, users, items):
        return torch.einsum("bd,bid->bi", self.users(users), self.items(items))
