"""What ``npu-smi`` prints when it has no answer: told from an answer by its content, for its exit code says nothing."""

from __future__ import annotations

from perfgate.errors import MeasuringError

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
