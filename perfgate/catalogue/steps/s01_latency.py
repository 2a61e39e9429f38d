"""Step 1: latency and throughput."""

from __future__ import annotations

from perfgate.catalogue.card import Metric, StepCard, Text
from perfgate.catalogue.sources import QUANTILE

CARD = StepCard(
    number=1,
    slug="latency",
    title=Text("Latency and throughput", "时延与吞吐"),
    question=Text(
        "How long does one call take, how many items a second go through, and what does the first call cost?"
    ),
    how=Text(
        "Calls are timed one by one, each waited for, after a steady state was detected; inputs rotate. Quantiles"
        " come with order-statistic intervals; one that the number of calls cannot support is reported as not "
        "estimable. Throughput is timed with several calls in flight, as the median of windows."
    ),
    remedy=Text(
        "A first call much slower than the rest is compilation or lazy loading: warm up before serving. A long "
        "tail on a quiet machine points to work that happens only in some calls: allocation, recompilation, other"
        " shapes."
    ),
    metrics=(
        Metric(
            name="latency.low",
            title=Text("fast-path latency"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "The time of a call that nothing disturbed. It moves with the work a call does and hardly with "
                "what else the machine does, so it is the metric that decides first. Two processes that took "
                "turns are compared by the average of two logarithms: of their 10th percentiles, and of their "
                "fastest calls within each quad of blocks."
            ),
            source="mean of the difference of log P10 and the median over quads of the difference of log minimum",
        ),
        Metric(
            name="latency.p50",
            title=Text("P50 latency"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text("Half of the calls were faster than this."),
            source=QUANTILE,
        ),
        Metric(
            name="latency.p90",
            title=Text("P90 latency"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text("Nine of ten calls were faster than this."),
            source=QUANTILE,
        ),
        Metric(
            name="latency.p99",
            title=Text("P99 latency"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "99 of 100 calls were faster than this. It takes 662 calls until a bound on it does not hang on "
                "the single slowest one (MLPerf LoadGen's rule); with fewer it is reported as not estimable "
                "rather than guessed. The gate takes it on device or CPU time, because on wall time it shows the "
                "neighbours of the machine more than the code, and over as many pairs together as have 100 calls."
            ),
            source=QUANTILE,
        ),
        Metric(
            name="latency.max",
            title=Text("slowest call"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text("The slowest measured call."),
            source="maximum",
        ),
        Metric(
            name="latency.first_call",
            title=Text("first call"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text("The first call after loading: lazy initialisation, compilation and allocation included."),
            source="one call",
        ),
        Metric(
            name="latency.warm_up_calls",
            title=Text("warm-up calls"),
            unit="1",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text("How many calls passed before the steady state was detected."),
            source="three windows that agree",
        ),
        Metric(
            name="throughput.median",
            title=Text("throughput"),
            unit="items/s",
            better="higher",
            kind="noisy",
            step=1,
            explanation=Text(
                "Items per second with a bounded number of calls in flight: the median of windows of one second."
            ),
            source="completed items over window length",
        ),
        Metric(
            name="throughput.min",
            title=Text("lowest throughput"),
            unit="items/s",
            better="higher",
            kind="noisy",
            step=1,
            explanation=Text("The worst of the throughput windows."),
            source="completed items over window length",
        ),
        Metric(
            name="throughput.gap",
            title=Text("gap between calls"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "Time that passes between the end of one call and the start of the next. A loss here lowers the "
                "throughput while every single call looks as fast as before."
            ),
            source="10th percentile over blocks of (block length - sum of its calls) / calls",
        ),
        Metric(
            name="throughput.turnaround",
            title=Text("turnaround"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "Seconds a call as the conductor sees them from outside, by its own clock: unrecorded calls, gaps"
                " and the collection of garbage included. Time that a change hides from the worker's clock shows "
                "here."
            ),
            source="mean logarithm of the 10th to 30th percentile over blocks of (request to reply) / (calls + 1)",
        ),
    ),
)
