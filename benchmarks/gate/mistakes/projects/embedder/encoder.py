"""A transformer that reads numbered words."""

import torch
from torch import nn
from torch.nn import functional


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.after = nn.LayerNorm(width)
        self.wide = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.drop = nn.Dropout(0.1)

    def forward(self, hidden, allowed):
        rows, length, width = hidden.shape
        parts = self.project(self.before(hidden)).view(
            rows, length, 3, self.heads, width // self.heads
        )
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=allowed
        )
        hidden = hidden + self.drop(
            self.merge(mixed.transpose(1, 2).reshape(rows, length, width))
        )
        return hidden + self.drop(self.wide(self.after(hidden)))


class Encoder(nn.Module):
    def __init__(self, vocabulary, width=128, heads=4, layers=3):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, padding_idx=0)
        self.places = nn.Embedding(64, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, mask):
        hidden = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        allowed = mask[:, None, None, :]
        for layer in self.layers:
            hidden = layer(hidden, allowed)
        return self.norm(hidden)
