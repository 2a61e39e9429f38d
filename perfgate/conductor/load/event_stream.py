"""A parser of server-sent events, strict and bounded (WHATWG HTML Living Standard,
section 9.2.6).

The same bytes give the same events and the same error, however a network has split
them.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfgate.conductor.load.http import AnswerError

# A chunk of an answer is some hundred bytes; one with all its log probabilities some
# hundred thousand.
LONGEST_LINE = 2**20
LONGEST_EVENT = 2**20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventStreamError(AnswerError):
    """The stream breaks the format, or a bound."""


class EventStream:
    """Turns the bytes of a body into the ``data`` of its events, in order."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skip_newline = False
        self._first = True
        self._data: list[str] = []
        self._size = 0

    def feed(self, received: bytes) -> Iterator[str]:
        """The data of the events that these bytes complete. Raises EventStreamError,
        after the events before the error.
        """
        if self._skip_newline and received:
            received = received.removeprefix(b"\n")
            self._skip_newline = False
        self._rest += received
        lines = []
        if b"\n" in received or b"\r" in received:
            lines = bytes(self._rest).splitlines(keepends=True)
            self._rest = (
                bytearray()
                if lines[-1].endswith((b"\n", b"\r"))
                else bytearray(lines.pop())
            )
            # "\r" and "\r\n" both end a line, and the "\n" may come with the next
            # bytes.
            self._skip_newline = not self._rest and lines[-1].endswith(b"\r")
        for line in lines:
            yield from self._line(line.rstrip(b"\r\n"))
        if len(self._rest) > LONGEST_LINE:
            raise EventStreamError(
                f"a line of the event stream is longer than {LONGEST_LINE} bytes"
            )

    def end(self) -> None:
        """Raises EventStreamError if the body ended within an event."""
        if self._rest or self._data:
            raise EventStreamError(
                "the event stream ended within an event: it was cut off"
            )

    def _line(self, line: bytes) -> Iterator[str]:
        if len(line) > LONGEST_LINE:
            raise EventStreamError(
                f"a line of the event stream is longer than {LONGEST_LINE} bytes"
            )
        if self._first:
            line, self._first = line.removeprefix(_BYTE_ORDER_MARK), False
        if not line:
            if self._data:
                yield "\n".join(self._data)
            self._data = []
            self._size = 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._add(value.removeprefix(b" "))

    def _add(self, value: bytes) -> None:
        self._size += len(value) + 1
        if self._size > LONGEST_EVENT:
            raise EventStreamError(
                f"an event of the stream is longer than {LONGEST_EVENT} bytes"
            )
        try:
            self._data.append(value.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise EventStreamError(f"the event stream is not UTF-8: {error}") from None
