"""The numbers that a benchmark program wrote: each member of ``readers`` recognises its own files."""

from __future__ import annotations

import glob
import json
import math
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast

from perfgate.conductor.results import readers
from perfgate.errors import ResultsError
from perfgate.job_settings import UNITS
from perfgate.plugins import RESULTS, load_members, member_names

Better = Literal["lower", "higher"]
# A result with the raw samples of a long run has some megabytes.
MAX_BYTES = 64 * 2**20


class ResultNumber(NamedTuple):
    """One number in a base unit; ``samples`` are its single values, if the file has them."""

    name: str
    value: float
    unit: str
    better: Better
    samples: tuple[float, ...] = ()


class Results(NamedTuple):
    """The numbers of a file, and in ``work`` the counts that must be equal on both sides."""

    numbers: list[ResultNumber]
    work: dict[str, int]
    format: str = ""


class Content:
    """A file as readers see it: its text, and the same parsed as JSON, None if it is not JSON."""

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
    def lines(self) -> list[Any]:
        """The documents of a file with one object a line, or the file's only one; none if a line is not JSON."""
        if isinstance(self.document, dict):
            return [self.document]
        try:
            return [json.loads(line) for line in self.text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return []

    def has(self, *keys: str) -> bool:
        """Whether it is a JSON object with all these keys."""
        return isinstance(self.document, dict) and all(key in self.document for key in keys)

    def refused(self, why: str) -> ResultsError:
        return ResultsError(f"{self.path.name}: {why}")

    def number(
        self, name: str, value: object, unit: str, better: Better, samples: Iterable[object] = ()
    ) -> ResultNumber:
        """A number in its base unit. Raises ResultsError if the value is not a number, or the unit is unknown."""
        if unit not in UNITS:
            raise self.refused(f"{name} has the unit {unit!r}, which is not known; known units: {', '.join(UNITS)}")
        base, factor = UNITS[unit]
        listed = tuple(self.checked(name, sample) * factor for sample in samples)
        return ResultNumber(name, self.checked(name, value) * factor, base, better, listed)

    def checked(self, name: str, value: object) -> float:
        """A value that can be measured. Raises ResultsError for values that are not finite non-negative numbers."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.refused(f"{name} is {value!r}, which is no number")
        if not math.isfinite(value) or value < 0:
            raise self.refused(f"{name} is {value}, which is no measurement")
        return float(value)

    def none_failed(self, failed: object, what: str = "requests") -> None:
        """Raises ResultsError after failures, because the remaining work differs."""
        if self.checked(f"failed {what}", failed):
            raise self.refused(
                f"{failed:g} {what} failed, so its numbers are of other work; see what the program printed"
            )


class ResultReader(Protocol):
    """A module in ``readers``, or one that another package names under the entry points ``perfgate.results``.

    ``READS`` describes its files in a list of formats.
    """

    READS: str

    def recognises(self, content: Content) -> bool:
        """A look at the content that raises nothing."""

    def read(self, content: Content) -> Results:
        """Raises ResultsError, with the error and its place."""


def all_readers() -> dict[str, ResultReader]:
    """By their names, which are the formats of perfgate.toml."""
    members = load_members(readers, RESULTS)
    return dict(zip(member_names(readers, RESULTS), cast(list[ResultReader], members)))


def written_file(folder: Path, pattern: str, not_before: float) -> Path:
    """The file that a run of a program wrote; a pattern stands for a path with a date or a commit in it.

    Raises ResultsError if there is none, if it is older than the run, or if there are several.
    """
    names = [pattern]
    if not (folder / pattern).is_file():
        names = sorted(glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207 - Path's takes no absolute one
    times = {name: (folder / name).stat().st_mtime for name in names if (folder / name).is_file()}
    if not times:
        raise ResultsError(
            f"the program ended and left no file {pattern}; let it write there, or set `file` to where it writes, "
            "relative to the folder that it runs in"
        )
    # Files of an earlier run do not count.
    fresh = [name for name, written in times.items() if written >= not_before]
    if not fresh:
        raise ResultsError(
            f"{max(times)} is older than this run of the program, which did not write it; let every run write its "
            "results, or set `file` to where it writes"
        )
    if len(fresh) > 1:
        named = ", ".join(fresh[:4])
        raise ResultsError(f"this run of the program wrote {len(fresh)} files {pattern}: {named}; let `file` match one")
    return folder / fresh[0]


def read_results(path: Path, *, format: str = "auto") -> Results:  # noqa: A002 - as perfgate.toml calls it
    """Raises ResultsError, with the error, its place and the remedy."""
    content = Content(path, _text(path))
    known = all_readers()
    formats = "; ".join(f"{name}: {reader.READS}" for name, reader in known.items())
    if format == "auto":
        names = [name for name, reader in known.items() if reader.recognises(content)]
        if len(names) != 1:
            found = f"{' and '.join(names)} recognise it" if names else "no format recognises it"
            raise content.refused(f"{found}; name one with `format`, or the numbers with `numbers`. {formats}")
        format = names[0]  # noqa: A001
    elif format not in known:
        raise ResultsError(f"no format {format!r} is known; there are {formats}")
    elif not known[format].recognises(content):
        raise content.refused(f"it is not what {format} reads: {known[format].READS}")
    try:
        results = known[format].read(content)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise content.refused(
            f"it is no complete result of {format} ({type(error).__name__} {error}); it reads {known[format].READS}, "
            "and other numbers are named with `numbers`"
        ) from error
    if not results.numbers:
        raise content.refused(f"it holds no number that {format} knows; name the ones you mean with `numbers`")
    names = [number.name for number in results.numbers]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise content.refused(f"it holds {twice[0]} twice; let the program write one result to it")
    return results._replace(format=format)


def _text(path: Path) -> str:
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise ResultsError(
                f"{path.name} has {size} bytes, and results have at most {MAX_BYTES}; leave the raw samples out of it"
            )
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ResultsError(f"the results {path.name} cannot be read: {error.strerror}; check `file`") from error
