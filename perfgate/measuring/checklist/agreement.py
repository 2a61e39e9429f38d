"""How far two outputs of the same call are from each other: a faster way that answers differently is no gain."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from perfgate.measuring.devices.batches import tensors


@dataclass(frozen=True)
class Agreement:
    """The largest absolute difference, the largest relative to the reference's largest value, and the smallest cosine.

    ``not_finite`` is how many elements are NaN or infinite in the second output and not in the first; ``comparable`` is
    False where the outputs differ in number, shape or kind of their tensors, and nothing else is then said.
    """

    comparable: bool
    absolute: float = 0.0
    relative: float = 0.0
    cosine: float = 1.0
    not_finite: int = 0

    def within(self, tolerance: float) -> bool:
        """Return whether the outputs agree to a relative tolerance, without new NaN or infinity."""
        return self.comparable and not self.not_finite and self.relative <= tolerance


def agreement(reference: Any, other: Any) -> Agreement:
    """Compare two outputs, each a tensor or a tuple, list or dict of tensors, in double precision on the host."""
    first, second = list(tensors(reference)), list(tensors(other))
    if not first or len(first) != len(second):
        return Agreement(comparable=False)
    if any(one.shape != another.shape for one, another in zip(first, second)):
        return Agreement(comparable=False)
    return _worst(_agreement_of(one, another) for one, another in zip(first, second))


def _agreement_of(reference: Any, other: Any) -> Agreement:
    import torch

    first, second = reference.detach().cpu().double().flatten(), other.detach().cpu().double().flatten()
    both = torch.isfinite(first) & torch.isfinite(second)
    lost = int((torch.isfinite(first) & ~torch.isfinite(second)).sum())
    first, second = first[both], second[both]
    if not first.numel():
        return Agreement(comparable=True, not_finite=lost)
    absolute = float((first - second).abs().max())
    largest = float(first.abs().max())
    norms = float(first.norm() * second.norm())
    return Agreement(
        comparable=True,
        absolute=absolute,
        relative=absolute / largest if largest else (math.inf if absolute else 0.0),
        cosine=float(first @ second) / norms if norms else 1.0,
        not_finite=lost,
    )


def _worst(found: Iterable[Agreement]) -> Agreement:
    each = list(found)
    return Agreement(
        comparable=True,
        absolute=max(one.absolute for one in each),
        relative=max(one.relative for one in each),
        cosine=min(one.cosine for one in each),
        not_finite=sum(one.not_finite for one in each),
    )
