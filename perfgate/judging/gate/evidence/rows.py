"""The rows of a run document: the identity of each piece of evidence that it contains.

No sample is unpacked for them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from perfgate.catalogue.lookup import CARDS
from perfgate.catalogue.names import (
    BUSY,
    FRAMEWORK_OPS,
    LATENCY,
    LOW_PRECISION_OPS,
    MEAN,
    OPERATOR_TIME,
    P50,
    PREPROCESSING,
    PREPROCESSING_STAGES,
    SIGNATURE,
    SLA,
)
from perfgate.document.decision import NamedBy
from perfgate.document.run import (
    CORRECTNESS,
    OUTSIDE_OPERATORS,
    CorrectnessResult,
    CounterSet,
    Harness,
    RunDocument,
    Side,
    WorkloadRecord,
)
from perfgate.document.samples import BlockColumns, Replicate
from perfgate.judging.gate.evidence.index import RunIndex

RowArm = Literal["run", "ab", "aa", "stretch", "turn"]

SEAL, HARNESS, QUAD, SITES, TWINS = "seal", "harness", "quad", "sites", "replicates.aa"
START = "start"
SETTING, STEP = "settings.", "steps."
OPERATORS, SUBROUTINES = "operators", "subroutines"
# The conductor sees these of every block, on any device.
ALWAYS_SEEN = ("seen_ns", "used_ns", "out_of_turn_ns", "waited_ns")
# Reported by the device or the kernel: a block must have it if another block has it.
REPORTED = (
    "run_delay_ns",
    "instructions",
    "throttled",
    "clock_share",
    "foreign_processes",
)
# The columns that a trusted document has, by the part of the blocks that holds them.
_COLUMNS = {
    "conductor": (*ALWAYS_SEEN, "run_delay_ns"),
    "worker": ("instructions",),
    "device": ("throttled", "clock_share", "foreign_processes"),
}
# Distinguish rows of one metric: the shape was counted, a count is known to repeat or
# to vary, and an output was checked.
COUNTED = "counted"
STEADINESS = "steadiness"
CHECKED = "checked"


class Row(NamedTuple):
    """The identity of a piece of evidence.

    ``metric`` is a metric or a part of a document; without it the row is a whole shape,
    without a shape a whole workload or job. ``arm`` and ``unit`` are the pair, the
    start of a stretch or the quad of a job that it belongs to, and ``key``
    distinguishes the rows of one unit.
    """

    workload: str
    shape: str = ""
    metric: str = ""
    arm: RowArm = "run"
    unit: int = 0
    key: tuple[str | float, ...] = ()

    def of(self, metric: str, *key: str | float) -> Row:
        """The row of another metric, with an addition to the key."""
        return self._replace(metric=metric, key=(*self.key, *key))

    def at(self, shape: str, metric: str) -> Row:
        """The row of another metric of a shape."""
        return self._replace(shape=shape, metric=metric)

    def marked(self, *key: str | float) -> Row:
        """The row of the same metric with an addition to the key."""
        return self._replace(key=(*self.key, *key))


class Expected(NamedTuple):
    """A row that must be there, its text if that is fixed, and who requires it."""

    row: Row
    text: str | None = None
    named_by: NamedBy = "document"


class RowTable:
    """The rows of one workload or job in a document.

    ``rows`` maps each to what both sides must have in common of it, as text.
    ``announced`` are the rows that both sides must have if this document is right, and
    ``promised`` those that this document itself must have.
    """

    def __init__(self) -> None:
        self.rows: dict[Row, str] = {}
        self.announced: list[Expected] = []
        self.promised: list[Expected] = []
        # The counts that could not be counted, by shape.
        self.uncounted: set[Row] = set()
        self._by_metric: dict[str, list[Row]] = {}

    def add(self, row: Row, text: str = "") -> None:
        if row not in self.rows:
            self._by_metric.setdefault(row.metric, []).append(row)
        self.rows[row] = text

    def announce(
        self, row: Row, text: str | None = None, *, whole: bool = True
    ) -> None:
        """Add a row that the other side must have too; one that is not ``whole`` is not
        there.
        """
        self.announced.append(Expected(row, text))
        if whole:
            self.add(row, text or "")

    def promise(self, row: Row, *, whole: bool, named_by: NamedBy = "document") -> None:
        """Add a row that this document must have, unless it is not ``whole``."""
        self.promised.append(Expected(row, named_by=named_by))
        if whole:
            self.add(row)

    def of_metric(self, metric: str) -> list[Row]:
        return self._by_metric.get(metric, [])

    @property
    def metrics(self) -> set[str]:
        return set(self._by_metric)


class SideTables(NamedTuple):
    """The rows of one workload or job on both sides."""

    base: RowTable
    head: RowTable

    def any_has(self, row: Row) -> bool:
        return row in self.base.rows or row in self.head.rows

    def both_have(self, row: Row) -> bool:
        return row in self.base.rows and row in self.head.rows

    def of_metric(self, metric: str, shape: str | None = None) -> list[Row]:
        """The rows of a metric that either side has, of one shape or all."""
        rows = dict.fromkeys(
            [*self.base.of_metric(metric), *self.head.of_metric(metric)]
        )
        return [row for row in rows if shape in (None, row.shape)]

    def metrics(self, prefix: str | tuple[str, ...]) -> list[str]:
        """The metrics with such a name that either side has."""
        names = self.base.metrics | self.head.metrics
        return sorted(name for name in names if name.startswith(prefix))


def rows_of_workloads(
    index: RunIndex, side: Side, *, profiles: bool = False
) -> dict[str, RowTable]:
    """The rows of each workload in a document; rows of its ``profiles`` only if they
    are to be judged.
    """
    run = index.run
    tables: dict[str, RowTable] = defaultdict(RowTable)
    for record in run.workloads:
        _add_record(tables[record.name], record, run)
    for replicate in run.pairs.replicates:
        table = tables[replicate.workload]
        _add_replicate(table, replicate, side, profiles=profiles)
        if run.testbed.device_kind != "cpu" and replicate.arm != "aa":
            # Base and head share the start of a process on an accelerator; without it
            # all pairs look independent.
            row = Row(replicate.workload, "", START, replicate.arm, replicate.pair)
            is_known = replicate.start is not None
            table.announce(row, str(replicate.start), whole=is_known)
    for harness in run.source.harness:
        _add_harness(tables[harness.workload], harness)
    for counters in run.checklist.counters:
        _add_counters(tables[counters.workload], counters)
    for check in run.checklist.correctness:
        _add_check(tables[check.workload], check)
    for step in run.checklist.steps:
        for value in step.values:
            # The stages of a call that the checklist timed.
            if value.metric in (P50, PREPROCESSING_STAGES) and value.value is not None:
                tables[step.workload].add(Row(step.workload, "", value.metric))
    return tables


def _add_record(table: RowTable, record: WorkloadRecord, run: RunDocument) -> None:
    name = record.name
    table.announce(Row(name))
    for shape in record.shapes:
        table.announce(Row(name, shape))
    present = {step.number for step in run.checklist.steps if step.workload == name}
    for number in sorted(record.steps):
        slug = CARDS[number].slug if number in CARDS else str(number)
        table.promise(Row(name, "", f"{STEP}{slug}"), whole=number in present)
    if record.sla_p99 is not None:
        table.announce(Row(name, "", SLA, key=("sla_p99", record.sla_p99)))
    if record.sla_rate is not None:
        table.announce(Row(name, "", SLA, key=("sla_rate", record.sla_rate)))


def _add_replicate(
    table: RowTable, replicate: Replicate, side: Side, *, profiles: bool
) -> None:
    """Add a process of a pair or a stretch, its settings, and its lanes: a shape's
    blocks of calls or of preprocessing.
    """
    process = _row_of_process(replicate, side)
    if replicate.arm == "aa" and replicate.member == "second":
        _add_twins(table, process)
    table.add(process)
    for setting in replicate.worker.settings:
        table.add(process.of(f"{SETTING}{setting}"))
    for shape, columns in replicate.shapes.items():
        _add_lane(table, process.at(shape, LATENCY), columns)
    for shape, columns in replicate.preprocess.items():
        _add_lane(table, process.at(shape, PREPROCESSING), columns)
    if replicate.arm == "ab":
        _add_kernels(table, process, replicate)
        if profiles:
            _add_profiles(table, process, replicate)


def _row_of_process(replicate: Replicate, side: Side) -> Row:
    """The row of a process; its member is the key, unless it is a pair's member of this
    side.
    """
    own_member = "first" if side == "base" else "second"
    row = Row(replicate.workload, "", LATENCY, replicate.arm, replicate.pair)
    if replicate.arm == "aa" or replicate.member != own_member:
        return row.marked(replicate.member)
    return row


def _add_twins(table: RowTable, second: Row) -> None:
    """Count a pair of base against base, by its second member."""
    if second not in table.rows:
        number = len(table.of_metric(TWINS))
        table.add(Row(second.workload, "", TWINS, key=(number,)))


def _add_kernels(table: RowTable, process: Row, replicate: Replicate) -> None:
    """Add the profiled blocks of each shape: kernels without time are left out."""
    for shape, kernels in replicate.kernels.items():
        for quad, busy_ns in zip(kernels.quad, kernels.busy_ns):
            if busy_ns > 0:
                table.add(process.at(shape, BUSY).marked(quad))


def _add_profiles(table: RowTable, process: Row, replicate: Replicate) -> None:
    """Add the operators and subroutines that a process of a pair was profiled in."""
    kinds = [
        (OPERATORS, OPERATOR_TIME, replicate.profile.operators),
        (SUBROUTINES, "", replicate.profile.subroutines),
    ]
    for kind, prefix, shapes in kinds:
        for shape, times in shapes.items():
            if times:
                table.add(process.at(shape, kind))
            for name in times.keys() - {OUTSIDE_OPERATORS}:
                table.add(process.at(shape, f"{prefix}{name}"))


def _add_lane(table: RowTable, lane: Row, columns: BlockColumns) -> None:
    table.announce(Row(lane.workload, lane.shape), whole=False)
    if lane.arm == "ab":
        table.add(Row(lane.workload, lane.shape, lane.metric))
    table.add(lane)
    for part, names in _COLUMNS.items():
        for name in names:
            if getattr(getattr(columns, part), name):
                table.add(column_of(lane, name))
    if lane.metric == LATENCY:
        _add_quads(table, lane, columns.quad)


def _add_quads(table: RowTable, lane: Row, quads: Sequence[int]) -> None:
    """Add the quads of a stretch, or the blocks in each quad of a pair."""
    if lane.arm == "stretch":
        for quad in quads:
            table.add(lane._replace(metric=MEAN, key=(quad,)))
    if lane.arm == "ab":
        for quad, blocks in Counter(quads).items():
            for block in range(blocks):
                table.add(lane._replace(metric=QUAD, key=(quad, block)))


def column_of(lane: Row, column: str) -> Row:
    """The row of a column of the blocks in a lane."""
    return lane.of(column, lane.metric)


def _add_harness(table: RowTable, harness: Harness) -> None:
    table.add(Row(harness.workload, "", HARNESS))
    parts = [*harness.shapes, *harness.functions]
    if harness.sla_p99 is not None:
        parts.append("sla_p99")
    for part in parts:
        table.add(Row(harness.workload, "", f"{HARNESS}.{part}"))


def _add_counters(table: RowTable, counters: CounterSet) -> None:
    place = Row(counters.workload, counters.shape)
    table.announce(place, whole=False)
    table.add(place.of(FRAMEWORK_OPS, COUNTED))
    names = {*counters.values, *counters.steady, *counters.unstable}
    for name in sorted(names):
        table.announce(place.of(name), whole=name in counters.values)
    for name in (*counters.steady, *counters.unstable, *counters.not_applicable):
        table.add(place.of(name, STEADINESS))
    for name in counters.not_applicable:
        table.add(place.of(name))
    table.uncounted |= {place.of(name) for name in counters.uncounted}
    for name in sorted(counters.unstable):
        table.promise(place.of(f"ranges.{name}"), whole=name in counters.ranges)
    if counters.sites or counters.values.get(LOW_PRECISION_OPS):
        table.add(place.of(SITES))
    for part, is_whole in _parts_of_sites(counters):
        table.promise(place.of(part), whole=is_whole)


def _parts_of_sites(counters: CounterSet) -> Iterator[tuple[str, bool]]:
    """Yield the parts of the sites that the gate judges by, and whether each adds up to
    its counter or operator.
    """
    framework: Counter[str] = Counter()
    low_precision: Counter[str] = Counter()
    by_metric = {FRAMEWORK_OPS: framework, LOW_PRECISION_OPS: low_precision}
    for site in counters.sites:
        if site.metric in by_metric:
            by_metric[site.metric][site.name] += site.count
    for metric, by_operator in by_metric.items():
        yield f"sites.{metric}", by_operator.total() == counters.values.get(metric, 0)
    # A count that varies does so at places: the other places are compared exactly.
    if FRAMEWORK_OPS in counters.unstable:
        has_varying = any(site.between for site in counters.sites)
        yield f"sites.between:{FRAMEWORK_OPS}", has_varying
    runs = Counter({operator.op: operator.count for operator in counters.ops})
    for name, count in sorted(framework.items()):
        yield f"ops.count:{name}", runs[name] == count
    # No operator can have run in low precision more often than it ran.
    for name, count in sorted(low_precision.items()):
        yield f"sites.{LOW_PRECISION_OPS}:{name}", count <= runs[name]


def _add_check(table: RowTable, check: CorrectnessResult) -> None:
    place = Row(check.workload, check.shape)
    table.announce(place, whole=False)
    table.add(place.of(CORRECTNESS))
    checked = place.of(CORRECTNESS, CHECKED)
    # Only a workload that has a check passes one, and both sides are measured by one
    # file.
    if check.status == "passed":
        table.announce(checked)
    elif check.status != "not_checked":
        table.add(checked)
    # Every returned value has a signature; if none could be made, there is an error.
    if check.status != "error":
        table.promise(place.of(SIGNATURE), whole=check.signature is not None)
