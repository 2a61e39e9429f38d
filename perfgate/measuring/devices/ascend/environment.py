"""The environment variables of CANN and torch_npu that slow an NPU down, and the one that forbids measuring it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from perfgate.document.doctor import FitnessCheck
from perfgate.errors import MeasuringError

BLOCKING = "ASCEND_LAUNCH_BLOCKING"
_OFF = ("", "0")


class _Slow(NamedTuple):
    name: str
    values: tuple[str, ...]
    why: str
    remedy: str


# Documentation of torch_npu's environment variables (Ascend/pytorch, docs/en/api/environment_variable) and of CANN's log.
_SLOW = (
    _Slow(
        "ASCEND_GLOBAL_LOG_LEVEL",
        ("0", "1"),
        "CANN logs every call (0 is debug, 1 is info)",
        "export ASCEND_GLOBAL_LOG_LEVEL=3 (errors only)",
    ),
    _Slow("ASCEND_GLOBAL_EVENT_ENABLE", ("1",), "CANN logs events", "export ASCEND_GLOBAL_EVENT_ENABLE=0"),
    _Slow(
        "ASCEND_SLOG_PRINT_TO_STDOUT",
        ("1",),
        "CANN writes its log to the standard output, call by call",
        "export ASCEND_SLOG_PRINT_TO_STDOUT=0",
    ),
    _Slow(
        "TASK_QUEUE_ENABLE",
        ("0",),
        "the queue that launches operators from a second thread is off",
        "unset TASK_QUEUE_ENABLE (1 is the default, 2 the fastest)",
    ),
    _Slow(
        "PYTORCH_NO_NPU_MEMORY_CACHING",
        ("1",),
        "every allocation goes to the driver",
        "unset PYTORCH_NO_NPU_MEMORY_CACHING",
    ),
    _Slow(
        "MULTI_STREAM_MEMORY_REUSE",
        ("0",),
        "memory of other streams is not used again",
        "unset MULTI_STREAM_MEMORY_REUSE (1 is the default)",
    ),
)


def refuse_blocking(environ: Mapping[str, str]) -> None:
    """Raise MeasuringError where every operator waits for the device: such times say nothing of a real run."""
    if is_blocking(environ):
        raise MeasuringError(
            f"{BLOCKING}={environ[BLOCKING]} in the environment: every operator waits for the NPU, so no time measured here is "
            f"that of a real run; unset {BLOCKING} and start again"
        )


def is_blocking(environ: Mapping[str, str]) -> bool:
    """Whether torch_npu would wait for the device after every operator."""
    return environ.get(BLOCKING, "").strip() not in _OFF


def check_environment(environ: Mapping[str, str]) -> list[FitnessCheck]:
    """Judge the variables: one check for the one that forbids measuring, one for all that slow down."""
    return [_check_blocking(environ), _check_slow(environ)]


def _check_blocking(environ: Mapping[str, str]) -> FitnessCheck:
    name, value = "npu blocking", environ.get(BLOCKING)
    if is_blocking(environ):
        detail = f"{BLOCKING}={value}: every operator waits for the NPU"
        return FitnessCheck(name=name, status="unfit", seen=detail, remedy=f"unset {BLOCKING}")
    return FitnessCheck(
        name=name, status="ok", seen=f"{BLOCKING} is {'not set' if value is None else value or 'empty'}"
    )


def _check_slow(environ: Mapping[str, str]) -> FitnessCheck:
    slow = [entry for entry in _SLOW if environ.get(entry.name, "").strip() in entry.values]
    if not slow:
        return FitnessCheck(name="npu settings", status="ok", seen="no variable that slows an NPU down is set")
    return FitnessCheck(
        name="npu settings",
        status="attention",
        seen="; ".join(f"{entry.name}={environ[entry.name].strip()}: {entry.why}" for entry in slow),
        remedy="; ".join(entry.remedy for entry in slow),
    )
