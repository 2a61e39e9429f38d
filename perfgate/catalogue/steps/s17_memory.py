"""Step 17: memory."""

from __future__ import annotations

from perfgate.catalogue.card import Metric, StepCard, Text

CARD = StepCard(
    number=17,
    slug="memory",
    title=Text("Memory", "内存"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
    metrics=(
        Metric(
            name="counters.allocations",
            title=Text("allocations per call"),
            unit="1",
            better="lower",
            kind="exact",
            step=17,
            explanation=Text("Blocks of memory one call takes from the allocator."),
            source="the device's allocator events over single steady calls",
        ),
        Metric(
            name="memory.peak",
            title=Text("peak memory of a call"),
            unit="B",
            better="lower",
            kind="exact",
            step=17,
            explanation=Text("The most memory one call holds on top of the model and its inputs."),
            source="running sum of allocator events over single steady calls",
        ),
        Metric(
            name="memory.kept",
            title=Text("memory a call leaves behind"),
            unit="B",
            better="lower",
            kind="exact",
            step=17,
            explanation=Text(
                "Bytes by which every steady call raises what the process holds: a leak. The smallest growth of "
                "several consecutive calls, garbage collected after each, so that a buffer that is replaced or "
                "grows now and then is none. Memory of the framework's allocator only."
            ),
            source="allocator events over consecutive steady calls: held after a call - held before it",
        ),
    ),
)
