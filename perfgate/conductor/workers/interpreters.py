"""The interpreters of workers, and their description of themselves and of a device, in
a process without torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from perfgate.document.doctor import FitnessCheck
from perfgate.document.message import Message, as_message, english
from perfgate.document.testbed import Environment
from perfgate.errors import ConfigError, UsageError
from perfgate.system.folders import PACKAGE
from perfgate.system.logs import one_line

# Several questions to a vendor's tool, each of which may take TOOL_SECONDS.
ANSWER_SECONDS = 120.0
RUNNING = Path(sys.executable)
# A process of ours in our own interpreter: no variable, user's folder or current folder
# adds to what it can import, and perfgate is the one that runs us.
_OURS = (
    "import importlib.util as util, runpy, sys; code = sys.argv.pop(1); spec = util.spec_from_file_location("
    "'perfgate', code + '/__init__.py', submodule_search_locations=[code]); package = util.module_from_spec(spec); "
    "sys.modules['perfgate'] = package; spec.loader.exec_module(package); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
# A process of ours in the interpreter of a side: the variables of that side count, the
# current folder does not.
_OF_A_SIDE = (
    "import sys; sys.path[:1] == [''] and sys.path.pop(0); module = sys.argv.pop(1); import runpy; "
    "runpy.run_module(module, run_name='__main__', alter_sys=True)"
)
_Answer = TypeVar("_Answer")


def is_running(python: Path | None) -> bool:
    """Whether a path is the interpreter that runs perfgate. A venv's is a link, which
    is compared unresolved.
    """
    return python is None or python.absolute() == RUNNING.absolute()


def check_interpreter(python: Path, option: str) -> Path:
    """The absolute path of an interpreter named on the command line. Raises UsageError
    when it is not an interpreter.
    """
    # Not resolved: the link's target is an interpreter without the venv's packages.
    path = python.expanduser().absolute()
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UsageError(
            "{option} {python} is not an interpreter; name the python of an environment, e.g. venv/bin/python",
            option=option,
            python=python,
        )
    return path


def our_process(module: str, *arguments: str) -> list[str]:
    """The command of a perfgate process that imports no code of a side."""
    return [str(RUNNING), "-I", "-c", _OURS, str(PACKAGE), module, *arguments]


def process_in(python: Path, module: str, *arguments: str) -> list[str]:
    """The command of a perfgate process in the interpreter of a side."""
    return [str(python), "-s", "-c", _OF_A_SIDE, module, *arguments]


def share_code(folder: Path) -> Path:
    """Make ``folder`` provide this perfgate, and only that, to every interpreter;
    return it.

    Both sides must be measured by the same code, independent of any perfgate in their
    environments.
    """
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "perfgate"
    if not link.is_symlink():
        link.symlink_to(Path(__file__).resolve().parents[2])
    return folder


def with_code(environment: Mapping[str, str], code: Path) -> dict[str, str]:
    """An environment in which an interpreter finds the perfgate in ``code`` before any
    other.
    """
    path = str(code)
    if environment.get("PYTHONPATH"):
        path = os.pathsep.join([path, environment["PYTHONPATH"]])
    return {**environment, "PYTHONPATH": path}


def _ask_module(
    python: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    answer: type[_Answer],
    *,
    cwd: Path,
) -> _Answer | str:
    """The last line that a module of ours prints, or a text with the reason if that is
    not an answer.

    Raises OSError or TimeoutExpired if it cannot be run to its end.
    """
    process = subprocess.run(
        process_in(python, *arguments),
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=ANSWER_SECONDS,
        start_new_session=True,
        check=False,
    )
    last = process.stdout.strip().rpartition(b"\n")[2]
    if process.returncode == 0:
        with suppress(
            msgspec.DecodeError
        ):  # it prints something at its end; its complaint has the reason
            return msgspec.json.decode(last, type=answer)
    complaint = process.stderr.decode(errors="replace").strip().rpartition("\n")[
        2
    ] or last.decode(errors="replace")
    return one_line(complaint) or f"exit code {process.returncode}"


def ask_about(
    python: Path, environment: Mapping[str, str], *, cwd: Path, remedy: str
) -> Environment:
    """An interpreter's version and packages.

    Raises ConfigError with the remedy when no worker can run in it.
    """
    try:
        answer = _ask_module(
            python,
            ["perfgate.measuring.worker.about"],
            environment,
            Environment,
            cwd=cwd,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            "{python} cannot be started: {error}; {remedy}",
            python=python,
            error=error,
            remedy=remedy,
        ) from error
    if isinstance(answer, str):
        raise ConfigError(
            "no worker can run in {python}: {answer}; {remedy}",
            python=python,
            answer=answer,
            remedy=remedy,
        )
    return answer


# --- faults of a device


def probe_device(
    python: Path, device: str, environment: Mapping[str, str], *, cwd: Path
) -> list[FitnessCheck]:
    """An interpreter's checks of a device such as ``npu:1``, in the environment of its
    workers.

    Empty for a kind without an examination. A probe that fails is a check that is
    unavailable with the reason.
    """
    try:
        arguments = ["perfgate.measuring.devices.probe", device]
        answer = _ask_module(
            python, arguments, environment, list[FitnessCheck], cwd=cwd
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        answer = one_line(str(error))
    if isinstance(answer, str):
        failed = Message("fitness.probe-failed", {"device": device, "error": answer})
        return [FitnessCheck(name=f"probe {device}", status="unavailable", seen=failed)]
    return answer


def is_absent(device: str, checks: list[FitnessCheck]) -> bool:
    """Whether the probe found no such device at all."""
    name = f"device {device.partition(':')[0]}"
    return any(check.name == name and check.status == "unavailable" for check in checks)


def explain_closed(error: str, device: str, checks: list[FitnessCheck]) -> str:
    """An error with the device's faults and remedies below its first line; unchanged
    without any.
    """
    obstacles = checks
    if not is_absent(device, checks):
        obstacles = [check for check in checks if check.status == "unfit"]
    if not obstacles:
        return error
    first, newline, rest = error.partition("\n")
    lines = []
    for check in obstacles:
        texts = [
            english(as_message(text)) for text in (check.seen, check.remedy) if text
        ]
        lines.append(f"- {check.name}: {'; '.join(texts)}")
    return (
        "\n".join([first, f"what stands in the way of device {device!r}:", *lines])
        + newline
        + rest
    )
