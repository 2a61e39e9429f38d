"""What the comment links of the files it names: the pages that the forge lists, and nothing that an artifact says."""

from __future__ import annotations

import re

from tests.end_to_end.publishing import Job

FLAME = {
    "name": "flame",
    "kind": "flamegraph",
    "path": "flame.html",
    "bytes": 40_960,
    "sha256": "ab" * 32,
    "workload": None,
}
TRACE = {
    "name": "trace",
    "kind": "trace",
    "path": "trace-encoder.json.gz",
    "bytes": 1_258_291,
    "sha256": "cd" * 32,
    "workload": None,
}


def links(job: Job) -> dict[str, str]:
    """Return the address of every linked code of the comment, by its text."""
    return dict(re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", job.comment()))


def test_publish__github__flame_graph_opens_and_traces_lie_in_their_archive(github: Job) -> None:
    github.measure(ops=41)
    github.change("head", artifacts=[FLAME, TRACE])
    github.fake.upload(50, "perfgate-default-1", github.zipped())
    traces = github.fake.upload(50, "perfgate-default-1-traces", b"zip")
    flame = github.fake.upload(50, "perfgate-default-1-flame.html", b"<!doctype html>")
    # Another gate's, a later attempt's, and names that only look like ours.
    for name in ("perfgate-other-1-flame.html", "perfgate-default-2-flame.html", "perfgate-default-x-traces"):
        github.fake.upload(50, name, b"")
    report = f"{github.environ['GITHUB_SERVER_URL']}/team/model/actions/runs/50/artifacts/9"
    github.environ["PERFGATE_REPORT_URL"] = report
    assert github.download().returncode == 1
    runs = f"{github.environ['GITHUB_SERVER_URL']}/team/model/actions/runs/50/artifacts"
    assert links(github) == {
        "head/flame.html": f"{runs}/{flame.id}",
        "head/trace-encoder.json.gz": f"{runs}/{traces.id}",
        "report.html": report,
    }


def test_publish__gitlab__every_file_has_the_page_of_its_job(gitlab: Job) -> None:
    gitlab.measure(ops=41)
    gitlab.change("head", artifacts=[FLAME, TRACE, {**TRACE, "path": "../trace-up.json.gz"}])
    kept = gitlab.fake.upload(int(gitlab.environ["CI_PIPELINE_ID"]), "perfgate-default-1", gitlab.zipped())
    gitlab.environ["PERFGATE_REPORT_URL"] = "https://elsewhere.example/report.html"
    assert gitlab.publish().returncode == 1
    files = f"{gitlab.environ['CI_SERVER_URL']}/team/model/-/jobs/{kept.id}/artifacts/file/perfgate-out"
    assert links(gitlab) == {
        "head/flame.html": f"{files}/head/flame.html",
        "head/trace-encoder.json.gz": f"{files}/head/trace-encoder.json.gz",
    }


def test_publish__nothing_of_the_files_is_listed__named_without_links(github: Job) -> None:
    github.measure(ops=41)
    github.change("head", artifacts=[FLAME, TRACE])
    assert github.publish().returncode == 1
    assert links(github) == {}
    assert "`head/flame.html`" in github.comment()
