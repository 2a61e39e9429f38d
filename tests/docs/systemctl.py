"""systemctl, as far as docs/operate.md uses it: runs the ExecStart of a unit. Called as `systemctl.py UNITS VERB UNIT...`."""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def main(folder: Path, verb: str, names: list[str]) -> int:
    units = [folder / name for name in names if not name.startswith("--")]
    if verb == "daemon-reload":
        return 0
    if verb in ("stop", "restart"):
        for unit in units:
            stop(unit)
    if verb in ("start", "enable", "restart"):
        return max(start(unit) for unit in units)
    return 0


def start(unit: Path) -> int:
    """Start a service, or run it to its end if it is of type oneshot; a timer only has to have a service."""
    if unit.suffix == ".timer":
        return 0 if unit.with_suffix(".service").exists() and "OnCalendar=" in unit.read_text() else 1
    (command,) = settings(unit, "ExecStart")
    environment = {**os.environ, **variables(unit)}
    with (unit.parent / "journal").open("ab") as journal:
        process = subprocess.Popen(
            shlex.split(command), env=environment, stdout=journal, stderr=journal, start_new_session=True
        )
    if settings(unit, "Type") == ["oneshot"]:
        return process.wait()
    unit.with_suffix(".pid").write_text(str(process.pid))
    return 0


def stop(unit: Path) -> None:
    pid_file = unit.with_suffix(".pid")
    if not pid_file.exists():
        return
    process = int(pid_file.read_text())
    pid_file.unlink()
    with suppress(ProcessLookupError):
        ended = os.pidfd_open(process)
        os.kill(process, signal.SIGTERM)
        # Readable once the process has ended (pidfd_open(2)).
        select.select([ended], [], [], 60)


def settings(unit: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), flags=re.MULTILINE)


def variables(unit: Path) -> dict[str, str]:
    lines = [line for file in settings(unit, "EnvironmentFile") for line in Path(file).read_text().splitlines()]
    return dict(line.split("=", 1) for line in lines)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
