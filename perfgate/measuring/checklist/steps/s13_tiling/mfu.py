"""The share of the device's peak (MFU) that the products and convolutions of a recording reach, per operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfgate.document.message import Message
from perfgate.document.run import Value
from perfgate.measuring.checklist.limits import Limits, limit
from perfgate.measuring.checklist.values import missing
from perfgate.trace.model.flops import ARITHMETICS, CONVOLUTION, PRODUCT, Arithmetic, arithmetic, flops
from perfgate.trace.model.kernel_table import KernelTable

# Operations of one cube core in a cycle: a block of 16 x 16 x 16 is multiplied and added, in eight bits one of
# 16 x 32 x 16 (msprof-analyze 26.2, operator_mfu/chip_peak_flops.py). It names none for 32 bits.
_A_CYCLE: Mapping[Arithmetic, int] = {"float16": 2 * 16 * 16 * 16, "int8": 2 * 16 * 32 * 16}
_UTILIZATION = ("cube_utilization(%)", "aic_total_cycles")


@dataclass(frozen=True)
class ProductUse:
    """All kernels of one type in one arithmetic: their time, and the time and FLOPs of those with known work."""

    op: str
    arithmetic: Arithmetic | None
    total_ns: int = 0
    known_ns: int = 0
    flops: int = 0
    known: int = 0

    def share_of(self, peak: float) -> float:
        """The part of a peak in FLOP/s that the kernels of known work reach."""
        return self.flops / (self.known_ns / 1e9) / peak

    def value(self, peaks: Mapping[Arithmetic, float], labels: Mapping[str, str]) -> Value:
        """The share, or why it is not known."""
        named = {**labels, "op": self.op}
        if self.arithmetic is None or not self.known_ns:
            return missing("tiling.mfu", Message("operators.flops-unknown"), named)[0]
        named["arithmetic"] = self.arithmetic
        if self.arithmetic not in peaks:
            reason = Message("operators.peak-unknown", {"arithmetic": self.arithmetic})
            return missing("tiling.mfu", reason, named)[0]
        return Value(metric="tiling.mfu", value=self.share_of(peaks[self.arithmetic]), count=self.known, labels=named)


def product_uses(table: KernelTable) -> list[ProductUse]:
    """The products and convolutions of a table, most time first."""
    uses: dict[tuple[str, Arithmetic | None], ProductUse] = {}
    for kernel, number, total_ns in table.of_types(PRODUCT, CONVOLUTION).alike():
        key, work = (kernel.type or kernel.name, arithmetic(kernel)), flops(kernel)
        use = uses.get(key, ProductUse(*key))
        uses[key] = ProductUse(
            *key,
            total_ns=use.total_ns + total_ns,
            known_ns=use.known_ns + (0 if work is None else total_ns),
            flops=use.flops + (work or 0) * number,
            known=use.known + (0 if work is None else number),
        )
    return sorted(uses.values(), key=lambda use: (-use.total_ns, use.op))


def known_peaks(kernels: KernelTable, cube_clock: float | None, limits: Limits) -> dict[Arithmetic, float]:
    """FLOP/s of the device: the project's own setting, else the peak of all cube cores if their clock is known.

    ``cube_clock`` is how many cycles all of them make in a second together; without it the counters imply it.
    """
    cycles = cube_clock or _implied_cube_clock(kernels)
    peaks: dict[Arithmetic, float] = {}
    for kind in ARITHMETICS:
        own = limit(f"tiling.peak.{kind}", limits)
        if own > 0:
            peaks[kind] = own
        elif cycles and kind in _A_CYCLE:
            peaks[kind] = cycles * _A_CYCLE[kind]
    return peaks


def _implied_cube_clock(kernels: KernelTable) -> float | None:
    """Cycles of all cube cores in a second: msprof's cube_utilization is cycles / (frequency * cores * duration)."""
    counters = kernels.counters.columns(*_UTILIZATION)
    if len(counters) < len(_UTILIZATION):
        return None
    percent, cycles = (counters[name] for name in _UTILIZATION)
    told = (percent > 0) & (cycles > 0) & (kernels.duration > 0)
    implied = cycles[told] / (percent[told] / 100 * kernels.duration[told] / 1e9)
    return float(np.median(implied)) if implied.size else None
