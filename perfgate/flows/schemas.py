"""Write ``schemas/`` anew from the records: ``python -m perfgate.flows.schemas``, in a
checkout.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from perfgate.config import ConfigFile
from perfgate.document.bisection import BisectionDocument
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import write_text_atomically
from perfgate.document.joint import JointDecision
from perfgate.document.run import RunDocument
from perfgate.document.schema import schema_text
from perfgate.document.trend import TrendDocument

RECORDS: dict[str, type[msgspec.Struct]] = {
    "run": RunDocument,
    "decision": DecisionDocument,
    "joint": JointDecision,
    "trend": TrendDocument,
    "bisection": BisectionDocument,
    "config": ConfigFile,
}


def write_schemas(folder: Path) -> list[Path]:
    """Write one schema per record into ``folder`` and return the paths."""
    paths = []
    for name, record in RECORDS.items():
        paths.append(folder / f"{name}.schema.json")
        write_text_atomically(paths[-1], schema_text(record, name))
    return paths


if __name__ == "__main__":
    for path in write_schemas(
        Path(__file__).resolve().parent.parent.parent / "schemas"
    ):
        sys.stdout.write(f"{path.name}\n")
