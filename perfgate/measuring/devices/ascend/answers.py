"""What npu-smi prints: words and numbers in cells, and how it says that it has no answer."""

from __future__ import annotations

import re

from perfgate.errors import MeasuringError

# "N/A", "NA" and "-" stand in the recorded outputs of 310P3 (power), A3 (power of the second die) and 310B4 (Bus-Id).
_ABSENT = frozenset({"", "-", "--", "na", "n/a", "null", "none"})
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_PAIR = re.compile(r"([0-9]{1,12})\s*/\s*([0-9]{1,12})")
# npu-smi calls 65536 MB what is 64 GiB.
MIB = 1 << 20
MHZ = 1_000_000


def word(cell: str | None) -> str | None:
    """A cell without the space around it, None where it says that there is nothing."""
    text = (cell or "").strip()
    return None if text.lower() in _ABSENT else text


def number(cell: str | None) -> float | None:
    text = word(cell)
    return float(text) if text is not None and _NUMBER.fullmatch(text) else None


def whole(cell: str | None) -> int | None:
    """A cell as a whole number that is not negative, such as an id or a count."""
    value = number(cell)
    return int(value) if value is not None and value >= 0 and value.is_integer() else None


def share(cell: str | None) -> float | None:
    """Percent as a share; None for what is below 0 or above 100."""
    value = number(cell)
    return value / 100 if value is not None and 0 <= value <= 100 else None


def scaled(cell: str | None, unit: int) -> int | None:
    """A cell in units of ``unit``, such as MB as bytes; None for a negative one."""
    value = number(cell)
    return None if value is None or value < 0 else int(value * unit)


def pair(cell: str | None) -> tuple[int, int] | None:
    """``used / total`` as two numbers; the recorded outputs have it with and without the first space."""
    match = _PAIR.fullmatch((cell or "").strip())
    return (int(match[1]), int(match[2])) if match else None


MOST_TEXT = 1 << 20
_QUOTED = 160
# The text as printed, in lower case, and what it means. Sources: error_container_-8005 and usage_text_on_wrong_type of the
# recorded outputs, the return values of the DCMI manual (-8005 not ready, -8020 in use), the dynamic linker of glibc.
_REFUSALS = (
    (
        "ret is -8005",
        "the driver lets this user see no card (dcmi -8005): run as a member of the group HwHiAiUser; in a container, pass "
        "/dev/davinci0, /dev/davinci_manager, /dev/devmm_svm and /dev/hisi_hdc and mount /usr/local/dcmi",
    ),
    ("ret is -8020", "another container or process holds the card (dcmi -8020): end it, or take a card of your own"),
    (
        "dcmi module initialize failed",
        "the driver's library does not start; look at its return value, and whether /dev/davinci_manager is there",
    ),
    (
        "error while loading shared libraries",
        "it finds no driver library: add /usr/local/Ascend/driver/lib64/driver and /usr/local/dcmi to LD_LIBRARY_PATH",
    ),
    ("command not found", "npu-smi is not installed: install the Ascend driver, or mount npu-smi into the container"),
    ("error parameter of", "this npu-smi does not know what it was asked for; an older or newer driver may"),
    ("usage: npu-smi", "it printed its help instead of an answer: this driver does not know the question"),
    ("usage:", "it printed its help instead of an answer: this driver does not know the question"),
)


def refuse(text: str, command: str) -> None:
    """Raise MeasuringError where ``text`` is no answer to ``asked`` but a failure or the help."""
    lower = text[:MOST_TEXT].lower()
    if not lower.strip():
        raise MeasuringError(f"{command} printed nothing")
    for sign, meaning in _REFUSALS:
        if sign in lower:
            raise MeasuringError(f"{command}: {meaning} (it printed: {quote(text, sign)})")


def no_answer(text: str, command: str, missing: str) -> MeasuringError:
    """The error for a text that fails openly in nothing, but holds no ``missing`` either."""
    return MeasuringError(f"{command} printed no {missing} (it printed: {quote(text)})")


def quote(text: str, sign: str = "") -> str:
    """The line with the sign, or the first that says something, short enough for a message."""
    lines = [line.strip() for line in text[:MOST_TEXT].splitlines() if line.strip()]
    line = next((line for line in lines if sign in line.lower()), lines[0] if lines else "nothing")
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]}…"
