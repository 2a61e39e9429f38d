"""Step 11: preprocessing."""

from __future__ import annotations

from perfgate.catalogue.card import StepCard, Text

CARD = StepCard(
    number=11,
    slug="preprocess",
    title=Text("Preprocessing", "预处理"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
)
