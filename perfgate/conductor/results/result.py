"""The numbers that a benchmark program wrote: each member of ``readers`` recognises its
own files.
"""

from __future__ import annotations

import glob
import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast

from perfgate.conductor.results import readers as members
from perfgate.errors import ResultsError
from perfgate.job_settings import UNITS
from perfgate.locale import Activity
from perfgate.plugins import RESULTS, load_members, member_names

Better = Literal["lower", "higher"]
# How tools of one family spell the number of failed requests, and of all that were
# sent.
_FAILED = re.compile(
    r"(?:num_|total_)?(?:failed|failures?|errors?|unsuccessful|aborted|cancell?ed|timed_out|timeouts?)"
    r"(?:_(?:requests|reqs|count|num))?"
)
_ASKED = frozenset({"num_prompts", "num_requests", "total_requests", "requests_sent"})
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# A result with the raw samples of a long run has some megabytes.
MAX_BYTES = 64 * 2**20


class ResultNumber(NamedTuple):
    """One number in a base unit; ``samples`` are its single values, if the file has
    them.
    """

    name: str
    value: float
    unit: str
    better: Better
    samples: tuple[float, ...] = ()


class Results(NamedTuple):
    """The numbers of a file, and in ``work`` the counts that must be equal on both
    sides.
    """

    numbers: list[ResultNumber]
    work: dict[str, int]
    format: str = ""


class JsonFault(NamedTuple):
    """Line and column, from 1, and what the parser says."""

    line: int
    column: int
    error: str


