"""The benchmarks are scripts beside the package, so their folder is put on the path as running one of them does."""

from __future__ import annotations

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
GATE = BENCHMARKS / "gate"
sys.path[:0] = [str(GATE), str(BENCHMARKS / "trend"), str(BENCHMARKS / "accelerator")]
