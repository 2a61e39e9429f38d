"""Memory and frequency of a device in an export; bytes and MHz."""

from __future__ import annotations

from perfgate.trace.readers._ascend.export_words import Words
from perfgate.trace.recording import AllocationTotal

Device = int | None
_MEGAHERTZ = 1e6


def peaks(words: Words, device: Device, alone: bool) -> dict[str, float]:
    """Return the peak bytes of a device by component; ``alone`` takes what names no device."""
    found: dict[str, float] = {}

    def keep(owner: object, name: str, value: object) -> None:
        size = words.database.number(value)
        if size is not None and (owner == device or (owner is None and alone)):
            found[name] = max(size, found.get(name, size))

    columns = ("deviceId", "component", "totalAllocated", "totalReserved", "totalActive")
    for owner, component, *sizes in words.database.rows("MEMORY_RECORD", columns):
        for part, size in zip(("allocated", "reserved", "active"), sizes):
            keep(owner, f"{words.text(component)}.{part}", size)
    for owner, kind, ddr, hbm in words.database.rows("NPU_MEM", ("deviceId", "type", "ddr", "hbm")):
        if words.text(kind) == "app":
            keep(owner, "APP.reserved", (words.database.number(ddr) or 0) + (words.database.number(hbm) or 0))
    modules = dict(words.database.rows("ENUM_MODULE", ("id", "name")))
    for owner, module, size in words.database.rows("NPU_MODULE_MEM", ("deviceId", "moduleId", "totalReserved")):
        if size:
            keep(owner, f"module.{modules.get(module, module)}.reserved", size)
    return found


def allocations(words: Words, device: Device, alone: bool) -> tuple[AllocationTotal, ...] | None:
    """Return what each operator allocated on a device."""
    if not words.database.has("OP_MEMORY"):
        return None
    totals: dict[str, AllocationTotal] = {}
    for owner, name, value in words.database.rows("OP_MEMORY", ("deviceId", "name", "size")):
        size = words.database.number(value)
        if size is None or size < 0 or not (owner == device or (owner is None and alone)):
            continue
        title = words.text(name)
        known = totals.get(title, AllocationTotal(title, 0, 0.0, 0.0))
        totals[title] = AllocationTotal(
            title, known.count + 1, known.total_bytes + size, max(known.largest_bytes, size)
        )
    return tuple(totals.values())


def frequency(words: Words, device: Device) -> tuple[float, float] | None:
    """Return the hertz of a device's AI core, lowest and highest."""
    seen = [
        words.database.number(frequency)
        for owner, frequency in words.database.rows("AICORE_FREQ", ("deviceId", "freq"))
        if owner == device
    ]
    known = [frequency * _MEGAHERTZ for frequency in seen if frequency is not None]
    return (min(known), max(known)) if known else None
