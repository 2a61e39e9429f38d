"""What msprof-analyze's advisor makes of an Ascend recording: its workbook as advisories, and those that we do not have.

The workbook (mstt_advisor_*.xlsx of msprof-analyze 26.2) has a sheet ``problems`` with a row for every problem, and mostly a
sheet of a problem's name with what it was found in. Excel cuts names of sheets off after 31 characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from perfgate.document.decision import Suggestion
from perfgate.document.message import quote
from perfgate.document.run import Advisory, Evidence, RunDocument

Row = Sequence[object]
Sheets = Mapping[str, Sequence[Row]]

_PROBLEMS = "problems"
_COLUMNS = ("category", "description", "suggestion")
_SHEET_NAME = 31
_MOST_TEXT = 1000
_OP_COLUMNS = ("op name", "op_name", "Affinity API", "Environment", "Description")
# In a column of descriptions the operator stands before this.
_AFTER_OP = " Op shape:"
# Of a folder of several ranks the rank stands before some problems, which are then in small letters.
_OF_RANK = re.compile(r"RANK \d+ ")
# Problems that these rules of ours see too: one advice is enough.
_OURS: Mapping[str, frozenset[str]] = {
    "AICPU Issues": frozenset({"ops.ai_cpu"}),
    "Operator Dispatch Issues": frozenset({"small_ops.launch_bound", "small_ops.time_share", "graph.op_compiled"}),
    "Operator Dynamic Shape Issues": frozenset({"graph.recompiles", "graph.op_compiled", "graph.compiled_again"}),
    "Fusible Operator Analysis": frozenset({"fusion.sequence_share"}),
    "Fusion Issues": frozenset({"fusion.pass_without_effect"}),
    "Block Dim Issues": frozenset({"tiling.occupancy"}),
    "Operator No Bound Issues": frozenset({"tiling.attained"}),
    "Cube Operator Perf Analysis": frozenset({"tiling.attained", "tiling.occupancy"}),
    "FA Operator Perf Analysis": frozenset({"tiling.attained", "tiling.occupancy"}),
    "Vector Operator Perf Analysis": frozenset({"tiling.attained", "tiling.occupancy"}),
    "AI Core Frequency Issues": frozenset(
        {"thermal.clock", "thermal.throttled", "thermal.kernel_clock", "thermal.idle_clock"}
    ),
    "Slow Dataloader Issues": frozenset({"preprocess.loading_share"}),
    "Packet Analysis": frozenset({"communication.small_packets"}),
    "Communication Retransmission Analysis": frozenset({"communication.retransmission"}),
    "Slow Rank Analysis": frozenset({"communication.slow_rank", "collectives.slowest_rank"}),
}
_SEEN = {category.lower(): rules for category, rules in _OURS.items()}


def advisories(sheets: Sheets, *, workload: str, source: str) -> list[Advisory]:
    header, *rows = sheets.get(_PROBLEMS) or [()]
    columns = [str(name) for name in header]
    missing = [name for name in _COLUMNS if name not in columns]
    if missing:
        raise ValueError(f"the workbook has no column {missing[0]!r} in a sheet {_PROBLEMS!r}")
    problems = []
    for row in rows:
        category, description, suggestion = (_text(row, columns.index(name)) for name in _COLUMNS)
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
                )
            )
    return problems


def on_advisories(run: RunDocument) -> Iterator[Suggestion]:
    """Yield what another tool suggests about problems that no step of ours noticed on the same workload."""
    noticed = {(step.workload, finding.rule) for step in run.steps for finding in step.findings}
    for advisory in run.advisories:
        ours = _SEEN.get(_OF_RANK.sub("", advisory.category).lower(), frozenset())
        if any((advisory.workload, rule) in noticed for rule in ours):
            continue
        yield Suggestion(
            rule=advisory.category,
            workload=advisory.workload,
            message=quote(f"{advisory.category}: {advisory.description} {advisory.suggestion}".strip()),
            evidence=advisory.evidence,
            source=advisory.source,
        )


def _text(row: Row, column: int) -> str:
    cell = row[column] if column < len(row) else None
    return "" if cell is None else " ".join(str(cell).split())[:_MOST_TEXT]


def _evidence(rows: Sequence[Row] | None) -> dict[str, Evidence]:
    if not rows or len(rows) < 2:
        return {}
    evidence: dict[str, Evidence] = {"count": len(rows) - 1}
    columns = [str(name) for name in rows[0]]
    column = next((columns.index(name) for name in _OP_COLUMNS if name in columns), None)
    if column is not None and (op := _text(rows[1], column).partition(_AFTER_OP)[0]):
        evidence["op"] = op
    return evidence
