"""The run document: the measurements of one run, immutable, with raw samples, testbed
and findings.

All numbers are in base units (s, B, 1, items/s) except packed samples and clocks, which
are integer nanoseconds.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from perfgate.document.coverage import Coverage
from perfgate.document.job import CalledFunction, JobProfile, JobRecord, Turn
from perfgate.document.message import Message, MessageValue
from perfgate.document.records import FrozenStruct
from perfgate.document.samples import Arm, PairNumber, Replicate, SampleSet
from perfgate.document.seal import Seal
from perfgate.document.shape import ShapeEntry, ShapePlace
from perfgate.document.testbed import Testbed

RUN_SCHEMA_VERSION = 1
# The session's command of a document that was made from a profiler's recording, without
# measuring.
FROM_PROFILE = "from-profile"

StepStatus = Literal[
    "ok", "attention", "not_applicable", "unavailable", "invalid", "error"
]
Severity = Literal["info", "warning", "severe"]
Side = Literal["base", "head"]
ErrorKind = Literal["exception", "exit", "signal", "timeout", "memory", "protocol"]
Evidence = MessageValue
RowKind = Literal["compute", "copy", "comm", "fused", "host", "python"]
# The parts of a call's time. On a device with its own timeline: the work that ran
# there, then the causes of idle time. On a CPU: operators of the framework, and
# everything outside them (Python, the host code between two operators).
CallPart = Literal[
    "compute",
    "fused",  # kernels that compute and communicate at once
    "copy",
    "communication",
    "gap_host",
    "gap_synchronization",
    "gap_queue",
    "gap_unknown",
    "operators",
    "outside",
]
# The metric of a workload's own check of its output.
CORRECTNESS = "correctness"
# The label of a number that was measured again because a tolerance names it: the number
# of its turn, from the second on.
REPEAT = "repeat"
# The pairs of round N have the numbers from N times this on, so that the numbers of two
# rounds never meet.
PAIRS_PER_ROUND = 100_000
# Stands among the operators of a replicate for the time in which a call ran none.
OUTSIDE_OPERATORS = "outside operators"


class Value(FrozenStruct, kw_only=True):
    """One number of one metric.

    ``value`` None means not available; ``reason`` then gives the cause.

    ``interval`` is a confidence interval at level ``confidence``; an end that no order
    statistic can give is None. ``labels`` describe the measured configuration, e.g.
    ``{"shape": "long", "batch": "8"}``.
    """

    metric: str
    value: float | None
    interval: tuple[float | None, float | None] | None = None
    confidence: float | None = None
    count: int | None = None
    labels: dict[str, str] = {}
    reason: Message | None = None


class Finding(FrozenStruct, kw_only=True):
    """An observation of a step: the broken rule, its severity, and the values observed,
    in base units.

    ``message`` is the sentence of a step that another package brings, for a rule
    without an entry in the catalogue.
    """

    rule: str
    severity: Severity
    message: Message | None = None
    evidence: dict[str, Evidence] = {}


# The message of a check with --time-budget for work that it did not begin.
TIME_SPENT = Message("gate.not-measured-in-time")
# The code of a worker that did not answer in time.
TIMED_OUT = "worker.timed-out"
# The codes for a workload with pairs too slow for the available time, for its calls or
# for loading it; ``budget`` is one that they fit into.
CALLS_TOO_SLOW = "gate.call-too-slow"
LOADS_TOO_SLOWLY = "gate.load-too-slow"
# The code of values that the first turn of base leaves to further turns: a single turn
# cannot be compared.
LEFT_TO_TURNS = "experiment.left-to-turns"


class ErrorDetail(FrozenStruct, kw_only=True):
    """How a worker or its workload failed.

    ``kind`` is one word: exception, exit, signal, timeout, memory, protocol. A
    plain-text ``message`` is not perfgate's own.
    """

    kind: ErrorKind
    message: Message | str
    traceback: str | None = None
    signal: str | None = None
    log_tail: str | None = None

    @property
    def is_out_of_memory(self) -> bool:
        return self.kind == "memory"

    @property
    def has_slow_calls(self) -> bool:
        return isinstance(self.message, Message) and self.message.code == CALLS_TOO_SLOW

    @property
    def lacks_time_for_pairs(self) -> bool:
        """Whether there was no failure: the workload was counted and not timed, because
        its pairs exceed the available time.
        """
        return isinstance(self.message, Message) and self.message.code in (
            CALLS_TOO_SLOW,
            LOADS_TOO_SLOWLY,
        )

    @property
    def timed_out(self) -> bool:
        """Whether a worker did not answer in time, and nothing had stopped it."""
        return isinstance(self.message, Message) and self.message.code == TIMED_OUT

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time budget ran out before it began."""
        return self.message == TIME_SPENT

    @property
    def lacks_time(self) -> bool:
        """Whether nothing failed: there was too little time, for all of it or for the
        pairs.
        """
        return self.is_out_of_time or self.lacks_time_for_pairs


