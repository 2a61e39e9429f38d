"""Step 3: transfer between host and device."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, StepCard, Text
from perfgate.catalogue.sources import TRACE

CARD = StepCard(
    number=3,
    slug="transfer",
    title=Text("Transfer between host and device", "主机与设备间传输"),
    question=Text("How much of a call is copying inputs and outputs between host and device?"),
    how=Text(
        "End-to-end calls and device-only calls take turns; the share is (end-to-end - device-only) / end-to-end."
    ),
    remedy=Text(
        "Use pinned memory with non_blocking copies, prefetch one batch ahead, or move preprocessing to the device."
    ),
    metrics=(
        Metric(
            name="transfer.share",
            title=Text("transfer overhead"),
            unit="1",
            better="lower",
            kind="noisy",
            step=3,
            explanation=Text(
                "How much of one end-to-end call is the copying of inputs and outputs between host and device."
            ),
            source="(end-to-end - device-only) / end-to-end, interleaved",
            share=True,
        ),
        Metric(
            name="transfer.exposed_share",
            title=Text("exposed copy share"),
            unit="1",
            better="lower",
            kind="noisy",
            step=3,
            explanation=Text("Share of the wall time in which a copy ran and no kernel did."),
            source="|copy minus compute| / wall",
            share=True,
        ),
        Metric(
            name="transfer.h2d_bandwidth",
            title=Text("host to device bandwidth"),
            unit="B/s",
            better="higher",
            kind="noisy",
            step=3,
            explanation=Text("Bytes copied to the device per second of copying."),
            source="bytes / event time",
        ),
        Metric(
            name="transfer.d2h_bandwidth",
            title=Text("device to host bandwidth"),
            unit="B/s",
            better="higher",
            kind="noisy",
            step=3,
            explanation=Text("Bytes copied from the device per second of copying."),
            source="bytes / event time",
        ),
        Metric(
            name="counters.device_copies",
            title=Text("device copies per call"),
            unit="1",
            better="lower",
            kind="exact",
            step=3,
            explanation=Text(
                "Copies and fills by the device's copy engine in one call. Only where the profiler shows them."
            ),
            source=TRACE,
        ),
    ),
    limits=(
        Limit("transfer.share.warning", 0.05, Text("the checklist's own mark")),
        Limit("transfer.share.severe", 0.2, Text("the checklist's own mark")),
    ),
)
