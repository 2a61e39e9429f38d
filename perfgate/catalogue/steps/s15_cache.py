"""Step 15: cache sensitivity."""

from __future__ import annotations

from perfgate.catalogue.card import Metric, StepCard, Text
from perfgate.catalogue.sources import DISPATCH

CARD = StepCard(
    number=15,
    slug="cache",
    title=Text("Cache sensitivity", "缓存敏感性"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
    metrics=(
        Metric(
            name="counters.repeat_saves",
            title=Text("ops saved by a repeated input"),
            unit="1",
            better="lower",
            kind="exact",
            step=15,
            explanation=Text(
                "How many framework operators fewer a call dispatches when it gets an input again that it has "
                "just seen. More than 0 means that results are cached by input: a benchmark that repeats its "
                "inputs then shows a speed that new inputs never get."
            ),
            source="one call on a never-used input against the same call again, over " + DISPATCH,
        ),
    ),
)