class ShapeKernels(FrozenStruct, kw_only=True):
    """The work that ran in the traced calls of a shape: every name of a kernel or
    operator, sorted.

    A kernel has its own name, and its type's if the profiler knows it. ``left_out``
    names were too many to keep. ``longest`` is the operator of which one run takes
    longest.
    """

    shape: str
    names: list[str]
    left_out: int = 0
    longest: str | None = None


class StepProcedure(FrozenStruct, kw_only=True):
    """How a step was measured, recorded by the conductor that ran it.

    ``quick`` is whether it took the short measurements of a check. ``clock`` is
    ``awake`` if calls were timed without the waits of the process for a CPU. ``after``
    are the steps that ran before it in its process, in order.
    """

    quick: bool
    clock: Literal["wall", "awake"] = "wall"
    after: list[int] = []


class StepResult(FrozenStruct, kw_only=True):
    """The result of one step of the checklist on one workload.

    ``duration`` is its cost in seconds, and ``waited`` the share of it in which the
    worker was ready to run and another process had the CPU, None if the kernel does not
    report it. ``procedure`` is None if the step did not run.
    """

    number: int
    slug: str
    workload: str
    status: StepStatus
    reason: Message | None = None
    values: list[Value] = []
    findings: list[Finding] = []
    samples: list[SampleSet] = []
    kernels: list[ShapeKernels] = []
    error: ErrorDetail | None = None
    duration: float = 0.0
    waited: float | None = None
    procedure: StepProcedure | None = None


def is_left_to_turns(step: StepResult) -> bool:
    """Whether the first turn of a step left experiments to further turns."""
    reasons = [step.reason, *(value.reason for value in step.values)]
    return any(
        reason is not None and reason.code == LEFT_TO_TURNS for reason in reasons
    )


class CorrectnessResult(ShapeEntry, kw_only=True):
    """The workload's own check of its output for one input shape.

    A plain-text ``message`` is the check's own. ``signature`` is structure, dtypes and
    shapes of the output, e.g. ``(float32[8,48],)``.
    """

    status: Literal["passed", "failed", "not_checked", "error"]
    message: Message | str | None = None
    signature: str | None = None


class OpCount(FrozenStruct, kw_only=True):
    """How often one call dispatches an operator, and from which line of the project
    (``model.py:88``) most often.

    A ``view`` only describes existing memory differently and launches no kernel.
    """

    op: str
    count: int
    view: bool = False
    line: str | None = None


class CounterSite(FrozenStruct, kw_only=True):
    """One place that adds to a counter: the amount (in the counter's unit), its origin,
    and the line.

    ``name`` is the operator, or the reason of a graph break or recompile. ``code`` is
    the text of the line: a line keeps it when lines above it come or go, so it is by
    the code that the sites of two runs are matched. ``between`` are the least and the
    most of the amount if it differs between calls or processes of the same code.
    """

    metric: str
    name: str
    count: int
    line: str | None = None
    code: str | None = None
    tensor: str | None = None
    between: tuple[int, int] | None = None


