"""The findings of msprof-analyze's advisor on an Ascend recording, from its workbook.

The workbook (mstt_advisor_*.xlsx of msprof-analyze 26.2) has a sheet ``problems`` with
a row for every problem, and for most problems a sheet of the same name that lists the
places. Excel truncates sheet names after 31 characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from perfgate.document.run import Advisory, Evidence

Row = Sequence[object]
Sheets = Mapping[str, Sequence[Row]]

_PROBLEMS = "problems"
_COLUMNS = ("category", "description", "suggestion")
_SHEET_NAME = 31
_MOST_TEXT = 1000
_OP_COLUMNS = ("op name", "op_name", "Affinity API", "Environment", "Description")
# In a column of descriptions the operator precedes this marker.
_AFTER_OP = " Op shape:"
# In a recording of several ranks some problems are prefixed with the rank; their names
# are then in lower case.
_OF_RANK = re.compile(r"RANK \d+ ")
# The rules of perfgate that detect the same problem.
_RULES: Mapping[str, list[str]] = {
    "AICPU Issues": ["ops.ai_cpu"],
    "Operator Dispatch Issues": [
        "small_ops.launch_bound",
        "small_ops.time_share",
        "graph.op_compiled",
    ],
    "Operator Dynamic Shape Issues": [
        "graph.recompiles",
        "graph.op_compiled",
        "graph.compiled_again",
    ],
    "Fusible Operator Analysis": ["fusion.sequence_share"],
    "Fusion Issues": ["fusion.pass_without_effect"],
    "Block Dim Issues": ["tiling.occupancy"],
    "Operator No Bound Issues": ["tiling.attained"],
    "Cube Operator Perf Analysis": ["tiling.attained", "tiling.occupancy"],
    "FA Operator Perf Analysis": ["tiling.attained", "tiling.occupancy"],
    "Vector Operator Perf Analysis": ["tiling.attained", "tiling.occupancy"],
    "AI Core Frequency Issues": [
        "thermal.clock",
        "thermal.throttled",
        "thermal.kernel_clock",
        "thermal.idle_clock",
    ],
    "Slow Dataloader Issues": ["preprocess.loading_share"],
    "Packet Analysis": ["communication.small_packets"],
    "Communication Retransmission Analysis": ["communication.retransmission"],
    "Slow Rank Analysis": ["communication.slow_rank", "collectives.slowest_rank"],
}
RULES = {category.lower(): rules for category, rules in _RULES.items()}


def advisories(sheets: Sheets, *, workload: str, source: str) -> list[Advisory]:
    header, *rows = sheets.get(_PROBLEMS) or [()]
    columns = [str(name) for name in header]
    missing = [name for name in _COLUMNS if name not in columns]
    if missing:
        raise ValueError(
            f"the workbook has no column {missing[0]!r} in a sheet {_PROBLEMS!r}"
        )
    problems = []
    for row in rows:
        category, description, suggestion = (
            _text(row, columns.index(name)) for name in _COLUMNS
        )
        # A summary suggests nothing.
        if category and suggestion:
            problems.append(
                Advisory(
                    source=source,
                    workload=workload,
                    category=category,
                    description=description,
                    suggestion=suggestion,
                    evidence=_evidence(sheets.get(category[:_SHEET_NAME])),
                    rules=RULES.get(_OF_RANK.sub("", category).lower(), []),
                )
            )
    return problems


def _text(row: Row, column: int) -> str:
    cell = row[column] if column < len(row) else None
    return "" if cell is None else " ".join(str(cell).split())[:_MOST_TEXT]


def _evidence(rows: Sequence[Row] | None) -> dict[str, Evidence]:
    if not rows or len(rows) < 2:
        return {}
    evidence: dict[str, Evidence] = {"count": len(rows) - 1}
    columns = [str(name) for name in rows[0]]
    column = next(
        (columns.index(name) for name in _OP_COLUMNS if name in columns), None
    )
    if column is not None and (op := _text(rows[1], column).partition(_AFTER_OP)[0]):
        evidence["op"] = op
    return evidence
