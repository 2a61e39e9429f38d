"""Standard output and error that survive their reader, and text that a CI host cannot interpret as a command."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO

import click

from perfgate.errors import PerfgateError

if TYPE_CHECKING:
    from perfgate.flows.shared.doors import Doors

_LONGEST = 2000
# A command to GitHub's runner, at the beginning of a line that a carriage return may begin anew.
_COMMAND = re.compile(r"(^|\r)([^\S\r]*::)")


def make_streams_last() -> None:
    """Ignore a reader that goes away (``perfgate check | head``).

    click and rich end the command with code 1 on a broken pipe, and 1 is our code of a FAIL.
    """
    sys.stdout = _lasting(sys.stdout)
    sys.stderr = _lasting(sys.stderr)


def make_streams_harmless(environ: Mapping[str, str]) -> None:
    """Keep GitHub's runner from executing a printed line as a command, even one with foreign names or tracebacks."""
    if environ.get("GITHUB_ACTIONS") == "true":
        sys.stdout = _HarmlessLines(sys.stdout)
        sys.stderr = _HarmlessLines(sys.stderr)


def harmless(text: str) -> str:
    """Escape a text with foreign parts, so that no line of it is a command to GitHub's runner or moves the cursor.

    The runner executes lines that begin with ``::`` after spaces, and ``##[`` anywhere (actions/runner, ActionCommand.cs).
    """
    lines = ["".join(map(_visible, line)) for line in text.splitlines()]
    return "\n".join(map(_no_command, lines))


def _visible(character: str) -> str:
    if character.isprintable() or character == "\t":
        return character
    return "\ufffd"


def cleaned(text: str, *, whole: bool = False) -> str:
    """One line of visible characters; with ``whole``, long enough for the path of a damaged file and the remedy."""
    from perfgate.judging.report.text.escape import (
        MAX_LENGTH,
        clean,
    )  # not for `perfgate --help`

    return clean(text, limit=_LONGEST if whole else MAX_LENGTH)


def say_line(text: str, *, err: bool = False) -> None:
    """Print a text with foreign parts as one line, however long."""
    click.echo(cleaned(text, whole=True), err=err)


def doors_of_process() -> Doors:
    """The doors of a flow: this process, which prints by click."""
    from perfgate.flows.shared.doors import Doors

    return Doors.of_this_process(click.echo)


def print_json(value: object) -> None:
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    # "#" occurs in strings only. Escaped, the JSON is equivalent and no command (see ``harmless``).
    click.echo(text.replace("##[", "#\\u0023["))


def people_on_stderr(only_json: bool) -> AbstractContextManager[object]:
    """With ``only_json``, send text for people to standard error: standard output gets one JSON document only."""
    if only_json:
        return redirect_stdout(sys.stderr)
    return nullcontext()


def _no_command(line: str) -> str:
    line = line.replace("##[", "## [")
    return _COMMAND.sub(r"\1| \2", line)


def _lasting(stream: TextIO) -> TextIO:
    try:
        descriptor = stream.fileno()
    except (
        AttributeError,
        OSError,
        ValueError,
    ):  # closed by the parent process, or a test's StringIO
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_LastingFile(descriptor, "wb", closefd=False)),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=True,
    )


class _HarmlessLines(io.TextIOBase):
    """A text stream in front of another: passes on complete lines, made harmless."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begun = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has an attribute
        return self._stream.encoding

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._stream.write(_no_command(line) + "\n")
        return len(text)

    def flush(self) -> None:
        """Flush complete lines only; half a line could become a command with its other half."""
        self._stream.flush()

    def close(self) -> None:
        self._stream.write(_no_command(self._begun))
        self._begun = ""
        self._stream.flush()


class _LastingFile(io.FileIO):
    """A file that discards writes after its reader has gone."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes
        except OSError as error:
            raise PerfgateError(
                "the output cannot be written: {why}; free space, or redirect it",
                why=error.strerror,
            ) from error
