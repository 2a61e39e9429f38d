"""The requests of a recorded server: time on the host and on the device, and waiting
time, of each.

An event serves a request if its argument ``request_id`` names that request or it is a
span named ``request#ID``; events nested in it, and work it launched on a device, serve
the same one. Times are nanoseconds.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from perfgate.document.trace import RequestRow
from perfgate.trace.analysis.operators import row_kind
from perfgate.trace.analysis.rows import TopOperator
from perfgate.trace.analysis.stacks import requests_served, stacks_of
from perfgate.trace.model.arithmetic import total_groups, union_length
from perfgate.trace.model.events import KERNEL_KINDS, NO_TEXT, EventTable

_NS = 1e9


class Requests:
    """The requests of a table of events.

    ``origin_ns`` is when its first event began, None without events.
    """

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
        ends = np.append(begins[1:], chosen.size)
        self._rows: dict[str, slice] = {}
        for code, begin, end in zip(codes.tolist(), begins.tolist(), ends.tolist()):
            self._rows[stacks.events.names[code]] = slice(begin, end)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._rows)

    def all(self) -> list[RequestRow]:
        """Every request, the longest first."""
        return sorted(
            map(self._request, self._rows), key=lambda request: -request.elapsed
        )

    def events(self, name: str | None) -> EventTable:
        """The events of one request, or of all, in the order of requests; each event
        names its request.
        """
        if name is None:
            return self._events
        rows = self._rows.get(name, slice(0, 0))
        return self._events.select(np.arange(rows.start, rows.stop))

    def rows(self, name: str) -> list[TopOperator] | None:
        """The events that served a request, by name, with their self time, most first;
        None if it was not recorded.
        """
        if name not in self._rows:
            return None
        events = self.events(name)
        own = self._own[self._rows[name]]
        rows = []
        for group in total_groups(own, events.group, events.kind):
            operator = events.names[events.group[group.first]]
            rows.append(
                TopOperator(
                    operator,
                    row_kind(int(events.kind[group.first])),
                    group.number,
                    group.total,
                )
            )
        return sorted(rows, key=lambda row: -row.total_ns)

    def _request(self, name: str) -> RequestRow:
        events = self.events(name)
        device = events.is_work
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
