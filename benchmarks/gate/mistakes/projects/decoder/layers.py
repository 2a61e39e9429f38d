"""Layers of a decoder with a key-value cache."""

import torch
from torch import nn
from torch.nn import functional


class Cache:
    def __init__(self, batch, heads, length, width):
        self.keys = torch.zeros(batch, heads, length, width)
        self.values = torch.zeros(batch, heads, length, width)

    def update(self, at, keys, values):
        self.keys[:, :, at] = keys
        self.values[:, :, at] = values
        return self.keys[:, :, : at + 1], self.values[:, :, : at + 1]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.join = nn.Linear(width, 3 * width, bias=False)
        self.leave = nn.Linear(width, width, bias=False)

    def forward(self, hidden, cache, at):
        batch, width = hidden.shape
        queries, keys, values = (
            self.join(hidden).view(batch, 3, self.heads, -1).unbind(1)
        )
        keys, values = cache.update(at, keys, values)
        mixed = functional.scaled_dot_product_attention(
            queries.unsqueeze(2), keys, values
        )
        return self.leave(mixed.reshape(batch, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.first = nn.LayerNorm(width)
        self.second = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, hidden, cache, at):
        hidden = hidden + self.attention(self.first(hidden), cache, at)
        return hidden + self.narrow(functional.silu(self.wide(self.second(hidden))))
