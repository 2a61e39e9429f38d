"""The plan of a workload: the rows that both documents must have of it.

The trusted side (the base's configuration, main's stored run), the announcements of each document and the rows of the other
side define them: both sides of a check are measured alike, so each must have everything that the other has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

import numpy as np

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import (
    BUSY,
    FRAMEWORK_OPS,
    LATENCY,
    MEAN,
    P50,
    PREPROCESSING,
    PREPROCESSING_STAGES,
    SIGNATURE,
    SLA,
)
from perfgate.document.decision import NamedBy, Policy
from perfgate.document.run import CORRECTNESS, PAIRS_PER_ROUND, Harness, RunDocument, Side, WorkloadRecord
from perfgate.document.samples import STOPPED, BlockColumns, unpack
from perfgate.judging.gate.evidence.bounds import bounds_with_lost_values
from perfgate.judging.gate.evidence.clocks import awake_by_block
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.rows import (
    ALWAYS_SEEN,
    CHECKED,
    COUNTED,
    HARNESS,
    QUAD,
    REPORTED,
    SETTING,
    SITES,
    START,
    STEADINESS,
    TWINS,
    Expected,
    Row,
    RowTable,
    column_of,
    rows_of_workloads,
)
from perfgate.judging.gate.evidence.stretches import LOOKS as STRETCH_LOOKS
from perfgate.judging.gate.evidence.trusted import Required
from perfgate.judging.gate.evidence.undisturbed import LEAST_CLEAN, clean_pair
from perfgate.judging.gate.plan.difference import Requirement, on_both_sides
from perfgate.judging.gate.plan.profiles import profiled_rows
from perfgate.protocol import SLOW_CALL_SECONDS
from perfgate.stats.summary import median

# Warming up may time a call as slower than the pairs do.
CERTAINLY_FAST = 0.8
# Kinds of devices that report the times of kernels. If their traces are analysed later, only the first pairs have them.
_KINDS_WITH_KERNELS = frozenset({"cuda", "npu"})
_PAIRS_WITH_KERNELS = 12
# Announcements of these are required in an order of their own.
_PER_SHAPE = (CORRECTNESS, SIGNATURE)


class WorkloadPlan:
    """The rows that both documents must have of one workload, given what each has."""

    def __init__(
        self, name: str, evidence: Evidence, tables: dict[Side, RowTable], required: Required, policy: Policy
    ) -> None:
        self._name = name
        self._evidence = evidence
        self._tables = tables
        self._required = required
        self._policy = policy
        self._stored_run = self._newest_stored_run()
        self._stored = RowTable()
        if self._stored_run is not None:
            self._stored = rows_of_workloads(self._stored_run, "base")[name]
        announced = [*tables["base"].announced, *tables["head"].announced, *self._stored.announced]
        self._shapes = list(dict.fromkeys(entry.row.shape for entry in announced if entry.row.shape))

    def requirements(self, *, timed: bool) -> Iterator[Requirement]:
        """Yield what is required; only the workload itself if a document does not list it."""
        whole = Row(self._name)
        if not self._both_have(whole):
            is_configured = not self._any_has(whole) and self._name in self._required.workloads
            named_by: NamedBy = "configuration" if is_configured else "document"
            yield from on_both_sides([Expected(whole, named_by=named_by)])
            return
        yield from self._whole_shapes()
        if timed and not self._evidence.recorded:
            yield from self._pairs()
            yield from self._lanes()
            yield from self._stretches()
            yield from self._starts()
            yield from self._quads()
            yield from self._kernels()
            yield from self._columns()
            yield from self._settings()
            for shape in self._shapes:
                place = ShapePlace(self._name, shape)
                yield from profiled_rows(self._tables, self._evidence, self._policy, place)
        yield from self._promised("")
        yield from self._harness()
        yield from self._announced("", [SLA])
        for shape in self._shapes:
            yield from self._bounds(shape)
            yield from self._counters(shape)
            yield from self._checks(shape)

    def _newest_stored_run(self) -> RunDocument | None:
        """Main's newest stored run that measured this workload by the file that both sides were measured by."""
        files = {record.sha256 for run in self._evidence.runs for record in _records(run, self._name)}
        for run in self._required.stored:
            for record in _records(run, self._name):
                if not record.error and {record.sha256} == files and not self._evidence.recorded:
                    return run
        return None

    # --- shapes and announcements

    def _whole_shapes(self) -> Iterator[Requirement]:
        for shape in self._shapes:
            yield from self._both(Row(self._name, shape))

    def _any_has(self, row: Row) -> bool:
        return any(row in table.rows for table in self._tables.values())

    def _both_have(self, row: Row) -> bool:
        return all(row in table.rows for table in self._tables.values())

    def _rows(self, metric: str) -> list[Row]:
        """The rows of a metric that any side has."""
        rows: dict[Row, None] = {}
        for table in self._tables.values():
            rows |= dict.fromkeys(table.of_metric(metric))
        return list(rows)

    def _metrics(self, prefix: str) -> list[str]:
        """The metrics of this kind that any side has."""
        metrics: set[str] = set()
        for table in self._tables.values():
            metrics |= table.metrics
        return sorted(metric for metric in metrics if metric.startswith(prefix))

    def _both(self, row: Row) -> list[Requirement]:
        """The row on both sides. If main's stored run has it too, it is the run that names it."""
        named_by: NamedBy = "store" if row in self._stored.rows else "document"
        return on_both_sides([Expected(row, named_by=named_by)])

    def _announced(self, shape: str, metrics: Collection[str]) -> Iterator[Requirement]:
        """Yield what either document, or main's stored run, announces."""
        for table in (*self._tables.values(), self._stored):
            for expected in table.announced:
                if expected.row.shape == shape and expected.row.metric in metrics:
                    yield from self._both(expected.row)

    def _promised(self, shape: str, *, but: tuple[str, ...] = ()) -> Iterator[Requirement]:
        """Yield what each document says that it has itself."""
        for side, table in self._tables.items():
            for expected in table.promised:
                if expected.row.shape == shape and not expected.row.metric.startswith(but or ("\0",)):
                    yield Requirement(side, expected)

    # --- pairs

    def _pairs(self) -> Iterator[Requirement]:
        """Yield the members of every pair, and the configured pairs of base against base.

        Pairs are numbered as they run, base against base among them; each number is a pair that was measured or that failed.
        """
        measured: dict[int, set[str]] = {}
        for side, table in self._tables.items():
            for row in self._processes(table):
                if row.arm != "stretch" and not (side == "head" and (row.arm == "aa" or row.key)):
                    measured.setdefault(row.unit, set()).add(f"{side} {row.arm}")
        failed = {
            pair.pair
            for pair in self._evidence.head.run.failed_pairs
            if pair.workload == self._name and pair.arm != "stretch"
        }
        for number in _pair_numbers({*measured, *failed}):
            if number in failed and number not in measured:
                continue
            arms = measured.get(number, set())
            if "base aa" in arms and "base ab" not in arms:
                for member in ("first", "second"):
                    twin = Row(self._name, "", LATENCY, "aa", number, (member,))
                    yield Requirement("base", Expected(twin))
            else:
                yield from on_both_sides([Expected(Row(self._name, "", LATENCY, "ab", number))])
        for number in range(self._required.aa_pairs):
            twins = Row(self._name, "", TWINS, key=(number,))
            yield Requirement("base", Expected(twins, named_by="configuration"))

    def _starts(self) -> Iterator[Requirement]:
        """Yield the start of each process on an accelerator, the same on both sides."""
        for table in self._tables.values():
            for expected in table.announced:
                if expected.row.metric == START:
                    yield from on_both_sides([expected])

    def _processes(self, table: RowTable) -> list[Row]:
        return [row for row in table.of_metric(LATENCY) if row.arm != "run" and not row.shape]

    def _lanes(self) -> Iterator[Requirement]:
        """Yield the blocks of each shape in each pair, and those of its preprocessing.

        The checklist times the preprocessing of one shape, the pairs that of all shapes.
        """
        timed = {row.metric for row in self._stored.rows}
        preprocessed = {row.shape for row in self._rows(PREPROCESSING)}
        if PREPROCESSING_STAGES in timed:
            preprocessed.update(self._shapes)
        lanes = [(LATENCY, P50, shape) for shape in self._shapes]
        lanes += [(PREPROCESSING, PREPROCESSING_STAGES, shape) for shape in self._shapes if shape in preprocessed]
        for metric, stage, shape in lanes:
            named_by: NamedBy = "store" if stage in timed else "document"
            yield from on_both_sides([Expected(Row(self._name, shape, metric), named_by=named_by)])
            for side, table in self._tables.items():
                for process in self._processes(table):
                    if process.arm == "ab" and not process.key:
                        yield Requirement(side, Expected(process._replace(shape=shape, metric=metric)))

    def _stretches(self) -> Iterator[Requirement]:
        """Yield the blocks of stretches that either side has, and enough usable ones where calls are fast.

        A stretch that failed is reported as that.
        """
        failed = [pair for pair in self._evidence.head.run.failed_pairs if pair.workload == self._name]
        if any(pair.arm == "stretch" for pair in failed):
            return
        blocks = self._rows(MEAN)
        if not blocks and not (self._required.stretches and self._has_fast_calls()):
            return
        for shape in self._shapes:
            expected = [row for row in blocks if row.shape == shape]
            yield from on_both_sides(Expected(row) for row in expected)
            is_whole = all(map(self._both_have, expected))
            if is_whole and not self._has_enough_quads(shape, len(expected)):
                yield from on_both_sides([Expected(Row(self._name, shape, MEAN, key=("enough",)))])

    def _has_enough_quads(self, shape: str, quads: int) -> bool:
        """Whether there are as many quads as the first look takes, and not too few of them are usable."""
        usable = 0
        for first, second in self._evidence.stretches.get(self._name, ()):
            if shape in first.shapes and shape in second.shapes:
                usable += len(_usable_quads(first.shapes[shape], second.shapes[shape]))
        return quads >= STRETCH_LOOKS[0] and usable >= LEAST_CLEAN * quads

    def _has_fast_calls(self) -> bool:
        """Whether calls of the base are certainly fast enough for stretches, by its pairs: it is the trusted side."""
        seconds: dict[str, list[float]] = {}
        for first, _ in self._evidence.pairs.get(self._name, ()):
            for shape, columns in first.shapes.items():
                seconds.setdefault(shape, []).append(median(unpack(columns.wall)) / 1e9)
        return bool(seconds) and sum(map(median, seconds.values())) < CERTAINLY_FAST * SLOW_CALL_SECONDS

    def _quads(self) -> Iterator[Requirement]:
        """Yield the blocks of each quad that either member of a pair has: both run the same."""
        for row in sorted(self._rows(QUAD)):
            if self._both_have(row._replace(metric=LATENCY, key=())):
                yield from on_both_sides([Expected(row)])

    def _kernels(self) -> Iterator[Requirement]:
        """Yield the profiled blocks of an accelerator: each that either side has, and one of each pair.

        The first pairs have them if the device is of a kind that reports kernels, or if any pair has some; if more pairs have
        some, all have.
        """
        blocks = set(self._rows(BUSY))
        yield from on_both_sides(Expected(row) for row in sorted(blocks))
        kinds = {run.testbed.device_kind for run in self._evidence.runs}
        if not blocks and kinds.isdisjoint(_KINDS_WITH_KERNELS):
            return
        is_of_all = len({row.unit for row in blocks}) > _PAIRS_WITH_KERNELS
        most = None if is_of_all else _PAIRS_WITH_KERNELS
        lanes: dict[Row, None] = {}
        for table in self._tables.values():
            processes = [row for row in self._processes(table) if row.arm == "ab" and not row.key]
            for process in sorted(processes)[:most]:
                lanes |= {process._replace(shape=shape, metric=BUSY): None for shape in self._shapes}
        profiled = {row._replace(key=()) for row in blocks}
        yield from on_both_sides(Expected(lane) for lane in lanes if lane not in profiled)

    def _columns(self) -> Iterator[Requirement]:
        reported = [column for column in REPORTED if self._rows(column)]
        for column in (*ALWAYS_SEEN, *reported):
            for side, table in self._tables.items():
                lanes = [*table.of_metric(LATENCY), *table.of_metric(PREPROCESSING)]
                for lane in lanes:
                    if lane.shape and lane.arm != "run":
                        yield Requirement(side, Expected(column_of(lane, column)))

    def _settings(self) -> Iterator[Requirement]:
        """Yield the settings that any process reports: they must be equal on both sides."""
        names = set(self._metrics(SETTING))
        if self._required.sealed:
            names.add(f"{SETTING}{STOPPED}")
        for side, table in self._tables.items():
            for name in sorted(names):
                for process in self._processes(table):
                    yield Requirement(side, Expected(process._replace(metric=name)))

    # --- counts and checks of the checklist

    def _harness(self) -> Iterator[Requirement]:
        """Yield the parts of the sides' harnesses; a part of the head alone is new if its harness declares that.

        A change of the workload file has a harness, also where no document has one any more.
        """
        before, after = (_harness_of(run, self._name) for run in self._evidence.runs)
        whole = Expected(Row(self._name, "", HARNESS))
        if before or self._is_file_changed():
            yield Requirement("head", whole)
        if not after or self._name in after.added:
            return
        yield Requirement("base", whole)
        if before and before.error is None and after.error is None:
            added = {f"{HARNESS}.{part}" for part in after.added}
            parts = [metric for metric in self._tables["head"].metrics if metric.startswith(f"{HARNESS}.")]
            for part in sorted(set(parts) - added):
                yield Requirement("base", Expected(Row(self._name, "", part)))

    def _is_file_changed(self) -> bool:
        """Whether the head says that code of the workload file differs from the base's."""
        head = self._evidence.head.run
        files = {record.reference.rpartition(":")[0] for record in _records(head, self._name)}
        return any(change.file in files for change in head.source.changes)

    def _bounds(self, shape: str) -> Iterator[Requirement]:
        for bound in bounds_with_lost_values(self._evidence, self._policy, ShapePlace(self._name, shape)):
            yield Requirement("head", Expected(Row(self._name, shape, bound, key=("every value",))))

    def _counters(self, shape: str) -> Iterator[Requirement]:
        place = Row(self._name, shape)
        counted = place._replace(metric=FRAMEWORK_OPS, key=COUNTED)
        if not self._both_have(counted):
            # Recordings of a host alone, or of a device alone, count only their own part.
            if self._any_has(counted) or not self._evidence.recorded:
                yield from self._both(counted)
            return
        announced = [*self._tables["base"].announced, *self._tables["head"].announced]
        # A metric counted by an older perfgate only is not in the catalogue.
        announced += [expected for expected in self._stored.announced if expected.row.metric in METRICS]
        counts = {row.metric for row, *_ in announced if row.shape == shape and row.metric and row.key == ()}
        for metric in sorted(counts):
            # A single operator is among those that are unstable.
            if not metric.startswith("ops."):
                yield from self._count(place._replace(metric=metric))
        judges_sites = self._any_has(place._replace(metric=SITES))
        yield from self._promised(shape, but=_PER_SHAPE if judges_sites else (*_PER_SHAPE, "sites.", "ops.count:"))

    def _count(self, count: Row) -> Iterator[Requirement]:
        """Yield one count. An uncountable one is excused if the base could not be counted either."""
        base = self._tables["base"]
        is_excused = count in base.uncounted and count not in base.rows
        for requirement in self._both(count):
            if is_excused and count in self._tables[requirement.side].uncounted:
                continue
            yield requirement
            if self._says_steady:
                steadiness = requirement.expected._replace(row=count._replace(key=STEADINESS))
                yield Requirement(requirement.side, steadiness)

    @property
    def _says_steady(self) -> bool:
        """Whether any counter of the runs says which of its counts are steady, as older perfgates do not."""
        runs = [*self._evidence.runs]
        if self._stored_run is not None:
            runs.append(self._stored_run)
        return any(counters.steady for run in runs for counters in run.counters)

    def _checks(self, shape: str) -> Iterator[Requirement]:
        check = Row(self._name, shape, CORRECTNESS)
        if not self._evidence.recorded or self._any_has(check):
            yield from self._both(check)
        passed = check._replace(key=CHECKED)
        for table in (*self._tables.values(), self._stored):
            if any(expected.row == passed for expected in table.announced):
                yield from self._both(passed)
        for side, table in self._tables.items():
            for expected in table.promised:
                if expected.row == check._replace(metric=SIGNATURE):
                    named_by: NamedBy = "store" if expected.row in self._stored.rows else "document"
                    yield Requirement(side, expected._replace(named_by=named_by))


def _records(run: RunDocument, name: str) -> list[WorkloadRecord]:
    return [record for record in run.workloads if record.name == name]


def _harness_of(run: RunDocument, name: str) -> Harness | None:
    return next((harness for harness in run.harness if harness.workload == name), None)


def _pair_numbers(traces: Iterable[int]) -> Iterator[int]:
    """Yield the numbers of every round from its first pair to the last that left a trace."""
    for number, pairs in groupby(sorted(traces), key=lambda pair: pair // PAIRS_PER_ROUND):
        yield from range(number * PAIRS_PER_ROUND, max(pairs) + 1)


def _usable_quads(first: BlockColumns, second: BlockColumns) -> set[int]:
    """The undisturbed quads of a stretch in which every block was timed."""
    clean, _ = clean_pair(first, second)
    usable = set(clean or ())
    for columns in (first, second):
        if not columns.seen_ns:
            return set()
        untimed = np.isnan(awake_by_block(columns))
        usable -= {quad for quad, is_untimed in zip(columns.quad, untimed) if is_untimed}
    return usable
