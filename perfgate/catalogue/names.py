"""Names of metrics that code has a reason to name: it computes them, or judges them by
a special rule.
"""

from __future__ import annotations

# The times of parts of a call: ``op.aten::mm``, ``module.Encoder.layers.*``,
# ``function.model.py:attend``.
OPERATOR_TIME, MODULE_TIME, FUNCTION_TIME = "op.", "module.", "function."
PYTHON_TIMES = (MODULE_TIME, FUNCTION_TIME)
SUBROUTINE_TIMES = (OPERATOR_TIME, *PYTHON_TIMES)

# A command's own numbers: ``number.tokens_per_second``.
NUMBER = "number."
# The numbers of ranks that take turns.
RANKS_STEP, RANKS_STEP_P99, RANKS_CPU = "ranks.step", "ranks.step_p99", "ranks.cpu"
RANKS_THROUGHPUT = "ranks.throughput"
RANKS_IMBALANCE, RANKS_MEMORY, RANKS_LOSS = (
    "ranks.imbalance",
    "ranks.memory",
    "ranks.loss",
)
RANKS_COLLECTIVES, RANKS_ELEMENTS = "ranks.collectives", "ranks.elements"
RANKS_OPERATORS, RANKS_SYNCS = "ranks.operators", "ranks.syncs"
RANKS_EXPOSED, RANKS_SKEW = "ranks.exposed", "ranks.skew"
# Properties of jobs that must be equal on both sides, and the difference between the
# halves of the devices.
COMMAND_LINES = "command.lines"
JOB_WORK, JOB_OUTPUT, JOB_HALVES = "job.work", "job.output", "job.halves"
# The numbers of a server under load.
TTFT, TPOT, E2E, SERVING_CPU = (
    "serving.ttft",
    "serving.tpot",
    "serving.e2e",
    "serving.cpu",
)
TTFT_P99, ITL, ITL_P99, STALLS = (
    "serving.ttft_p99",
    "serving.itl",
    "serving.itl_p99",
    "serving.stalls",
)
# The numbers of a server outside the OpenAI API, without known tokens.
FIRST_BYTE, REQUEST_CPU = "serving.first_byte", "serving.request_cpu"
SAME_TEXT = "serving.same_text"
GOODPUT, SERVING_THROUGHPUT = "serving.goodput", "serving.throughput"

LATENCY, WALL_TIME, P50, P90, P99 = (
    "latency.low",
    "latency.wall",
    "latency.p50",
    "latency.p90",
    "latency.p99",
)
# The clocks of an accelerator, in addition to the span of LATENCY: the time of kernels,
# and the host's until a call returns.
BUSY, HOST = "device.busy", "latency.host"
# Of long stretches: the mean of all calls, and the share of those above three times the
# median.
MEAN, LATENCY_STALLS = "latency.mean", "latency.stalls"
# Between new processes with the same code, on an accelerator.
START_SPREAD = "latency.start_spread"
STD, TAIL, THROUGHPUT = "latency.std", "latency.tail", "throughput.median"
HOST_UTILIZATION = "utilization.host"
BATCH_BEST, BATCH_KNEE, BATCH_THROUGHPUT = (
    "batch.best",
    "batch.knee",
    "batch.throughput",
)
OPERATOR_SHARE = "ops.operator_share"
# Numbers that step 1 measures only if perfgate.toml requests a long steady state.
STEADY_NUMBERS = frozenset(
    {"latency.drift", "latency.steady_share", "soak.memory_begin", "soak.memory_end"}
)
PREPROCESSING, PREPROCESSING_STAGES = "preprocess.low", "preprocess.time"
GAP, TURNAROUND, INSTRUCTIONS = (
    "throughput.gap",
    "throughput.turnaround",
    "hardware.instructions",
)
FRAMEWORK_OPS, LOW_PRECISION_OPS = (
    "counters.framework_ops",
    "counters.low_precision_ops",
)
PYTHON_CALLS, BYTECODES = "counters.python_calls", "counters.bytecodes"
# DEFERRED_OPS ran after the call had returned: in its output when that was read, or in
# a thread.
FLOPS, DEFERRED_OPS = "counters.flops", "counters.deferred_ops"
# Operators that autograd records, or would without an inference mode around the call;
# and the first of them.
AUTOGRAD_OPS, AUTOGRAD_BEGINS = "counters.autograd_ops", "counters.autograd_begins"
# Operators in a region of the project without gradients.
NO_GRAD_OPS = "counters.no_grad_ops"
# Modules that run in training mode, and loaders that make batches in the process that
# uses them.
TRAINING_MODULES, LOADERS_IN_PROCESS = (
    "counters.training_modules",
    "counters.loaders_in_process",
)
SETTINGS = "counters.settings"
# Moves of tensors to a device that the host may wait for, and those that ask it not to.
BLOCKING_TRANSFERS, UNBLOCKED_TRANSFERS = (
    "counters.blocking_transfers",
    "counters.unblocked_transfers",
)
COPIES, SYNCS = "counters.copies", "counters.syncs"
SIGNATURE, SLA = "correctness.signature", "sla.p99"
EXPECTED_KERNELS = "ops.expected_kernels"
