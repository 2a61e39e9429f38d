"""The fork servers of a bench: how they start, take each other's place between pairs,
and end.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfgate.conductor.workers.checkout import ServerKey
from perfgate.conductor.workers.environment import worker_environment
from perfgate.conductor.workers.interpreters import (
    RUNNING,
    explain_closed,
    probe_device,
    share_code,
    with_code,
)
from perfgate.conductor.workers.load_log import LoadLog, with_reports
from perfgate.conductor.workers.rooms import Rooms
from perfgate.conductor.workers.worker import ForkServer, Say, WorkerError
from perfgate.config import Config, device_kind
from perfgate.document.run import ErrorDetail
from perfgate.errors import MeasuringError
from perfgate.locale import sentence

# Importing torch is not the workload's doing: a short limit for loading the workload
# must not end it on a slow disk.
PRELOAD_SECONDS = 120.0
# Packages that register a kind of device with torch, imported once after torch: torch
# before 2.5 does not look for them by itself.
_BACKEND_PACKAGES = {"npu": "torch_npu"}
_SEARCH_PATHS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


@dataclass
class ServerSettings:
    """The settings of every fork server.

    With ``one_code`` every interpreter finds the perfgate that runs us first. The
    interpreters ``of_stacks`` are the user's choice, none is built from a change; each
    may be a file that runs a line of the user's before Python.

    The processes report their imports to ``loads``. Servers that start later have
    another ``hash_seed``.
    """

    config: Config
    rooms: Rooms
    threads: int
    hash_seed: int
    one_code: bool = False
    of_stacks: bool = False
    loads: LoadLog | None = None

    @property
    def allowed_environment(self) -> dict[str, str]:
        """The part of our environment that workers get; also needed when the scratch
        folder is gone.
        """
        measure = self.config.measure
        return worker_environment(
            os.environ,
            device=self.config.device,
            scratch=self.rooms.scratch,
            threads=self.threads,
            hash_seed=self.hash_seed,
            pass_env=measure.pass_env,
            reuse_caches=measure.reuse_caches,
        )

    @property
    def environment(self) -> dict[str, str]:
        environment = with_reports(self.allowed_environment, self.loads)
        if self.one_code:
            return with_code(environment, self.shared_code)
        return environment

    @property
    def shared_code(self) -> Path:
        """The folder from which programs, and the workers of another interpreter,
        import perfgate.
        """
        return share_code(self.rooms.scratch / "code")

    @property
    def preload(self) -> list[str]:
        """The modules that the project names, and torch's package for the device."""
        preload = list(self.config.measure.preload)
        backend = _BACKEND_PACKAGES.get(device_kind(self.config.device))
        if backend is not None and backend not in preload and "torch" in preload:
            preload.insert(preload.index("torch") + 1, backend)
        return preload

    def explain(
        self, error: MeasuringError, python: Path | None, say: Say
    ) -> MeasuringError:
        """An error of starting or opening, with the faults that the device's probe
        reports; the CPU has no probe.
        """
        device = self.config.device
        if device_kind(device) == "cpu":
            return error
        say(sentence("diagnosing why {device} cannot be opened", device=device))
        checks = probe_device(
            python or RUNNING, device, self.environment, cwd=self.rooms.scratch
        )
        package = _BACKEND_PACKAGES.get(device_kind(device), "")
        if (
            package
            and package not in self.config.measure.preload
            and f"No module named {package!r}" in str(error)
        ):
            error = MeasuringError(
                "device {device!r} needs {package}, which {python} does not have; install the {package} of the same "
                "version as torch there, or set device to one that is here",
                device=device,
                package=package,
                python=python or RUNNING,
            )
        text = explain_closed(str(error), device, checks)
        return error if text == str(error) else MeasuringError(text)


