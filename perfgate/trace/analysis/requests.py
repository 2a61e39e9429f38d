"""The requests of a recorded server: time on the host and on the device, and waiting time, of each.

An event serves a request if its argument ``request_id`` names that request or it is a span named ``request#ID``; events nested
in it, and work it launched on a device, serve the same one. Times are nanoseconds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfgate.document.trace import RequestRow
from perfgate.trace.analysis.operators import row_kind
from perfgate.trace.analysis.rows import TopOperator
from perfgate.trace.analysis.stacks import requests_served, stacks_of
from perfgate.trace.model.arithmetic import (
    counts_by_name,
    group_rows,
    totals_by_name,
    union_length,
)
from perfgate.trace.model.events import DEVICE_KINDS, KERNEL_KINDS, NO_TEXT, EventTable

_NS = 1e9


class Requests:
    """The requests of a table of events. ``origin_ns`` is when its first event began, None without events."""

    def __init__(self, events: EventTable) -> None:
        self.origin_ns = int(events.start.min()) if len(events) else None
        stacks = stacks_of(events)
        request = requests_served(stacks)
        chosen = np.flatnonzero(request != NO_TEXT)
        # By request, within a request in file order.
        chosen = chosen[np.argsort(request[chosen], kind="stable")]
        self._events = replace(stacks.events.select(chosen), request=request[chosen])
        self._own = stacks.own[chosen]
        codes, begins = np.unique(request[chosen], return_index=True)
        self._bounds = dict(zip(codes.tolist(), zip(begins.tolist(), [*begins[1:].tolist(), chosen.size])))
        self._codes = {stacks.events.names[code]: code for code in codes.tolist()}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._codes)

    def all(self) -> list[RequestRow]:
        """Every request, the longest first."""
        return sorted(map(self._request, self._codes), key=lambda request: -request.elapsed)

    def events(self, name: str | None) -> EventTable:
        """The events of one request, or of all, in the order of requests; each event names its request."""
        begin, end = (
            (0, len(self._events)) if name is None else self._bounds.get(self._codes.get(name, NO_TEXT), (0, 0))
        )
        return self._events.select(np.arange(begin, end))

    def rows(self, name: str) -> list[TopOperator] | None:
        """The events that served a request, by name, with their self time, most first; None if it was not recorded."""
        if name not in self._codes:
            return None
        begin, end = self._bounds[self._codes[name]]
        events = self._events.select(np.arange(begin, end))
        first, row = group_rows(events.group, events.kind)
        totals = totals_by_name(row, self._own[begin:end], first.size)
        columns = events.group[first], events.kind[first], counts_by_name(row, first.size), totals
        rows = [
            TopOperator(events.names[group], row_kind(kind), count, total)
            for group, kind, count, total in zip(*(column.tolist() for column in columns))
        ]
        return sorted(rows, key=lambda row: -row.total_ns)

    def _request(self, name: str) -> RequestRow:
        events = self.events(name)
        device = events.is_kind(*DEVICE_KINDS)
        start = int(events.start.min())
        return RequestRow(
            request=name,
            start=(start - (self.origin_ns or 0)) / _NS,
            elapsed=(int(events.end.max()) - start) / _NS,
            active=union_length(events.intervals) / _NS,
            host=union_length(events.select(~device).intervals) / _NS,
            device=union_length(events.select(device).intervals) / _NS,
            kernels=int(events.is_kind(*KERNEL_KINDS).sum()),
        )
