"""Whether a loaded and warm worker may be forked, and the modules that the fork server can import for the next one."""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path
from typing import NamedTuple

from perfgate.measuring.devices.device import Device
from perfgate.protocol import STACK_SIGNAL
from perfgate.system.processes import children, threads_of

# State held by other drivers does not survive a fork.
_FORKABLE_KIND = "cpu"
# torch's compilation folders; it looks them up at each compilation, and stores its own choice there.
_SET_BY_TORCH = {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}


# By descriptor, what is open and the position in it.
OpenFiles = dict[str, tuple[str, int]]


class Holdings(NamedTuple):
    """State that a process shares with its forks: open files with their positions, and memory mapped as shared.

    Also its imports, and the environment during them.
    """

    files: OpenFiles
    mappings: frozenset[bytes]
    modules: frozenset[str]
    environment: dict[str, str]

    @classmethod
    def of_this_process(cls) -> Holdings:
        # Addresses, then permissions such as rw-s (proc_pid_maps(5)).
        lines = _read("/proc/self/maps").splitlines()
        shared = frozenset(line for line in lines if line.partition(b" ")[2][1:4:2] == b"ws")
        return cls(open_files(), shared, frozenset(sys.modules), dict(os.environ))

    def imported_since(self) -> list[str]:
        """The modules imported since, in order, of packages that were there; none if the environment has changed."""
        changed = dict(self.environment.items() ^ os.environ.items())
        if changed.keys() - _SET_BY_TORCH:
            return []
        # Names that users made up have no spec to be found by.
        return [
            name
            for name, module in list(sys.modules.items())
            if name not in self.modules
            and name.partition(".")[0] in self.modules
            and getattr(module, "__spec__", None) is not None
        ]

    def unlike_files(self, before: Holdings) -> list[str]:
        """What is open now and was not before, other than files: sockets, pipes and devices; and new shared memory."""
        targets = {target for name, (target, _) in self.files.items() if before.files.get(name, ("", 0))[0] != target}
        opened = sorted(target for target in targets if not Path(target).is_file())
        return opened if self.mappings <= before.mappings else [*opened, "shared memory"]


def open_files() -> OpenFiles:
    """Those of this process."""
    found = OpenFiles()
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names alone
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - names alone
            about = dict(line.split(b":", 1) for line in _read(f"/proc/self/fdinfo/{descriptor}").splitlines())
        except (OSError, ValueError):  # the listing's own
            continue
        # Appending writers do not depend on the position of others.
        appends = int(about[b"flags"], 8) & os.O_APPEND
        found[descriptor] = target, 0 if appends else int(about[b"pos"])
    return found


def is_forkable(device: Device, *, began: Holdings, loaded: OpenFiles) -> bool:
    """Whether workers can be forked from this one and be like a process of their own that loaded and warmed up.

    A thread does not survive a fork, nor does an accelerator driver's state, and locks stay as they were. Child processes,
    sockets, pipes, shared memory and file positions would be shared by all of them: ``began`` is the state before the
    process loaded the workload, ``loaded`` the files that were open before its first call.
    """
    if device.kind != _FORKABLE_KIND or len(threads_of(os.getpid())) != 1 or children():
        return False
    now = Holdings.of_this_process()
    opened = {name: target for name, (target, _) in now.files.items() if began.files.get(name, ("", 0))[0] != target}
    if any(not target.startswith("/") for target in opened.values()):  # e.g. socket:[4711]
        return False
    reads_on = any(loaded.get(name) != now.files[name] for name in opened)
    return not reads_on and now.mappings <= began.mappings


def write_stacks_to(path: str) -> None:
    """Write every Python stack into a file on a crash, and when the conductor asks for it."""
    stack = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    faulthandler.enable(file=stack)
    faulthandler.register(STACK_SIGNAL, file=stack)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - read for every descriptor of every worker
        return file.read()
