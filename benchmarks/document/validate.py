"""How long the schemas take to check documents, beside jsonschema alone and beside
decoding with msgspec.

    PYTHONPATH=. python benchmarks/document/validate.py [FILE ...]

Without files: documents of the tests' builders, a decision of 5,000 comparisons among
them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import referencing

from perfgate.document.decision import DecisionDocument
from perfgate.document.run import RunDocument
from perfgate.document.schema import load_schema
from perfgate.document.validation import validator_of
from tests.fakes.documents import make_comparison, make_decision, make_run

COMPARISONS = 5000
TIMES = 5
RECORDS: dict[str, type[msgspec.Struct]] = {
    "run": RunDocument,
    "decision": DecisionDocument,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "files", type=Path, nargs="*", metavar="FILE", help="run.json or decision.json"
    )
    files = parser.parse_args().files
    print("| document | kB | ours, ms | jsonschema alone, ms | msgspec decoding, ms |")
    print("|---|--:|--:|--:|--:|")
    documents = {str(file): file.read_bytes() for file in files} or _made()
    for name, data in documents.items():
        print(_row(name, data))


def _made() -> dict[str, bytes]:
    many = [make_comparison(shape=f"shape-{number}") for number in range(COMPARISONS)]
    documents = {
        "run, 14 pairs": make_run(),
        "run, 200 pairs": make_run(pairs=200),
        f"decision, {COMPARISONS} comparisons": make_decision("PASS", comparisons=many),
    }
    return {name: msgspec.json.encode(document) for name, document in documents.items()}


def _row(name: str, data: bytes) -> str:
    value = json.loads(data)
    kind = value["schema"].removeprefix("perfgate/")
    schema = load_schema(kind)
    ours = validator_of(schema)
    alone = jsonschema.Draft202012Validator(schema, registry=referencing.Registry())
    assert not list(ours.iter_errors(value)), name
    quick = _milliseconds(lambda: list(ours.iter_errors(value)))
    slow = _milliseconds(lambda: list(alone.iter_errors(value)))
    decoding = _milliseconds(lambda: msgspec.json.decode(data, type=RECORDS[kind]))
    return f"| {name} | {len(data) / 1e3:.0f} | {quick:.1f} | {slow:.1f} | {decoding:.2f} |"


def _milliseconds(check: Callable[[], Any]) -> float:
    """Return the least CPU time of a few calls."""
    taken = []
    for _ in range(TIMES):
        began = time.process_time()
        check()
        taken.append(time.process_time() - began)
    return min(taken) * 1e3


if __name__ == "__main__":
    main()
