"""Files of `perfgate report`, read by the tools that they are for. `make test-formats` installs these into build/tools."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from perfgate.document.decision import Policy
from perfgate.document.files import write_document
from perfgate.document.history import History
from perfgate.judging.gate.decide import decide
from tests.fakes.documents import make_run
from tests.jobs.tools import TOOLS, installed

ROOT = Path(__file__).parents[2]
READERS = ("pyarrow==26.0.1", "polars==2.1.0", "pandas==3.1.1", "duckdb==2.0.0", "junitparser==5.0.3")
# Has the schema of Jenkins' xunit plugin among its tests.
WITH_SCHEMA = "pytest==8.4.2"
NUMERIC = ("value", "low", "high", "confidence")


@pytest.fixture(scope="module")
def python() -> Path:
    *others, last = READERS
    return installed(last, *others) / "python"


@pytest.fixture(scope="module")
def folder(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a check with a slower head, and everything that `perfgate report` makes of them."""
    folder = tmp_path_factory.mktemp("formats")
    base, head = make_run("base"), make_run("head", slowdown=0.07)
    for side, run in (("base", base), ("head", head)):
        (folder / side).mkdir()
        write_document(folder / side / "run.json", run)
    write_document(folder / "decision.json", decide(base, head, policy=Policy(), history=History()))
    options = {
        "--csv": "numbers.csv",
        "--parquet": "numbers.parquet",
        "--junit": "junit.xml",
        "--openmetrics": "metrics.txt",
        "--bencher": "bencher.json",
        "--benchmark-action": "action",
    }
    arguments = [word for option, name in options.items() for word in (option, str(folder / name))]
    command = [str(python), "-m", "perfgate.cli.main", "report", str(folder), *arguments]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return folder


@pytest.fixture(scope="module")
def read(python: Path, folder: Path) -> dict[str, Any]:
    command = [str(python), str(Path(__file__).with_name("read_back.py")), str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    content: dict[str, Any] = json.loads(done.stdout)
    return content


@pytest.mark.parametrize("reader", ["pyarrow", "polars", "duckdb"])
def test_parquet__read_by_another_tool__the_rows_of_the_csv(reader: str, read: dict[str, Any], folder: Path) -> None:
    with (folder / "numbers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 20
    assert [_as_csv(row) for row in read[reader]] == [_as_csv(_typed(row)) for row in rows]


def _typed(row: dict[str, str]) -> dict[str, Any]:
    labels = dict(pair.split("=", 1) for pair in row["labels"].split(";") if pair)
    whole = {name: int(row[name]) if row[name] else None for name in ("step", "n")}
    return {**row, "labels": labels, **whole, **{name: float(row[name]) if row[name] else None for name in NUMERIC}}


def _as_csv(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in sorted(row)}


def test_junit__read_by_junitparser__the_cases_with_their_results(read: dict[str, Any]) -> None:
    cases = {(classname, name): results for classname, name, results in read["junit"]}
    assert cases["encoder/long", "counters.copies"] == ["Failure"]
    assert cases["encoder/long", "latency.low"] == ["Skipped"]
    assert cases["perfgate", "verdict"] == []


def test_junit__schema_of_jenkins__valid(folder: Path) -> None:
    _schema_of_jenkins().validate(folder / "junit.xml")


def _schema_of_jenkins() -> xmlschema.XMLSchema:
    place = TOOLS / "junit-schema"
    if not list(place.glob("*.tar.gz")):
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            "pytest",
            "-d",
            str(place),
        ]
        subprocess.run([*command, WITH_SCHEMA], check=True)
    (archive,) = place.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        name = next(name for name in files.getnames() if name.endswith("/junit-10.xsd"))
        file = files.extractfile(name)
        assert file is not None
        return xmlschema.XMLSchema(file.read().decode())


def test_openmetrics__read_by_prometheus_client__every_family(folder: Path) -> None:
    families = list(text_string_to_metric_families((folder / "metrics.txt").read_text()))
    assert {"perfgate_latency_p50_seconds", "perfgate_counters_copies"} <= {family.name for family in families}


def test_bencher_and_benchmark_action__written_by_the_command__valid_and_of_both_directions(folder: Path) -> None:
    schema = json.loads((ROOT / "tests" / "data" / "bencher" / "bmf.schema.json").read_text())
    metrics = json.loads((folder / "bencher.json").read_text())
    jsonschema.validate(metrics, schema)
    assert metrics["encoder/long"]["counters.copies"] == {"value": 3}
    lower, higher = (
        json.loads((folder / "action" / f"custom{name}IsBetter.json").read_text()) for name in ("Smaller", "Bigger")
    )
    assert "encoder/long: counters.copies" in {entry["name"] for entry in lower}
    assert {entry["name"] for entry in lower} & {entry["name"] for entry in higher} == set()


def test_openmetrics__checked_by_promtool__no_complaint(folder: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: it is in Debian's package prometheus")
    text = (folder / "metrics.txt").read_bytes()
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
