"""Numbers as a Parquet file, for pandas, polars, DuckDB and Spark."""

from __future__ import annotations

import io
from collections.abc import Iterable

from perfgate.errors import UsageError
from perfgate.judging.report.view.number_rows import NumberRow


def parquet_table(rows: Iterable[NumberRow]) -> bytes:
    """The columns of the CSV with types: labels are a map, unknown values null. Raises UsageError without pyarrow."""
    try:
        import pyarrow as arrow  # tens of megabytes, which only this format needs
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            "Parquet needs pyarrow, which cannot be imported ({error}); run pip install 'perfgate[parquet]'",
            error=error,
        ) from error
    # A column of a few texts is written once, with numbers that refer to them.
    word = arrow.dictionary(arrow.int32(), arrow.string())
    kinds = {
        "step": arrow.int32(),
        "metric": word,
        "workload": word,
        "shape": word,
        "labels": arrow.map_(arrow.string(), arrow.string()),
        "side": word,
        "value": arrow.float64(),
        "unit": word,
        "better": word,
        "low": arrow.float64(),
        "high": arrow.float64(),
        "confidence": arrow.float64(),
        "n": arrow.int64(),
    }
    columns: list[list[object]] = [[_plain(field) for field in column] for column in zip(*rows)] or [[] for _ in kinds]
    arrays = [arrow.array(column, kind) for column, kind in zip(columns, kinds.values())]
    written = io.BytesIO()
    parquet.write_table(arrow.table(arrays, names=list(kinds)), written)
    return written.getvalue()


def _plain(field: object) -> object:
    """A field as Arrow takes it: labels as pairs, and texts that UTF-8 can hold, which a name from outside may not be."""
    if isinstance(field, dict):
        return [(_plain(name), _plain(value)) for name, value in sorted(field.items())]
    return field.encode(errors="replace").decode() if isinstance(field, str) else field
