"""Scores every item of a session in the light of the others."""

import torch
from attention import SelfAttention
from torch import nn
from torch.nn import functional


class EncoderLayer(nn.Module):
    """Attention and a feed-forward network, each normalised before and added to its input."""

    def __init__(self, width, *, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads=heads)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, hidden):
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.narrow(functional.gelu(self.widen(self.feed_forward_norm(hidden))))


class Ranker(nn.Module):
    """Item ids of shape (batch, length) in, scores of the same shape out."""

    def __init__(self, items, width, heads, layers):
        super().__init__()
        self.item_embedding = nn.Embedding(items, width)
        self.encoder = nn.ModuleList(EncoderLayer(width, heads=heads) for _ in range(layers))
        self.to_score = nn.Linear(width, 1)

    def forward(self, sessions):
        hidden = self.item_embedding(sessions)
        for layer in self.encoder:
            hidden = layer(hidden)
        return torch.sigmoid(self.to_score(hidden).squeeze(-1))
