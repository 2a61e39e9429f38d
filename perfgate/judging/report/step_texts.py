"""What ``perfgate explain`` says about the steps that this version measures, and the limits they start with."""

from __future__ import annotations

from typing import NamedTuple


class StepText(NamedTuple):
    """A step in words: what it answers, how it is measured, what to do when it asks to be looked at."""

    question: str
    how: str
    remedy: str


STEP_TEXTS: dict[int, StepText] = {
    1: StepText(
        "How long does one call take, how many items a second go through, and what does the first call cost?",
        "Calls are timed one by one, each waited for, after a steady state was detected; inputs rotate. Quantiles come "
        "with order-statistic intervals; one that the number of calls cannot support is reported as not estimable. "
        "Throughput is timed with several calls in flight, as the median of windows.",
        "A first call much slower than the rest is compilation or lazy loading: warm up before serving. A long tail "
        "on a quiet machine points to work that happens only in some calls: allocation, recompilation, other shapes.",
    ),
    2: StepText(
        "Is the device busy while the model runs, or does it wait for the host?",
        "The union of all kernels in a recorded trace, over the wall time of calls without the profiler. A device that "
        "is the host itself has no such timeline: there, CPU time over wall time and granted CPUs.",
        "Low utilization with many small operators is launch overhead: fuse, compile, or raise the batch size. With "
        "few operators, look for synchronisations such as .item() and for copies between the calls.",
    ),
    3: StepText(
        "How much of a call is copying inputs and outputs between host and device?",
        "End-to-end calls and device-only calls take turns; the share is (end-to-end - device-only) / end-to-end.",
        "Use pinned memory with non_blocking copies, prefetch one batch ahead, or move preprocessing to the device.",
    ),
    4: StepText(
        "Which operators take the time, and how often does one call dispatch them?",
        "Self time by operator in a recorded trace of steady calls; counters come from single calls, repeated, and "
        "count as exact only when every repetition gave the same number.",
        "Copies and reshapes near the top are layout changes: keep one layout through the model. Many calls of one "
        "small operator are a loop: do it once on the whole tensor.",
    ),
    5: StepText(
        "Which batch size is the best, and from where on does a larger one gain nothing?",
        "Batch sizes are visited in random order, several times each. The knee is the smallest size from which "
        "doubling gains less than 10 % throughput; the best size has the highest throughput that keeps the SLA.",
        "Configure the best size where latency allows. A knee at size 1 means that the device is full, or that the "
        "work per item does not run in parallel.",
    ),
    20: StepText(
        "Is the change slower, heavier or wrong, compared with its base on this machine?",
        "Exact counters are compared first. Time is compared over pairs of processes of base and head that take turns "
        "on the same core, by an exact signed-rank test corrected for all metrics together. Base against base in the "
        "same job gives the noise floor.",
        "See the Why part of the comment: it names the operator and the line. `perfgate local` gives the same verdict "
        "before pushing.",
    ),
}

# What the steps start with; perfgate.toml overrides them under [limits].
STEP_LIMITS: dict[str, float] = {
    "utilization.busy.warning": 0.80,
    "utilization.busy.severe": 0.50,
    "utilization.host.info": 0.80,
    "transfer.share.warning": 0.05,
    "transfer.share.severe": 0.20,
    "ops.coverage.warning": 0.98,
    "ops.share.conv_matmul.info": 0.60,
    "ops.share.copy.severe": 0.30,
    "ops.share.reshape.warning": 0.20,
    "ops.share.softmax.warning": 0.15,
    "batch.loss.warning": 0.05,
    "batch.loss.severe": 0.20,
    "batch.knee.gain": 1.10,
}
