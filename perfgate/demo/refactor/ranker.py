"""Scores every item of a session in the light of the others."""

import torch
from torch import nn
from torch.nn import functional


class FeedForward(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, width):
        super().__init__()
        self.forth = nn.Linear(width, 4 * width)
        self.back = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.back(functional.gelu(self.forth(x)))


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inward = nn.Linear(width, 3 * width)
        self.outward = nn.Linear(width, width)

    def forward(self, x):
        mixed = functional.scaled_dot_product_attention(*self.split_heads(self.inward(x)))
        return self.outward(self.join_heads(mixed, x.shape))

    def split_heads(self, x):
        """Return query, key and value, each of shape (batch, heads, length, width of a head)."""
        batch, length, _ = x.shape
        return x.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)

    @staticmethod
    def join_heads(x, shape):
        """Undo the split."""
        return x.transpose(1, 2).reshape(shape)


class Layer(nn.Module):
    """Attention and a feed-forward network, each with a residual connection."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.feed_forward = FeedForward(width)
        self.before = nn.LayerNorm(width)
        self.after = nn.LayerNorm(width)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.feed_forward(self.after(x))


class Ranker(nn.Module):
    """Item ids of shape (batch, length) in, scores of the same shape out."""

    def __init__(self, items, width, heads, layers):
        super().__init__()
        self.embedding = nn.Embedding(items, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.score = nn.Linear(width, 1)

    def forward(self, sessions):
        hidden = self.layers(self.embedding(sessions))
        return torch.sigmoid(self.score(hidden).squeeze(-1))
