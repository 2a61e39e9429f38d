"""Scores requests for a set of offers: two matrix products through a hidden layer with memory that is kept between calls."""

import torch
from torch import nn

FEATURES = 128
HIDDEN = 1024


class Reply:
    """The scores of a batch of requests."""

    def __init__(self, scores):
        self.scores = scores


class Scorer(nn.Module):
    """Features of shape (batch, 128) in, for each request one share an offer out."""

    def __init__(self, batch, offers):
        super().__init__()
        self.register_buffer("inward", torch.randn(FEATURES, HIDDEN) / FEATURES**0.5)
        self.register_buffer("outward", torch.randn(HIDDEN, offers) / HIDDEN**0.5)
        self.register_buffer("hidden", torch.empty(batch, HIDDEN))

    def forward(self, features):
        hidden = torch.mm(features, self.inward, out=self.hidden).relu_()
        scores = torch.mm(hidden, self.outward)
        return Reply(torch.softmax(scores, dim=-1))
