"""The rows of a job: its record, its turns, and the proof that both sides did equal
work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from perfgate.catalogue.names import ITL, NUMBER, RANKS_LOSS, TPOT
from perfgate.document.job import JobRecord, Turn
from perfgate.job_settings import JobReference
from perfgate.judging.gate.evidence.index import RunIndex
from perfgate.judging.gate.evidence.quads import FEWEST_COUNTED, counted_lines
from perfgate.judging.gate.evidence.rows import Row, RowTable
from perfgate.load_settings import LoadSettings

TURNS, NUMBERS, SETTINGS, FITS = "job.turns", "job.numbers", "job.settings", "job.fits"
REQUESTS, OUTPUT, STEPS_COUNTED = "job.requests", "job.output", "counts.steps"
# Distinguish rows of one metric: of a number, and of the settings.
ABOVE_ZERO, ZERO, MEASURED, GATES, LISTED = (
    "above zero",
    "zero",
    "measured",
    "gates",
    "listed",
)
CONFIGURED, OF_PROGRAM = "configured", "of the program"
AS_SET = "as set"
# The counts of work that every turn of a kind has.
_WORK = {
    "server": ("requests", "input_tokens", "output_tokens", "without_text"),
    "ranks": ("steps", "ranks", "samples"),
    "command": (),
}


def rows_of_job(
    run: RunIndex, name: str, settings: JobReference | None, work: Iterable[str]
) -> RowTable:
    """The rows of a job in a document, with those that its ``settings`` ask for if the
    trusted side knows them.

    ``work`` are the counts of work in main's stored run.
    """
    table = RowTable()
    record = run.jobs.get(name)
    turns = run.turns.get(name, [])
    table.announce(Row(name), whole=record is not None and bool(turns))
    if record is None:
        return table
    _add_record(table, record)
    for row, turn in _turns_by_row(name, turns):
        _add_turn(table, row, turn)
        if record.is_server and not turn.requests:
            table.announce(row.of(REQUESTS), whole=False)
        else:
            requests = [turn.requests, sorted(turn.without)]
            table.announce(row.of(REQUESTS), _text_of(requests))
    _promise_fields(table, record, turns)
    if settings is not None:
        _add_proofs(table, _Proofs(record, settings, turns), work)
    return table


def _add_turn(table: RowTable, row: Row, turn: Turn) -> None:
    table.add(row.of(TURNS))
    for metric, value in turn.values.items():
        number = row.of(metric)
        table.add(number)
        table.add(Row(row.workload).of(metric, MEASURED))
        if value == 0:
            table.add(number.marked(ZERO))
        if 0 < value < math.inf:
            table.add(number.marked(ABOVE_ZERO))


def _turns_by_row(name: str, turns: Iterable[Turn]) -> Iterator[tuple[Row, Turn]]:
    """Yield each turn with its place among the rows: its quad, and the number of the
    turn in it.
    """
    taken: dict[int, int] = {}
    for turn in turns:
        number = taken.get(turn.quad, 0)
        taken[turn.quad] = number + 1
        yield Row(name, "", "", "turn", turn.quad, (number,)), turn


def _add_record(table: RowTable, record: JobRecord) -> None:
    job = Row(record.name)
    has_gating = any(number.gating for number in record.numbers)
    table.announce(job.of(NUMBERS), _text_of(record.numbers), whole=has_gating)
    table.announce(job.of(SETTINGS), _text_of(replace(record, numbers=[])))
    table.add(
        job.of(SETTINGS, CONFIGURED),
        settings_text(record.kind, record.sha256),
    )
    for number in record.numbers:
        metric = number.metric
        table.add(job.of(metric, LISTED))
        table.add(job.of(f"{metric}.unit"), number.unit)
        table.add(job.of(f"{metric}.better"), number.better)
        if number.gating:
            table.add(job.of(metric, GATES))
        if metric.startswith(NUMBER):
            table.add(job.of(NUMBERS, OF_PROGRAM))


def settings_text(kind: str, sha256: str) -> str:
    return f"{kind} {sha256}"


def _text_of(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _promise_fields(table: RowTable, record: JobRecord, turns: Sequence[Turn]) -> None:
    """Promise the fields that turns report, such as a side's earlier activity or the
    delay of its requests.
    """
    job = Row(record.name)
    starts = {turn.start for turn in turns}
    if not record.starts_afresh:
        # The first turn of a start has no turn before it, on either half of the
        # devices.
        halves = 2 if record.fits == "swap" else 1
        unreported = sum(turn.out_of_turn is None for turn in turns)
        table.promise(job.of("out_of_turn"), whole=unreported <= halves * len(starts))
    if record.has_ranks:
        table.promise(job.of("counts"), whole=_are_counted(turns))
    if record.is_server:
        are_timely = all(turn.late is not None for turn in turns)
        table.promise(job.of("late"), whole=are_timely)
    if record.is_command:
        has_lines = len(counted_lines(turns)) >= FEWEST_COUNTED
        table.promise(job.of("counters"), whole=has_lines)
    answers = {turn.start: len(turn.texts) for turn in turns if turn.texts}
    if answers:
        # Starts are counted from 0: with other numbers, a side's answers would match no
        # start of the other side. And with one answer less, those behind it would be
        # compared with the answers to other requests.
        is_whole = answers.keys() == starts and min(starts) >= 0
        counts = _text_of(sorted(set(answers.values())))
        table.announce(job.of("texts"), counts, whole=is_whole)


def _are_counted(turns: Sequence[Turn]) -> bool:
    """Whether a turn of every start has whole counts of all ranks that have times, or
    no rank could be profiled.
    """
    starts = set()
    counted = set()
    profiled = set()
    for turn in turns:
        starts.add(turn.start)
        ranks: set[str | None] = set()
        for count in turn.counts:
            # The collectives add up, and belong to steps that were profiled.
            calls = sum(entry.count for entry in count.collectives)
            has_steps = count.steps > 0 or not (count.operators or count.syncs or calls)
            if count.calls != calls or not has_steps:
                return False
            profiled.add(count.steps > 0)
            ranks.add(str(count.rank))
        if ranks and ranks == {entry.labels.get("rank") for entry in turn.samples}:
            counted.add(turn.start)
    return len(profiled) == 1 and starts == counted


# --- rows that the trusted settings of a job ask for


def _add_proofs(table: RowTable, proofs: _Proofs, stored: Iterable[str]) -> None:
    """Promise the proof that the turns of both sides are comparable, and add how they
    were made.
    """
    rows = [*proofs.of_work(stored), *proofs.of_output(), *proofs.of_samples()]
    for row, is_whole in rows:
        table.promise(row, whole=is_whole, named_by="configuration")
    table.add(proofs.job.of(STEPS_COUNTED), proofs.counted_steps())
    table.add(proofs.job.of(FITS), proofs.shared_devices())


class _Proofs:
    """The proofs that the settings of a job ask a side's turns for, each with whether
    it is there.
    """

    def __init__(
        self, record: JobRecord, settings: JobReference, turns: Sequence[Turn]
    ) -> None:
        self.job = Row(settings.name)
        self._record = record
        self._settings = settings.settings
        self._turns = turns
        self._rows = list(_turns_by_row(settings.name, turns))
        load = self._settings.load or LoadSettings(concurrency=1)
        self._requests = load.requests

    def of_work(self, stored: Iterable[str]) -> Iterator[tuple[Row, bool]]:
        divisors = self._divisors(stored)
        for row, turn in self._rows:
            for name, divisor in divisors.items():
                is_done = _is_multiple(turn.work.get(name), divisor)
                yield row.of(f"work.{name}"), is_done

    def _divisors(self, stored: Iterable[str]) -> dict[str, int | None]:
        """The counts of work that each turn must have, each with its divisor: a visit
        of ``alternate`` has several turns.
        """
        divisors: dict[str, int | None] = dict.fromkeys(
            _WORK[self._record.kind] or sorted(stored)
        )
        if self._record.has_ranks:
            divisors["steps"] = self._settings.steps
            divisors["ranks"] = self._settings.ranks
        if self._record.is_server:
            divisors["requests"] = self._requests
            if self._settings.streams_tokens:  # an answer has at least one
                divisors["output_tokens"] = 1
        return divisors

    def of_output(self) -> Iterator[tuple[Row, bool]]:
        """Yield whether each turn has the output that the settings let both sides
        compare, or needs none.

        A program that checks a server's answers sees only the answers in the first turn
        of a start, and if the share of equal answers is compared, a start has them
        once.
        """
        settings = self._settings
        needs_none = self._record.is_command or not (
            settings.same_output or settings.check
        )
        checked = {turn.start for turn in self._turns if self._shows_start(turn)}
        for row, turn in self._rows:
            has_own = bool(turn.output) and not settings.compares_share
            yield row.of(OUTPUT), needs_none or has_own or turn.start in checked

    def _shows_start(self, turn: Turn) -> bool:
        """Whether a turn has the output for its whole start."""
        settings = self._settings
        if settings.compares_share:
            return len(turn.texts) == settings.probe_loads * self._requests
        return bool(settings.check and turn.output)

    def of_samples(self) -> Iterator[tuple[Row, bool]]:
        # Each turn with a time per output token has the times between tokens that it is
        # the mean of.
        yield self.job.of(ITL), all(map(_has_token_times, self._turns))
        if self._settings.loss_tolerance:
            has_losses = all(RANKS_LOSS in turn.values for turn in self._turns)
            yield self.job.of(RANKS_LOSS), has_losses

    def counted_steps(self) -> str:
        steps: set[int] = set()
        for turn in self._turns:
            steps.update(count.steps for count in turn.counts)
        if steps <= {0, self._settings.steps}:
            return AS_SET
        return str(sorted(steps))

    def shared_devices(self) -> str:
        """How the sides shared the devices: as set, if the starts of turns agree."""
        fits = self._record.fits
        allowed = [self._settings.fits]
        if allowed == ["auto"]:
            allowed = ["resident", "alternate"]
        starts_agree = not self._record.starts_afresh or all(
            turn.start == turn.quad for turn in self._turns
        )
        if fits in allowed and starts_agree:
            return AS_SET
        return fits


def _is_multiple(count: int | None, divisor: int | None) -> bool:
    """Whether there is a count, and it is a multiple of its divisor, if it has one."""
    if count is None or divisor is None:
        return count is not None
    return count > 0 and count % divisor == 0


def _has_token_times(turn: Turn) -> bool:
    return TPOT not in turn.values or any(entry.metric == ITL for entry in turn.samples)
