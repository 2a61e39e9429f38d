"""The models that causes are planted into; every line that a plant replaces ends in a mark of its own."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

WIDTH = 192
FEATURES = 2 * WIDTH  # plant: hidden size


class Block(nn.Module):
    """Two linear layers around an activation, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, FEATURES)
        self.down = nn.Linear(FEATURES, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows, shape (rows, WIDTH), after one block."""
        hidden = self.up(rows)
        hidden = functional.gelu(hidden)  # plant: activation
        return self.norm(rows + self.down(hidden))


class Encoder(nn.Module):
    """Three blocks, then an average over neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.last = nn.LayerNorm(WIDTH)
        self.seen: list[torch.Tensor] = []

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the encoded rows, shape (rows, WIDTH)."""
        for block in self.blocks:
            rows = block(rows)
        rows = functional.avg_pool1d(rows, 3, stride=1, padding=1)  # plant: kernel
        rows = rows + 1  # plant: tail
        return self.last(rows)


class Mixed(nn.Module):
    """States of a beam search, kept and reordered in bfloat16: half the bytes, which every CPU copies faster.

    A matrix product would not do: a CPU without bfloat16 arithmetic is several times slower at it under autocast.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = nn.Linear(WIDTH, 32)
        self.register_buffer("order", torch.arange(64).flip(0))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the states of 64 rows after six reorderings, shape (64, WIDTH), in float32."""
        with torch.autocast("cpu", dtype=torch.bfloat16):  # plant: autocast
            states = self.state(rows).repeat(1, 256)
            for _ in range(6):
                states = states.index_select(0, self.order)
            return states[:, :WIDTH].float()


class Images(nn.Module):
    """Convolutions over images, which are fastest where these stand in channels_last."""

    def __init__(self) -> None:
        super().__init__()
        convolutions = (nn.Conv2d(channels, 32, 3, padding=1) for channels in (16, 32))
        self.features = nn.Sequential(
            *(part for one in convolutions for part in (one, nn.ReLU(), nn.AvgPool2d(3, 1, 1)))
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return one number a channel, shape (batch, 32)."""
        images = self.features(images.contiguous(memory_format=torch.channels_last))  # plant: layout
        return images.mean((2, 3))


class Shared(nn.Module):
    """The encoder whose result is summed over all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the sum over the ranks."""
        rows = self.encoder(rows)
        torch.distributed.all_reduce(rows)  # plant: collective
        return rows
