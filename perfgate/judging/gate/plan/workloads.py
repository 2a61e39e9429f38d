"""The plan of a workload: the rows that both documents must have of it.

The trusted side (the base's configuration, main's stored run), the announcements of
each document and the rows of the other side define them: both sides of a check are
measured alike, so each must have everything that the other has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import (
    BUSY,
    FRAMEWORK_OPS,
    LATENCY,
    MEAN,
    OPERATOR_TIME,
    P50,
    PREPROCESSING,
    PREPROCESSING_STAGES,
    PYTHON_TIMES,
    SIGNATURE,
    SLA,
)
from perfgate.document.budget import judges_subroutines
from perfgate.document.decision import NamedBy, Policy
from perfgate.document.run import CORRECTNESS, PAIRS_PER_ROUND
from perfgate.document.samples import AA_PAIRS_OF_A_START, STOPPED
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.blocks import LEAST_CLEAN
from perfgate.judging.gate.evidence.rows import (
    ALWAYS_SEEN,
    CHECKED,
    COUNTED,
    HARNESS,
    OPERATORS,
    QUAD,
    REPORTED,
    SETTING,
    SITES,
    START,
    STEADINESS,
    SUBROUTINES,
    TWINS,
    Expected,
    Row,
    RowArm,
    RowTable,
    column_of,
)
from perfgate.judging.gate.evidence.session_rows import WorkloadRows
from perfgate.judging.gate.evidence.stretches import LOOKS as STRETCH_LOOKS
from perfgate.judging.gate.evidence.tolerance import configured_tolerance
from perfgate.judging.gate.evidence.trusted import Required
from perfgate.judging.gate.plan.difference import EvidencePlan

# If traces are analysed later, only the first pairs have the times of kernels.
_PAIRS_WITH_KERNELS = 12
# The numbers of pairs that are named as missing: a document may claim any.
_MOST_GAPS = 1000
# Announcements of these are required separately.
_PER_SHAPE = (CORRECTNESS, SIGNATURE)
_PROFILES = {OPERATORS: (OPERATOR_TIME,), SUBROUTINES: PYTHON_TIMES}


class WorkloadPlan(EvidencePlan):
    """The rows that both documents must have of one workload, given the rows of each."""

    def __init__(self, rows: WorkloadRows, required: Required, policy: Policy) -> None:
        super().__init__(rows.tables)
        self._name = rows.name
        self._rows = rows
        self._required = required
        self._policy = policy
        self._stored = rows.stored
        self._tables_of_all = (*rows.tables, rows.stored)
        self._announced = [_by_shape(table.announced) for table in self._tables_of_all]
        self._promised = [_by_shape(table.promised) for table in rows.tables]
        self._processes = list(map(_processes, rows.tables))
        self._pairs = list(map(_pairs, self._processes))
        shapes: dict[str, None] = {}
        for announced in self._announced:
            shapes |= dict.fromkeys(announced)
        shapes.pop("", None)
        self._shapes = list(shapes)

    def require_evidence(self, *, timed: bool) -> None:
        """Require the rows; only the workload itself if a document does not list it."""
        whole = Row(self._name)
        if not self.tables.both_have(whole):
            self._require_workload(whole)
            return
        for shape in self._shapes:
            self._require_shared(Row(self._name, shape))
        if timed and not self._rows.provenance.is_recorded:
            self._require_times()
        self._require_promises("")
        self._require_harness()
        for table in self._tables_of_all:
            for expected in table.announced:
                if expected.row.metric == SLA:
                    self._require_shared(expected.row)
        for shape in self._shapes:
            for name in self._rows.incomplete_bounds.get(shape, ()):
                every_value = Row(self._name, shape, name, key=("every value",))
                self.require(every_value, side="head")
            self._require_counters(shape)
            self._require_checks(shape)

    def _require_workload(self, whole: Row) -> None:
        named_by: NamedBy = "document"
        is_configured = self._name in self._required.workloads
        if is_configured and not self.tables.any_has(whole):
            named_by = "configuration"
        self.require(whole, named_by=named_by)

    def _named_by(self, row: Row) -> NamedBy:
        """Who requires a row of a document: main's stored run, if it has that row too."""
        if row in self._stored.rows:
            return "store"
        return "document"

    def _require_shared(self, row: Row) -> None:
        self.require(row, named_by=self._named_by(row))

    def _require_promises(self, shape: str, *, but: tuple[str, ...] = ()) -> None:
        """Require the rows that each document promises, except metrics that begin with
        ``but``.
        """
        for (side, _), promised in zip(self.sides, self._promised):
            for expected in promised.get(shape, ()):
                if not expected.row.metric.startswith(but):
                    self.require(*expected, side=side)

    # --- pairs

    def _require_times(self) -> None:
        self._require_pairs()
        self._require_lanes()
        self._require_stretches()
        # The start of each process on an accelerator is the same on both sides.
        for expected in (*self.tables.base.announced, *self.tables.head.announced):
            if expected.row.metric == START:
                self.require(*expected)
        for row in sorted(self.tables.of_metric(QUAD)):
            # Both members of a pair run the same quads.
            if self.tables.both_have(row._replace(metric=LATENCY, key=())):
                self.require(row)
        self._require_kernels()
        self._require_columns()
        self._require_settings()
        for shape in self._shapes:
            self._require_profiles(ShapePlace(self._name, shape))

    def _require_pairs(self) -> None:
        """Require the members of every pair, and the configured pairs of base against
        base.

        Pairs are numbered as they run, base against base among them; each number is a
        pair that was measured or that failed.
        """
        base, head = self._processes
        pairs_of_base = _numbers(base, "ab")
        twins = _numbers(base, "aa") - pairs_of_base
        measured = pairs_of_base | twins | _numbers(head, "ab")
        failed = self._rows.failed_pairs
        gaps = islice(_left_out(measured.union(failed)), _MOST_GAPS)
        for number in sorted(measured.union(gaps)):
            if number not in twins:
                self.require(Row(self._name, "", LATENCY, "ab", number))
                continue
            for member in ("first", "second"):
                self.require(
                    Row(self._name, "", LATENCY, "aa", number, (member,)),
                    side="base",
                )
        aa_pairs = self._required.aa_pairs
        if self._rows.provenance.on_accelerator:
            aa_pairs = min(aa_pairs, AA_PAIRS_OF_A_START)
        for number in range(aa_pairs):
            self.require(
                Row(self._name, "", TWINS, key=(number,)),
                named_by="configuration",
                side="base",
            )

    def _require_lanes(self) -> None:
        """Require the blocks of each shape in each pair, and the blocks of its
        preprocessing.

        The checklist times the preprocessing of one shape, the pairs time it for all
        shapes.
        """
        is_stored = bool(self._stored.of_metric(PREPROCESSING_STAGES))
        preprocessed = {row.shape for row in self.tables.of_metric(PREPROCESSING)}
        lanes = [(Row(self._name, shape, LATENCY), P50) for shape in self._shapes]
        for shape in self._shapes:
            if is_stored or shape in preprocessed:
                lane = Row(self._name, shape, PREPROCESSING)
                lanes.append((lane, PREPROCESSING_STAGES))
        for lane, stage in lanes:
            # The stored run names a lane if its checklist timed the stage.
            named_by: NamedBy = "document"
            if self._stored.of_metric(stage):
                named_by = "store"
            self.require(lane, named_by=named_by)
            for (side, _), pairs in zip(self.sides, self._pairs):
                for process in pairs:
                    row = process.at(lane.shape, lane.metric)
                    self.require(row, side=side)

    def _require_stretches(self) -> None:
        """Require the blocks of stretches that either side has, and enough usable
        blocks if fast calls took turns.

        A stretch that failed is reported as that.
        """
        if self._rows.has_failed_stretch:
            return
        if not self._rows.expects_stretches and not self.tables.of_metric(MEAN):
            return
        for shape in self._shapes:
            quads = self.tables.of_metric(MEAN, shape)
            for row in quads:
                self.require(row)
            usable = self._rows.usable_quads.get(shape, 0)
            are_usable = usable >= LEAST_CLEAN * len(quads)
            has_enough = len(quads) >= STRETCH_LOOKS[0] and are_usable
            if all(map(self.tables.both_have, quads)) and not has_enough:
                self.require(Row(self._name, shape, MEAN, key=("enough",)))

    def _require_kernels(self) -> None:
        """Require the profiled blocks of an accelerator: each that either side has, and
        one of each pair.

        The first pairs have them if the device is of a kind that reports kernels, or if
        any pair has some; if more pairs have some, all have.
        """
        blocks = set(self.tables.of_metric(BUSY))
        for row in sorted(blocks):
            self.require(row)
        if not blocks and not self._rows.provenance.reports_kernels:
            return
        pairs = set()
        profiled = set()
        for row in blocks:
            pairs.add(row.unit)
            profiled.add(row._replace(key=()))
        for of_side in self._pairs:
            processes = sorted(of_side)
            if len(pairs) <= _PAIRS_WITH_KERNELS:
                processes = processes[:_PAIRS_WITH_KERNELS]
            for process in processes:
                for shape in self._shapes:
                    lane = process.at(shape, BUSY)
                    if lane not in profiled:
                        profiled.add(lane)
                        self.require(lane)

    def _require_columns(self) -> None:
        reported = [column for column in REPORTED if self.tables.of_metric(column)]
        for column in (*ALWAYS_SEEN, *reported):
            for side, table in self.sides:
                lanes = table.of_metric(LATENCY) + table.of_metric(PREPROCESSING)
                for lane in lanes:
                    if lane.shape and lane.arm != "run":
                        self.require(column_of(lane, column), side=side)

    def _require_settings(self) -> None:
        """Require the settings that any process reports: they must be equal on both
        sides.
        """
        names = set(self.tables.metrics(SETTING))
        if self._required.sealed:
            names.add(f"{SETTING}{STOPPED}")
        for (side, _), processes in zip(self.sides, self._processes):
            for name in sorted(names):
                for process in processes:
                    self.require(process.of(name), side=side)

    def _require_profiles(self, place: ShapePlace) -> None:
        """Require the profile of each pair, and in it every time named by a tolerance
        that the other side has.

        Operators that one side runs more often are counted.
        """
        changed = self._rows.work.changed_operators(place)
        for kind, prefixes in _PROFILES.items():
            if not judges_subroutines(self._policy.tolerances, prefixes):
                continue
            _, pairs_of_head = self._pairs
            for process in pairs_of_head:
                self.require(process.at(place.shape, kind))
            for name in self.tables.metrics(prefixes):
                is_counted = (
                    kind == OPERATORS and name.removeprefix(OPERATOR_TIME) in changed
                )
                if (
                    not is_counted
                    and configured_tolerance(self._policy, name, place) is not None
                ):
                    self._require_profiled_times(
                        kind, self.tables.of_metric(name, place.shape)
                    )

    def _require_profiled_times(self, kind: str, rows: Collection[Row]) -> None:
        """Require the times of one name in the pairs that each side profiled.

        A module or function that one side never ran was added or removed by the change.
        """
        for side, table in self.sides:
            is_known = kind == OPERATORS or not table.rows.keys().isdisjoint(rows)
            for row in rows:
                if is_known and row.of(kind) in table.rows:
                    self.require(row, side=side)

    # --- counts and checks of the checklist

    def _require_harness(self) -> None:
        """Require the parts of the sides' harnesses; a part of the head alone is new if
        its harness declares that.

        A change of the workload file has a harness, even if no document has one any
        more.
        """
        before = self._rows.harness_of_base
        after = self._rows.harness_of_head
        whole = Row(self._name, "", HARNESS)
        if before or self._rows.is_edited:
            self.require(whole, side="head")
        if not after or self._name in after.added:
            return
        self.require(whole, side="base")
        if before and before.error is None and after.error is None:
            for metric in sorted(self.tables.head.metrics):
                part = metric.removeprefix(f"{HARNESS}.")
                if part != metric and part not in after.added:
                    self.require(Row(self._name, "", metric), side="base")

    def _require_counters(self, shape: str) -> None:
        place = Row(self._name, shape)
        counted = place.of(FRAMEWORK_OPS, COUNTED)
        if not self.tables.both_have(counted):
            # Recordings of a host alone, or of a device alone, count only their own
            # part.
            if self.tables.any_has(counted) or not self._rows.provenance.is_recorded:
                self._require_shared(counted)
            return
        counts = set()
        for table, announced in zip(self._tables_of_all, self._announced):
            for row, *_ in announced.get(shape, ()):
                # A metric counted by an older perfgate only is not in the catalogue.
                is_known = table is not self._stored or row.metric in METRICS
                # A single operator is among those that are unstable.
                is_operator = row.metric.startswith("ops.")
                if is_known and row.key == () and not is_operator:
                    counts.add(row.metric)
        for metric in sorted(counts - {""}):
            self._require_count(place.of(metric))
        but: tuple[str, ...] = _PER_SHAPE
        if not self.tables.any_has(place.of(SITES)):
            but = (*_PER_SHAPE, "sites.", "ops.count:")
        self._require_promises(shape, but=but)

    def _require_count(self, count: Row) -> None:
        """Require one count.

        An uncountable one is excused if the base could not be counted either.
        """
        base = self.tables.base
        is_excused = count in base.uncounted and count not in base.rows
        named_by = self._named_by(count)
        for side, table in self.sides:
            if is_excused and count in table.uncounted:
                continue
            self.require(count, named_by=named_by, side=side)
            if self._rows.provenance.says_steady:
                self.require(count.marked(STEADINESS), named_by=named_by, side=side)

    def _require_checks(self, shape: str) -> None:
        check = Row(self._name, shape, CORRECTNESS)
        if not self._rows.provenance.is_recorded or self.tables.any_has(check):
            self._require_shared(check)
        passed = check.marked(CHECKED)
        for announced in self._announced:
            if Expected(passed) in announced.get(shape, ()):
                self._require_shared(passed)
        signature = check.of(SIGNATURE)
        for (side, _), promised in zip(self.sides, self._promised):
            if Expected(signature) in promised.get(shape, ()):
                self.require(signature, named_by=self._named_by(signature), side=side)


def _by_shape(rows: Iterable[Expected]) -> dict[str, list[Expected]]:
    shapes: dict[str, list[Expected]] = {}
    for expected in rows:
        shapes.setdefault(expected.row.shape, []).append(expected)
    return shapes


def _left_out(numbers: Collection[int]) -> Iterator[int]:
    """Yield the numbers of pairs between the first of a round and its last that are not
    among these.
    """
    previous = -1
    for number in sorted(numbers):
        first_of_round = number // PAIRS_PER_ROUND * PAIRS_PER_ROUND
        yield from range(max(first_of_round, previous + 1), number)
        previous = number


def _processes(table: RowTable) -> list[Row]:
    return [
        row for row in table.of_metric(LATENCY) if row.arm != "run" and not row.shape
    ]


def _numbers(processes: Iterable[Row], arm: RowArm) -> set[int]:
    """The numbers of the pairs of an arm."""
    return {row.unit for row in processes if row.arm == arm}


def _pairs(processes: Iterable[Row]) -> list[Row]:
    """The processes of the own side in pairs with the other."""
    return [row for row in processes if row.arm == "ab" and not row.key]
