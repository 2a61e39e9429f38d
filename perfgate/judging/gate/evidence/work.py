"""The table of work of one side, from exact counters, traces, profiles and recordings, as one kind of row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from perfgate.catalogue.names import FRAMEWORK_OPS
from perfgate.document.alignment import Work
from perfgate.document.run import CallRow, CounterSet, CounterSite, OpCount

# The counters of single operators are named after them.
OPERATOR_COUNT = "ops.count:"


class CountedSide:
    """The exact counters of a shape on one side, and the work behind each."""

    def __init__(self, counters: CounterSet) -> None:
        self.counters = counters
        self.values = counters.values
        # How often a call runs each operator.
        self.calls = {operator.op: operator.count for operator in counters.ops}

    @cached_property
    def work(self) -> dict[str, dict[str, list[Work]]]:
        """The places that add to a counter, by counter and operator."""
        table: dict[str, dict[str, list[Work]]] = defaultdict(lambda: defaultdict(list))
        for row in counted_work(self.counters):
            table[row.aspect][row.operator].append(row)
        return table

    def of(self, metric: str, operator: str) -> list[Work]:
        """The places at which an operator adds to a counter."""
        return self.work[metric].get(operator, [])

    def located(self, metric: str) -> list[Work]:
        """All places that add to a counter."""
        rows: list[Work] = []
        for of_operator in self.work[metric].values():
            rows += of_operator
        return rows

    def is_exact(self, metric: str) -> bool:
        """Whether a counter is equal in all calls and processes."""
        return metric not in self.counters.unstable

    def ends(self, metric: str) -> tuple[int, int] | None:
        """The least and the most of a counter; None if its calls differ by an unknown amount."""
        if self.is_exact(metric):
            return self.values[metric], self.values[metric]
        return self.counters.ranges.get(metric)


def counted_work(counters: CounterSet) -> list[Work]:
    """The places that add to the exact counters of a shape.

    Without places there are the operators' counts, each with the line that runs it most often.
    """
    if counters.sites:
        return [_of_site(site) for site in counters.sites]
    return [_of_operator(operator) for operator in counters.ops if not operator.view]


def _of_site(site: CounterSite) -> Work:
    return Work(
        operator=site.name,
        amount=site.count,
        calls=site.count,
        inputs=site.tensor,
        line=site.line,
        code=site.code,
        aspect=site.metric,
        varies=site.between is not None,
    )


def _of_operator(operator: OpCount) -> Work:
    return Work(
        operator=operator.op,
        amount=operator.count,
        calls=operator.count,
        line=operator.line,
        aspect=FRAMEWORK_OPS,
    )


def traced_work(rows: Iterable[CallRow]) -> list[Work]:
    """The seconds of a traced call, by operator, inputs and line, and of Python functions."""
    return [
        Work(
            operator=row.op,
            amount=row.self_time,
            calls=row.count,
            inputs=row.inputs,
            line=row.line,
            code=row.code,
            kind=row.kind,
        )
        for row in rows
    ]


def calls_by_line(rows: Iterable[Work]) -> list[Work]:
    """The calls of operators from each line, added up over their inputs."""
    calls: dict[tuple[str, str | None, str | None], float] = defaultdict(float)
    for row in rows:
        calls[row.operator, row.line, row.code] += row.calls
    return [
        Work(operator=operator, amount=count, calls=count, line=line, code=code)
        for (operator, line, code), count in calls.items()
    ]


def total(rows: Iterable[Work]) -> float:
    return sum(row.amount for row in rows)
