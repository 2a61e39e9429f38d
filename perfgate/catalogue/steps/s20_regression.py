"""Step 20: regression gate."""

from __future__ import annotations

from perfgate.catalogue.card import Metric, StepCard, Text

CARD = StepCard(
    number=20,
    slug="regression",
    title=Text("Regression gate", "回归门禁"),
    question=Text("Is the change slower, heavier or wrong, compared with its base on this machine?"),
    how=Text(
        "Exact counters are compared first. Time is compared over pairs of processes of base and head that take "
        "turns on the same core, by an exact signed-rank test corrected for all metrics together. Base against "
        "base in the same job gives the noise floor."
    ),
    remedy=Text(
        "See the Why part of the comment: it names the operator and the line. `perfgate local` gives the same "
        "verdict before pushing."
    ),
    metrics=(
        Metric(
            name="correctness",
            title=Text("correctness check"),
            unit="1",
            better="neutral",
            kind="exact",
            step=20,
            explanation=Text(
                "The workload's own check of its output. A check that fails fails the gate: a faster wrong model "
                "never passes."
            ),
            source="the workload's `check`",
        ),
        Metric(
            name="correctness.signature",
            title=Text("output signature"),
            unit="1",
            better="neutral",
            kind="exact",
            step=20,
            explanation=Text(
                "Structure, shapes and dtypes of what a call returns, e.g. (float32[8,48],). A change that only "
                "makes code faster returns the same, so a signature that differs fails the gate; no check of the "
                "workload is needed for it."
            ),
            source="one call per shape on inputs of the same seed on both sides",
        ),
        Metric(
            name="sla.p99",
            title=Text("P99 against the SLA"),
            unit="s",
            better="lower",
            kind="noisy",
            step=20,
            explanation=Text(
                "The P99 latency the workload promises. Broken by the head, it fails the gate; broken by both "
                "sides, it warns."
            ),
            source="lower end of the P99 interval against the workload's SLA",
        ),
    ),
)
