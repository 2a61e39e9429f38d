"""One denoising step."""

import math

import torch
from torch import nn
from torch.nn import functional


def embedding(times, width):
    frequencies = torch.exp(-math.log(10000) * torch.arange(width // 2) / (width // 2))
    angles = times[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.convolution = nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(64, width)

    def forward(self, images, times):
        hidden = self.convolution(functional.silu(self.norm(images)))
        return images + hidden + self.time(times)[:, :, None, None]


class Denoiser(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.leave = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, batch):
        images, times = batch
        times = embedding(times, 64)
        hidden = self.enter(images)
        for block in self.blocks:
            hidden = block(hidden, times)
        return self.leave(hidden)
