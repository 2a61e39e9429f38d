"""Numbers as CSV, a row each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping

from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.view.number_rows import NumberRow

# Spreadsheets take a cell with such a first character for a formula (OWASP, CSV Injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_table(rows: Iterable[NumberRow]) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(NumberRow._fields)
    writer.writerows([_cell(field) for field in row] for row in rows)
    return written.getvalue()


def _cell(field: object) -> str:
    if field is None:
        return ""
    if isinstance(field, (int, float)):
        return repr(field)
    text = ";".join(f"{name}={value}" for name, value in sorted(field.items())) if isinstance(field, Mapping) else field
    plain = clean(str(text))
    return f"'{plain}" if plain.startswith(_FORMULA) else plain
