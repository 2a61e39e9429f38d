"""The state of an Ascend machine: versions that must match, libraries, device nodes,
and variables that slow it down.

No package is imported. Which versions go together is published: COMPATIBILITY.md of
github.com/Ascend/pytorch at b48e6481 (2026), torch_npu 2.1.0 and later. Versions
missing from the table are unknown, not mismatched: pre-releases, patches of CANN, and
later releases.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.document.doctor import FitnessCheck
from perfgate.document.message import Message, UnmeasuredError
from perfgate.measuring.devices.host import Host, text_of

ASCEND = "/usr/local/Ascend"
# set_env.sh of CANN sets both; torch_npu reads the first.
HOME_VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_INSTALL_INFO = "ascend_*_install.info"
# Files with the toolkit's version if its ascend_toolkit_install.info is missing (a
# runtime-only installation).
_VERSION_FILES = (
    "compiler/version.info",
    "runtime/version.info",
    "version.info",
    "version.cfg",
)
_MOST_TEXT = 64 * 1024
# CANN, and the torch_npu listed with it. The torch of a torch_npu has the same version
# up to the third number.
LISTED: Mapping[str, tuple[str, ...]] = {
    "9.1.0": ("2.12.0", "2.11.0", "2.10.0.post4", "2.9.0.post6", "2.7.1.post8"),
    "9.0.0": ("2.9.0.post2", "2.8.0.post4", "2.7.1.post4"),
    "8.5.0": ("2.9.0", "2.8.0.post2", "2.7.1.post2", "2.6.0.post5"),
    "8.3.RC1": ("2.8.0", "2.7.1", "2.6.0.post3", "2.1.0.post17"),
    "8.2.RC1": ("2.6.0", "2.5.1.post1", "2.1.0.post13"),
    "8.1.RC1": ("2.5.1", "2.4.0.post4", "2.3.1.post6", "2.1.0.post12"),
    "8.0.0": ("2.4.0.post2", "2.3.1.post4", "2.1.0.post10"),
    "8.0.RC3": ("2.4.0", "2.3.1.post2", "2.1.0.post8"),
    "8.0.RC2": ("2.3.1", "2.2.0.post2", "2.1.0.post6"),
    "8.0.RC1": ("2.2.0", "2.1.0.post4"),
    "7.0.0": ("2.1.0",),
}
_RELEASE = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}")
# 2.7.1, 2.7.1.post2 and 2.7.1.post2+git1a2b3c; not 2.7.1rc1 and 2.7.1.dev20250901
_PUBLISHED = re.compile(
    rf"({_RELEASE.pattern}(?:\.post[0-9]{{1,4}})?)(?:\+.{{0,60}})?", re.DOTALL
)
# Libraries that libtorch_npu.so of torch_npu 2.13.0 is linked to (readelf); without one
# of them `import torch` fails if torch loads its backends itself, and
# `import torch_npu` always.
NEEDED = (
    "libascendcl.so",
    "libhccl.so",
    "libacl_op_compiler.so",
    "libge_runner.so",
    "libgraph.so",
)
# The driver's, which CANN opens when it opens a card.
DRIVER = "libascend_hal.so"
_DEFAULT = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
_MOST_FILES = 200


def check_torch(torch: str, torch_npu: str) -> FitnessCheck:
    """Judge torch against torch_npu: each torch_npu is built for one release of torch."""
    own, needed = release_of(torch), release_of(torch_npu)
    detail = f"torch {torch}, torch_npu {torch_npu}"
    if own is None or needed is None:
        return FitnessCheck(
            "npu package", "unavailable", f"{detail}: no release numbers to compare"
        )
    if own == needed:
        return FitnessCheck("npu package", "ok", detail)
    # Another minor release has other symbols, and torch_npu does not load; another
    # patch may.
    same_minor = torch.split(".")[:2] == torch_npu.split(".")[:2]
    return FitnessCheck(
        "npu package",
        "attention" if same_minor else "unfit",
        f"{detail}, which is built for torch {needed}",
        f"pip install torch=={needed}, or the torch_npu whose version begins with {own}",
    )


def check_cann(torch_npu: str, cann: str) -> FitnessCheck:
    """Judge CANN against torch_npu by the published table; a version that is not in it
    is unknown, not wrong.
    """
    detail = f"torch_npu {torch_npu}, CANN {cann}"
    published, needed = _published(torch_npu), cann_for(torch_npu)
    if needed is None:
        detail = f"{detail}: torch_npu {torch_npu} is not in the published table"
        return FitnessCheck("npu cann", "unavailable", detail)
    if needed.upper() == cann.upper():
        return FitnessCheck("npu cann", "ok", detail)
    listed = LISTED.get(cann.upper())
    if listed is None:
        detail = f"{detail}: CANN {cann} is not in the published table; torch_npu {published} is listed with CANN {needed}"
        return FitnessCheck("npu cann", "unavailable", detail)
    detail = (
        f"{detail}; the published table lists torch_npu {published} with CANN {needed}"
    )
    remedy = f"install CANN {needed}"
    for version in listed:
        if release_of(version) == release_of(torch_npu):
            remedy = f"{remedy}, or torch_npu {version} for CANN {cann}"
            break
    return FitnessCheck("npu cann", "attention", detail, remedy)


def cann_for(torch_npu: str) -> str | None:
    """The CANN that a torch_npu is listed with."""
    published = _published(torch_npu)
    for cann, versions in LISTED.items():
        if published in versions:
            return cann
    return None


def release_of(version: str) -> str | None:
    """The first three numbers: 2.7.1 of 2.7.1.post2+cpu."""
    match = _RELEASE.match(version.strip())
    if match:
        return match[0]
    return None


def _published(torch_npu: str) -> str | None:
    """The version as the table writes it, None for a pre-release, which the table does
    not know.
    """
    match = _PUBLISHED.fullmatch(torch_npu.strip())
    if match:
        return match[1]
    return None


class Software(msgspec.Struct, frozen=True, kw_only=True):
    """The software below an NPU; None for a missing or unknown version.

    ``cann_home`` is the CANN in use: named by the environment. ``cann_installed`` are
    the folders of all CANN versions in the default location, in use or not.
    """

    torch: str | None = None
    torch_npu: str | None = None
    cann: str | None = None
    cann_home: str | None = None
    cann_installed: list[str] = []
    driver: str | None = None
    firmware: str | None = None


def read_software(host: Host) -> Software:
    home = cann = None
    for variable in reversed(HOME_VARIABLES):
        home = host.environ.get(variable) or home
    if home:
        cann = cann_version(host.below(home))
    return Software(
        torch=host.version("torch"),
        torch_npu=host.version("torch-npu"),
        cann=cann,
        cann_home=home,
        cann_installed=[
            f"/{folder.relative_to(host.root)}" for folder in installed_cann(host)
        ],
        driver=_version_in(host.below(f"{ASCEND}/driver/version.info")),
        firmware=_version_in(host.below(f"{ASCEND}/firmware/version.info")),
    )


def installed_cann(host: Host) -> list[Path]:
    """The default folders of CANN that exist, newest layout first.

    8.5 and later: ``cann`` (a link) and ``cann-8.5.0``; before:
    ``ascend-toolkit/latest`` (a link) and ``ascend-toolkit/8.3.RC1``. A runtime without
    the toolkit is ``nnrt`` or ``nnae``.
    """
    base = host.below(ASCEND)
    patterns = (
        "cann",
        "cann-*",
        "ascend-toolkit/latest",
        "ascend-toolkit/[0-9]*",
        "nnae/latest",
        "nnrt/latest",
    )
    installed = []
    for pattern in patterns:
        for folder in sorted(base.glob(pattern), reverse=True):
            if (
                cann_version(folder)
                or (folder / "set_env.sh").exists()
                or (folder / "lib64").is_dir()
            ):
                installed.append(folder)
    return installed


def set_env(home: str) -> str:
    """The command that puts a CANN into the environment: before 8.5 the script is in
    the parent folder.
    """
    folder = Path(home)
    if folder.parent.name in ("ascend-toolkit", "nnae", "nnrt"):
        folder = folder.parent
    return f"source {folder}/set_env.sh"


def cann_version(home: Path) -> str | None:
    # ASCEND_HOME_PATH may itself be the folder of the architecture.
    files = [*home.glob(_INSTALL_INFO), *home.glob(f"*-linux/{_INSTALL_INFO}")]
    files.sort(key=lambda file: (file.name != "ascend_toolkit_install.info", file))
    files += [home / name for name in _VERSION_FILES]
    for file in files:
        version = _version_in(file)
        if version is not None:
            return version
    return None


def _version_in(file: Path) -> str | None:
    """The value of the line ``version=`` (driver: ``Version=``)."""
    for line in text_of(file)[:_MOST_TEXT].splitlines():
        key, sign, value = line.partition("=")
        if sign and key.strip().lower() == "version" and value.strip():
            # version.cfg writes a list: [8.0.RC1:8.0.RC1]
            return value.strip().strip("[]").partition(":")[0][:80]
    return None


def missing_libraries(host: Host, names: tuple[str, ...] = NEEDED) -> list[str]:
    folders = list(_library_folders(host))
    missing = []
    for name in names:
        if not any(os.access(folder / name, os.R_OK) for folder in folders):
            missing.append(name)
    return missing


def _library_folders(host: Host) -> Iterator[Path]:
    # The order of ld.so(8), and the RPATH of libtorch_npu.so:
    # $ORIGIN/../../torch_npu.libs.
    packages = host.package_folder("torch-npu")
    if packages is not None:
        yield from (packages / "torch_npu.libs", packages / "torch_npu" / "lib")
    for entry in host.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if entry:
            yield host.below(entry)
    triplet = f"{platform.machine()}-linux-gnu"
    configured = _configured(host, host.below("/etc/ld.so.conf"), set())
    for place in (*configured, *_DEFAULT, f"/lib/{triplet}", f"/usr/lib/{triplet}"):
        yield host.below(place)


def _configured(host: Host, file: Path, read: set[Path]) -> Iterator[str]:
    """Yield the folders of ld.so.conf and its includes, no file twice."""
    if file in read or len(read) >= _MOST_FILES:
        return
    read.add(file)
    for line in text_of(file).splitlines():
        words = line.partition("#")[0].split()
        if len(words) == 2 and words[0] == "include":
            pattern = host.below(os.path.join("/etc", words[1]))  # noqa: PTH118 - an absolute path stays
            for included in sorted(pattern.parent.glob(pattern.name or "*")):
                yield from _configured(host, included, read)
        elif len(words) == 1 and words[0].startswith("/"):
            yield words[0]


BLOCKING = "ASCEND_LAUNCH_BLOCKING"
_OFF = ("", "0")


class _Slow(NamedTuple):
    values: tuple[str, ...]
    why: str
    remedy: str


# Documentation of torch_npu's environment variables (Ascend/pytorch,
# docs/en/api/environment_variable) and of CANN's log.
_SLOW = {
    "ASCEND_GLOBAL_LOG_LEVEL": _Slow(
        ("0", "1"),
        "CANN logs every call (0 is debug, 1 is info)",
        "export ASCEND_GLOBAL_LOG_LEVEL=3 (errors only)",
    ),
    "ASCEND_GLOBAL_EVENT_ENABLE": _Slow(
        ("1",), "CANN logs events", "export ASCEND_GLOBAL_EVENT_ENABLE=0"
    ),
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
        ("1",),
        "every allocation goes to the driver",
        "unset PYTORCH_NO_NPU_MEMORY_CACHING",
    ),
    "MULTI_STREAM_MEMORY_REUSE": _Slow(
        ("0",),
        "memory of other streams is not used again",
        "unset MULTI_STREAM_MEMORY_REUSE (1 is the default)",
    ),
}


def refuse_blocking(environ: Mapping[str, str]) -> None:
    """Raise MeasuringError if every operator waits for the device: such times differ
    from a real run's.
    """
    if is_blocking(environ):
        raise UnmeasuredError(
            Message(
                "device.blocking", {"variable": BLOCKING, "value": environ[BLOCKING]}
            )
        )


def is_blocking(environ: Mapping[str, str]) -> bool:
    return environ.get(BLOCKING, "").strip() not in _OFF


def check_environment(environ: Mapping[str, str]) -> list[FitnessCheck]:
    value = environ.get(BLOCKING, "not set")
    blocking = FitnessCheck("npu blocking", "ok", f"{BLOCKING} is {value or 'empty'}")
    if is_blocking(environ):
        detail = f"{BLOCKING}={value}: every operator waits for the NPU"
        blocking = FitnessCheck("npu blocking", "unfit", detail, f"unset {BLOCKING}")
    reasons, remedies = [], []
    for name, slow in _SLOW.items():
        setting = environ.get(name, "").strip()
        if setting in slow.values:
            reasons.append(f"{name}={setting}: {slow.why}")
            remedies.append(slow.remedy)
    if not reasons:
        return [
            blocking,
            FitnessCheck(
                "npu settings", "ok", "no variable that slows an NPU down is set"
            ),
        ]
    return [
        blocking,
        FitnessCheck(
            "npu settings", "attention", "; ".join(reasons), "; ".join(remedies)
        ),
    ]


# Devices that a process opens besides its card (the driver's container guide);
# /dev/davinciN is card N by its physical id.
COMMON = ("davinci_manager", "devmm_svm", "hisi_hdc")
GROUP = "HwHiAiUser"
_CARD = re.compile(r"davinci([0-9]{1,5})")


def card_nodes(host: Host) -> list[Path]:
    """``/dev/davinci0`` and so on, by number."""
    nodes = {}
    with suppress(OSError):
        for entry in host.below("/dev").iterdir():
            if match := _CARD.fullmatch(entry.name):
                nodes[int(match[1])] = entry
    return [nodes[number] for number in sorted(nodes)]


def check_nodes(host: Host) -> FitnessCheck:
    """Judge presence and permissions of the nodes; one card that may be opened is
    enough.
    """
    name, cards = "npu nodes", card_nodes(host)
    common = [host.below(f"/dev/{node}") for node in COMMON]
    missing = [f"/dev/{path.name}" for path in common if not path.exists()]
    if not cards:
        missing.insert(0, "/dev/davinci0 …")
    if missing:
        verb = "is" if cards and len(missing) == 1 else "are"
        devices = " ".join(f"--device /dev/{node}" for node in ("davinci0", *COMMON))
        remedy = f"install the Ascend driver; in a container, start it with {devices}"
        return FitnessCheck(
            name, "unfit", f"{', '.join(missing)} {verb} not there", remedy
        )
    join_group = f"as root: usermod -a -G {GROUP} <user>, then log in again"
    usable = [card for card in cards if host.may_use(card)]
    shut = [path for path in common if not host.may_use(path)]
    if not usable or shut:
        listing = ", ".join(
            f"/dev/{node.name} ({_rights(node)})" for node in (shut or cards)[:4]
        )
        detail = f"we (uid {os.geteuid()}, gid {os.getegid()}) may not read and write {listing}"
        remedy = f"{join_group}; in a container, run as the uid and gid that {GROUP} has on the host"
        return FitnessCheck(name, "unfit", detail, remedy)
    detail = f"{', '.join(f'/dev/{card.name}' for card in usable)} can be opened"
    if len(usable) < len(cards):
        detail += f", {len(cards) - len(usable)} more cannot"
        return FitnessCheck(
            name, "attention", detail, f"{join_group}, if those are to be measured"
        )
    return FitnessCheck(name, "ok", detail)


def _rights(node: Path) -> str:
    try:
        status = node.stat()
    except OSError:
        return "unreadable"
    return (
        f"uid {status.st_uid}, gid {status.st_gid}, mode {status.st_mode & 0o777:04o}"
    )
