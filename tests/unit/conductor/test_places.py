"""Numbers that perfgate.toml names: where they stand, in which unit, and what is said where they are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfgate.conductor.results.places import find_number
from perfgate.errors import ResultsError
from perfgate.job_settings import NumberSettings


def found(output: str = "", file: Path | None = None, **settings: Any) -> tuple[float, str, tuple[float, ...]]:
    number = find_number("step", NumberSettings(**settings), output=output, file=file)
    return number.value, number.unit, number.samples


def test_json__last_object_of_the_output__by_its_path() -> None:
    output = 'starting\n{"a": {"b": [{"c": 1}, {"c": 12.5}]}}\n{"a": {"b": [{"c": 1}, {"c": 25}]}}\ndone {x}\n'
    assert found(output, json="a.b[1].c", unit="ms") == (0.025, "s", ())


def test_json__keys_with_dots__are_keys() -> None:
    output = '{"summaries": {"http.response_time": {"p99": 4, "p99.9": 5}, "http": {"codes.200": [7]}}}'
    assert found(output, json="summaries.http.response_time.p99")[0] == 4
    assert found(output, json="summaries.http.response_time.p99.9")[0] == 5
    assert found(output, json="summaries.http.codes.200[0]")[0] == 7


def test_json__of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text('[{"rate": "1,234.5"}]')
    assert found(file=file, json="[0].rate", unit="tok/s", better="higher") == (1234.5, "tokens/s", ())


def test_column__the_mean_of_its_rows__and_the_rows_as_samples(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    file.write_text("name,time\na,2\nb,4\n")
    assert found(file=file, column="time", unit="us") == (pytest.approx(3e-6), "s", pytest.approx((2e-6, 4e-6)))


@pytest.mark.parametrize("row", ["0,99,,0.9", "0,99"])
def test_column__empty_in_a_row__names_the_row(tmp_path: Path, row: str) -> None:
    """As lightning's CSVLogger writes a step that logs other metrics."""
    file = tmp_path / "metrics.csv"
    file.write_text(f"epoch,step,step_time,val_loss\n0,49,0.012,\n{row}\n")
    with pytest.raises(ResultsError, match=r"metrics\.csv has no step_time in row 2 below its header"):
        found(file=file, column="step_time", unit="s")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_file__written_on_windows__is_read(tmp_path: Path, encoding: str) -> None:
    table, document = tmp_path / "out.csv", tmp_path / "out.json"
    table.write_text("time,name\n2,a\n", encoding=encoding)
    document.write_text('{"time": 2}', encoding=encoding)
    assert found(file=table, column="time") == found(file=document, json="time") == (2.0, "1", ())
    assert found(file=table, pattern=r"(\d),a")[0] == 2.0


@pytest.mark.parametrize("number", ["9,75", "10,5", "0,012", "1.234,5", "12345,678"])
def test_number__with_a_decimal_comma__is_refused(number: str) -> None:
    with pytest.raises(ResultsError, match=f"number step is '{number}', with a decimal comma; let the program write"):
        found(f"took {number} s", pattern=r"took ([\d.,]+) s", unit="s")


def test_pattern__its_last_match() -> None:
    assert found("tokens/s: 1,000\ntokens/s: 2,000\n", pattern=r"tokens/s: ([\d,]+)", unit="tokens/s")[0] == 2000.0


@pytest.mark.parametrize(
    ("output", "settings", "error"),
    [
        ("nothing", {"json": "a"}, "no line of the output is a JSON object"),
        ('{"b": 1}', {"json": "a.c"}, "the JSON has no a.c: nothing at a below the top level; there are b"),
        ('{"a": {"b": []}}', {"json": "a.b[0]"}, "nothing at 0 below a.b"),
        ('{"a.b": {"c": 1}}', {"json": "a.b.d"}, "nothing at d below a.b; there are c"),
        ('{"a": null}', {"json": "a"}, "number step is None, not a number"),
        ('{"a": true}', {"json": "a"}, "not a number"),
        ('{"a": NaN}', {"json": "a"}, "number step is nan, not a valid measurement"),
        ('{"a": -1}', {"json": "a"}, "not a valid measurement"),
        ('{"a": 0}', {"json": "a"}, "not a valid measurement"),
        ("x", {"pattern": "y=(.*)"}, "nothing matches the pattern 'y=(.*)'"),
        ("y=fast", {"pattern": "y=(.*)"}, "number step is 'fast', not a number"),
    ],
)
def test_number__that_is_none__says_what_and_where(output: str, settings: dict[str, Any], error: str) -> None:
    with pytest.raises(
        ResultsError, match=error.replace("(", r"\(").replace("[", r"\[").replace("*", r"\*").replace(")", r"\)")
    ):
        found(output, **settings)


@pytest.mark.parametrize(
    ("text", "error"), [("", "has no row"), ("a,b\n1,2\n", "has no column 'time'; its columns are a, b")]
)
def test_column__that_is_not_there__says_what_is(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "out.csv"
    file.write_text(text)
    with pytest.raises(ResultsError, match=error):
        found(file=file, column="time")


def test_file__that_is_not_there__is_named(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"out\.csv cannot be read: No such file"):
        found(file=tmp_path / "out.csv", column="time")
