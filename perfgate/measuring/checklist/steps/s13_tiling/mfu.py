"""The share of the device's peak (MFU) that the products and convolutions of a recording reach, per operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfgate.document.message import Message
from perfgate.measuring.checklist.outcome import StepOutcome
from perfgate.trace.model.flops import (
    ARITHMETICS,
    CONVOLUTION,
    PRODUCT,
    Arithmetic,
    arithmetic,
    flops,
)
from perfgate.trace.model.kernel_table import KernelTable

# Operations of one cube core in a cycle: a block of 16 x 16 x 16 is multiplied and added, in eight bits one of
# 16 x 32 x 16 (msprof-analyze 26.2, operator_mfu/chip_peak_flops.py). It names none for 32 bits.
_A_CYCLE: Mapping[Arithmetic, int] = {
    "float16": 2 * 16 * 16 * 16,
    "int8": 2 * 16 * 32 * 16,
}


@dataclass
class ProductUse:
    """All kernels of one type in one arithmetic: their time, and the time and FLOPs of kernels with known work."""

    op: str
    arithmetic: Arithmetic | None
    total_ns: int = 0
    known_ns: int = 0
    flops: int = 0
    known: int = 0

    def mfu(self, peaks: Mapping[Arithmetic, float]) -> float | Message:
        """The share of the peak, or why it is not known."""
        if self.arithmetic is None or not self.known_ns:
            return Message("operators.flops-unknown")
        if self.arithmetic not in peaks:
            return Message("operators.peak-unknown", {"arithmetic": self.arithmetic})
        return self.flops / (self.known_ns / 1e9) / peaks[self.arithmetic]


def product_uses(table: KernelTable) -> list[ProductUse]:
    """The products and convolutions of a table, most time first."""
    uses: dict[tuple[str, Arithmetic | None], ProductUse] = {}
    for kernel, number, total_ns in table.of_types(PRODUCT, CONVOLUTION).alike():
        key = kernel.type or kernel.name, arithmetic(kernel)
        use = uses.setdefault(key, ProductUse(*key))
        use.total_ns += total_ns
        work = flops(kernel)
        if work is not None:
            use.known_ns += total_ns
            use.flops += work * number
            use.known += number
    return sorted(uses.values(), key=lambda use: (-use.total_ns, use.op))


def known_peaks(cycles: float | None, outcome: StepOutcome) -> dict[Arithmetic, float]:
    """FLOP/s of the device: the project's own setting, else the peak of all cube cores, which make ``cycles`` a second."""
    peaks: dict[Arithmetic, float] = {}
    for kind in ARITHMETICS:
        own = outcome.limit(f"tiling.peak.{kind}")
        if own > 0:
            peaks[kind] = own
        elif cycles and kind in _A_CYCLE:
            peaks[kind] = cycles * _A_CYCLE[kind]
    return peaks
