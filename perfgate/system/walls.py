"""Walls around the processes of one side: what they cannot reach of the other's, by
means that no process can take back.

Landlock (Documentation/userspace-api/landlock.rst) needs no rights and no container: a
process inside walls cannot trace, read, sample or (from ABI 6 on) signal processes
outside, and opens only files below the folders that it names. In addition the rights of
root that lead around walls, and `no_new_privs`, without which ``sudo`` would give them
back.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

_PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h
_PR_CAPBSET_DROP = 24
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = (
    444,
    445,
    446,
)  # the same on every architecture
_ASK_VERSION = 1
_PATH_BENEATH = 1
# linux/landlock.h. READ_DIR is left out: names are not secret.
_READ = 1 << 0 | 1 << 2
_WRITE = 1 << 1 | sum(1 << bit for bit in range(4, 13))
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_OF_FILES = _READ | 1 << 1 | _TRUNCATE
_SCOPE_SIGNALS = 2
_FIRST_WITH_REFER, _FIRST_WITH_TRUNCATE, _FIRST_WITH_SCOPES = 2, 3, 6
# What stays open to read alone: states of the kernel, with which one side could slow
# the other.
_READ_ONLY = ("/proc", "/sys")
_DEVICES = "/dev"
# The rights of root that a container has not either (Docker's default), but for
# priorities, locked memory and limits, which concern a process itself. In this order
# (linux/capability.h): DAC_READ_SEARCH, LINUX_IMMUTABLE, NET_ADMIN, SYS_MODULE,
# SYS_RAWIO, SYS_PTRACE, SYS_PACCT, SYS_ADMIN, SYS_BOOT, SYS_TIME, SYS_TTY_CONFIG,
# AUDIT_CONTROL, MAC_OVERRIDE, MAC_ADMIN, SYSLOG, PERFMON, BPF, CHECKPOINT_RESTORE.
_DROPPED = (2, 9, 12, 16, 17, 19, 20, 21, 22, 25, 26, 30, 32, 33, 34, 38, 39, 40)
_CAPABILITY_VERSION = 0x20080522
_LIBRARY = ctypes.CDLL(None, use_errno=True)


class Room(NamedTuple):
    """Where a side lives: of everything below ``closed``, the scratch folder, it
    reaches only ``folder``.
    """

    closed: str
    folder: str


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("fs", ctypes.c_uint64),
        ("net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("folder", ctypes.c_int32))


def can_build_walls() -> bool:
    """Whether this kernel has them; before ABI 2 a process inside could not move a file
    to another folder.
    """
    return _version() >= _FIRST_WITH_REFER


def refuses_signals() -> bool:
    """Whether the walls let no signal pass to processes outside, from ABI 6 on."""
    return _version() >= _FIRST_WITH_SCOPES


def enter_room(room: Room) -> bool:
    """Put walls around this process and everything that it starts.

    False if the kernel has none.

    Called while the process has one thread. Raises OSError if walls cannot be built
    where the kernel has them.
    """
    _give_up_rights()
    version = _version()
    if version < _FIRST_WITH_REFER:
        return False
    everything = _READ | _WRITE | _REFER
    if version >= _FIRST_WITH_TRUNCATE:
        everything |= _TRUNCATE
    attributes = _Ruleset(fs=everything)
    size = 8
    if version >= _FIRST_WITH_SCOPES:
        attributes.scoped = _SCOPE_SIGNALS
        size = ctypes.sizeof(attributes)
    ruleset = _system(
        _CREATE_RULESET,
        ctypes.byref(attributes),
        ctypes.c_size_t(size),
        ctypes.c_uint32(0),
    )
    try:
        closed = os.path.realpath(room.closed)
        for path in _around("/", closed):
            _allow(ruleset, path, _READ if path in _READ_ONLY else everything)
        _allow(ruleset, room.folder, everything)
        _system(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
    return True


def _around(folder: str, closed: str) -> Iterable[str]:
    """Everything outside a closed folder, as few paths as possible; as root without the
    disks themselves.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink() or entry.path == closed:
                continue
            is_divided = closed.startswith(f"{entry.path}/") or (
                entry.path == _DEVICES and os.geteuid() == 0
            )
            if is_divided:
                yield from _around(entry.path, closed)
            elif not _is_disk(entry):
                yield entry.path


def _is_disk(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISBLK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # it is gone, or may not be reached anyway
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _OF_FILES
        rule = _PathBeneath(access=access, folder=descriptor)
        _system(
            _ADD_RULE,
            ctypes.c_int(ruleset),
            ctypes.c_int(_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(descriptor)


def _version() -> int:
    """The ABI of Landlock; 0 where the kernel was built without it, has it off, or a
    container's filter refuses it.
    """
    with suppress(OSError):
        return _system(
            _CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION)
        )
    return 0


def _give_up_rights() -> None:
    _LIBRARY.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in _DROPPED:
        _LIBRARY.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    # capset(2): effective, permitted and inheritable, each in two halves of 32.
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()
    if _LIBRARY.capget(header, sets) != 0:
        return
    for capability in _DROPPED:
        half, bit = divmod(capability, 32)
        for kind in range(3):
            sets[3 * half + kind] &= ~(1 << bit) & 0xFFFFFFFF
    _LIBRARY.capset(header, sets)


def _system(number: int, *arguments: object) -> int:
    result = int(_LIBRARY.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


if __name__ == "__main__":
    # ``perfgate.system.walls ROOM PROGRAM ARGUMENT…``: become a program, "" for this
    # interpreter, within the walls of a room, which is JSON.
    enter_room(Room(*json.loads(sys.argv[1])))
    program = sys.argv[2] or sys.executable
    os.execv(program, [program, *sys.argv[3:]])  # noqa: S606 - an interpreter of a side
