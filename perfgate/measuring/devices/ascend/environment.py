"""The machine around an NPU: the driver's device nodes, and the environment variables that slow it down or forbid measuring."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from perfgate.document.doctor import FitnessCheck
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.host import Host

BLOCKING = "ASCEND_LAUNCH_BLOCKING"
_OFF = ("", "0")


class _Slow(NamedTuple):
    values: tuple[str, ...]
    why: str
    remedy: str


# Documentation of torch_npu's environment variables (Ascend/pytorch, docs/en/api/environment_variable) and of CANN's log.
_SLOW = {
    "ASCEND_GLOBAL_LOG_LEVEL": _Slow(
        ("0", "1"),
        "CANN logs every call (0 is debug, 1 is info)",
        "export ASCEND_GLOBAL_LOG_LEVEL=3 (errors only)",
    ),
    "ASCEND_GLOBAL_EVENT_ENABLE": _Slow(("1",), "CANN logs events", "export ASCEND_GLOBAL_EVENT_ENABLE=0"),
    "ASCEND_SLOG_PRINT_TO_STDOUT": _Slow(
        ("1",),
        "CANN writes its log to the standard output, call by call",
        "export ASCEND_SLOG_PRINT_TO_STDOUT=0",
    ),
    "TASK_QUEUE_ENABLE": _Slow(
        ("0",),
        "the queue that launches operators from a second thread is off",
        "unset TASK_QUEUE_ENABLE (1 is the default, 2 the fastest)",
    ),
    "PYTORCH_NO_NPU_MEMORY_CACHING": _Slow(
        ("1",), "every allocation goes to the driver", "unset PYTORCH_NO_NPU_MEMORY_CACHING"
    ),
    "MULTI_STREAM_MEMORY_REUSE": _Slow(
        ("0",), "memory of other streams is not used again", "unset MULTI_STREAM_MEMORY_REUSE (1 is the default)"
    ),
}


def refuse_blocking(environ: Mapping[str, str]) -> None:
    """Raise MeasuringError where every operator waits for the device: such times say nothing of a real run."""
    if is_blocking(environ):
        raise MeasuringError(
            f"{BLOCKING}={environ[BLOCKING]} in the environment: every operator waits for the NPU, so no time measured here is "
            f"that of a real run; unset {BLOCKING} and start again"
        )


def is_blocking(environ: Mapping[str, str]) -> bool:
    return environ.get(BLOCKING, "").strip() not in _OFF


def check_environment(environ: Mapping[str, str]) -> list[FitnessCheck]:
    value = environ.get(BLOCKING)
    if is_blocking(environ):
        detail = f"{BLOCKING}={value}: every operator waits for the NPU"
        blocking = FitnessCheck("npu blocking", "unfit", detail, f"unset {BLOCKING}")
    else:
        detail = f"{BLOCKING} is {'not set' if value is None else value or 'empty'}"
        blocking = FitnessCheck("npu blocking", "ok", detail)
    slow = {name: entry for name, entry in _SLOW.items() if environ.get(name, "").strip() in entry.values}
    if not slow:
        return [blocking, FitnessCheck("npu settings", "ok", "no variable that slows an NPU down is set")]
    reasons = "; ".join(f"{name}={environ[name].strip()}: {entry.why}" for name, entry in slow.items())
    remedies = "; ".join(entry.remedy for entry in slow.values())
    return [blocking, FitnessCheck("npu settings", "attention", reasons, remedies)]


# What a process opens besides its card (the driver's container guide); /dev/davinciN is card N by its physical id.
COMMON = ("davinci_manager", "devmm_svm", "hisi_hdc")
GROUP = "HwHiAiUser"
_CARD = re.compile(r"davinci[0-9]{1,5}")


def card_nodes(host: Host) -> list[Path]:
    """``/dev/davinci0`` and so on, by number."""
    try:
        names = [entry.name for entry in host.below("/dev").iterdir() if _CARD.fullmatch(entry.name)]
    except OSError:
        return []
    return [host.below(f"/dev/{name}") for name in sorted(names, key=lambda name: int(name[len("davinci") :]))]


def check_nodes(host: Host) -> FitnessCheck:
    """Judge presence and permissions of the nodes; one card that may be opened is enough."""
    name, cards = "npu nodes", card_nodes(host)
    common = [host.below(f"/dev/{node}") for node in COMMON]
    missing = [f"/dev/{path.name}" for path in common if not path.exists()]
    if not cards or missing:
        gone = ["/dev/davinci0 …"] * (not cards) + missing
        detail = f"{', '.join(gone)} {'are' if len(gone) > 1 or not cards else 'is'} not there"
        devices = " ".join(f"--device /dev/{node}" for node in ("davinci0", *COMMON))
        return FitnessCheck(
            name, "unfit", detail, f"install the Ascend driver; in a container, start it with {devices}"
        )
    join_group = f"as root: usermod -a -G {GROUP} <user>, then log in again"
    usable = [card for card in cards if host.may_use(card)]
    shut = [path for path in common if not host.may_use(path)]
    if not usable or shut:
        listing = ", ".join(f"/dev/{node.name} ({_rights(node)})" for node in (shut or cards)[:4])
        detail = f"we (uid {os.geteuid()}, gid {os.getegid()}) may not read and write {listing}"
        remedy = f"{join_group}; in a container, run as the uid and gid that {GROUP} has on the host"
        return FitnessCheck(name, "unfit", detail, remedy)
    detail = f"{', '.join(f'/dev/{card.name}' for card in usable)} can be opened"
    if len(usable) < len(cards):
        detail += f", {len(cards) - len(usable)} more cannot"
        return FitnessCheck(name, "attention", detail, f"{join_group}, if those are to be measured")
    return FitnessCheck(name, "ok", detail)


def _rights(node: Path) -> str:
    try:
        status = node.stat()
    except OSError:
        return "unreadable"
    return f"uid {status.st_uid}, gid {status.st_gid}, mode {status.st_mode & 0o777:04o}"