class CounterSet(ShapeEntry, kw_only=True):
    """Exact counters of one call for one workload and shape.

    Each metric is either in ``steady`` or in ``unstable``.
    """

    # Single calls counted in each process. 0: the counts are of a whole recording in
    # which calls cannot be distinguished.
    repeats: int
    # Metric: its count. Metrics that the device cannot count are left out.
    values: dict[str, int]
    ops: list[OpCount]
    # Fresh processes that counted.
    processes: Annotated[int, msgspec.Meta(ge=1)] = 1
    # Metrics that differed between calls or processes; they must not be compared
    # exactly.
    unstable: list[str] = []
    steady: list[str] = []
    # Metrics without meaning here, such as the graph breaks of a workload that compiles
    # no graph.
    not_applicable: list[str] = []
    # Metrics that the calls themselves, or the machine, kept from being counted.
    uncounted: list[str] = []
    # The origins of the counts.
    sites: list[CounterSite] = []
    # The functions of the project that ran.
    functions: list[CalledFunction] = []
    # The minimum and maximum of every unstable value.
    ranges: dict[str, tuple[int, int]] = {}
    # torch's settings in the process of the workload after these calls.
    settings: dict[str, str] = {}


class OperatorRow(ShapeEntry, kw_only=True):
    """One operator of the trace: self time per call in seconds, calls per call of the
    workload, share of the busy time.
    """

    op: str
    kind: Literal["compute", "copy", "comm", "fused", "host"]
    self_time: float
    count: float
    share: float


class KernelWork(FrozenStruct, kw_only=True):
    """The kernels of one operator on inputs of one shape in a step: how many, and the
    seconds that they took.

    ``inputs`` is empty if the recording has no shapes. ``mac`` is the time in which the
    matrix units of the cores computed, as counted by the hardware, ``vec`` the vector
    units' time; None if not counted.
    """

    op: str
    inputs: str
    count: float
    seconds: float
    mac: float | None = None
    vec: float | None = None


class KernelTimes(ShapeEntry, kw_only=True):
    """How long the kernels of a recorded step took on the device, excluding
    collectives.

    ``seconds`` are the sum of each of ``steps`` steps; ``mac`` and ``vec`` are the sums
    over ``rows``. Numbers of rows are medians over the steps.
    """

    steps: int
    seconds: list[float]
    mac: float | None = None
    vec: float | None = None
    rows: list[KernelWork] = []


class CallRow(FrozenStruct, kw_only=True):
    """Equal work in a traced call: one operator, on inputs of one form, called from one
    line; or a Python function.

    ``self_time`` (seconds) and ``count`` are of one call. ``inputs`` are dtypes, shapes
    and layouts as one text (``float32[32,256], float32[256,256]``); ``line`` is the
    project's, ``code`` its text. ``flops`` and ``moved_bytes`` are the minimum for all
    ``count`` runs together; None without a formula. Of ``python`` rows ``op`` is a
    function of the project, with the time of everything it runs outside operators and
    outside other such functions.
    """

    op: str
    kind: RowKind
    self_time: float
    count: float
    inputs: str | None = None
    line: str | None = None
    code: str | None = None
    flops: float | None = None
    moved_bytes: float | None = None

    @property
    def is_python(self) -> bool:
        """Whether it is a function of the project and no operator."""
        return self.kind == "python"


class Roof(FrozenStruct, kw_only=True):
    """The best rates of the device, measured once a run: a product of float32 matrices,
    and a copy (read and write).
    """

    flops_per_second: float
    bytes_per_second: float


class LeastWork(FrozenStruct, kw_only=True):
    """The operations of ``count`` operators of a call: the minimum that each computes,
    reads and writes.
    """

    flops: float
    moved_bytes: float
    count: int


