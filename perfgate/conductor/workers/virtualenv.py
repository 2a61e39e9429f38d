"""A virtual environment for one side: made by the project's own setup command, cached
by its inputs.

A side's requirements are read from the files that define dependencies: a hash of the
relevant text of each.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import site
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from perfgate.conductor.workers.cleanup import leftover_notes
from perfgate.conductor.workers.environment import ALLOWED, ALLOWED_PREFIXES
from perfgate.conductor.workers.worker import Say
from perfgate.document.message import Message
from perfgate.errors import ConfigError, MeasuringError
from perfgate.locale import Activity, sentence, shown
from perfgate.system.folders import remove_folder
from perfgate.system.interrupts import held_back, safe_point
from perfgate.system.logs import bound_log, log_tail, one_line
from perfgate.system.packages import installed_packages
from perfgate.system.processes import adopt_orphans, children, kill_children, kill_group
from perfgate.toml import tomllib

TICK_SECONDS = 0.2
UNUSED_SECONDS = 30 * 24 * 3600.0
_LAYOUT = 1  # version of the cache's layout; another number ignores older entries
_COMPLETE = "perfgate-complete"
# After the environment's own .pth files, which are read in the order of their names.
_PARENT = "zzz-perfgate-parent.pth"
# Variables that an installer needs in addition to a worker's: its configuration, the
# way to its index, a home with its cache.
_SETUP_ALLOWED = {
    *(ALLOWED - {"PYTHONPATH", "VIRTUAL_ENV"}),
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "NETRC",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CC",
    "CXX",
    "CFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
}
_SETUP_PREFIXES = (*ALLOWED_PREFIXES, "PIP_", "UV_")
# Tables of pyproject.toml with dependencies (PEP 621, PEP 735, and the tables of
# Poetry, uv and PDM).
_DEPENDENCY_TABLES = (
    ("project", "dependencies"),
    ("project", "optional-dependencies"),
    ("dependency-groups",),
    ("tool", "poetry", "dependencies"),
    ("tool", "poetry", "dev-dependencies"),
    ("tool", "poetry", "group"),
    ("tool", "uv", "sources"),
    ("tool", "uv", "constraint-dependencies"),
    ("tool", "uv", "override-dependencies"),
    ("tool", "pdm", "dev-dependencies"),
)


@dataclass(frozen=True)
class SetupPlan:
    """The inputs of an environment: ``command`` runs in ``checkout``, for at most
    ``timeout`` seconds.

    ``requirements`` maps the files that define dependencies to a hash of their relevant
    text. ``inherit`` lets the environment see the packages of the interpreter that runs
    perfgate, after its own. ``pass_env`` are further variables it may have.
    """

    side: str
    command: str
    checkout: Path
    requirements: Mapping[str, str]
    inherit: bool
    timeout: float
    pass_env: Sequence[str] = ()

    @property
    def key(self) -> str:
        """The cache key of the environment, a hash of everything it depends on."""
        parent = [sys.executable, sys.version, installed_packages()]
        sources = [
            _LAYOUT,
            self.command,
            dict(self.requirements),
            self.inherit,
            *parent,
        ]
        return hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()[
            :24
        ]


class Virtualenv(NamedTuple):
    """The interpreter of an environment, whether an earlier job made it, and notes for
    documents.
    """

    python: Path
    reused: bool
    notes: tuple[Message, ...] = ()


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of environments: PERFGATE_CACHE, or perfgate in the user's cache
    folder (XDG base directories).
    """
    if own := environ.get("PERFGATE_CACHE"):
        return Path(own).absolute() / "environments"
    folder = Path(environ.get("XDG_CACHE_HOME", ""))
    # A relative path is invalid and must be ignored (XDG Base Directory Specification
    # 0.8).
    if not folder.is_absolute():
        folder = Path(environ.get("HOME") or Path.home()) / ".cache"
    return folder / "perfgate" / "environments"


