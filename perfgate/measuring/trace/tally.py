"""What was counted while one call ran."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Optional


@dataclass
class OpTally:
    """What one call did with one operator.

    ``copies`` may exceed ``count``: a foreach copy is one operator over many tensors. A ``view`` only describes memory
    anew (transpose, slice): it launches nothing.
    """

    view: bool = False
    count: int = 0
    copies: int = 0
    copy_bytes: int = 0
    noncontiguous_copies: int = 0
    lines: Counter[str] = field(default_factory=Counter)

    def line(self) -> Optional[str]:
        """Return the line it most often comes from; of equally frequent ones the one dispatched first."""
        return self.lines.most_common(1)[0][0] if self.lines else None


@dataclass
class CallTally:
    """What one call did, operator by operator, in the order they were first seen."""

    ops: dict[str, OpTally] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)

    def values(self) -> dict[str, int]:
        """Return the counters by metric name."""
        ops = self.ops.values()
        return {
            "counters.framework_ops": sum(op.count for op in ops if not op.view),
            "counters.copies": sum(op.copies for op in ops),
            "counters.copy_bytes": sum(op.copy_bytes for op in ops),
            "counters.noncontiguous_copies": sum(op.noncontiguous_copies for op in ops),
            **self.memory,
        }

    def counts(self) -> dict[str, int]:
        """Return the derived metric ``ops.count:NAME`` of every operator."""
        return {f"ops.count:{name}": op.count for name, op in self.ops.items()}
