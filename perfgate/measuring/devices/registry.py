"""Open a device or its monitor by kind; the members are modules in one folder each."""

from __future__ import annotations

import re
from typing import Any

from perfgate.document.doctor import FitnessCheck
from perfgate.document.message import Message, MessageValue, UnmeasuredError, reason_of
from perfgate.document.telemetry import ClockCommands, Sensor, Watch
from perfgate.errors import ConfigError, MeasuringError
from perfgate.measuring.devices import backends, monitors
from perfgate.measuring.devices.device import Device
from perfgate.measuring.devices.host import Host
from perfgate.plugins import DEVICES, load_member, member_names

_KIND = re.compile(r"([a-z][a-z0-9_]*)(?::(\d{1,4}))?")


def device_kinds() -> list[str]:
    return member_names(backends, DEVICES)


def monitored_kinds() -> list[str]:
    return member_names(monitors)


def refuse_unknown_kind(kind: str) -> re.Match[str]:
    """Kind and index of a configured device. Raises ConfigError for a kind without a
    backend; no device is touched.
    """
    match = _KIND.fullmatch(kind)
    if match is None or match[1] not in device_kinds():
        raise ConfigError(
            "device {kind!r} is not known; known kinds: {kinds} (set device in perfgate.toml, or PERFGATE_DEVICE, "
            'e.g. device = "cpu")',
            kind=kind,
            kinds=", ".join(device_kinds()),
        )
    return match


def open_device(kind: str) -> Device:
    """Open a device: ``cpu``, or a kind and an index such as ``npu:1``.

    Raises ConfigError for a kind without a backend, and MeasuringError for one that
    cannot be opened here; both list the alternatives.
    """
    match = refuse_unknown_kind(kind)
    try:
        return _open(match[1], int(match[2] or 0))
    except MeasuringError as error:
        alternatives = Message("device.closed-no-other")
        usable = [name for name in device_kinds() if name != match[1] and _opens(name)]
        if usable:
            alternatives = Message("device.closed-others", {"kinds": ", ".join(usable)})
        values: dict[str, MessageValue] = {
            "device": repr(kind),
            "error": reason_of(error),
        }
        raise UnmeasuredError(
            Message("device.closed", {**values, "alternatives": alternatives})
        ) from error


def examine_device(kind: str, host: Host) -> list[FitnessCheck]:
    """Check a device such as ``npu:1`` without opening it; no checks for a kind without
    a monitor.

    torch is not imported, so this works even if torch is broken. Raises MeasuringError
    for a name that is not a device.
    """
    match = _KIND.fullmatch(kind)
    if match is None:
        raise UnmeasuredError(Message("device.unknown-name", {"device": repr(kind)}))
    if match[1] not in monitored_kinds():
        return []
    checks: list[FitnessCheck] = load_member(monitors, match[1]).examine(
        host, int(match[2] or 0)
    )
    return checks


def open_sensor(kind: str, host: Host) -> Sensor:
    """A reader of a device such as ``npu:1``.

    Raises MeasuringError for a kind without a sensor, or if no tool answers.
    """
    kinds = ", ".join(monitored_kinds())
    monitor, index = _monitor(
        kind, Message("device.no-sensor", {"device": kind, "kinds": kinds})
    )
    sensor: Sensor = monitor.open_sensor(host, index)
    return sensor


def open_watch(kind: str, host: Host, identity: str) -> Watch:
    """The queries of a device during a measurement; ``identity`` names it because its
    index may be ambiguous.

    Raises MeasuringError for a kind that is not watched, or if no tool answers.
    """
    monitor, index = _monitor(kind, Message("device.not-watched", {"device": kind}))
    watch: Watch = monitor.open_watch(host, index, identity)
    return watch


def _monitor(kind: str, without: Message) -> tuple[Any, int]:
    match = _KIND.fullmatch(kind)
    if match is None or match[1] not in monitored_kinds():
        raise UnmeasuredError(without)
    return load_member(monitors, match[1]), int(match[2] or 0)


def clock_commands(kind: str, megahertz: int, host: Host) -> ClockCommands:
    """The commands that lock the clock of a device such as ``cuda:1``.

    Raises MeasuringError if none can.
    """
    monitor, index = _monitor(kind, Message("device.no-clock-lock", {"device": kind}))
    commands: ClockCommands = monitor.clock_commands(host, index, megahertz)
    return commands


def _open(kind: str, index: int) -> Device:
    # The folder is the registry: a backend's module is named like its kind and has the
    # same KIND.
    opened: Device = load_member(backends, kind, DEVICES).open_device(index)
    return opened


def _opens(kind: str) -> bool:
    try:
        _open(kind, 0)
    except MeasuringError:
        return False
    return True
