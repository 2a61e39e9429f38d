"""`perfgate serve`: what it answers, whom, and that no request makes it fail."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings

from perfgate.cli.commands.serve import COMMAND
from perfgate.errors import UsageError
from perfgate.service.admission import Admission
from perfgate.service.app import create_app
from perfgate.service.callers import Authenticator
from perfgate.service.library import Library
from perfgate.service.recordings import RecordingPages
from perfgate.service.trouble_log import TroubleLog
from perfgate.system.loopback import is_loopback_host
from tests.command import run_perfgate, started_perfgate
from tests.fakes.service import listening
from tests.fakes.training import MS, Training

TOKEN = "a-token-of-this-test"


def write_trace(path: Path, *ids: str) -> None:
    """Write a Kineto trace in which each request has a span with one operator inside."""
    rows = []
    for number, name in enumerate(ids):
        start = 1_000_000 + number * 1000
        span = {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"request#{name}",
            "pid": 1,
            "tid": 1,
            "ts": start,
            "dur": 100,
        }
        rows += [span, {**span, "cat": "cpu_op", "name": "aten::mm", "ts": start + 10, "dur": 60 + number}]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": rows}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    outside = tmp_path_factory.mktemp("outside")
    (folder / "below").mkdir()
    write_trace(folder / "first.pt.trace.json", "a", "b")
    write_trace(folder / "below" / "second <b>.pt.trace.json", "b")
    write_trace(outside / "secret.pt.trace.json", "hidden")
    (folder / "damaged.pt.trace.json").write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X", "ts": "x"')
    (folder / "linked.pt.trace.json").symlink_to(outside / "secret.pt.trace.json")
    (folder / "linked").symlink_to(outside)
    return folder


@contextmanager
def serving(folder: Path, *options: str, **variables: str) -> Iterator[str]:
    with started_perfgate("serve", "--traces", str(folder), "--port", "0", *options, **variables) as (command, printed):
        try:
            yield printed.readline().strip()
        finally:
            os.kill(command.pid, signal.SIGTERM)
            assert command.wait(30) == 0


@contextmanager
def pages(folder: Path) -> Iterator[str]:
    """The same in this process, open to all users of the machine."""
    recordings = RecordingPages(Library(folder), "en", home="/")
    with listening() as server:
        troubles = TroubleLog(print)
        server.application = Admission(create_app([recordings], troubles, "en"), Authenticator(None), troubles, "en")
        yield f"{server.url}/"
    recordings.close()


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with serving(folder, "--no-token") as address:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
        yield address


def got(address: str, path: str, status: int = 200, **parameters: str) -> Any:
    response = requests.get(address + path, params=parameters, timeout=60)
    assert response.status_code == status, response.text
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    return response.json() if response.headers["Content-Type"].startswith("application/json") else response.text


def test_recordings__links_and_what_lies_outside__not_among_them(address: str) -> None:
    names = {one["name"] for one in got(address, "api/recordings")["recordings"]}
    assert names == {"first.pt.trace.json", "below/second <b>.pt.trace.json", "damaged.pt.trace.json"}
    assert got(address, "api/runs") == {"recordings": [], "jobs": []}


def test_profile__request_of_two_recordings__what_ran_in_both(address: str, folder: Path) -> None:
    found = got(address, "api/profile", request_id="b")
    times = {
        name: [(row["name"], row["total"]) for row in profile["timelines"][0]["rows"]]
        for name, profile in found["profiles"].items()
    }
    assert times == {
        "first.pt.trace.json": [("aten::mm", pytest.approx(61e-6)), ("request#b", pytest.approx(39e-6))],
        "below/second <b>.pt.trace.json": [("aten::mm", pytest.approx(60e-6)), ("request#b", pytest.approx(40e-6))],
    }
    assert str(folder) not in json.dumps(found)
    assert "hidden" in got(address, "api/profile", 404, request_id="hidden")["error"]


def test_profile__without_an_id__all_requests_of_every_recording(address: str) -> None:
    found = got(address, "api/profile")

    assert (found["request_id"], found["unread"]) == (None, ["damaged.pt.trace.json"])
    assert {
        name: [row["request"] for row in profile["timelines"][0]["requests"]]
        for name, profile in found["profiles"].items()
    } == {"first.pt.trace.json": ["a", "b"], "below/second <b>.pt.trace.json": ["b"]}


def test_profile__as_chrome_events__the_spans_of_the_request_and_names_of_their_tracks(address: str) -> None:
    found = got(address, "api/profile", request_id="b", format="chrome")

    spans = [(one["name"], one["cat"], one["ts"], one["dur"]) for one in found["traceEvents"] if one["ph"] == "X"]
    assert spans == [
        *[("request#b", "user_annotation", 0.0, 100.0), ("aten::mm", "cpu_op", 10.0, 60.0)],
        *[("request#b", "user_annotation", 1000.0, 100.0), ("aten::mm", "cpu_op", 1010.0, 61.0)],
    ]
    processes = {one["pid"]: one["args"]["name"] for one in found["traceEvents"] if one["name"] == "process_name"}
    assert processes == {1: "below/second <b>.pt.trace.json: 1", 2: "first.pt.trace.json: 1"}
    assert found["otherData"] == {"unread": ["damaged.pt.trace.json"]}
    assert "hidden" in got(address, "api/profile", 404, request_id="hidden", format="chrome")["error"]
    assert "'rows' or 'chrome'" in got(address, "api/profile", 400, format="perfetto")["error"]


def test_profile__chrome_events_read_again__the_same_requests_with_the_same_times(tmp_path: Path) -> None:
    span = {"ph": "X", "cat": "user_annotation", "name": "request#a", "pid": 1, "tid": 1, "ts": 5e6, "dur": 100}
    rows = [
        {**span, "args": {}},
        {**span, "cat": "cpu_op", "name": "aten::mm", "ts": 5e6 + 10, "dur": 30},
        {**span, "cat": "cuda_runtime", "name": "launch", "ts": 5e6 + 20, "dur": 5, "args": {"correlation": 7}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5e6 + 40, "dur": 80.125}
        | {"args": {"correlation": 7, "device": 0, "stream": 7}},
        {**span, "name": "request#b", "ts": 5e6 + 300},
        {**span, "cat": "cpu_op", "name": "nobody's", "ts": 5e6 + 500},
    ]
    original, again = tmp_path / "served" / "original.json", tmp_path / "again.json"
    original.parent.mkdir()
    original.write_text(json.dumps({"schemaVersion": 1, "traceEvents": rows}))
    with pages(original.parent) as address:
        again.write_text(json.dumps(got(address, "api/profile", format="chrome")))

    def recorded(path: Path, *options: str) -> Any:
        done = run_perfgate("trace", "requests", str(path), "--json", *options)
        return [
            (row["requests"], [{**one, "share": pytest.approx(one["share"])} for one in row["rows"]])
            for row in json.loads(done.stdout)["timelines"]
        ]

    assert [row["request"] for row in recorded(original)[0][0]] == ["a", "b"]
    assert recorded(again) == recorded(original)
    assert recorded(again, "--id", "a") == recorded(original, "--id", "a")


def test_requests__of_a_recording__the_longest_first(address: str) -> None:
    found = got(address, "api/requests", recording="first.pt.trace.json", limit="1")
    (timeline,) = found["timelines"]
    assert (len(timeline["requests"]), timeline["requests_in_all"]) == (1, 2)
    assert timeline["requests"][0]["elapsed"] == pytest.approx(100e-6)


def test_requests__recording_written_anew__read_anew(address: str, folder: Path) -> None:
    path = folder / "growing.pt.trace.json"
    write_trace(path, "one")
    try:
        assert got(address, "api/requests", recording=path.name)["timelines"][0]["requests_in_all"] == 1
        write_trace(path, "one", "two")
        assert got(address, "api/requests", recording=path.name)["timelines"][0]["requests_in_all"] == 2
    finally:
        path.unlink()


@pytest.mark.parametrize("name", ["../outside/secret.pt.trace.json", "/etc/passwd", "linked/secret.pt.trace.json", "."])
def test_page__a_name_that_is_no_recording__not_found(address: str, name: str) -> None:
    for page in ("flame", "timeline", "api/requests"):
        assert "no recording is named" in got(address, page, 404, recording=name)["error"]


def test_page__damaged_recording__says_so_without_the_folder(address: str, folder: Path) -> None:
    error = got(address, "api/requests", 422, recording="damaged.pt.trace.json")["error"]
    assert "damaged.pt.trace.json" in error
    assert str(folder) not in error


def test_pages__linked_from_the_first__all_there(address: str) -> None:
    index = got(address, "")
    assert "second &lt;b&gt;" in index
    links = [link for link in re.findall(r'href="/([^"]+)"', index) if "damaged" not in link]
    assert len(links) == 8  # two recordings, all of them as ranks, and the interface
    for link in links:
        assert got(address, link)


def test_job__its_folder_is_one_row__with_ranks_and_two_recordings_compared(tmp_path: Path) -> None:
    Training(ranks=4, tensor=4, steps=2, layers=2, extra=lambda rank, step, layer: 3 * MS if rank == 2 else 0.0).write(
        tmp_path / "train <1>"
    )
    write_trace(tmp_path / "alone.pt.trace.json", "a")
    with pages(tmp_path) as address:
        index = got(address, "")
        assert re.findall(r'href="(/[^"]*)"', index) == [
            "/?folder=train%20%3C1%3E",
            "/ranks?folder=train%20%3C1%3E",
            "/?folder=train%20%3C1%3E#compare",
            *(f"/{page}?recording=alone.pt.trace.json" for page in ("flame", "timeline", "api/requests")),
            "/openapi.json",
        ]
        (listed,) = got(address, "api/recordings")["jobs"]
        assert (listed["name"], listed["recordings"]) == ("train <1>", 4)
        inside = got(address, "", folder="train <1>")
        assert [f"job_{rank}.pt.trace.json</td>" in inside for rank in range(4)] == [True] * 4
        assert "alone" not in inside
        assert "job_1" not in got(address, "", folder="train <1>", contains="JOB_3")
        assert "rank 2 delays the others" in got(address, "ranks", folder="train <1>")
        names = {side: f"train <1>/job_{rank}.pt.trace.json" for side, rank in (("recording", 0), ("head", 2))}
        assert "Flame graph of base and head" in got(address, "flame", **names)
        for wrong in ({"folder": ".."}, {"folder": "train"}):
            assert "no folder with recordings is named" in got(address, "ranks", 404, **wrong)["error"]
        assert "no recording is named" in got(address, "flame", 404, **{**names, "head": "x"})["error"]


@pytest.mark.parametrize(("parameters"), [{}, {"recording": ""}, {"recording": "first.pt.trace.json", "limit": "0"}])
def test_requests__wrong_parameters__said(address: str, parameters: dict[str, str]) -> None:
    assert got(address, "api/requests", 400, **parameters)["error"]


def test_serve__asked_by_a_foreign_name__refused(address: str) -> None:
    response = requests.get(address, headers={"Host": "perfgate.example"}, timeout=60)
    assert response.status_code == 403


def test_serve__every_interface__only_with_the_token(folder: Path) -> None:
    with serving(folder, "--host", "0.0.0.0", PERFGATE_SERVE_TOKEN=TOKEN) as said:
        assert said.endswith(f"/?token={TOKEN}")
        address = re.sub(r"//.*:", "//127.0.0.1:", said.split("?")[0])
        assert "a token is needed" in got(address, "api/recordings", 401)["error"]
        wrong = requests.get(address, headers={"Authorization": "Bearer wrong"}, timeout=60)
        assert wrong.status_code == 401
        right = requests.get(address + "api/recordings", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
        assert right.status_code == 200
        session = requests.Session()
        page = session.get(f"{address}?token={TOKEN}", timeout=60)
        assert (page.status_code, page.url) == (200, address)
        assert session.get(address + "api/recordings", timeout=60).status_code == 200


@pytest.mark.parametrize("host", [pytest.param("0.0.0.0", marks=pytest.mark.slow), "127.0.0.1"])
def test_serve__without_a_token__makes_one(folder: Path, host: str) -> None:
    with serving(folder, "--host", host, PERFGATE_SERVE_TOKEN="") as said:
        address, _, token = said.partition("?token=")
        assert len(token) >= 30
        for headers in ({"Cookie": b"perfgate-token=\xff"}, {"Authorization": b"Bearer \xff"}):
            local = re.sub(r"//.*:", "//127.0.0.1:", address)
            assert requests.get(local, headers=headers, timeout=60).status_code == 401
        moved = requests.get(f"{local}/evil.example/?token={token}", allow_redirects=False, timeout=60)
        assert moved.headers["Location"] == "/evil.example/"


@pytest.mark.parametrize(
    ("options", "token", "said"),
    [(["--host", "0.0.0.0", "--no-token"], "", "use it with 127.0.0.1 only"), ([], "short", "could be guessed")],
)
def test_serve__weaker_than_a_token__refused(folder: Path, options: list[str], token: str, said: str) -> None:
    variables = {"PERFGATE_SERVE_TOKEN": token}
    done = CliRunner().invoke(COMMAND, ["--traces", str(folder), "--port", "0", *options], env=variables)
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)


@pytest.mark.parametrize("host", [b"\xff", b"127.0.0.1:99999999", b"127.0.0.1:abc"])
def test_serve__host_that_is_none__a_bad_request_with_the_headers_of_every_answer(address: str, host: bytes) -> None:
    response = requests.get(address, headers={"Host": host}, timeout=60)
    assert (response.status_code, "X-Content-Type-Options" in response.headers) == (400, True)


def test_serve__method_that_is_not_allowed__says_which_are(address: str) -> None:
    assert "GET" in requests.post(address, timeout=60).headers["Allow"]


def test_serve__head__the_headers_of_a_page_alone(address: str) -> None:
    page = requests.get(address, timeout=60)
    head = requests.head(address, timeout=60)
    assert (head.status_code, head.headers["Content-Length"], head.content) == (200, str(len(page.content)), b"")


def test_serve__without_its_packages__says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("perfgate.service.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = CliRunner().invoke(COMMAND, ["--traces", str(folder)])
    assert isinstance(result.exception, UsageError)
    assert "perfgate serve needs uvicorn, which is not installed; run pip install 'perfgate[serve]'" in str(
        result.exception
    )


def test_serve__webhook_without_a_store__refused_as_no_message_would_be_sent(folder: Path) -> None:
    options = ["--traces", str(folder), "--webhook", "https://perf.example/hook"]
    done = run_perfgate("serve", *options, cwd=folder, timeout=30)
    assert (done.returncode, "name the store by --store" in done.stderr) == (2, True)


def test_serve__no_folder__says_what_to_name(tmp_path: Path) -> None:
    done = CliRunner().invoke(COMMAND, ["--traces", str(tmp_path / "none")])
    assert isinstance(done.exception, UsageError)
    assert "name the folder that contains the recordings" in str(done.exception)


def test_is_loopback_host__addresses__only_those_of_this_machine() -> None:
    assert [is_loopback_host(host) for host in ("127.0.0.1", "127.8.9.1", "::1", "localhost")] == [True] * 4
    assert [is_loopback_host(host) for host in ("0.0.0.0", "::", "10.0.0.1", "host.example")] == [False] * 4


@pytest.mark.slow
def test_openapi__requests_of_every_kind__none_fails(address: str) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    schema = schemathesis.openapi.from_dict(got(address, "openapi.json"))
    operations = [one.ok() for one in schema.get_all_operations()]
    assert len(operations) == 10
    for operation in operations:

        @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(
            case=operation.as_strategy() | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)
        )
        def ask(case: Any) -> None:
            response = case.call(base_url=address.rstrip("/"))
            assert response.status_code < 500, (case.formatted_path, case.query, response.text)
            if response.status_code in (200, 400, 404, 422):
                case.validate_response(response, checks=[schemathesis.checks.not_a_server_error])

        ask()


def test_recordings__name_of_a_file_that_is_not_utf8__left_out_and_the_others_served(tmp_path: Path) -> None:
    write_trace(tmp_path / "first.pt.trace.json", "a")
    write_trace(tmp_path / "second.pt.trace.json", "b")
    (tmp_path / "second.pt.trace.json").rename(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.pt.trace.json"))
    with pages(tmp_path) as address:
        assert "first.pt.trace.json" in got(address, "")
        assert [one["name"] for one in got(address, "api/recordings")["recordings"]] == ["first.pt.trace.json"]
        assert list(got(address, "api/profile")["profiles"]) == ["first.pt.trace.json"]
