"""Step 6: operator fusion."""

from __future__ import annotations

from perfgate.catalogue.card import StepCard, Text

CARD = StepCard(
    number=6,
    slug="fusion",
    title=Text("Operator fusion", "算子融合"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
)
