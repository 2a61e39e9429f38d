"""The device nodes of the Ascend driver: whether they are there, and whether we may open them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from perfgate.document.doctor import FitnessCheck
from perfgate.measuring.devices.host import Host

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
        return FitnessCheck(
            name=name,
            status="unfit",
            seen=f"{', '.join(gone)} {'are' if len(gone) > 1 or not cards else 'is'} not there",
            remedy="install the Ascend driver; in a container, start it with "
            + " ".join(f"--device {node}" for node in ("/dev/davinci0", *(f"/dev/{node}" for node in COMMON))),
        )
    usable = [card for card in cards if host.may_use(card)]
    shut = [path for path in common if not host.may_use(path)]
    if not usable or shut:
        return _shut(name, shut or cards)
    names = ", ".join(f"/dev/{card.name}" for card in usable)
    if len(usable) < len(cards):
        return FitnessCheck(
            name=name,
            status="attention",
            seen=f"{names} can be opened, {len(cards) - len(usable)} more cannot",
            remedy=f"as root: usermod -a -G {GROUP} <user>, then log in again, if those are to be measured",
        )
    return FitnessCheck(name=name, status="ok", seen=f"{names} can be opened")


def _shut(name: str, nodes: list[Path]) -> FitnessCheck:
    listing = ", ".join(f"/dev/{node.name} ({_rights(node)})" for node in nodes[:4])
    return FitnessCheck(
        name=name,
        status="unfit",
        seen=f"we (uid {os.geteuid()}, gid {os.getegid()}) may not read and write {listing}",
        remedy=f"as root: usermod -a -G {GROUP} <user>, then log in again; in a container, run as the uid and gid that {GROUP} "
        "has on the host",
    )


def _rights(node: Path) -> str:
    try:
        status = node.stat()
    except OSError:
        return "unreadable"
    return f"uid {status.st_uid}, gid {status.st_gid}, mode {status.st_mode & 0o777:04o}"
