"""Print the content of files for other tools, as those tools read them; run by the Python that has the tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import junitparser
import polars
from pyarrow import parquet


def main(folder: Path) -> None:
    numbers = folder / "numbers.parquet"
    print(
        json.dumps(
            {
                "pyarrow": [{**row, "labels": dict(row["labels"])} for row in parquet.read_table(numbers).to_pylist()],
                "polars": polars.read_parquet(numbers).to_dicts(),
                "duckdb": _with_duckdb(numbers),
                "junit": [
                    [case.classname, case.name, [type(result).__name__ for result in case.result]]
                    for suite in junitparser.JUnitXml.fromfile(str(folder / "junit.xml"))
                    for case in suite
                ],
            }
        )
    )


def _with_duckdb(numbers: Path) -> list[dict[str, object]]:
    found = duckdb.sql(f"SELECT * FROM '{numbers}'")
    return [dict(zip(found.columns, row)) for row in found.fetchall()]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
