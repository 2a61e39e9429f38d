"""Step 14: memory layout of tensors."""

from __future__ import annotations

from perfgate.catalogue.card import Metric, StepCard, Text
from perfgate.catalogue.sources import DISPATCH

CARD = StepCard(
    number=14,
    slug="contiguity",
    title=Text("Memory layout of tensors", "张量内存布局"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
    metrics=(
        Metric(
            name="counters.copies",
            title=Text("copies per call"),
            unit="1",
            better="lower",
            kind="exact",
            step=14,
            explanation=Text(
                "Operators that copy a whole tensor: clone, contiguous, copy_, dtype and device conversions."
            ),
            source=DISPATCH,
        ),
        Metric(
            name="counters.copy_bytes",
            title=Text("bytes copied per call"),
            unit="B",
            better="lower",
            kind="exact",
            step=14,
            explanation=Text("Bytes written by those copies."),
            source=DISPATCH,
        ),
        Metric(
            name="counters.noncontiguous_copies",
            title=Text("non-contiguous copies per call"),
            unit="1",
            better="lower",
            kind="exact",
            step=14,
            explanation=Text("Copies that change the memory layout: source and result differ in strides."),
            source=DISPATCH,
        ),
    ),
)
