"""Step 5: batch size."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, StepCard, Text

CARD = StepCard(
    number=5,
    slug="batch",
    title=Text("Batch size", "批大小"),
    question=Text("Which batch size is the best, and from where on does a larger one gain nothing?"),
    how=Text(
        "Batch sizes are visited in random order, several times each. The knee is the smallest size from which "
        "doubling gains less than 10 % throughput; the best size has the highest throughput that keeps the SLA."
    ),
    remedy=Text(
        "Configure the best size where latency allows. A knee at size 1 means that the device is full, or that "
        "the work per item does not run in parallel."
    ),
    metrics=(
        Metric(
            name="batch.knee",
            title=Text("batch knee"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=5,
            explanation=Text("The smallest batch size from which doubling it gains less than 10 % throughput."),
            source="smallest b with throughput(2b) / throughput(b) < 1.10",
        ),
        Metric(
            name="batch.best",
            title=Text("best batch size"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=5,
            explanation=Text("The batch size with the highest throughput that keeps the SLA."),
            source="argmax of throughput",
        ),
        Metric(
            name="batch.loss",
            title=Text("throughput left on the table"),
            unit="1",
            better="lower",
            kind="noisy",
            step=5,
            explanation=Text("How far the configured batch size stays below the best one."),
            source="1 - throughput(configured) / throughput(best)",
            share=True,
        ),
        Metric(
            name="batch.throughput",
            title=Text("throughput at a batch size"),
            unit="items/s",
            better="higher",
            kind="noisy",
            step=5,
            explanation=Text("Items per second at one batch size of the sweep."),
            source="median over visits in random order",
        ),
    ),
    limits=(
        Limit("batch.loss.warning", 0.05, Text("the checklist's own mark")),
        Limit("batch.loss.severe", 0.2, Text("the checklist's own mark")),
        Limit("batch.knee.gain", 1.1, Text("the checklist's own mark")),
    ),
)
