"""Step 2: device utilization."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, StepCard, Text
from perfgate.catalogue.sources import DISPATCH, TRACE

CARD = StepCard(
    number=2,
    slug="utilization",
    title=Text("Device utilization", "设备利用率"),
    question=Text("Is the device busy while the model runs, or does it wait for the host?"),
    how=Text(
        "The union of all kernels in a recorded trace, over the wall time of calls without the profiler. A device"
        " that is the host itself has no such timeline: there, CPU time over wall time and granted CPUs."
    ),
    remedy=Text(
        "Low utilization with many small operators is launch overhead: fuse, compile, or raise the batch size. "
        "With few operators, look for synchronisations such as .item() and for copies between the calls."
    ),
    metrics=(
        Metric(
            name="utilization.busy",
            title=Text("device utilization"),
            unit="1",
            better="higher",
            kind="noisy",
            step=2,
            explanation=Text(
                "Share of the unprofiled wall time in which at least one kernel ran on the device. Of a recording"
                " made elsewhere it is the share of its steps in which something was computed, under the "
                "profiler, which stretches gaps."
            ),
            source="union of kernel intervals over all streams, from " + TRACE,
            share=True,
        ),
        Metric(
            name="utilization.host",
            title=Text("host utilization"),
            unit="1",
            better="higher",
            kind="noisy",
            step=2,
            explanation=Text(
                "CPU time of the process over wall time and granted CPUs: what a CPU device can say about utilization."
            ),
            source="process CPU time / (wall time x threads)",
            share=True,
        ),
        Metric(
            name="utilization.reported",
            title=Text("utilization the driver reports"),
            unit="1",
            better="higher",
            kind="noisy",
            step=2,
            explanation=Text(
                "What npu-smi or nvidia-smi says while calls are made and no profiler runs. It counts time in "
                "which any core worked, not how well it was used."
            ),
            source="median of readings over five seconds of calls",
            share=True,
        ),
        Metric(
            name="utilization.gap",
            title=Text("device idle per call"),
            unit="s",
            better="lower",
            kind="noisy",
            step=2,
            explanation=Text("Seconds per call in which no kernel ran on the device."),
            source="complement of the union of kernel intervals",
        ),
        Metric(
            name="counters.syncs",
            title=Text("synchronisations per call"),
            unit="1",
            better="lower",
            kind="exact",
            step=2,
            explanation=Text(
                "How often one call makes the host wait for the device: a value handed to Python (item(), bool(),"
                " tolist()), a result whose shape depends on the data (nonzero, unique, a boolean mask), a copy "
                "to the host, or an explicit synchronize. Each empties the device's queue. A CPU has no queue to "
                "wait for, so there it counts what would wait on a device."
            ),
            source="torch's own tags data_dependent_output and dynamic_output_shape, over " + DISPATCH,
        ),
    ),
    limits=(
        Limit("utilization.busy.warning", 0.8, Text("the checklist's own mark")),
        Limit("utilization.busy.severe", 0.5, Text("the checklist's own mark")),
        Limit("utilization.host.info", 0.8, Text("the checklist's own mark")),
    ),
)
