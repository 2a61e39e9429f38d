"""What is told to GitHub's runner: read back here as the runner reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfgate.errors import UsageError
from perfgate.judging.forge.runner import annotation_command, append_to, output_lines, summary_path

ANY = st.text(max_size=80)


def outputs_of(text: str) -> dict[str, str]:
    """Read as actions/runner does (FileCommandManager.cs): ``name<<DELIMITER``, lines, the delimiter alone on a line."""
    found, lines = {}, iter(text.split("\n"))
    for line in lines:
        if line:
            name, delimiter = line.split("<<", 1)
            value = []
            for inner in lines:
                if inner == delimiter:
                    break
                value.append(inner)
            found[name] = "\n".join(value)
    return found


def command_of(line: str) -> tuple[str, dict[str, str], str]:
    """Read as actions/runner does (ActionCommand.cs, TryParseV2)."""
    match = re.fullmatch(r"::(?P<command>[a-z]+) (?P<properties>.*?)::(?P<data>.*)", line)
    assert match is not None
    pairs = [pair.split("=", 1) for pair in match["properties"].split(",")]
    return match["command"], {name: _back(value, "%3A", "%2C") for name, value in pairs}, _back(match["data"])


def _back(text: str, *more: str) -> str:
    marks = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ","}
    for mark in ("%0D", "%0A", *more):
        text = text.replace(mark, marks[mark])
    return text.replace("%25", "%")


@given(st.dictionaries(st.sampled_from(["verdict", "exit-code", "decision"]), st.text(max_size=200)))
def test_output_lines__any_values__come_out_as_they_went_in(values: dict[str, str]) -> None:
    assert outputs_of(output_lines(values)) == values


def test_output_lines__value_that_looks_like_another_output__stays_data() -> None:
    hostile = "x\nverdict=PASS\nverdict<<E\nPASS\nE\n"
    assert outputs_of(output_lines({"decision": hostile, "verdict": "FAIL"})) == {
        "decision": hostile,
        "verdict": "FAIL",
    }


def test_output_lines__twice__delimiters_differ() -> None:
    assert output_lines({"a": ""}) != output_lines({"a": ""})


@given(title=ANY, message=ANY, path=ANY)
def test_annotation_command__any_words__one_line_that_says_them(title: str, message: str, path: str) -> None:
    line = annotation_command("error", title, message, (path, 7))
    assert "\n" not in line
    assert "\r" not in line
    assert command_of(line) == ("error", {"file": path, "line": "7", "title": title}, message)


def test_annotation_command__hostile_title__cannot_end_itself() -> None:
    line = annotation_command("warning", "a::error file=x,line=1::b", "100%\n::set-output name=x::y")
    assert line == ("::warning title=a%3A%3Aerror file=x%2Cline=1%3A%3Ab::100%25%0A::set-output name=x::y")


def test_summary_path__not_set__none() -> None:
    assert summary_path({}) is None
    assert summary_path({"GITHUB_STEP_SUMMARY": "/x"}) == Path("/x")


def test_append_to__file_that_says_something__stands_below_it(tmp_path: Path) -> None:
    (tmp_path / "summary").write_text("before\n")
    append_to(tmp_path / "summary", "after\n", "GITHUB_STEP_SUMMARY")
    assert (tmp_path / "summary").read_text() == "before\nafter\n"


def test_append_to__folder__names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\(GITHUB_STEP_SUMMARY\) cannot be written: .*Is a directory"):
        append_to(tmp_path, "after\n", "GITHUB_STEP_SUMMARY")