class Content:
    """A file as readers see it: its text, and the same parsed as JSON, None if it is
    not JSON.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text

    @cached_property
    def document(self) -> Any:
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    @cached_property
    def fault(self) -> JsonFault | None:
        """The place at which it stops being JSON, or one document a line; None if it is
        either.
        """
        try:
            json.loads(self.text)
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Extra data"):
                return JsonFault(error.lineno, error.colno, error.msg)
        except (ValueError, RecursionError):
            return None
        else:
            return None
        for number, line in enumerate(self.text.splitlines(), start=1):
            try:
                json.loads(line.strip() or "null")
            except json.JSONDecodeError as error:
                return JsonFault(number, error.colno, error.msg)
        return None

    @cached_property
    def lines(self) -> list[Any]:
        """The documents of a file with one object a line, or the file's only one; none
        if a line is not JSON.
        """
        if isinstance(self.document, dict):
            return [self.document]
        try:
            return [json.loads(line) for line in self.text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return []

    def has(self, *keys: str) -> bool:
        """Whether it is a JSON object with all these keys."""
        return isinstance(self.document, dict) and all(
            key in self.document for key in keys
        )

    def refused(self, english: str, **values: object) -> ResultsError:
        return ResultsError(
            "{file}: {why}", file=self.path.name, why=Activity(english, **values)
        )

    def number(
        self,
        name: str,
        value: object,
        unit: str,
        better: Better,
        samples: Iterable[object] = (),
    ) -> ResultNumber:
        """A number in its base unit.

        Raises ResultsError if the value is not a number, or the unit is unknown.
        """
        if unit not in UNITS:
            raise self.refused(
                "{name} has the unknown unit {unit!r}; known units: {units}",
                name=name,
                unit=unit,
                units=", ".join(UNITS),
            )
        base, factor = UNITS[unit]
        listed = tuple(self.checked(name, sample) * factor for sample in samples)
        return ResultNumber(
            name, self.checked(name, value) * factor, base, better, listed
        )

    def checked(self, name: str, value: object) -> float:
        """A value that can be measured.

        Raises ResultsError for values that are not finite non-negative numbers.
        """
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.refused(
                "{name} is {value!r}, not a number", name=name, value=value
            )
        if not math.isfinite(value) or value < 0:
            raise self.refused(
                "{name} is {value}, not a valid measurement", name=name, value=value
            )
        return float(value)

    def none_failed(self, failed: object) -> None:
        """Raises ResultsError after failed requests, because the remaining work
        differs.
        """
        if self.checked("failed requests", failed):
            raise self.refused(
                "{failed:g} requests failed, so its numbers describe less work; see the program's output",
                failed=failed,
            )

    def all_answered(self, result: Mapping[str, object]) -> None:
        """Raises ResultsError if a result counts failed requests in any spelling, or
        fewer answers than requests.
        """
        for key in filter(_FAILED.fullmatch, result):
            failed = result[key]
            if isinstance(failed, list):
                failed = sum(map(bool, failed))
            self.none_failed(failed or 0)
        completed = result.get("completed", result.get("successful_requests"))
        if completed is None:
            return
        answered = self.checked("completed requests", completed)
        for key in _ASKED & result.keys():
            requests = result[key]
            if isinstance(requests, (int, float)) and requests > answered:
                self.none_failed(requests - answered)
        if not answered:
            raise self.refused("no request was answered; see the program's output")

    def served(self, result: Mapping[str, Any], rates: Mapping[str, str]) -> Results:
        """The rates by their units and the work of vLLM's benchmark, or of one that was
        made from it.

        Raises ResultsError as ``all_answered`` does.
        """
        self.all_answered(result)
        numbers = []
        for name, unit in rates.items():
            if name in result:
                numbers.append(self.number(name, result[name], unit, "higher"))
        names = {
            "requests": "completed",
            "input_tokens": "total_input_tokens",
            "output_tokens": "total_output_tokens",
        }
        work = {name: int(result[key]) for name, key in names.items() if key in result}
        return Results(numbers, work)


class ResultReader(Protocol):
    """A module in ``readers``, or one that another package names under the entry points
    ``perfgate.results``.

    ``READS`` describes its files in a list of formats.
    """

    READS: str

    def recognises(self, content: Content) -> bool:
        """A look at the content that never raises."""

    def read(self, content: Content) -> Results:
        """Raises ResultsError, with the error and its place."""


def all_readers() -> dict[str, ResultReader]:
    """By their names, which are the formats of perfgate.toml."""
    loaded = cast(list[ResultReader], load_members(members, RESULTS))
    return dict(zip(member_names(members, RESULTS), loaded))


def written_file(folder: Path, pattern: str, not_before: float) -> Path:
    """The file that a run of a program wrote; a pattern stands for a path with a date
    or a commit in it.

    Raises ResultsError if there is none, if it is older than the run, or if there are
    several.
    """
    names = [pattern]
    if not (folder / pattern).is_file():
        names = sorted(glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207 - Path's takes no absolute one
    times = {
        name: (folder / name).stat().st_mtime
        for name in names
        if (folder / name).is_file()
    }
    if not times:
        raise ResultsError(
            "the program ended without writing {pattern}; let it write there, or set `file` to its output path, "
            "relative to its working folder",
            pattern=pattern,
        )
    # Files of an earlier run do not count.
    fresh = [name for name, written in times.items() if written >= not_before]
    if not fresh:
        raise ResultsError(
            "{name} is older than this run of the program, which did not write it; let every run write its results, "
            "or set `file` to its output path",
            name=max(times),
        )
    if len(fresh) > 1:
        raise ResultsError(
            "this run of the program wrote {count} files {pattern}: {named}; let `file` match one",
            count=len(fresh),
            pattern=pattern,
            named=", ".join(fresh[:4]),
        )
    return folder / fresh[0]


def read_results(path: Path, *, format: str) -> Results:  # noqa: A002 - as perfgate.toml calls it
    """Raises ResultsError, with the error, its place and the remedy."""
    _refuse_large(path)
    content = Content(path, text_of(path))
    readers = all_readers()
    formats = "; ".join(f"{name}: {reader.READS}" for name, reader in readers.items())
    if format == "auto":
        names = [name for name, reader in readers.items() if reader.recognises(content)]
        if len(names) != 1:
            recognition = f"{' and '.join(names)} recognise it"
            if not names:
                _refuse_broken(content)
                recognition = "no format recognises it"
            raise content.refused(
                "{found}; name one with `format`, or the numbers with `numbers`. {formats}",
                found=recognition,
                formats=formats,
            )
        format = names[0]  # noqa: A001
    elif format not in readers:
        raise ResultsError(
            "unknown format {format!r}; the formats are {formats}",
            format=format,
            formats=formats,
        )
    elif not readers[format].recognises(content):
        _refuse_broken(content)
        raise content.refused(
            "it is not in the format {format}, which reads {reads}",
            format=format,
            reads=readers[format].READS,
        )
    try:
        results = readers[format].read(content)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise content.refused(
            "it is not a complete result of {format} ({error_type} {error}), which reads {reads}; name other numbers "
            "with `numbers`",
            format=format,
            error_type=type(error).__name__,
            error=error,
            reads=readers[format].READS,
        ) from error
    if not results.numbers:
        raise content.refused(
            "it holds no number of format {format}; name the numbers with `numbers`",
            format=format,
        )
    names = [number.name for number in results.numbers]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise content.refused(
            "it holds {twice} twice; let the program write one result to it",
            twice=twice[0],
        )
    return results._replace(format=format)


def _refuse_broken(content: Content) -> None:
    """Raise ResultsError for an empty file, and with the place of the error for a file
    that is meant to be JSON.
    """
    if not content.text.strip():
        raise content.refused(
            "it is empty; the program was stopped before it wrote its results"
        )
    is_meant = any(line.lstrip().startswith("{") for line in content.text.splitlines())
    if is_meant and content.fault is not None:
        raise content.refused(
            "line {line}, column {column}: not JSON: {error}; the program was stopped, or prints other text into the file",
            line=content.fault.line,
            column=content.fault.column,
            error=content.fault.error,
        )


def text_of(path: Path) -> str:
    """The text of a file of results, without the mark of its encoding.

    Raises ResultsError if it cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    # A shell of Windows redirects output as UTF-16.
    encoding = "utf-16" if data.startswith(_UTF16_MARKS) else "utf-8-sig"
    return data.decode(encoding, errors="replace")


def _refuse_large(path: Path) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error
    if size > MAX_BYTES:
        raise ResultsError(
            "{name} has {size} bytes, and results have at most {most_bytes}; leave the raw samples out of it",
            name=path.name,
            size=size,
            most_bytes=MAX_BYTES,
        )


def _unreadable(path: Path, error: OSError) -> ResultsError:
    return ResultsError(
        "the results {name} cannot be read: {error}; check `file`",
        name=path.name,
        error=error.strerror,
    )
