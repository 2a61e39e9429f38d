"""Step 7: format conversions."""

from __future__ import annotations

from perfgate.catalogue.card import Metric, StepCard, Text
from perfgate.catalogue.sources import TRACE

CARD = StepCard(
    number=7,
    slug="format",
    title=Text("Format conversions", "格式转换"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
    metrics=(
        Metric(
            name="counters.format_conversions",
            title=Text("format conversions per call"),
            unit="1",
            better="lower",
            kind="exact",
            step=7,
            explanation=Text(
                "Kernels that only bring a tensor into another layout or format: TransData between NCHW and "
                "NC1HWC0 on Ascend, nchwToNhwc and its like on CUDA. Only where the profiler shows kernels."
            ),
            source=TRACE,
        ),
    ),
)
