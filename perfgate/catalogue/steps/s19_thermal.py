"""Step 19: temperature, clock and power."""

from __future__ import annotations

from perfgate.catalogue.card import StepCard, Text

CARD = StepCard(
    number=19,
    slug="thermal",
    title=Text("Temperature, clock and power", "温度、频率与功耗"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
)
