"""What one reading of a card means for measuring on it: health, heat, other processes, clock. The same for every vendor."""

from __future__ import annotations

from perfgate.document.doctor import FitnessCheck, FitnessStatus
from perfgate.document.telemetry import AT_WORK, DeviceProcess, Telemetry

# msprof-analyze calls a drop of the AI Core's frequency by 5 % an abnormal one.
FULL_CLOCK = 0.95
_HEALTHY = ("OK",)
_NAMED = 4
_GIB = float(1 << 30)


def check_card(kind: str, telemetry: Telemetry) -> list[FitnessCheck]:
    return [
        check_health(kind, telemetry),
        check_others(kind, telemetry),
        check_heat(kind, telemetry),
        check_clock(kind, telemetry),
    ]


def check_health(kind: str, telemetry: Telemetry) -> FitnessCheck:
    """Judge the health that the card itself reports."""
    health = telemetry.health
    if health is None:
        return _check(kind, "health", "unavailable", "the driver reports no health of this card")
    if health.upper() in _HEALTHY:
        return _check(kind, "health", "ok", health)
    status: FitnessStatus = "unfit" if health.lower() == "critical" else "attention"
    return _check(
        kind,
        "health",
        status,
        f"the card reports {health}",
        "look the error up (npu-smi info -t health -i <NPU ID> -c <Chip ID>; nvidia-smi -q), reset the card or take "
        "another",
    )


def check_others(kind: str, telemetry: Telemetry) -> FitnessCheck:
    """Judge whether somebody else uses the card; processes of other containers may not be listed, their load shows."""
    processes, busy = telemetry.foreign_processes, telemetry.utilization
    memory = _memory(telemetry)
    if processes:
        more = f" and {len(processes) - _NAMED} more" if len(processes) > _NAMED else ""
        detail = f"{len(processes)} other: {', '.join(map(_process, processes[:_NAMED]))}{more}{memory}"
        return _check(
            kind,
            "others",
            "attention",
            detail,
            "wait until they end, or measure on a card of your own: times taken "
            "beside another process are not those of a card alone",
        )
    if busy is not None and busy > AT_WORK:
        return _check(
            kind,
            "others",
            "attention",
            f"{busy * 100:.0f} % busy, by no process listed here{memory}",
            "another container may use the card: ask on its host, or take a card of your own",
        )
    if processes is None:
        return _check(kind, "others", "unavailable", f"the driver lists no processes{memory}")
    return _check(kind, "others", "ok", f"no other process{memory}")


def check_heat(kind: str, telemetry: Telemetry) -> FitnessCheck:
    """Show temperature and power. No limit is judged here: the clock shows whether heat slows the card down."""
    parts = [] if telemetry.temperature is None else [f"{telemetry.temperature:.0f} °C"]
    parts += [] if telemetry.power is None else [f"{telemetry.power:.0f} W"]
    if not parts:
        return _check(kind, "heat", "unavailable", "the driver reports neither temperature nor power of this card")
    missing = "" if len(parts) == 2 else "; no power" if telemetry.power is None else "; no temperature"
    return _check(kind, "heat", "ok", ", ".join(parts) + missing)


def check_clock(kind: str, telemetry: Telemetry) -> FitnessCheck:
    """Judge the clock of a card: low is a fault only where it computes or says that it is slowed down."""
    share = telemetry.clock_share()
    if telemetry.throttled:
        return _check(kind, "clock", "attention", f"slowed down by the driver{_clock(telemetry)}", _COOL)
    if share is None:
        return _check(kind, "clock", "unavailable", f"the driver reports no clock to compare{_clock(telemetry)}")
    at_work = telemetry.utilization is not None and telemetry.utilization > AT_WORK
    if share < FULL_CLOCK and at_work:
        return _check(
            kind, "clock", "attention", f"computing at {share * 100:.0f} % of its clock{_clock(telemetry)}", _COOL
        )
    rest = "" if at_work or share >= FULL_CLOCK else ", idle: the clock under load is another question"
    return _check(kind, "clock", "ok", f"{share * 100:.0f} % of the rated clock{_clock(telemetry)}{rest}")


_COOL = "cool the card, raise its power limit, or lower its clock to one it can hold: times wander with its temperature"


def _check(kind: str, name: str, status: FitnessStatus, detail: str, remedy: str | None = None) -> FitnessCheck:
    return FitnessCheck(name=f"{kind} {name}", status=status, seen=detail, remedy=remedy)


def _clock(telemetry: Telemetry) -> str:
    if telemetry.clock is None:
        return ""
    rated = "" if telemetry.rated_clock is None else f" of {telemetry.rated_clock / 1e6:.0f}"
    return f" ({telemetry.clock / 1e6:.0f}{rated} MHz)"


def _memory(telemetry: Telemetry) -> str:
    if telemetry.memory_used is None or telemetry.memory_total is None:
        return ""
    return f"; {telemetry.memory_used / _GIB:.1f} of {telemetry.memory_total / _GIB:.1f} GiB in use"


def _process(process: DeviceProcess) -> str:
    memory = "" if process.memory is None else f", {process.memory / _GIB:.1f} GiB"
    return f"pid {process.pid}{f' ({process.name}{memory})' if process.name else memory}"