def provide_virtualenv(
    plan: SetupPlan, *, cache: Path, environ: Mapping[str, str], log: Path, say: Say
) -> Virtualenv:
    """The environment, made now unless an earlier job left it in the cache.

    Its path is final from the start, as the scripts in an environment name it; only the
    mark that is written last makes it complete. Two jobs that need the same one wait
    for each other. Raises MeasuringError with the end of the log when the setup command
    fails, and ConfigError when the cache cannot be written.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for mark in cache.glob(f"*/{_COMPLETE}"):
            with suppress(OSError):
                if time.time() - mark.stat().st_mtime > UNUSED_SECONDS:
                    remove_folder(mark.parent)
        folder = cache / plan.key
        with _locked(cache / f"{plan.key}.lock", say):
            reused = (folder / _COMPLETE).exists()
            leftovers = []
            if not reused:
                leftovers = _make(folder, plan, environ, log, say)
            (folder / _COMPLETE).touch()
    except OSError as error:
        raise ConfigError(
            "no environment can be kept in {cache} ({error}); set PERFGATE_CACHE to a folder you can write",
            cache=cache,
            error=error.strerror or error,
        ) from error
    return Virtualenv(
        folder / "bin" / "python", reused, tuple(leftover_notes([leftovers]))
    )


def _make(
    folder: Path, plan: SetupPlan, environ: Mapping[str, str], log: Path, say: Say
) -> list[str]:
    """Make the environment and return the names of the processes that its making left
    running.

    Remains of an unfinished one are removed first, and again if it fails.
    """
    remove_folder(folder)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    try:
        _run(
            plan,
            [sys.executable, "-m", "venv", str(folder)],
            Activity("making the environment of the {side}", side=plan.side),
            setup_environment(environ, plan.pass_env),
            log,
            say,
        )
        if plan.inherit:
            _inherit(folder)
        inside = {
            "PATH": f"{folder / 'bin'}{os.pathsep}{environ.get('PATH', os.defpath)}",
            "VIRTUAL_ENV": str(folder),
        }
        environment = {**setup_environment(environ, plan.pass_env), **inside}
        doing = Activity("setting up the environment of the {side}", side=plan.side)
        return _run(plan, ["/bin/sh", "-c", plan.command], doing, environment, log, say)
    except BaseException:
        remove_folder(folder)
        raise


def _inherit(folder: Path) -> None:
    """Let an environment see our packages after its own, so that only the packages that
    it asks for are installed again.

    ``venv --system-site-packages`` shows the packages of the interpreter that a venv
    was made from, never those in a venv.
    """
    folders = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    # addsitedir and not the bare path, so that the .pth files there count too: editable
    # installs are such files.
    lines = [
        f"import site; site.addsitedir({path!r})\n"
        for path in folders
        if Path(path).is_dir()
    ]
    (own,) = folder.glob("lib/python*/site-packages")
    (own / _PARENT).write_text("".join(lines), encoding="utf-8")


def setup_environment(
    environ: Mapping[str, str], pass_env: Sequence[str]
) -> dict[str, str]:
    """The environment of an installer: the variables of a worker, its own settings, and
    the way to its index.
    """
    names = [
        name
        for name in environ
        if name in _SETUP_ALLOWED
        or name.startswith(_SETUP_PREFIXES)
        or name in pass_env
    ]
    return {
        **{name: environ[name] for name in names},
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        # A file that two environments share is changed in both.
        "UV_LINK_MODE": "copy",
    }


def _run(
    plan: SetupPlan,
    command: Sequence[str],
    doing: Activity,
    environment: Mapping[str, str],
    log: Path,
    say: Say,
) -> list[str]:
    """Run one command of the set-up and return the names of the processes that it left
    running, now killed.

    They would run during every measurement. Raises MeasuringError with the end of its
    log when it fails.
    """
    adopt_orphans()
    ours = children()
    line = command[-1] if command[0] == "/bin/sh" else " ".join(command)
    with log.open("ab") as output:
        output.write(f"$ {line}\n".encode())
        output.flush()
        process = subprocess.Popen(
            command,
            cwd=plan.checkout,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        took_too_long = not _ends_in_time(process, plan.timeout, doing, log, say)
    finally:
        kill_group(process.pid)
        process.wait()
        leftovers = kill_children(spare=ours)
    if not took_too_long and not process.returncode:
        return leftovers
    reason = Activity("failed with exit code {code}", code=process.returncode)
    if took_too_long:
        reason = Activity(
            "took longer than {seconds:.0f} s and was killed; raise [measure] setup_timeout if it needs longer",
            seconds=plan.timeout,
        )
    raise MeasuringError(
        "{doing} {reason}\n{output}\nThe command is [measure] setup in perfgate.toml, run in the checkout of the "
        "{side}; its whole log is {log}",
        doing=doing,
        reason=reason,
        output=log_tail(log) or "",
        side=plan.side,
        log=log,
    )


def _ends_in_time(
    process: subprocess.Popen[bytes], timeout: float, doing: str, log: Path, say: Say
) -> bool:
    started = time.monotonic()
    while (waited := time.monotonic() - started) <= timeout:
        safe_point()
        try:
            process.wait(TICK_SECONDS)
        except subprocess.TimeoutExpired:
            last = (log_tail(log) or "").rpartition("\n")[2]
            say(f"{shown(doing)} ({waited:.0f} s): {one_line(last, limit=60)}")
            bound_log(log)
        else:
            return True
    return False


@contextmanager
def _locked(path: Path, say: Say) -> Iterator[None]:
    with held_back():
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    say(
                        sentence(
                            "waiting for another job that is building the same environment"
                        )
                    )
                    safe_point()
                    time.sleep(TICK_SECONDS)
                else:
                    break
            yield
        finally:
            os.close(descriptor)


# --- the requirements of a side


def read_requirements(root: Path, patterns: Sequence[str]) -> dict[str, str]:
    """The SHA-256 of the relevant text of each file, by its path below ``root``;
    comments do not count.
    """
    files: set[Path] = set()
    for pattern in patterns:
        files.update(filter(Path.is_file, root.glob(pattern)))
    hashes = {}
    for file in sorted(files):
        text = _relevant_text(file)
        if text is not None:
            hashes[file.relative_to(root).as_posix()] = hashlib.sha256(text).hexdigest()
    return hashes


def differing_files(base: Mapping[str, str], head: Mapping[str, str]) -> list[str]:
    return sorted(
        name for name in base.keys() | head.keys() if base.get(name) != head.get(name)
    )


def _relevant_text(file: Path) -> bytes | None:
    """The part of a file that counts; None for a pyproject.toml without dependencies."""
    data = file.read_bytes()
    if file.name == "pyproject.toml":
        return _dependencies(data)
    if file.suffix == ".txt":
        # pip, "Requirements File Format": a line that begins with # is a comment.
        lines = [line.strip() for line in data.splitlines()]
        return b"\n".join(line for line in lines if line and not line.startswith(b"#"))
    return data


def _dependencies(data: bytes) -> bytes | None:
    try:
        tables = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return data
    dependencies = {}
    for path in _DEPENDENCY_TABLES:
        value: Any = tables
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            dependencies[".".join(path)] = value
    if not dependencies:
        return None
    return json.dumps(dependencies, sort_keys=True, default=str).encode()
