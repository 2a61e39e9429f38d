"""`perfgate publish` in GitLab's pipelines, in an environment of each kind, and what only GitLab's API does."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perfgate.judging.forge.comment import read_state
from perfgate.judging.forge.detect import detect
from tests.end_to_end.publishing import MARKER, Job
from tests.fakes.forge import BOT, Reply, StoredPipeline

pytestmark = pytest.mark.official

# A detached pipeline of a merge request, after docs.gitlab.com, "Predefined CI/CD variables reference".
DETACHED = Path(__file__).parents[1] / "data" / "forge" / "gitlab.merge_request.env.json"
# How the other kinds of pipelines differ from it; those of a branch know no merge request.
KINDS = {
    "mr.detached": {},
    "mr.merged_result": {
        "CI_MERGE_REQUEST_EVENT_TYPE": "merged_result",
        "CI_MERGE_REQUEST_REF_PATH": "refs/merge-requests/7/merge",
        "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": "c" * 40,
        "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": "d" * 40,
    },
    "mr.fork": {
        "CI_PROJECT_ID": "99",
        "CI_PROJECT_PATH": "mallory/model",
        "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "99",
    },
    "mr.hostile": {
        "CI_COMMIT_REF_NAME": "$(touch${IFS}pwn)",
        "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "$(touch${IFS}pwn)",
        "CI_MERGE_REQUEST_TITLE": "x`id`\n/approve\n/merge",
    },
    "branch": {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "main", "CI_COMMIT_REF_NAME": "main"},
    "schedule": {"CI_PIPELINE_SOURCE": "schedule", "CI_COMMIT_BRANCH": "main", "CI_COMMIT_REF_NAME": "main"},
}


def enter(job: Job, name: str) -> None:
    """Give a job the environment of a kind of pipeline, on the commits and the address of its fake."""
    environ = {**json.loads(DETACHED.read_bytes()), **KINDS[name]}
    if not name.startswith("mr."):
        environ = {key: value for key, value in environ.items() if not key.startswith("CI_MERGE_REQUEST_")}
    merged = bool(environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"))
    here = {
        "CI_SERVER_URL": job.fake.url,
        "CI_API_V4_URL": job.fake.api_url,
        "CI_PIPELINE_URL": f"{job.fake.url}/team/model/-/pipelines/{environ['CI_PIPELINE_ID']}",
        "CI_COMMIT_SHA": job.project.merge if merged else job.project.head,
        **({"CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": job.project.head} if merged else {}),
    }
    job.environ = {"PERFGATE_STORE": job.environ["PERFGATE_STORE"], **environ, **here}


def measure(job: Job, *, ops: int) -> None:
    """Leave what `perfgate check` would have measured in this pipeline."""
    event = detect(job.environ)
    assert event is not None
    job.measure(ops=ops, ci=event.context(), commit=event.built_sha)


@pytest.mark.parametrize("name", ["mr.detached", "mr.merged_result", "mr.fork", "mr.hostile"])
def test_publish__merge_request_pipeline__one_note_in_the_parent_project(gitlab: Job, name: str) -> None:
    enter(gitlab, name)
    measure(gitlab, ops=64)
    assert gitlab.publish().returncode == 1
    measure(gitlab, ops=65)
    done = gitlab.publish()
    assert (done.returncode, done.stderr) == (1, "")
    body = gitlab.comment()
    assert body.splitlines()[0] == MARKER
    assert "65" in body
    state = read_state(body)
    assert state is not None
    assert (state.run, state.head, state.verdict) == (800, gitlab.project.head, "FAIL")
    # The pipeline is the check: a status would be another job of it, or a pipeline of its own.
    assert (gitlab.statuses(), gitlab.fake.pipelines) == ([], [])
    # Everything about the merge request is asked of the project it lives in, whatever project the pipeline runs in.
    assert {path.split("/")[4] for path in gitlab.paths("POST") + gitlab.paths("PUT")} == {"5"}


def test_publish__hostile_title_and_branch__neither_in_the_note_nor_a_command(gitlab: Job) -> None:
    enter(gitlab, "mr.hostile")
    hostile = {gitlab.environ[f"CI_MERGE_REQUEST_{name}"] for name in ("TITLE", "SOURCE_BRANCH_NAME")}
    assert any("\n/approve" in text for text in hostile)
    measure(gitlab, ops=64)
    done = gitlab.publish()
    body = gitlab.comment()
    assert all(text not in body + done.stdout for text in hostile)
    assert not any(line.lstrip().startswith("/") for line in body.splitlines())
    assert not Path("pwn").exists()


@pytest.mark.parametrize("name", ["branch", "schedule"])
def test_publish__pipeline_of_a_branch__neither_note_nor_status(gitlab: Job, name: str) -> None:
    enter(gitlab, name)
    measure(gitlab, ops=64)
    done = gitlab.publish()
    assert done.returncode == 1, done.stderr
    assert gitlab.fake.comments == {}
    assert gitlab.statuses() == []


def test_publish__merge_train__as_merged_results(gitlab: Job) -> None:
    enter(gitlab, "mr.merged_result")
    gitlab.environ["CI_MERGE_REQUEST_EVENT_TYPE"] = "merge_train"
    measure(gitlab, ops=40)
    assert gitlab.publish().returncode == 0
    assert " perfgate: PASS" in gitlab.comment()


def detached(job: Job) -> None:
    """Let the job run in a pipeline of the merge request's own head, with a token that may set statuses."""
    job.environ.update(CI_COMMIT_SHA=job.project.head, CI_MERGE_REQUEST_SOURCE_BRANCH_SHA="")
    job.fake.membership = "developer"
    job.fake.pipelines.append(StoredPipeline(50, job.project.head, {"perfgate-measure": "success"}))


