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
        if turn.requests or not record.is_server:
            table.announce(
                row._replace(metric=REQUESTS),
                _text_of([turn.requests, sorted(turn.without)]),
            )
        else:
            table.announce(row._replace(metric=REQUESTS), whole=False)
    _promise_fields(table, record, turns)
    if settings is not None:
        _promise_proofs(table, record, turns, settings, work)
    return table


def _add_turn(table: RowTable, row: Row, turn: Turn) -> None:
    table.add(row._replace(metric=TURNS))
    for metric, value in turn.values.items():
        number = row._replace(metric=metric)
        table.add(number)
        table.add(row_of_job(row.workload, metric, MEASURED))
        if value == 0:
            table.add(number._replace(key=(*row.key, ZERO)))
        if 0 < value < math.inf:
            table.add(number._replace(key=(*row.key, ABOVE_ZERO)))


def row_of_job(name: str, metric: str, *key: str) -> Row:
    return Row(name, "", metric, key=key)


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
    name = record.name
    has_gating = any(number.gating for number in record.numbers)
    table.announce(
        row_of_job(name, NUMBERS), _text_of(record.numbers), whole=has_gating
    )
    table.announce(row_of_job(name, SETTINGS), _text_of(replace(record, numbers=[])))
    table.add(
        row_of_job(name, SETTINGS, CONFIGURED),
        settings_text(record.kind, record.sha256),
    )
    for number in record.numbers:
        metric = number.metric
        table.add(row_of_job(name, metric, LISTED))
        table.add(row_of_job(name, f"{metric}.unit"), number.unit)
        table.add(row_of_job(name, f"{metric}.better"), number.better)
        if number.gating:
            table.add(row_of_job(name, metric, GATES))
        if metric.startswith(NUMBER):
            table.add(row_of_job(name, NUMBERS, OF_PROGRAM))


def settings_text(kind: str, sha256: str) -> str:
    return f"{kind} {sha256}"


def _text_of(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _promise_fields(table: RowTable, record: JobRecord, turns: Sequence[Turn]) -> None:
    """Promise the fields that turns report, such as a side's earlier activity or the
    delay of its requests.
    """
    starts = set()
    unreported = 0
    are_timely = True
    answers = {}
    for turn in turns:
        starts.add(turn.start)
        unreported += turn.out_of_turn is None
        are_timely = are_timely and turn.late is not None
        if turn.texts:
            answers[turn.start] = len(turn.texts)
    if not record.starts_afresh:
        # The first turn of a start has no turn before it, on either half of the
        # devices.
        halves = 2 if record.fits == "swap" else 1
        table.promise(
            row_of_job(record.name, "out_of_turn"),
            whole=unreported <= halves * len(starts),
        )
    if record.has_ranks:
        table.promise(row_of_job(record.name, "counts"), whole=_are_counted(turns))
    if record.is_server:
        table.promise(row_of_job(record.name, "late"), whole=are_timely)
    if record.is_command:
        table.promise(
            row_of_job(record.name, "counters"),
            whole=len(counted_lines(turns)) >= FEWEST_COUNTED,
        )
    if answers:
        # Starts are counted from 0: with other numbers, a side's answers would match no
        # start of the other side. And with one answer less, those behind it would be
        # compared with the answers to other requests.
        is_whole = answers.keys() == starts and min(starts) >= 0
        table.announce(
            row_of_job(record.name, "texts"),
            _text_of(sorted(set(answers.values()))),
            whole=is_whole,
        )


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


def _promise_proofs(
    table: RowTable,
    record: JobRecord,
    turns: Sequence[Turn],
    settings: JobReference,
    work: Iterable[str],
) -> None:
    """Promise the proof that the turns of both sides are comparable: their work and
    their output.
    """
    own = settings.settings
    name = settings.name
    proofs: list[tuple[Row, bool]] = []
    divisors = _work_of(record, settings, work)
    with_output = set(_turns_with_output(record, settings, turns))
    for row, turn in _turns_by_row(name, turns):
        for count_name, times in divisors.items():
            count = turn.work.get(count_name)
            is_done = count is not None and (
                times is None or (count > 0 and count % times == 0)
            )
            proofs.append((row._replace(metric=f"work.{count_name}"), is_done))
        proofs.append((row._replace(metric=OUTPUT), row in with_output))
    # Whether each turn with a time per output token has the times between tokens that
    # it is the mean of.
    has_token_times = True
    for turn in turns:
        has_own = any(entry.metric == ITL for entry in turn.samples)
        has_token_times = has_token_times and (TPOT not in turn.values or has_own)
    proofs.append((row_of_job(name, ITL), has_token_times))
    if own.loss_tolerance:
        has_losses = all(RANKS_LOSS in turn.values for turn in turns)
        proofs.append((row_of_job(name, RANKS_LOSS), has_losses))
    for row, is_whole in proofs:
        table.promise(row, whole=is_whole, named_by="configuration")
    steps: set[int] = set()
    for turn in turns:
        steps.update(count.steps for count in turn.counts)
    has_steps = steps <= {0, own.steps}
    table.add(
        row_of_job(name, STEPS_COUNTED), AS_SET if has_steps else str(sorted(steps))
    )
    is_shared = _shares_devices_as(settings, record, turns)
    table.add(row_of_job(name, FITS), AS_SET if is_shared else record.fits)


def _work_of(
    record: JobRecord, settings: JobReference, stored: Iterable[str]
) -> dict[str, int | None]:
    """The counts of work that each turn must have, each with its divisor: a visit of
    ``alternate`` has several turns.
    """
    own = settings.settings
    divisors: dict[str, int | None] = dict.fromkeys(
        _WORK[record.kind] or sorted(stored)
    )
    if record.has_ranks:
        divisors |= {"steps": own.steps, "ranks": own.ranks}
    if record.is_server:
        divisors["requests"] = _requests_of(settings)
        if own.streams_tokens:  # an answer has at least one
            divisors["output_tokens"] = 1
    return divisors


def _requests_of(settings: JobReference) -> int:
    return (settings.settings.load or LoadSettings(concurrency=1)).requests


def _turns_with_output(
    record: JobRecord, settings: JobReference, turns: Sequence[Turn]
) -> Iterator[Row]:
    """Yield the turns that have the output that the settings let both sides compare, or
    need none.

    A program that checks a server's answers sees only the answers in the first turn of
    a start, and if the share of equal answers is compared, a start has them once.
    """
    own = settings.settings
    needs_none = record.is_command or not (own.same_output or own.check)
    answers = own.probe_loads * _requests_of(settings)
    checked = set()
    for turn in turns:
        if own.compares_share:
            has_output = len(turn.texts) == answers
        else:
            has_output = bool(own.check and turn.output)
        if has_output:
            checked.add(turn.start)
    for row, turn in _turns_by_row(settings.name, turns):
        has_own = bool(turn.output) and not own.compares_share
        if needs_none or has_own or turn.start in checked:
            yield row


def _shares_devices_as(
    settings: JobReference, record: JobRecord, turns: Iterable[Turn]
) -> bool:
    """Whether the sides shared the devices as set, and the starts of their turns agree."""
    allowed = [settings.settings.fits]
    if allowed == ["auto"]:
        allowed = ["resident", "alternate"]
    if record.fits not in allowed:
        return False
    return not record.starts_afresh or all(turn.start == turn.quad for turn in turns)
