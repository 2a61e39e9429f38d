"""What a device does at best: the two numbers of a roofline, measured by a short matrix product and a copy.

Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009. Data sheets promise more than a process gets that is pinned to one
core or shares its memory, so both are measured where the call runs, with the same threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from perfgate.document.run import Roof, Work
from perfgate.measuring.counting.tally import Dispatched
from perfgate.measuring.devices.device import Device

# A product of this size is far beyond every balance of a machine: 85 operations a byte.
_MATRIX = 512
# 32 MiB of float32 and as much for its copy: more than the caches of common hosts hold for one core.
_COPIED = 1 << 23
# Kinds of work kept per shape.
MAX_WORK = 200
_SECONDS_EACH = 0.1
_MOST_TIMES = 50
# Devices whose tensors are torch's. One of the tests has none, and no roof.
_KINDS = frozenset({"cpu", "cuda", "npu"})


def measure_roof(device: Device) -> Roof | None:
    """The device's roof, None where nothing can be measured. Takes 0.3 s."""
    if device.kind not in _KINDS:
        return None
    import torch

    place = device.handle()
    with torch.inference_mode():
        matrix = torch.ones(_MATRIX, _MATRIX, device=place)
        product = torch.empty_like(matrix)
        product_seconds = _fastest(lambda: torch.mm(matrix, matrix, out=product), device)
        source = torch.ones(_COPIED, device=place)
        copy = torch.ones_like(source)
        copy_seconds = _fastest(lambda: copy.copy_(source), device)
    return Roof(
        flops_per_second=2 * _MATRIX**3 / product_seconds,
        bytes_per_second=2 * source.numel() * source.element_size() / copy_seconds,
    )


def work_of(order: Iterable[Dispatched]) -> list[Work]:
    """The work of a call's operators, equal ones together, the heaviest first; views do none."""
    counts = Counter((did.flops or 0, did.moved_bytes) for did in order if did.moved_bytes or did.flops)
    heaviest = sorted(counts.items(), key=lambda item: (-item[0][0] * item[1], -item[0][1] * item[1], item[0]))
    return [Work(flops=flops, moved_bytes=moved, count=count) for (flops, moved), count in heaviest[:MAX_WORK]]


def _fastest(work: Callable[[], Any], device: Device) -> float:
    """The seconds of the fastest of several times, after one that pays for the first use."""
    work()
    device.synchronize()
    until = device.clock_ns() + _SECONDS_EACH * 1e9
    fastest = float("inf")
    for _ in range(_MOST_TIMES):
        began = device.clock_ns()
        work()
        device.synchronize()
        ended = device.clock_ns()
        fastest = min(fastest, ended - began)
        if ended > until:
            break
    return max(fastest, 1.0) / 1e9
