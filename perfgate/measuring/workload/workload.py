"""The record a user fills in to say what is measured: about ten lines of their own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SLA:
    """What the workload promises. ``p99`` is the most seconds 99 of 100 calls may take.

    With ``rate`` it holds for calls that come in at so many a second, whether or not earlier ones are done.
    """

    p99: float | None = None
    rate: float | None = None


@dataclass(frozen=True)
class Traffic:
    """How requests come in; a request is one item.

    Either ``rate``, requests a second with gamma-distributed gaps of shape ``burstiness`` (1: a Poisson process, below 1: more
    bursts, above: more even), or ``arrivals``, recorded times of requests in seconds, in rising order. ``max_wait`` is how
    many seconds a batcher may hold a request back to fill its batch; where it is not given, as many as a call of the configured
    batch takes.
    """

    rate: float | None = None
    arrivals: Sequence[float] = ()
    burstiness: float = 1.0
    max_wait: float | None = None


@dataclass(frozen=True)
class Workload:
    """A model, its inputs, and how one call is made.

    build(device) returns the model on that device. inputs(batch, seed, **shape) returns one batch on the host: a tensor, a
    tuple of positional arguments or a dict of keyword arguments. Optional:

    - ``call(model, inputs)``: one call, where it is not ``model(*inputs)``; its result is what ``check`` sees.
    - ``train_step(model, inputs)``: a training iteration; given, it is what one call does, with gradients on.
    - ``preprocess(raw)``: turns what ``inputs`` returned into what the model takes, on the host; or a mapping of names to
      functions, run in that order, whose times are then told apart.
    - ``preprocess_on_device(raw)``: the same work, given the raw batch on the device.
    - ``check(output, inputs)``: raises, or returns False, when the output is wrong.
    - ``reference``: the same work done natively, called on the inputs as the model is; step 4 compares the two.
    - ``shapes``: name -> keyword arguments for ``inputs``, the extremes included, e.g. ``{"long": {"length": 512}}``.
    - ``batch``: items in one call; ``batch_sizes``: those the batch sweep may use (empty: powers of two up to 64).
    - ``sla``: what the workload promises; ``traffic``: how its requests come in.
    - ``ranks``: how many processes of this machine it is spread over where it is used, by which collectives are measured (0: as
      many as there are accelerators).
    - ``grad``: True leaves it to the code whether gradients are recorded, so that a lost ``no_grad`` shows; else calls run
      under ``torch.inference_mode()``.
    """

    build: Callable[[Any], Any]
    inputs: Callable[..., Any]
    call: Callable[[Any, Any], Any] | None = None
    train_step: Callable[[Any, Any], Any] | None = None
    preprocess: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]] | None = None
    preprocess_on_device: Callable[[Any], Any] | None = None
    check: Callable[[Any, Any], Any] | None = None
    reference: Callable[..., Any] | None = None
    shapes: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"default": {}})
    batch: int = 1
    batch_sizes: Sequence[int] = ()
    sla: SLA = field(default_factory=SLA)
    traffic: Traffic | None = None
    ranks: int = 0
    grad: bool = False
