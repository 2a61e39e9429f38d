"""Distinguish an answer of ``npu-smi`` from a failure, its help, and output that perfgate cannot read."""

from __future__ import annotations

from perfgate.document.message import Message, UnmeasuredError
from perfgate.measuring.devices.cells import MOST_TEXT, quoted

# Printed texts in lower case, and the message for each. Sources: error_container_-8005 and usage_text_on_wrong_type of the
# recorded outputs, the return values of the DCMI manual (-8005 not ready, -8020 in use), the driver's refusal of a card that
# has the id of another container, the dynamic linker of glibc.
_REFUSALS = (
    ("ret is -8005", "device.npu-hidden"),
    ("ret is -8020", "device.npu-in-use"),
    ("container id verify failed", "device.npu-other-container"),
    ("dcmi module initialize failed", "device.npu-driver-stopped"),
    ("error while loading shared libraries", "device.npu-driver-not-found"),
    ("command not found", "device.npu-smi-not-installed"),
    ("error parameter of", "device.npu-smi-other-version"),
    ("usage:", "device.npu-smi-help"),
)
_MOST_LINES = 4
_LONGEST_LINE = 120


class UnparsedAnswerError(UnmeasuredError):
    """npu-smi answered in a format that perfgate does not know."""


def refuse_failure(text: str, command: str) -> None:
    """Raise UnmeasuredError if ``text`` is a failure or the help instead of an answer to ``command``."""
    lower = text[:MOST_TEXT].lower()
    if not lower.strip():
        raise UnmeasuredError(Message("device.tool-silent", {"command": command}))
    for sign, meaning in _REFUSALS:
        if sign in lower:
            printed = quoted(text, sign)
            raise UnmeasuredError(
                Message(
                    "device.npu-smi-refuses",
                    {
                        "command": command,
                        "meaning": Message(meaning),
                        "printed": printed,
                    },
                )
            )


def unread_output(text: str, command: str) -> UnparsedAnswerError:
    """The error for an answer without a chip, with its first lines; rulers and the version are left out."""
    lines: list[str] = []
    for line in text[:MOST_TEXT].splitlines():
        words = " ".join(line.split())
        if any(map(str.isalnum, words)) and "Version:" not in words:
            lines.append(f'"{words[:_LONGEST_LINE]}"')
    first_lines = "; ".join(lines[:_MOST_LINES])
    return UnparsedAnswerError(
        Message(
            "device.npu-smi-unread",
            {"command": command, "lines": first_lines, "count": len(lines)},
        )
    )
