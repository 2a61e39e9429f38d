"""A small recogniser: convolutions, a recurrent layer, greedy decoding."""

import torch
from torch import nn
from torch.nn import functional


class Frontend(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.convolution = nn.Conv1d(40, width, 5, stride=2, padding=2)
        self.norm = nn.LayerNorm(width)

    def forward(self, frames):
        hidden = self.convolution(frames).transpose(1, 2)
        return functional.gelu(self.norm(hidden), approximate="tanh")


class Recogniser(nn.Module):
    def __init__(self, width=128, symbols=64):
        super().__init__()
        self.frontend = Frontend(width)
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, symbols)

    def forward(self, frames):
        hidden = self.frontend(frames)
        hidden, _ = self.recurrent(hidden)
        logits = self.head(hidden)
        best = logits.argmax(dim=-1)
        kept = torch.ones_like(best, dtype=torch.bool)
        kept[:, 1:] = best[:, 1:] != best[:, :-1]
        return logits, best * kept
