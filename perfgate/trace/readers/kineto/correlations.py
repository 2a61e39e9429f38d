"""The numbers that join the launches in a Kineto trace with the work they launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from perfgate.document.message import Message
from perfgate.trace.model.arithmetic import (
    CodeColumn,
    Codes,
    IntColumn,
    Positions,
    one_of,
)
from perfgate.trace.model.events import (
    DEVICE_KINDS,
    KIND_CODES,
    MAX_NS,
    NO_CORRELATION,
    NO_TEXT,
    EventTable,
)
from perfgate.trace.model.launches import NOT_RECORDED, first_positions
from perfgate.trace.readers.kineto.arguments import (
    CORRELATION,
    FORMER_EXTERNAL,
)
from perfgate.trace.scanner.scanned import ScannedEvents

# A launch and its kernels without a correlation are joined by a flow (sample
# torch-native-privateuse1); the flow follows its event directly. This one joins
# operators of the forward and the backward pass.
_FLOW_OF_OPERATORS = "fwdbwd"


def correlations(
    spans: ScannedEvents, read_arrows: Callable[[], ScannedEvents], launching: Positions
) -> Codes:
    """The number that joins each launch with its kernels; ``launching`` are the spans
    that may have one.
    """
    correlation = _limited(spans.numbers(CORRELATION))
    bare = launching[correlation[launching] == NO_CORRELATION]
    if not bare.size:
        return correlation
    wide = correlation.astype(np.int64)
    _join_by_flows(spans, read_arrows(), bare, wide)
    return wide


def _limited(column: Codes) -> Codes:
    if column.dtype == np.int32:
        return column
    return np.where(column < MAX_NS, column, NO_CORRELATION)


def _join_by_flows(
    spans: ScannedEvents, arrows: ScannedEvents, bare: Positions, correlation: IntColumn
) -> None:
    """Give launches and kernels without a correlation the number of the flow that
    follows them at their start time.

    Each flow belongs to the last such span before it with the same start and track.
    """
    of_operators = arrows.of.flagged(arrows.category, _FLOW_OF_OPERATORS.__eq__)
    is_end = arrows.is_phase("s", "f") & ~of_operators
    flows = arrows.select(is_end & (arrows.event > spans.event[bare[0]]))
    flow_times, _ = flows.times(durations=False)
    span_times, _ = spans.times()
    event = np.concatenate((spans.event[bare], flows.event))
    track = np.concatenate((spans.track[bare], flows.track))
    time = np.concatenate((span_times[bare], flow_times))
    order = np.lexsort((event, time, track))
    is_span = order < bare.size
    differs = (np.diff(track[order]) != 0) | (np.diff(time[order]) != 0)
    begins = np.concatenate(([True], differs))
    position = np.arange(order.size)
    last_span = np.maximum.accumulate(np.where(is_span, position, -1))
    last_begin = np.maximum.accumulate(np.where(begins, position, 0))
    joined = ~is_span & (last_span >= last_begin)
    flow = order[joined] - bare.size
    span = bare[order[last_span[joined]]]
    number = flows.flow()[flow]
    numbered = np.flatnonzero(number >= 0)
    in_order = numbered[np.argsort(flow[numbered], kind="stable")]
    correlation[span[in_order]] = number[in_order]


def unique_by_label(number: Codes, label: CodeColumn) -> IntColumn:
    """Numbers that every rank counts for itself, made unique in a file of several
    ranks.
    """
    own = number.astype(np.int64)
    ranks = int(label.max()) + 1
    unique: IntColumn = np.where(own == NO_CORRELATION, own, own * ranks + label)
    return unique


def merged_processes(
    path: Path,
    correlation: Codes,
    track: CodeColumn,
    tracks: Sequence[tuple[str, str]],
    kind: Codes,
) -> tuple[Message, ...]:
    """A note if several processes launch work, because torch's profiler records one;
    empty for one process.
    """
    process = np.unique([name for name, _ in tracks] or [""], return_inverse=True)[1]
    launches = np.flatnonzero(
        (kind == KIND_CODES["runtime"]) & (correlation != NO_CORRELATION)
    )
    # A device has the number of a process too, and waits of its streams are among the
    # calls.
    is_device = np.zeros(process.size, dtype=bool)
    work = np.flatnonzero(one_of(kind, (KIND_CODES[name] for name in DEVICE_KINDS)))
    is_device[process[np.flatnonzero(np.bincount(track[work]))]] = True
    launches = launches[~is_device[process][track[launches]]]
    owner = process[track[launches]]
    launching = np.flatnonzero(np.bincount(owner))
    if launching.size < 2:
        return ()
    numbers = [
        np.unique(correlation[launches[owner == number]])
        for number in launching.tolist()
    ]
    every = np.concatenate(numbers)
    code = (
        "notes.correlations-repeat"
        if np.unique(every).size < every.size
        else "notes.processes-merged"
    )
    return (Message(code, {"path": str(path), "count": launching.size}),)


def give_shapes(
    table: EventTable, spans: ScannedEvents, external: Codes, label: CodeColumn | None
) -> None:
    """Copy an operator's shapes to the work it launched; both carry the operator's
    ``external`` id.

    ``label`` is the number of each event's rank, None in a file of one.
    """
    shaped = table.shape != NO_TEXT
    bare = np.flatnonzero(table.is_work & ~shaped)
    operators = np.flatnonzero(shaped)
    if not operators.size or not bare.size:
        return
    external = _limited(external)
    if spans.arguments[FORMER_EXTERNAL].rows.size:
        external = np.where(
            external == NO_CORRELATION,
            _limited(spans.numbers(FORMER_EXTERNAL)),
            external,
        )
    if label is not None:
        external = unique_by_label(external, label)
    operators = operators[external[operators] != NO_CORRELATION]
    launching = first_positions(external[bare], external[operators])
    launched = launching != NOT_RECORDED
    table.shape[bare[launched]] = table.shape[operators[launching[launched]]]
