"""The record by which users describe a workload: about ten lines of their own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SLA:
    """The workload's promise, which the gate enforces.

    Attributes:
        p99: Seconds that at most 1 of 100 calls may exceed.
        rate: Calls per second for which ``p99`` holds, sent whether or not earlier calls are done. Without it, calls are made
            one after the other.

    Example:
        promised = SLA(p99=0.05, rate=50)
    """

    p99: float | None = None
    rate: float | None = None


@dataclass(frozen=True)
class Traffic:
    """How requests arrive, for steps 1 and 10. One request is one item. Give ``rate`` or ``arrivals``.

    Attributes:
        rate: Requests per second, with gamma-distributed gaps of shape ``burstiness``.
        arrivals: Recorded times of requests in seconds, in rising order.
        burstiness: 1 is a Poisson process, a smaller value has more bursts, a larger one is more even.
        max_wait: Seconds that a batcher may hold a request back to fill its batch. Default: the duration of a call of the
            configured batch.

    Example:
        steady = Traffic(rate=200)
        bursts = Traffic(rate=200, burstiness=0.5, max_wait=0.01)
        recorded = Traffic(arrivals=[0.0, 0.012, 0.013, 0.3])
    """

    rate: float | None = None
    arrivals: Sequence[float] = ()
    burstiness: float = 1.0
    max_wait: float | None = None


@dataclass(frozen=True)
class Workload:
    """A model, its inputs, and how one call is made.

    Attributes:
        build: ``build(device)`` returns the model on that device.
        inputs: ``inputs(batch, seed, **shape)`` returns one batch on the host: a tensor, a tuple of positional arguments, or a
            dict of keyword arguments.
        call: ``call(model, inputs)`` makes one call and returns its output. Default: ``model(*inputs)``.
        train_step: ``train_step(model, inputs)`` makes one training iteration, with gradients on. If given, it is the call.
        preprocess: ``preprocess(raw)`` turns what ``inputs`` returned into what the model takes, on the host. A mapping of
            names to functions is run in its order, and each of these stages is timed separately.
        preprocess_on_device: ``preprocess_on_device(raw)`` does the same work on a raw batch that is on the device.
        check: ``check(output, inputs)`` raises an exception or returns False if the output is wrong.
        reference: Does the same work natively and is called on the inputs as the model is. Step 4 compares the two.
        shapes: Names of shapes and their keyword arguments for ``inputs``. Include the extremes: each shape is measured and
            judged.
        batch: Items in one call.
        batch_sizes: The batch sizes that step 5 may try. Empty: powers of two up to 64.
        sla: What the workload promises.
        traffic: How its requests arrive.
        ranks: The number of processes of one machine that the model is spread over in use. Step 16 measures their collectives;
            0 means one for each accelerator.
        grad: False: calls run under ``torch.inference_mode()``. True: the code decides, so that a lost ``no_grad`` shows.
        host_build: On an accelerator perfgate builds the model once on the host, by ``build(torch.device("cpu"))``, and every
            process copies it to the device, if it then equals the result of ``build(device)``. False: every process builds.

    Example:
        import torch


        def build(device):
            return torch.nn.Linear(128, 64).eval().to(device)


        def inputs(batch, seed, length):
            return torch.randn(batch, length, 128, generator=torch.Generator().manual_seed(seed))


        def check(output, inputs):
            assert output.isfinite().all()


        encoder = Workload(
            build=build, inputs=inputs, check=check, batch=8, shapes={"typical": {"length": 64}, "one": {"length": 1}}
        )
    """

    build: Callable[[Any], Any]
    inputs: Callable[..., Any]
    call: Callable[[Any, Any], Any] | None = None
    train_step: Callable[[Any, Any], Any] | None = None
    preprocess: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]] | None = None
    preprocess_on_device: Callable[[Any], Any] | None = None
    check: Callable[[Any, Any], Any] | None = None
    reference: Callable[..., Any] | None = None
    shapes: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: {"default": {}}
    )
    batch: int = 1
    batch_sizes: Sequence[int] = ()
    sla: SLA = field(default_factory=SLA)
    traffic: Traffic | None = None
    ranks: int = 0
    grad: bool = False
    host_build: bool = True