class CallAccount(ShapeEntry, kw_only=True):
    """The parts of the time of a typical traced call, in seconds; ``parts`` add up to
    ``wall``.

    It is the mean of the faster half of ``calls`` traced calls, under the profiler, so
    its shares are more reliable than its seconds. ``rows`` are the heaviest; the others
    took ``more_time`` together.

    ``work`` is the dispatched operators' work, for the roofline; ``roof`` is None if
    the machine's was not measured.
    """

    calls: int
    wall: float
    parts: dict[CallPart, float]
    rows: list[CallRow]
    more_time: float = 0.0
    roof: Roof | None = None
    work: list[LeastWork] = []


class FailedPair(FrozenStruct, kw_only=True):
    """A pair that gave no samples, with the reason. It is counted, never compared.

    ``side`` is set for a job: its turns ended because that side failed.
    """

    pair: PairNumber
    arm: Arm
    workload: str
    error: ErrorDetail
    side: Literal["base", "head"] | None = None


class CodeChange(FrozenStruct, kw_only=True):
    """Lines ``first`` to ``last`` of a file of the head with code that the base does
    not have; for a deletion, the line after.

    ``function`` is the function that holds them, from line ``begins`` to line ``ends``;
    None outside functions. ``chains`` are its statements as first and last line, those
    together that pass values on to each other; ``text`` are its lines, and ``imports``
    is whether they only import.
    """

    file: str
    first: int
    last: int
    function: str | None = None
    begins: int | None = None
    ends: int | None = None
    chains: list[list[tuple[int, int]]] = []
    text: list[str] = []
    imports: bool = False


class Harness(FrozenStruct, kw_only=True):
    """The contents of one side's own workload file, for a workload whose file or entry
    differs between base and head.
    """

    workload: str
    reference: str
    # Of the code of the file and of everything next to it, without comments and
    # docstrings.
    file_sha256: str = ""
    batch: int = 0
    batch_sizes: list[int] = []
    # Shape: its arguments as text.
    shapes: dict[str, str] = {}
    # The functions that are given (``build``, ``check``, ...): the hash of their code.
    functions: dict[str, str] = {}
    # The settings of a job, and settings of ``[measure]`` that differ: their text in
    # perfgate.toml.
    settings: dict[str, str] = {}
    # For head: the places at which its code differs from the base's (``perf.py:12``).
    changed_lines: list[str] = []
    # For head: what it has and the base does not: shapes, functions, ``sla_p99``, and
    # the workload itself if it is new.
    added: list[str] = []
    sla_p99: float | None = None
    # Why the file could not be read.
    error: ErrorDetail | None = None


class Source(FrozenStruct, kw_only=True):
    """The code that was measured.

    ``commit`` is None outside git; ``dirty`` means uncommitted changes are included.
    """

    commit: str | None = None
    branch: str | None = None
    dirty: bool = False
    committed_at: str | None = None
    author: str | None = None
    subject: str | None = None
    # Present if base and head were measured side by side.
    seal: Seal | None = None
    # The files of the commit that were read during the measurement, or with access
    # times that perfgate could not follow, relative to the repository; None if the file
    # system keeps no access times.
    files_read: list[str] | None = None
    # The workload files that differ between base and head.
    harness: list[Harness] = []
    # For a head: the places with code that differs from the base's; comments and
    # formatting do not count.
    changes: list[CodeChange] = []
    # For a head: the changed code that the workloads of both sides run.
    coverage: Coverage | None = None


class CiContext(FrozenStruct, kw_only=True):
    """The CI job a run belongs to, according to the job's environment; ``publish``
    checks it against its own event.
    """

    forge: str
    repository: str
    run_id: str
    run_attempt: int
    head_sha: str | None = None
    change_request: int | None = None


class Session(FrozenStruct, kw_only=True):
    """One start of perfgate. Base and head of one `check` share the session ``id``.

    ``queued`` are the seconds before ``started_at`` in which it waited in line for
    other measurements on the machine; None if it needed no machine for itself.
    ``earlier`` are the sessions whose measurements it extended, oldest first.
    """

    id: str
    started_at: str
    finished_at: str
    seed: int
    command: str
    ci: CiContext | None = None
    queued: Annotated[float, msgspec.Meta(ge=0)] | None = None
    earlier: list[Session] = []


