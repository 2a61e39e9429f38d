"""Ask an interpreter what stands in the way of a device, in a process that imports no torch and so always answers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from perfgate.conductor.workers.interpreters import ask_module
from perfgate.conductor.workers.logs import one_line
from perfgate.document.doctor import FitnessCheck

# Several questions to a vendor's tool, each of which may take TOOL_SECONDS.
PROBE_SECONDS = 120.0


def probe_device(python: Path, device: str, environment: Mapping[str, str], *, cwd: Path) -> list[FitnessCheck]:
    """Return what an interpreter, in the environment of its workers, says of a device such as ``npu:1``.

    Nothing for a kind that has no examination. A probe that fails is one check, unavailable with the reason.
    """
    arguments = ["perfgate.measuring.devices.probe", device]
    try:
        told = ask_module(python, arguments, environment, cwd=cwd, timeout=PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [_failed(device, str(error))]
    if told.answer is not None:
        try:
            return msgspec.json.decode(told.answer, type=list[FitnessCheck])
        except msgspec.DecodeError:
            pass  # something prints at the interpreter's end; what follows says what
    return [_failed(device, told.complaint)]


def is_absent(device: str, checks: list[FitnessCheck]) -> bool:
    """Return whether the probe found nothing of such a device at all."""
    name = f"device {device.partition(':')[0]}"
    return any(check.name == name and check.status == "unavailable" for check in checks)


def explain_closed(error: str, device: str, checks: list[FitnessCheck]) -> str:
    """Return an error with what stands in the way, and what to do, below its first line; unchanged where nothing does."""
    ways = [check for check in checks if check.status == "unfit"]
    if is_absent(device, checks):
        ways = checks
    if not ways:
        return error
    first, newline, rest = error.partition("\n")
    lines = [f"- {check.name}: {check.seen}{f'; {check.remedy}' if check.remedy else ''}" for check in ways]
    return "\n".join([first, f"what stands in the way of device {device!r}:", *lines]) + newline + rest


def _failed(device: str, why: str) -> FitnessCheck:
    return FitnessCheck(
        name=f"probe {device}", status="unavailable", seen=f"the probe of {device} failed: {one_line(why)}"
    )
