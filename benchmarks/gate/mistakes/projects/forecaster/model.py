"""Forecast the next steps of many series at once: an encoder-decoder of GRUs with
attention over the past.
"""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, state, past):
        scores = (
            torch.einsum("bw,btw->bt", self.query(state), past) / past.shape[-1] ** 0.5
        )
        return torch.einsum("bt,btw->bw", scores.softmax(-1), self.value(past))


class Forecaster(nn.Module):
    def __init__(self, channels=7, width=96, horizon=12):
        super().__init__()
        self.horizon = horizon
        self.encoder = nn.GRU(channels, width, num_layers=2, batch_first=True)
        self.cell = nn.GRUCell(channels + width, width)
        self.attention = Attention(width)
        self.level = nn.Linear(width, channels)
        self.spread = nn.Linear(width, channels)

    def forward(self, history):
        mean = history.mean(1, keepdim=True)
        scale = history.std(1, keepdim=True) + 1e-4
        past, hidden = self.encoder((history - mean) / scale)
        state, step = hidden[-1], history[:, -1]
        levels, spreads = [], []
        for _ in range(self.horizon):
            state = self.cell(torch.cat([step, self.attention(state, past)], -1), state)
            step = self.level(state)
            levels.append(step)
            spreads.append(nn.functional.softplus(self.spread(state)))
        return torch.stack(levels, 1) * scale + mean, torch.stack(spreads, 1) * scale
