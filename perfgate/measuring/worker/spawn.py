"""Whether a loaded and warm worker may be forked, and the modules that the fork server
can import for the next one.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

from perfgate.measuring.devices.device import Device
from perfgate.protocol import STACK_SIGNAL
from perfgate.system.processes import children, threads_of

# torch's compilation folders; it looks them up at each compilation, and stores its own
# choice there.
_SET_BY_TORCH = {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
# Every worker imports modules of ours, such as that of its device, within milliseconds.
_OURS = "perfgate"


class OpenFile(NamedTuple):
    """A file, socket or pipe that is open, and the position in it."""

    target: str
    position: int


# By descriptor.
OpenFiles = dict[str, OpenFile]


class Holdings(NamedTuple):
    """State that a process shares with its forks: open files with their positions, and
    memory mapped as shared.

    Also its imports, and the environment during them.
    """

    files: OpenFiles
    mappings: frozenset[bytes]
    modules: frozenset[str]
    environment: dict[str, str]

    @classmethod
    def of_this_process(cls) -> Holdings:
        # Addresses, then permissions such as rw-s (proc_pid_maps(5)).
        shared = re.findall(rb"^\S+ .w.s.*", _read("/proc/self/maps"), re.MULTILINE)
        return cls(
            open_files(), frozenset(shared), frozenset(sys.modules), dict(os.environ)
        )

    def imported_since(self) -> list[str]:
        """The modules imported since, in order, of packages that were there.

        Without our own, and none if the environment has changed.
        """
        changed = dict(self.environment.items() ^ os.environ.items())
        if changed.keys() - _SET_BY_TORCH:
            return []
        packages = self.modules - {_OURS}
        modules = []
        for name, module in list(sys.modules.items()):
            # Names that users made up have no spec to be found by.
            has_spec = getattr(module, "__spec__", None) is not None
            if (
                has_spec
                and name not in self.modules
                and name.partition(".")[0] in packages
            ):
                modules.append(name)
        return modules

    def opened_since(self, before: Holdings) -> OpenFiles:
        """The descriptors that are new, or lead elsewhere than before."""
        opened = OpenFiles()
        for name, file in self.files.items():
            if name not in before.files or before.files[name].target != file.target:
                opened[name] = file
        return opened

    def unlike_files(self, before: Holdings) -> list[str]:
        """New open sockets, pipes and devices, and new shared memory."""
        targets = {file.target for file in self.opened_since(before).values()}
        opened = sorted(target for target in targets if not Path(target).is_file())
        if not self.mappings <= before.mappings:
            opened.append("shared memory")
        return opened


def open_files() -> OpenFiles:
    """The open files of this process."""
    files = OpenFiles()
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names alone
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - names alone
            about = dict(
                line.split(b":", 1)
                for line in _read(f"/proc/self/fdinfo/{descriptor}").splitlines()
            )
        except (OSError, ValueError):  # the listing's own
            continue
        # Appending writers do not depend on the position of others.
        appends = int(about[b"flags"], 8) & os.O_APPEND
        files[descriptor] = OpenFile(target, 0 if appends else int(about[b"pos"]))
    return files


def is_forkable(device: Device, *, began: Holdings, loaded: OpenFiles) -> bool:
    """Whether workers can be forked from this process and be like a new process that
    loaded and warmed up.

    A thread does not survive a fork, nor does an accelerator driver's state, and locks
    stay as they were. Child processes, sockets, pipes, shared memory and file positions
    would be shared by all of them: ``began`` is the state before the process loaded the
    workload, ``loaded`` the files that were open before its first call.
    """
    if (
        "forkable" not in device.capabilities
        or len(threads_of(os.getpid())) != 1
        or children()
    ):
        return False
    now = Holdings.of_this_process()
    for name, file in now.opened_since(began).items():
        is_file = file.target.startswith("/")  # unlike socket:[4711]
        reads_on = loaded.get(name) != file
        if reads_on or not is_file:
            return False
    return now.mappings <= began.mappings


def write_stacks_to(path: str) -> None:
    """Write every Python stack into a file on a crash, and when the conductor asks for
    it.
    """
    stack = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    faulthandler.enable(file=stack)
    faulthandler.register(STACK_SIGNAL, file=stack)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - read for every descriptor of every worker
        return file.read()
