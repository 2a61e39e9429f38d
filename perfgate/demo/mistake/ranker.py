"""Scores every item of a session in the light of the others."""

import math

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inward = nn.Linear(width, 3 * width)
        self.outward = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = self.inward(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        # Keep the weights of each head, to show users why an item was ranked where it is.
        self.weights, mixed = [], []
        for head in range(self.heads):
            scores = query[:, head] @ key[:, head].transpose(1, 2).contiguous() / math.sqrt(width // self.heads)
            weights = scores.softmax(dim=-1)
            self.weights.append(weights)
            mixed.append(weights @ value[:, head])
        return self.outward(torch.cat(mixed, dim=-1))


class Layer(nn.Module):
    """Attention and a feed-forward network, each with a residual connection."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.forth = nn.Linear(width, 4 * width)
        self.back = nn.Linear(4 * width, width)
        self.before = nn.LayerNorm(width)
        self.after = nn.LayerNorm(width)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.back(functional.gelu(self.forth(self.after(x))))


class Ranker(nn.Module):
    """Item ids of shape (batch, length) in, scores of the same shape out."""

    def __init__(self, items, width, heads, layers):
        super().__init__()
        self.embedding = nn.Embedding(items, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.score = nn.Linear(width, 1)

    def forward(self, sessions):
        x = self.embedding(sessions)
        for layer in self.layers:
            x = layer(x)
        return torch.sigmoid(self.score(x).squeeze(-1))