class WorkloadRecord(FrozenStruct, kw_only=True):
    """The measured workload: its place, the hash of its file, its batch size and
    shapes.

    ``sla_p99`` is the P99 it promises, with ``sla_rate`` the P99 of calls that come in
    at this rate per second. ``steps`` are the numbers of those that were asked for, and
    ``quick`` whether they took the short measurements of a check; None in documents
    that do not record it.
    """

    name: str
    reference: str
    sha256: str
    batch: int
    shapes: list[str]
    sla_p99: float | None = None
    sla_rate: float | None = None
    steps: list[int] = []
    quick: bool | None = None
    error: ErrorDetail | None = None

    @property
    def workload(self) -> str:
        """The name by which all entries about the workload refer to it."""
        return self.name


ArtifactKind = Literal["trace", "log", "report", "flamegraph"]


class Artifact(FrozenStruct, kw_only=True):
    """A file kept with the document; ``path`` is relative to the document's folder."""

    name: str
    kind: ArtifactKind
    path: str
    bytes: int
    sha256: str
    workload: str | None = None


class Advisory(FrozenStruct, kw_only=True):
    """Another tool's finding about a recording of a workload, in its own words;
    ``source`` is its name and version.

    ``category`` is its name for the problem, ``description`` its finding,
    ``suggestion`` its advice. ``evidence`` holds further values of its tables, such as
    ``op`` and ``count``. ``rules`` are the rules of perfgate that detect the same
    problem.
    """

    source: str
    workload: str
    category: str
    description: str
    suggestion: str
    evidence: dict[str, Evidence] = {}
    rules: list[str] = []


class Checklist(FrozenStruct, kw_only=True):
    """The results of the checklist on all workloads."""

    steps: list[StepResult] = []
    correctness: list[CorrectnessResult] = []
    counters: list[CounterSet] = []
    operators: list[OperatorRow] = []
    kernel_times: list[KernelTimes] = []
    accounts: list[CallAccount] = []
    advisories: list[Advisory] = []


class MeasuredPairs(FrozenStruct, kw_only=True):
    """The processes of base and head that took turns; ``failed`` are in the head's
    document alone.
    """

    replicates: list[Replicate] = []
    failed: list[FailedPair] = []


class JobResults(FrozenStruct, kw_only=True):
    """The measured jobs, the turns of this side, and the profiles of its processes."""

    records: list[JobRecord] = []
    turns: list[Turn] = []
    profiles: list[JobProfile] = []


class RunDocument(FrozenStruct, kw_only=True):
    """One pass of the checklist over the workloads of a project on one testbed."""

    schema: Literal["perfgate/run"] = "perfgate/run"
    schema_version: int = RUN_SCHEMA_VERSION
    perfgate_version: str
    side: Side | None = None
    project: str
    session: Session
    source: Source
    testbed: Testbed
    workloads: list[WorkloadRecord]
    checklist: Checklist = msgspec.field(default_factory=Checklist)
    pairs: MeasuredPairs = msgspec.field(default_factory=MeasuredPairs)
    jobs: JobResults = msgspec.field(default_factory=JobResults)
    artifacts: list[Artifact] = []
    warnings: list[Message] = []

    @property
    def places(self) -> list[ShapePlace]:
        """The shapes of its workloads."""
        places: list[ShapePlace] = []
        for workload in self.workloads:
            places += [ShapePlace(workload.name, shape) for shape in workload.shapes]
        return places

    @property
    def traces(self) -> list[Artifact]:
        """The recordings among its artifacts."""
        return self.artifacts_of("trace")

    def artifacts_of(self, *kinds: ArtifactKind) -> list[Artifact]:
        return [artifact for artifact in self.artifacts if artifact.kind in kinds]
