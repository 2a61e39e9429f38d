"""Step 13: tiling and shape alignment."""

from __future__ import annotations

from perfgate.catalogue.card import StepCard, Text

CARD = StepCard(
    number=13,
    slug="tiling",
    title=Text("Tiling and shape alignment", "分块与形状对齐"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
)
