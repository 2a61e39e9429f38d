"""Batches of a rank, the same in every run."""

from __future__ import annotations

from collections.abc import Iterator

import torch

STEPS, BATCH, LENGTH = 10_000, 8, 32


def batches(rank: int, width: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        yield augmented(torch.randn(BATCH, LENGTH, width, generator=generator))


def augmented(batch: torch.Tensor) -> torch.Tensor:
    """Every sequence beginning at its largest value."""
    starts = batch.abs().sum(-1).argmax(-1)
    return torch.stack([sequence.roll(-int(start), 0) for sequence, start in zip(batch, starts)])
