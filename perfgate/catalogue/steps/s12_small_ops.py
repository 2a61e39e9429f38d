"""Step 12: small operators."""

from __future__ import annotations

from perfgate.catalogue.card import Metric, StepCard, Text
from perfgate.catalogue.sources import DISPATCH, TRACE

CARD = StepCard(
    number=12,
    slug="small_ops",
    title=Text("Small operators", "小算子"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
    metrics=(
        Metric(
            name="counters.framework_ops",
            title=Text("framework ops per call"),
            unit="1",
            better="lower",
            kind="exact",
            step=12,
            explanation=Text(
                "How many framework operators with work to do one call dispatches. Each costs a launch; a loop of"
                " small ops shows here first. Views (transpose, slice, reshape without a copy) launch nothing and"
                " are not counted."
            ),
            source=DISPATCH,
        ),
        Metric(
            name="counters.kernels",
            title=Text("kernel launches per call"),
            unit="1",
            better="lower",
            kind="exact",
            step=12,
            explanation=Text(
                "How many kernels one call runs on the device, those of collectives apart. Each costs a launch "
                "and a gap. Only where the profiler shows them."
            ),
            source=TRACE,
        ),
        Metric(
            name="counters.recorded_ops",
            title=Text("recorded framework ops per step"),
            unit="1",
            better="lower",
            kind="exact",
            step=12,
            explanation=Text(
                "Framework operators in one step of a recording of a CPU, views and operators inside operators "
                "included. Only of recordings made elsewhere, in which nothing else can be counted."
            ),
            source=TRACE,
        ),
    ),
)
