"""Step 21: counts the shapes of a workload."""

from __future__ import annotations

from perfgate.catalogue.lookup import card
from perfgate.document.run import Value
from perfgate.measuring.checklist.step import StepContext, StepOutcome


class ToyStep:
    card = card(21)

    def measure(self, context: StepContext) -> StepOutcome:
        shapes = len(context.workload.shapes)
        return StepOutcome(values=[Value(metric="toy.shapes", value=float(shapes))])


STEP = ToyStep()
