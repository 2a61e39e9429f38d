"""Step 4: operators that take the most time."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, StepCard, Text
from perfgate.catalogue.sources import DISPATCH, TRACE

CARD = StepCard(
    number=4,
    slug="top_ops",
    title=Text("Operators that take the most time", "耗时最多的算子"),
    question=Text("Which operators take the time, and how often does one call dispatch them?"),
    how=Text(
        "Self time by operator in a recorded trace of steady calls; counters come from single calls, repeated, "
        "and count as exact only when every repetition gave the same number."
    ),
    remedy=Text(
        "Copies and reshapes near the top are layout changes: keep one layout through the model. Many calls of "
        "one small operator are a loop: do it once on the whole tensor."
    ),
    metrics=(
        Metric(
            name="ops.coverage",
            title=Text("attributed share"),
            unit="1",
            better="higher",
            kind="noisy",
            step=4,
            explanation=Text("Share of the busy time that the operator table explains."),
            source=TRACE,
            share=True,
        ),
        Metric(
            name="ops.share",
            title=Text("share of an op class"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=4,
            explanation=Text("Share of the busy time spent in one class of operators, collectives apart."),
            source=TRACE,
            share=True,
        ),
        Metric(
            name="ops.time",
            title=Text("operator time"),
            unit="s",
            better="lower",
            kind="noisy",
            step=4,
            explanation=Text("Self time of one operator per call."),
            source=TRACE,
        ),
        Metric(
            name="counters.fallbacks",
            title=Text("ops run on the host per call"),
            unit="1",
            better="lower",
            kind="exact",
            step=4,
            explanation=Text(
                "Framework operators that the device has no kernel for, so that their inputs go to the host, and "
                "their results back, in every call."
            ),
            source="the framework's own warnings, and " + DISPATCH,
        ),
    ),
    limits=(
        Limit("ops.coverage.warning", 0.98, Text("the checklist's own mark")),
        Limit("ops.share.conv_matmul.info", 0.6, Text("the checklist's own mark")),
        Limit("ops.share.copy.severe", 0.3, Text("the checklist's own mark")),
        Limit("ops.share.reshape.warning", 0.2, Text("the checklist's own mark")),
        Limit("ops.share.softmax.warning", 0.15, Text("the checklist's own mark")),
    ),
)
