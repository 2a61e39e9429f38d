"""The record a user fills in to say what is measured: about ten lines of their own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional


@dataclass(frozen=True)
class SLA:
    """What the workload promises. ``p99`` is the most seconds 99 of 100 calls may take."""

    p99: Optional[float] = None


@dataclass(frozen=True)
class Workload:
    """A model, its inputs, and how one call is made.

    build(device) returns the model on that device. inputs(batch, seed, **shape) returns one batch on the host: a tensor, a
    tuple of positional arguments or a dict of keyword arguments. Optional:

    - ``call(model, inputs)``: one call, where it is not ``model(*inputs)``; its result is what ``check`` sees.
    - ``train_step(model, inputs)``: a training iteration; given, it is what one call does, with gradients on.
    - ``preprocess(raw)``: turns what ``inputs`` returned into what the model takes, on the host.
    - ``check(output, inputs)``: raises, or returns False, when the output is wrong.
    - ``shapes``: name -> keyword arguments for ``inputs``, the extremes included, e.g. ``{"long": {"length": 512}}``.
    - ``batch``: items in one call; ``batch_sizes``: those the batch sweep may use (empty: powers of two up to 64).
    - ``sla``: what the workload promises.
    """

    build: Callable[[Any], Any]
    inputs: Callable[..., Any]
    call: Optional[Callable[[Any, Any], Any]] = None
    train_step: Optional[Callable[[Any, Any], Any]] = None
    preprocess: Optional[Callable[[Any], Any]] = None
    check: Optional[Callable[[Any, Any], Any]] = None
    shapes: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"default": {}})
    batch: int = 1
    batch_sizes: Sequence[int] = ()
    sla: SLA = field(default_factory=SLA)
