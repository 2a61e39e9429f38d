"""Our publish before a GitHub that others wrote: @simulacrum/github-api-simulator, by GitHub's official description.

It remembers nothing and answers with the description's examples; what a request lacks, or has wrong, it refuses.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from perfgate.flows.publish.publish import publish
from perfgate.flows.publish.trusted import PublishRequest, read_trusted_inputs
from perfgate.flows.shared.doors import Doors
from perfgate.judging.forge.detect import detect
from perfgate.judging.forge.forge import CiEvent, CiJob, CommitStatus, ForgeHost, connect
from perfgate.judging.forge.hosts.github import GitHub
from tests.waiting import left_in_the_end

NODE = shutil.which("node")
TOOLS = Path(NODE).parents[1] if NODE else Path()
pytestmark = [
    pytest.mark.skipif(
        not (TOOLS / "node_modules" / "@simulacrum").is_dir(), reason="make test-ci installs the simulator"
    ),
]
PROGRAM = """
import { simulation } from "@simulacrum/github-api-simulator";
simulation().listen(Number(process.argv[1]), "127.0.0.1");
"""
TOKEN = "ghs_of_a_simulated_job"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(NODE), "--input-type=module", "--eval", PROGRAM, str(port)]
    with subprocess.Popen(command, cwd=TOOLS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            assert left_in_the_end(lambda: _silence(address)) == []
            yield address
        finally:
            server.terminate()


def _silence(address: str) -> list[str]:
    try:
        requests.get(f"{address}/repos/team/model/pulls/7", timeout=60).raise_for_status()
    except requests.ConnectionError as error:
        return [str(error)]
    return []


@pytest.fixture(scope="module")
def pull(url: str) -> Any:
    """Return the one pull request that there is, whatever its number."""
    return requests.get(f"{url}/repos/team/model/pulls/7", timeout=60).json()


def _event(url: str, pull: Any) -> CiEvent:
    return CiEvent(
        forge="github",
        host=ForgeHost(api_url=url, server_url=url),
        repository="team/model",
        project="team/model",
        job=CiJob(run_id="5", run_attempt=1),
        head_sha=pull["head"]["sha"],
        change_request=pull["number"],
    )


def _forge(url: str, pull: Any) -> GitHub:
    forge = connect(_event(url, pull), TOKEN, sleep=lambda seconds: None, clock=lambda: 1.8e9)
    assert isinstance(forge, GitHub)
    return forge


def test_publish__simulated_github__takes_the_comment_and_the_status(url: str, pull: Any, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": pull["number"], "head": {"sha": pull["head"]["sha"]}}}))
    environ = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "pull_request",
        "GITHUB_EVENT_PATH": str(event),
        "GITHUB_REPOSITORY": "team/model",
        "GITHUB_SERVER_URL": url,
        "GITHUB_API_URL": url,
        "GITHUB_RUN_ID": "5",
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_SHA": pull["merge_commit_sha"],
        "GITHUB_TOKEN": TOKEN,
    }
    said = list[str]()
    doors = Doors(environ=environ, say=said.append, sleep=lambda seconds: None, clock=lambda: 1.8e9)
    # Nothing was measured of a pull request that exists in examples alone.
    assert (
        publish(None, read_trusted_inputs(tmp_path, detect(environ), doors, posts=True), PublishRequest(), doors) == 3
    )
    assert said[-2:] == [
        f"The comment on change request {pull['number']} was created.",
        f"The commit status perfgate of {pull['head']['sha'][:12]} is error.",
    ]


def test_forge__simulated_github__takes_what_publish_may_ask_and_its_answers_are_read(url: str, pull: Any) -> None:
    forge = _forge(url, pull)
    (comment, *_) = forge.comments(7)
    forge.edit_comment(7, comment.id, "text")
    forge.delete_comment(7, comment.id)
    assert comment.own  # of octocat, as whom everybody is logged in there
    assert forge.changed_files(7) == ["file1.txt"]
    assert forge.merge_base("main", pull["head"]["sha"]) is not None
    assert forge.parents(pull["head"]["sha"]) is not None
    assert [artifact.name for artifact in forge.artifacts()] != []
    assert forge.may_push("octocat")
    assert forge.ordered_change(7).is_open
    for state in ("success", "failure", "error", "pending"):
        forge.set_status(CommitStatus(pull["head"]["sha"], state, "perfgate", "text", "https://forge.example/run"))
    # Issues are left out: its validator does not compile that part of the description (HTTP 500).


@pytest.mark.parametrize(
    ("path", "body", "wrong"),
    [
        ("/statuses/" + "a" * 40, {"state": "failed", "context": "perfgate"}, "/requestBody/state"),
        ("/issues/7/comments", {"text": "x"}, "/requestBody"),
    ],
)
def test_simulator__what_the_description_forbids__is_refused(url: str, path: str, body: Any, wrong: str) -> None:
    answer = requests.post(f"{url}/repos/team/model{path}", json=body, timeout=60)
    assert answer.status_code == 400
    assert [error["instancePath"] for error in answer.json()["err"]] == [wrong]
