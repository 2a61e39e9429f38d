"""Lengths of prompts and answers, drawn the same for the same seed."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

from perfgate.load_settings import Length, Lengths


def draw_lengths(length: Length, *, count: int, seed: str) -> list[int]:
    """Draw ``count`` lengths: all the same, one of a list each, evenly within bounds, or lognormal around a median."""
    if isinstance(length, int):
        return [length] * count
    generator = random.Random(seed)
    return [_length(length, generator.random()) for _ in range(count)]


def _length(length: list[int] | Lengths, share: float) -> int:
    """The length below which this share of all lengths lies."""
    if isinstance(length, list):
        return length[int(share * len(length))]
    if length.median is None or length.sigma is None:
        return length.least + int(share * (length.most - length.least + 1))
    drawn = length.median * math.exp(
        length.sigma * NormalDist().inv_cdf(min(max(share, 1e-12), 1 - 1e-12))
    )
    return min(length.most, max(length.least, round(drawn)))
