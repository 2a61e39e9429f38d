"""Open a device, or what examines or reads one, by its kind; the members are found in folders of one module a kind."""

from __future__ import annotations

import re

from perfgate.document.doctor import FitnessCheck
from perfgate.document.telemetry import Sensor, Watch
from perfgate.errors import MeasuringError
from perfgate.measuring.devices import backends, examinations, sensors
from perfgate.measuring.devices.device import Device
from perfgate.measuring.devices.host import Host
from perfgate.plugins import DEVICES, load_member, member_names

_KIND = re.compile(r"([a-z][a-z0-9_]*)(?::(\d{1,4}))?")


def device_kinds() -> list[str]:
    """The kinds that have a backend, sorted; whether one can be opened here is another question."""
    return member_names(backends, DEVICES)


def open_device(kind: str) -> Device:
    """Open a device: ``cpu``, or a kind and an index such as ``npu:1``.

    Raises MeasuringError for a kind without a backend, and for one that cannot be opened here; both say what is there.
    """
    match = _KIND.fullmatch(kind)
    if match is None or match[1] not in device_kinds():
        raise MeasuringError(
            f"device {kind!r} is not known; known kinds: {', '.join(device_kinds())} "
            '(set device in perfgate.toml, or PERFGATE_DEVICE, e.g. device = "cpu")'
        )
    try:
        return _open(match[1], int(match[2] or 0))
    except MeasuringError as error:
        there = [name for name in device_kinds() if name != match[1] and _opens(name)]
        alternatives = f"what can be opened here: {', '.join(there)}" if there else "no other device can be opened here"
        raise MeasuringError(f"device {kind!r} cannot be opened: {error}; {alternatives}") from error


def examined_kinds() -> list[str]:
    """The kinds that can be examined without their framework, sorted."""
    return member_names(examinations)


def examine_device(kind: str, host: Host) -> list[FitnessCheck]:
    """What can be said of a device such as ``npu:1`` without opening it; nothing for a kind without examination.

    torch is not imported, so this answers where torch itself cannot be. Raises MeasuringError for what is no device.
    """
    match = _KIND.fullmatch(kind)
    if match is None:
        raise MeasuringError(f"device {kind!r} is not known; write a kind and an index, e.g. npu:1")
    if match[1] not in examined_kinds():
        return []
    checks: list[FitnessCheck] = load_member(examinations, match[1]).examine(host, int(match[2] or 0))
    return checks


def sensor_kinds() -> list[str]:
    """The kinds whose heat, clock and power can be read without their framework, sorted."""
    return member_names(sensors)


def open_sensor(kind: str, host: Host) -> Sensor:
    """What reads a device such as ``npu:1``; torch is not imported.

    Raises MeasuringError for a kind without a sensor, and where nothing answers.
    """
    match = _KIND.fullmatch(kind)
    if match is None or match[1] not in sensor_kinds():
        raise MeasuringError(f"device {kind!r} has no sensor; kinds that have one: {', '.join(sensor_kinds())}")
    sensor: Sensor = load_member(sensors, match[1]).open_sensor(host, int(match[2] or 0))
    return sensor


def open_watch(kind: str, host: Host, identity: str) -> Watch:
    """The questions to ask of a device beside a measurement; ``identity`` names it where its index may mislead.

    Raises MeasuringError for a kind that is not watched, and where nothing answers.
    """
    match = _KIND.fullmatch(kind)
    if match is not None and match[1] in sensor_kinds():
        open_member = getattr(load_member(sensors, match[1]), "open_watch", None)
        if open_member is not None:
            watch: Watch = open_member(host, int(match[2] or 0), identity)
            return watch
    raise MeasuringError(f"nothing tells the clock and the processes of {kind} beside a measurement")


def _open(kind: str, index: int) -> Device:
    # The folder is the register: a backend's module has the name of its kind, and says so in KIND.
    opened: Device = load_member(backends, kind, DEVICES).open_device(index)
    return opened


def _opens(kind: str) -> bool:
    try:
        _open(kind, 0)
    except MeasuringError:
        return False
    return True
