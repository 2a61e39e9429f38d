"""What a metric is, and the catalogue of every metric perfgate measures or compares."""

from __future__ import annotations

from typing import Literal

import msgspec

Better = Literal["lower", "higher", "neutral"]
Kind = Literal["noisy", "exact"]


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A measured quantity: its base unit, which way is better, and whether repetition gives the same number.

    ``explanation`` is what ``perfgate explain`` prints; ``step`` is the checklist step that measures it (20: the gate).
    """

    name: str
    title: str
    unit: str
    better: Better
    kind: Kind
    step: int
    explanation: str
    source: str


def _metric(
    name: str, title: str, unit: str, better: Better, kind: Kind, step: int, explanation: str, source: str
) -> Metric:
    return Metric(
        name=name, title=title, unit=unit, better=better, kind=kind, step=step, explanation=explanation, source=source
    )


_QUANTILE = "sample quantile with an order-statistic (binomial) confidence interval, no distribution assumed"
_TRACE = "the recorded profiler trace of steady calls"
_DISPATCH = "torch.utils._python_dispatch.TorchDispatchMode over single steady calls, repeated"

_CATALOGUE = [
    # step 1: latency
    _metric("latency.low", "fast-path latency", "s", "lower", "noisy", 1,
            "The time of a call that nothing disturbed. It moves with the work a call does and hardly with what else the "
            "machine does, so it is the metric that decides first. Two processes that took turns are compared by the "
            "average of two logarithms: of their 10th percentiles, and of their fastest calls within each quad of blocks.",
            "mean of the difference of log P10 and the median over quads of the difference of log minimum"),
    _metric("latency.p50", "P50 latency", "s", "lower", "noisy", 1,
            "Half of the calls were faster than this.", _QUANTILE),
    _metric("latency.p90", "P90 latency", "s", "lower", "noisy", 1,
            "Nine of ten calls were faster than this.", _QUANTILE),
    _metric("latency.p99", "P99 latency", "s", "lower", "noisy", 1,
            "99 of 100 calls were faster than this. It takes 662 calls until a bound on it does not hang on the single slowest "
            "one (MLPerf LoadGen's rule); with fewer it is reported as not estimable rather than guessed. The gate takes it on "
            "device or CPU time, because on wall time it shows the neighbours of the machine more than the code, and over as "
            "many pairs together as have 100 calls.", _QUANTILE),
    _metric("latency.max", "slowest call", "s", "lower", "noisy", 1, "The slowest measured call.", "maximum"),
    _metric("latency.first_call", "first call", "s", "lower", "noisy", 1,
            "The first call after loading: lazy initialisation, compilation and allocation included.", "one call"),
    _metric("latency.warm_up_calls", "warm-up calls", "1", "lower", "noisy", 1,
            "How many calls passed before the steady state was detected.", "three windows that agree"),
    _metric("throughput.median", "throughput", "items/s", "higher", "noisy", 1,
            "Items per second with a bounded number of calls in flight: the median of windows of one second.",
            "completed items over window length"),
    _metric("throughput.min", "lowest throughput", "items/s", "higher", "noisy", 1,
            "The worst of the throughput windows.", "completed items over window length"),
    _metric("throughput.gap", "gap between calls", "s", "lower", "noisy", 1,
            "Time that passes between the end of one call and the start of the next. A loss here lowers the throughput "
            "while every single call looks as fast as before.",
            "10th percentile over blocks of (block length - sum of its calls) / calls"),
    _metric("throughput.turnaround", "turnaround", "s", "lower", "noisy", 1,
            "Seconds a call as the conductor sees them from outside, by its own clock: unrecorded calls, gaps and the "
            "collection of garbage included. Time that a change hides from the worker's clock shows here.",
            "mean logarithm of the 10th to 30th percentile over blocks of (request to reply) / (calls + 1)"),
    # step 2: utilization
    _metric("utilization.busy", "device utilization", "1", "higher", "noisy", 2,
            "Share of the unprofiled wall time in which at least one kernel ran on the device. Of a recording made elsewhere "
            "it is the share of its steps in which something was computed, under the profiler, which stretches gaps.",
            "union of kernel intervals over all streams, from " + _TRACE),
    _metric("utilization.host", "host utilization", "1", "higher", "noisy", 2,
            "CPU time of the process over wall time and granted CPUs: what a CPU device can say about utilization.",
            "process CPU time / (wall time x threads)"),
    _metric("utilization.reported", "utilization the driver reports", "1", "higher", "noisy", 2,
            "What npu-smi or nvidia-smi says while calls are made and no profiler runs. It counts time in which any core "
            "worked, not how well it was used.", "median of readings over five seconds of calls"),
    _metric("utilization.gap", "device idle per call", "s", "lower", "noisy", 2,
            "Seconds per call in which no kernel ran on the device.", "complement of the union of kernel intervals"),
    # step 3: transfer
    _metric("transfer.share", "transfer overhead", "1", "lower", "noisy", 3,
            "How much of one end-to-end call is the copying of inputs and outputs between host and device.",
            "(end-to-end - device-only) / end-to-end, interleaved"),
    _metric("transfer.exposed_share", "exposed copy share", "1", "lower", "noisy", 3,
            "Share of the wall time in which a copy ran and no kernel did.", "|copy minus compute| / wall"),
    _metric("transfer.h2d_bandwidth", "host to device bandwidth", "B/s", "higher", "noisy", 3,
            "Bytes copied to the device per second of copying.", "bytes / event time"),
    _metric("transfer.d2h_bandwidth", "device to host bandwidth", "B/s", "higher", "noisy", 3,
            "Bytes copied from the device per second of copying.", "bytes / event time"),
    # step 4: operators
    _metric("ops.coverage", "attributed share", "1", "higher", "noisy", 4,
            "Share of the busy time that the operator table explains.", _TRACE),
    _metric("ops.share", "share of an op class", "1", "neutral", "noisy", 4,
            "Share of the busy time spent in one class of operators, collectives apart.", _TRACE),
    _metric("ops.time", "operator time", "s", "lower", "noisy", 4,
            "Self time of one operator per call.", _TRACE),
    # step 5: batch
    _metric("batch.knee", "batch knee", "1", "neutral", "noisy", 5,
            "The smallest batch size from which doubling it gains less than 10 % throughput.",
            "smallest b with throughput(2b) / throughput(b) < 1.10"),
    _metric("batch.best", "best batch size", "1", "neutral", "noisy", 5,
            "The batch size with the highest throughput that keeps the SLA.", "argmax of throughput"),
    _metric("batch.loss", "throughput left on the table", "1", "lower", "noisy", 5,
            "How far the configured batch size stays below the best one.", "1 - throughput(configured) / throughput(best)"),
    _metric("batch.throughput", "throughput at a batch size", "items/s", "higher", "noisy", 5,
            "Items per second at one batch size of the sweep.", "median over visits in random order"),
    # exact counters
    _metric("counters.framework_ops", "framework ops per call", "1", "lower", "exact", 4,
            "How many framework operators with work to do one call dispatches. Each costs a launch; a loop of small ops "
            "shows here first. Views (transpose, slice, reshape without a copy) launch nothing and are not counted.",
            _DISPATCH),
    _metric("counters.copies", "copies per call", "1", "lower", "exact", 4,
            "Operators that copy a whole tensor: clone, contiguous, copy_, dtype and device conversions.", _DISPATCH),
    _metric("counters.copy_bytes", "bytes copied per call", "B", "lower", "exact", 4,
            "Bytes written by those copies.", _DISPATCH),
    _metric("counters.noncontiguous_copies", "non-contiguous copies per call", "1", "lower", "exact", 4,
            "Copies that change the memory layout: source and result differ in strides.", _DISPATCH),
    _metric("counters.allocations", "allocations per call", "1", "lower", "exact", 4,
            "Blocks of memory one call takes from the allocator.", "the device's allocator events over single steady calls"),
    _metric("counters.syncs", "synchronisations per call", "1", "lower", "exact", 4,
            "How often one call makes the host wait for the device: a value handed to Python (item(), bool(), tolist()), a "
            "result whose shape depends on the data (nonzero, unique, a boolean mask), a copy to the host, or an explicit "
            "synchronize. Each empties the device's queue. A CPU has no queue to wait for, so there it counts what would "
            "wait on a device.",
            "torch's own tags data_dependent_output and dynamic_output_shape, over " + _DISPATCH),
    _metric("counters.graph_breaks", "graph breaks", "1", "lower", "exact", 4,
            "Places where torch.compile gives up a graph and goes back to Python, when everything is compiled anew for the "
            "shapes of the workload. Only where the workload compiles something.",
            "torch._dynamo's record of graph breaks, each place and reason once"),
    _metric("counters.recompiles", "recompiles", "1", "lower", "exact", 4,
            "Compilations that steady calls still set off after every shape was called often enough to be compiled. Each "
            "stops a call for as long as a compiler runs. Only where the workload compiles something.",
            "torch._dynamo's count of compiled frames over steady calls, without a dispatch mode"),
    _metric("counters.repeat_saves", "ops saved by a repeated input", "1", "lower", "exact", 4,
            "How many framework operators fewer a call dispatches when it gets an input again that it has just seen. More "
            "than 0 means that results are cached by input: a benchmark that repeats its inputs then shows a speed that "
            "new inputs never get.",
            "one call on a never-used input against the same call again, over " + _DISPATCH),
    _metric("counters.low_precision_ops", "low-precision ops per call", "1", "neutral", "exact", 4,
            "Framework operators whose result is in less than 32-bit floating point (float16, bfloat16, float8, quantized), "
            "and float32 matrix products where the program allowed the library to round their inputs. Neither good nor bad: "
            "it may be faster, and the output loses digits. A rise warns, with operator and line, unless the workload has a "
            "check of its output and that passes.",
            "dtypes of results, over " + _DISPATCH),
    _metric("counters.kernels", "kernel launches per call", "1", "lower", "exact", 4,
            "How many kernels one call runs on the device, those of collectives apart. Each costs a launch and a gap. Only "
            "where the profiler shows them.", _TRACE),
    _metric("counters.format_conversions", "format conversions per call", "1", "lower", "exact", 4,
            "Kernels that only bring a tensor into another layout or format: TransData between NCHW and NC1HWC0 on Ascend, "
            "nchwToNhwc and its like on CUDA. Only where the profiler shows kernels.", _TRACE),
    _metric("counters.device_copies", "device copies per call", "1", "lower", "exact", 4,
            "Copies and fills by the device's copy engine in one call. Only where the profiler shows them.", _TRACE),
    _metric("counters.collectives", "collectives per call", "1", "lower", "exact", 4,
            "Collective operations that one call takes part in.", _TRACE),
    _metric("counters.recorded_ops", "recorded framework ops per step", "1", "lower", "exact", 4,
            "Framework operators in one step of a recording of a CPU, views and operators inside operators included. Only of "
            "recordings made elsewhere, in which nothing else can be counted.", _TRACE),
    _metric("counters.fallbacks", "ops run on the host per call", "1", "lower", "exact", 4,
            "Framework operators that the device has no kernel for, so that their inputs go to the host, and their results "
            "back, in every call.", "the framework's own warnings, and " + _DISPATCH),
    _metric("memory.peak", "peak memory of a call", "B", "lower", "exact", 4,
            "The most memory one call holds on top of the model and its inputs.",
            "running sum of allocator events over single steady calls"),
    _metric("memory.kept", "memory a call leaves behind", "B", "lower", "exact", 4,
            "Bytes by which every steady call raises what the process holds: a leak. The smallest growth of several "
            "consecutive calls, garbage collected after each, so that a buffer that is replaced or grows now and then is "
            "none. Memory of the framework's allocator only.",
            "allocator events over consecutive steady calls: held after a call - held before it"),
    # the gate
    _metric("correctness", "correctness check", "1", "neutral", "exact", 20,
            "The workload's own check of its output. A check that fails fails the gate: a faster wrong model never passes.",
            "the workload's `check`"),
    _metric("correctness.signature", "output signature", "1", "neutral", "exact", 20,
            "Structure, shapes and dtypes of what a call returns, e.g. (float32[8,48],). A change that only makes code faster "
            "returns the same, so a signature that differs fails the gate; no check of the workload is needed for it.",
            "one call per shape on inputs of the same seed on both sides"),
    _metric("sla.p99", "P99 against the SLA", "s", "lower", "noisy", 20,
            "The P99 latency the workload promises. Broken by the head, it fails the gate; broken by both sides, it warns.",
            "lower end of the P99 interval against the workload's SLA"),
]  # fmt: skip

METRICS: dict[str, Metric] = {metric.name: metric for metric in _CATALOGUE}


def metric(name: str) -> Metric:
    """Return a metric of the catalogue; per-operator metrics (``ops.count:NAME``, ``ops.time:NAME``) are derived.

    Raises KeyError for a name that is not in the catalogue.
    """
    if name.startswith("ops.time:"):
        op = name.partition(":")[2]
        return _metric(name, f"`{op}` time", "s", "lower", "noisy", 4,
                       f"Self time of the operator {op} in one call of the workload.", _TRACE)  # fmt: skip
    if name.startswith("ops.count:"):
        op = name.partition(":")[2]
        return _metric(name, f"`{op}` calls", "1", "lower", "exact", 4,
                       f"How often one call of the workload dispatches the operator {op}.", _DISPATCH)  # fmt: skip
    return METRICS[name]
