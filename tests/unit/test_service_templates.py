"""The files in templates/ by which a service is operated: systemd units, and nginx in front of it."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest
import requests

from perfgate.cli.commands.serve import COMMAND as SERVE
from perfgate.cli.commands.store import COMMAND as STORE
from perfgate.judging.store.runs import record_run
from tests.fakes.service import Service, listening, serve_folder
from tests.unit.document.minimal import minimal_run
from tests.unit.service.test_store_api import document
from tests.waiting import wait_until

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
UNITS = TEMPLATES / "systemd"
PROGRAM = "/opt/perfgate/bin/perfgate"
SIGNED_IN = {"Cookie": "session=of-li"}


def test_units__their_commands__are_ours() -> None:
    lines = {
        path.name: re.findall(rf"^ExecStart={PROGRAM} (.+)$", path.read_text(), re.MULTILINE)
        for path in UNITS.iterdir()
    }
    (serve,), (copy,) = lines["perfgate.service"], lines["perfgate-backup.service"]
    name, *options = serve.split()
    parsed = SERVE.make_parser(click.Context(SERVE)).parse_args(options)[0]
    assert (name, parsed["host"], parsed["location"]) == ("serve", "127.0.0.1", "/var/lib/perfgate/store.db")
    assert copy.split()[:3] == ["store", "copy", parsed["location"]]
    assert "copy" in STORE.commands


def test_units__read_by_systemd__nothing_to_complain_about(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed, so nothing reads the units")
    for unit in UNITS.iterdir():
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, sys.executable))
    units = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "perfgate" in line]
    assert (complaints, done.returncode) == ([], 0), done.stderr


class SignIn(BaseHTTPRequestHandler):
    """What nginx asks of oauth2-proxy: whether the session is known, and the page to sign in."""

    def do_GET(self) -> None:
        is_asked = self.path == "/oauth2/auth"
        is_known = self.headers.get("Cookie") == SIGNED_IN["Cookie"]
        self.send_response((202 if is_known else 401) if is_asked else 200)
        self.end_headers()
        if not is_asked:
            self.wfile.write(b"please sign in")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def nginx(folder: Path, service: Service) -> Iterator[str]:
    """nginx with our configuration in front of a service; skips where it is not installed."""
    program = shutil.which("nginx")
    if program is None:
        pytest.skip("nginx is not installed, so nothing reads its configuration")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with _signing_in() as sign_in:
        _write_configuration(folder, service, port, sign_in)
        command = [program, "-p", str(folder), "-c", "nginx.conf", "-e", "error.log"]
        tested = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
        assert tested.returncode == 0, tested.stderr
        with subprocess.Popen([*command, "-g", "daemon off;"]) as process:
            try:
                wait_until(lambda: _listens(port))
                yield f"https://127.0.0.1:{port}"
            finally:
                process.terminate()


@contextmanager
def _signing_in() -> Iterator[int]:
    """The port of a server in the place of oauth2-proxy."""
    with ThreadingHTTPServer(("127.0.0.1", 0), SignIn) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def _write_configuration(folder: Path, service: Service, port: int, sign_in: int) -> None:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*new, *names], capture_output=True, check=True)
    text = (TEMPLATES / "nginx" / "perfgate.conf").read_text()
    for old, here in {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "127.0.0.1:8787": service.url.removeprefix("http://"),
        "127.0.0.1:4180": f"127.0.0.1:{sign_in}",
        "/etc/ssl/perf.example.com.pem": str(certificate),
        "/etc/ssl/private/perf.example.com.key": str(key),
        "/etc/nginx/perfgate-reader.conf": str(folder / "reader.conf"),
    }.items():
        assert old in text
        text = text.replace(old, here)
    (folder / "reader.conf").write_text(f'set $perfgate_reader "Bearer {service.token(None, "read")}";\n')
    (folder / "perfgate.conf").write_text(text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    scratch = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"pid {folder}/pid; events {{}} http {{ access_log off; {scratch} include {folder}/perfgate.conf; }}\n"
    )


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_nginx__people_sign_in_and_programs_send_their_token__nobody_else_reads_or_writes(tmp_path: Path) -> None:
    with listening() as address:
        service = serve_folder(address, tmp_path)
        record_run(service.store, minimal_run())
        with nginx(tmp_path, service) as url:
            client = requests.Session()
            client.trust_env, client.verify = False, str(tmp_path / "certificate.pem")
            page, upload = f"{url}/projects/shop/index.html", f"{url}/api/v1/projects/shop/runs/"
            # What a foreign client may claim of itself is not believed.
            claimed = {
                "X-Forwarded-User": "li",
                "Remote-User": "li",
                "X-Auth-Request-User": "li",
                "X-Forwarded-For": "::1",
            }
            for headers in ({}, claimed, {"Authorization": f"Bearer {service.token(None)}"}):
                answer = client.get(page, headers=headers)
                assert (answer.status_code, answer.text) == (403, "please sign in")
            assert "shop" in client.get(page, headers=SIGNED_IN).text
            assert "run recorded" in client.get(f"{url}/audit", headers=SIGNED_IN).text
            data, run_id = document(minimal_run(session="s2"))
            # A person's session writes nothing, not even by a form that a foreign page made up.
            for headers in ({}, claimed, SIGNED_IN):
                assert client.put(upload + run_id, data=data, headers=headers).status_code == 401
            form = {"commit": "a" * 40, "state": "fixed", "author": "Li", "reason": "x"}
            triage = client.post(f"{url}/projects/shop/triage", data=form, headers=SIGNED_IN)
            assert triage.status_code == 403
            own = {"Authorization": f"Bearer {service.token('shop')}"}
            assert client.put(upload + run_id, data=data, headers=own).status_code == 201
            assert "perfgate_latency" in client.get(f"{url}/metrics", headers=own).text
            assert client.get(f"{url}/api/v1/health").json() == {"status": "ok"}