@dataclass
class ForkServers:
    """The fork servers that run, one for each key, and those that will take their
    place.

    A server that ends although we did not end it is the end of the measurement:
    whatever ended it may have prepared what the next one would find. ``start_server``
    takes the arguments of ``ForkServer``. ``is_prepared`` tells whether a server that
    has imported its modules may also take over the workloads; ``before_end`` is called
    before servers end.
    """

    settings: ServerSettings
    say: Say
    start_server: Callable[..., ForkServer]
    is_prepared: Callable[[ServerKey, ForkServer], bool]
    before_end: Callable[[], None]
    # How often fork servers with other addresses and other hashes took the place of
    # those before.
    draws: int = 0
    running: dict[ServerKey, ForkServer] = field(default_factory=dict)
    # How a fork server ended that we did not end.
    lost: ErrorDetail | None = None
    _starting: dict[ServerKey, ForkServer] = field(default_factory=dict)
    _have_parts: bool = False

    def start(self, key: ServerKey) -> ForkServer:
        """Start a fork server and wait for its imports.

        Raises MeasuringError when a preloaded module fails, with the device's fault.
        """
        server = self.running[key] = self._launch(key)
        self._await(key, server)
        return server

    def _await(self, key: ServerKey, server: ForkServer) -> None:
        try:
            server.wait_ready(
                timeout=max(self.settings.config.measure.load_timeout, PRELOAD_SECONDS)
            )
        except MeasuringError as error:
            raise self.settings.explain(error, key.python, self.say) from error

    def get(self, key: ServerKey) -> ForkServer:
        """The fork server of a key, started if it does not run.

        Raises WorkerError if one was lost.
        """
        server = self.running.get(key)
        if server is not None:
            self.lost = self.lost or server.lost
        if self.lost is not None:
            raise WorkerError(self.lost, alive=False)
        return server or self.start(key)

    def get_next(self, key: ServerKey) -> ForkServer:
        """The fork server that replaces the present one at the next renewal, or the
        present one.
        """
        return self._starting.get(key) or self.get(key)

    def all(self) -> list[ForkServer]:
        return [*self.running.values(), *self._starting.values()]

    def start_next(self, hash_seed: int, *, parts: Sequence[str] = ()) -> None:
        """Start new fork servers, with other addresses and other hashes, while the
        present servers run, unless some still start.

        They import ``parts`` too, until ``forget_parts``.
        """
        if not self._starting:
            self.settings.hash_seed = hash_seed
            self._have_parts |= bool(parts)
            self._starting = {key: self._launch(key, parts) for key in self.running}

    @property
    def has_next(self) -> bool:
        """Whether ``renew`` would replace the fork servers now."""
        if not self._starting:
            return False
        return all(
            server.is_ready() and self.is_prepared(key, server)
            for key, server in self._starting.items()
        )

    def finish_starting(self) -> None:
        """Wait for the servers of ``start_next``, whose imports would disturb a
        measurement.

        Raises MeasuringError when a preloaded module fails.
        """
        for key, server in self._starting.items():
            self._await(key, server)

    def renew(self, *, let_go: Callable[[], None] = lambda: None) -> None:
        """Replace the fork servers once all of ``start_next`` are prepared.

        ``let_go`` is called before the old servers end, to close their remaining
        workers. Raises MeasuringError when a preloaded module fails.
        """
        if not self.has_next:
            return
        let_go()
        self.before_end()
        self.draws += 1
        old, self.running, self._starting = self.running, self._starting, {}
        for server in old.values():
            self._close(server)

    def redraw(self, hash_seed: int) -> None:
        """End every fork server: the next worker gets one with other addresses and
        other hashes.

        Servers that ``start_next`` has begun to start take their place, unless they
        import parts.
        """
        following = {}
        if not self._have_parts:
            following, self._starting = self._starting, {}
        self.close()
        self.draws += 1
        if not following:
            self.settings.hash_seed = hash_seed
            return
        self.running.update(following)
        for key, server in following.items():
            self._await(key, server)

    def forget_parts(self) -> None:
        """End the fork servers if they imported parts: the first load of a workload
        must include those imports.
        """
        if self._have_parts:
            self.close()
            self._have_parts = False

    def close(self) -> None:
        """End every fork server and its workers."""
        self.before_end()
        for servers in (self.running, self._starting):
            while servers:
                _, server = servers.popitem()
                self._close(server)

    def _close(self, server: ForkServer) -> None:
        self.lost = self.lost or server.lost
        server.close()

    def _launch(self, key: ServerKey, parts: Sequence[str] = ()) -> ForkServer:
        settings = self.settings
        house = settings.rooms.house(key.python)
        environment = settings.environment
        # No search path leads to the current folder, as an empty or relative entry
        # would.
        for name in _SEARCH_PATHS:
            entries = environment.pop(name, "").split(os.pathsep)
            absolute = [entry for entry in entries if Path(entry).is_absolute()]
            if absolute:
                environment[name] = os.pathsep.join(absolute)
        return self.start_server(
            key.python or RUNNING,
            environment=environment,
            preload=settings.preload,
            parts=parts,
            folder=Path(tempfile.mkdtemp(prefix="server-", dir=house)),
            room=None if key.python is None else settings.rooms.walls(house),
            by_line=settings.of_stacks,
            say=self.say,
        )
