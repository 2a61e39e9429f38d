"""Step 18: deep profile."""

from __future__ import annotations

from perfgate.catalogue.card import StepCard, Text

CARD = StepCard(
    number=18,
    slug="profile",
    title=Text("Deep profile", "深度剖析"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
)
