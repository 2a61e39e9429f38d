"""The machine of a service, on which docs/operate.md is typed: our units, started by a small stand-in for systemd."""

from __future__ import annotations

import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.runs import record_run
from tests.docs.blocks import ROOT
from tests.docs.desk import Desk
from tests.unit.document.minimal import minimal_run

NEEDED = ("curl", "openssl", "awk", "install")
SYSTEMCTL = Path(__file__).with_name("systemctl.py")
# Nobody is added to this machine, and who runs the tests is the user of the service. Where nginx is not installed, only its
# check of the configuration is left out; tests/unit/test_service_templates.py sends requests through it.
STAND_INS = {
    "useradd": "exit 0",
    "runuser": 'shift 3 && exec "$@"',
    "systemctl": f'exec {sys.executable} {SYSTEMCTL} "$UNITS" "$@"',
    "nginx": f'exec {shutil.which("nginx") or "true"} -c "$UNITS/../../nginx/nginx.conf" -e /dev/stderr "$@"',
}


class Machine(Desk):
    """A desk whose clone has our templates, and whose store has a run of each of two projects.

    The folders of the system lie in ``folder``, and the service gets a port that is free. A ``bare`` machine has neither
    perfgate nor a store: somebody installs them.
    """

    def __init__(self, folder: Path, *, bare: bool = False) -> None:
        if missing := [program for program in NEEDED if shutil.which(program) is None]:
            pytest.skip(f"the page types {', '.join(missing)}, which this machine does not have")
        super().__init__(folder)
        with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as also_free:
            port = str(free.getsockname()[1])
            proxy_port = str(also_free.getsockname()[1])
        self.address = f"http://127.0.0.1:{port}"
        self._places = {
            "/opt/perfgate": f"{folder}/opt/perfgate" if bare else str(Path(sys.executable).parents[1]),
            "/var/lib/": f"{folder}/lib/",
            "/etc/": f"{folder}/etc/",
            "8787": port,
            "listen 443": f"listen {proxy_port}",
        }
        self._units = folder / "etc" / "systemd" / "system"
        self._units.mkdir(parents=True)
        self._copy_templates()
        self._write_nginx()
        self._write_stand_ins()
        (folder / "lib" / "perfgate").mkdir(parents=True)
        if bare:
            # Only the tests' own perfgate.
            del self.environment["PYTHONPATH"]
            return
        store = SqlStore(folder / "lib" / "perfgate" / "store.db")
        for project in ("shop", "bank"):
            record_run(store, minimal_run(project=project))

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the lines of a block, with this machine's folders in place of the system's."""
        return super().run(self._here(script), **environment)

    def close(self) -> None:
        """Stop the service, if a block started it."""
        super().run("systemctl stop perfgate.service")

    def _here(self, text: str) -> str:
        for place, here in self._places.items():
            text = text.replace(place, here)
        return text

    def _copy_templates(self) -> None:
        for kind in ("systemd", "nginx"):
            folder = self.clone / "templates" / kind
            folder.mkdir(parents=True)
            for template in (ROOT / "templates" / kind).iterdir():
                (folder / template.name).write_text(self._here(template.read_text()))

    def _write_nginx(self) -> None:
        """What a machine with nginx has: its main configuration, and the certificate of the service's name."""
        etc = self.folder / "etc"
        (etc / "nginx" / "conf.d").mkdir(parents=True)
        (etc / "ssl" / "private").mkdir(parents=True)
        scratch = ""
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
            scratch += f"{kind}_temp_path {self.folder}/{kind};"
        (etc / "nginx" / "nginx.conf").write_text(
            f"pid {self.folder}/nginx.pid; events {{}} http {{ access_log off; {scratch} include conf.d/*.conf; }}\n"
        )
        super().run(
            "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=perf.example.com "
            f"-keyout {etc}/ssl/private/perf.example.com.key -out {etc}/ssl/perf.example.com.pem"
        )

    def _write_stand_ins(self) -> None:
        programs = self.folder / "programs"
        programs.mkdir()
        for name, line in STAND_INS.items():
            program = programs / name
            program.write_text(f"#!/bin/sh\n{line}\n")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.environment["PATH"] = f"{programs}:{self.environment['PATH']}"
        self.environment["UNITS"] = str(self._units)
