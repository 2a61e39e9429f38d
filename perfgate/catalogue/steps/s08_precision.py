"""Step 8: mixed precision."""

from __future__ import annotations

from perfgate.catalogue.card import Metric, StepCard, Text
from perfgate.catalogue.sources import DISPATCH

CARD = StepCard(
    number=8,
    slug="precision",
    title=Text("Mixed precision", "混合精度"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
    metrics=(
        Metric(
            name="counters.low_precision_ops",
            title=Text("low-precision ops per call"),
            unit="1",
            better="neutral",
            kind="exact",
            step=8,
            explanation=Text(
                "Framework operators whose result is in less than 32-bit floating point (float16, bfloat16, "
                "float8, quantized), and float32 matrix products where the program allowed the library to round "
                "their inputs. Neither good nor bad: it may be faster, and the output loses digits. A rise warns,"
                " with operator and line, unless the workload has a check of its output and that passes."
            ),
            source="dtypes of results, over " + DISPATCH,
        ),
    ),
)
