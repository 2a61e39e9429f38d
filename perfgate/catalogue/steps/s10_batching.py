"""Step 10: continuous batching."""

from __future__ import annotations

from perfgate.catalogue.card import StepCard, Text

CARD = StepCard(
    number=10,
    slug="batching",
    title=Text("Continuous batching", "连续批处理"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
)
