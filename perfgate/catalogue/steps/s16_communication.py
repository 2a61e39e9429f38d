"""Step 16: communication between devices."""

from __future__ import annotations

from perfgate.catalogue.card import Metric, StepCard, Text
from perfgate.catalogue.sources import TRACE

CARD = StepCard(
    number=16,
    slug="communication",
    title=Text("Communication between devices", "设备间通信"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
    metrics=(
        Metric(
            name="counters.collectives",
            title=Text("collectives per call"),
            unit="1",
            better="lower",
            kind="exact",
            step=16,
            explanation=Text("Collective operations that one call takes part in."),
            source=TRACE,
        ),
    ),
)