@pytest.mark.parametrize(
    ("fail_on", "ops", "state"),
    [
        ("undecided", 64, "failed"),
        ("regression", 64, "failed"),
        ("never", 64, "success"),
        ("undecided", None, "failed"),
        ("regression", None, "success"),
        ("never", None, "success"),
        ("undecided", 40, "success"),
    ],
)
def test_publish__status_asked_for__a_job_of_the_same_pipeline_that_fails_on_what_the_pipeline_does(
    gitlab: Job, fail_on: Any, ops: int | None, state: str
) -> None:
    detached(gitlab)
    if ops is not None:
        gitlab.measure(ops=ops, commit=gitlab.project.head)
    done = gitlab.publish(status=True, fail_on=fail_on)
    assert done.returncode == {64: 1, None: 3, 40: 0}[ops], done.stderr
    (pipeline,) = gitlab.fake.pipelines
    assert (pipeline.id, pipeline.jobs["perfgate"], pipeline.state) == (50, state, state)


def test_publish__status_asked_for_with_a_token_of_a_reporter__exit_4_and_the_role_it_takes(gitlab: Job) -> None:
    detached(gitlab)
    gitlab.fake.membership = "reporter"
    gitlab.measure(commit=gitlab.project.head)
    done = gitlab.publish(status=True)
    assert done.returncode == 4
    assert "HTTP 403: the token may not do this" in done.stderr
    assert "Developer for commit statuses" in done.stderr
    assert " perfgate: PASS" in gitlab.comment()


def test_publish__status_asked_for_in_merged_results__no_pipeline_of_its_own(gitlab: Job) -> None:
    gitlab.fake.membership = "developer"
    gitlab.measure()
    done = gitlab.publish(status=True)
    assert done.returncode == 0, done.stderr
    assert "the head of merged results has no pipeline" in done.stdout
    assert (gitlab.statuses(), gitlab.fake.pipelines) == ([], [])


def test_publish__status_that_another_job_is_changing__is_set_in_the_end(gitlab: Job) -> None:
    detached(gitlab)
    gitlab.measure(commit=gitlab.project.head)
    gitlab.fake.write(7, f"{MARKER}\nso that the first POST is the status", BOT)
    gitlab.fake.script("POST", Reply(409, {"message": "409 Conflict"}))
    done = gitlab.publish(status=True)
    assert done.returncode == 0, done.stderr
    assert done.slept[-1] == 1.0
    assert gitlab.statuses() == [(gitlab.project.head, "success")]


def test_publish__notes_are_limited__waits_as_long_as_it_is_told(gitlab: Job) -> None:
    gitlab.measure()
    gitlab.fake.script("POST", Reply(429, {"message": "too many notes"}, {"Retry-After": "37"}))
    done = gitlab.publish()
    assert (done.returncode, done.slept) == (0, [37.0])
    assert len(gitlab.comments()) == 1


def test_publish__address_of_the_pipeline_too_long__status_without_it(gitlab: Job) -> None:
    gitlab.environ["CI_PIPELINE_URL"] = gitlab.fake.url + "/team/" + "m" * 240 + "/-/pipelines/50"
    detached(gitlab)
    gitlab.measure(commit=gitlab.project.head)
    assert gitlab.publish(status=True).returncode == 0
    (status,) = gitlab.fake.statuses
    assert status.url is None


@pytest.fixture
def certified(gitlab: Job) -> Path:
    """Put the fake behind TLS with a certificate of its own, as a server in a company has it; return that."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    certificate, key = gitlab.folder / "ca.pem", gitlab.folder / "key.pem"
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*make, *subject, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = gitlab.fake._server
    server.socket = context.wrap_socket(server.socket, server_side=True)
    for name in ("CI_SERVER_URL", "CI_API_V4_URL", "CI_PIPELINE_URL"):
        gitlab.environ[name] = gitlab.environ[name].replace("http://127.0.0.1", "https://localhost")
    return certificate


def test_publish__server_with_a_certificate_of_its_own__posts_with_gitlabs_ca_file(
    gitlab: Job, certified: Path
) -> None:
    gitlab.measure()
    gitlab.environ["CI_SERVER_TLS_CA_FILE"] = str(certified)
    done = gitlab.publish()
    assert (done.returncode, done.stderr) == (0, "")
    assert " perfgate: PASS" in gitlab.comment()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_publish__server_with_an_unknown_certificate__exit_4_and_the_token_stays(gitlab: Job, certified: Path) -> None:
    gitlab.measure()
    done = gitlab.publish()
    assert (done.returncode, "CA file" in done.stderr) == (4, True)
    assert gitlab.fake.calls == []
