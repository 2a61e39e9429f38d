"""What the comment links of the files it names: the pages that the forge lists, and nothing that an artifact says."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from perfgate.flows.publish import artifacts
from perfgate.flows.shared.artifacts import open_artifacts_at
from tests.end_to_end.publishing import CONFIG, Job, Project
from tests.fakes.artifacts import file_server

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


FLAME_BYTES, TRACE_BYTES = b"<!doctype html>flame", b"a trace"


def listed(entry: dict[str, object], data: bytes) -> dict[str, object]:
    return {**entry, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@pytest.fixture
def root(project: Project, tmp_path: Path) -> Iterator[Path]:
    """A checkout whose perfgate.toml keeps artifacts in a folder that a server of files serves."""
    root = tmp_path / "checkout"
    shutil.copytree(project.root, root)
    (tmp_path / "kept").mkdir()
    with file_server(tmp_path / "kept") as url:
        (root / "perfgate.toml").write_text(f'{CONFIG}[artifacts]\npath = "{tmp_path / "kept"}"\nurl = "{url}"\n')
        yield root


def measured(job: Job, *, in_folder: bool = True) -> None:
    job.measure(ops=41)
    job.change("head", artifacts=[listed(FLAME, FLAME_BYTES), listed(TRACE, TRACE_BYTES), {**TRACE, "path": "../up"}])
    for path, data in (("flame.html", FLAME_BYTES), ("trace-encoder.json.gz", TRACE_BYTES)):
        if in_folder:
            (job.artifact / "head" / path).write_bytes(data)


def opened(job: Job) -> dict[str, bytes]:
    """What a reader gets who follows every link of the comment to the kept files."""
    return {text: requests.get(url, timeout=30).content for text, url in links(job).items()}


def test_publish__project_keeps_artifacts__comment_links_them_and_every_link_opens(
    github: Job, root: Path, tmp_path: Path
) -> None:
    measured(github)
    done = github.publish(root=root)
    assert done.returncode == 1
    found = opened(github)
    assert (found["head/flame.html"], found["head/trace-encoder.json.gz"]) == (FLAME_BYTES, TRACE_BYTES)
    assert b"<h1" in found["report.html"]
    assert "An artifact was not kept: 'head/../up' is not a distinct relative path" in done.stdout
    (kept,) = open_artifacts_at(str(tmp_path / "kept"), {}, "").sets("model")
    assert (kept.verdict, kept.commit, kept.base) == ("FAIL", github.project.head, github.project.base)
    again = github.publish(root=root)
    assert "0 sent, 3 there already" in again.stdout


def test_publish__traces_in_an_artifact_of_their_own__fetched_and_kept(github: Job, root: Path) -> None:
    measured(github, in_folder=False)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("head/flame.html", FLAME_BYTES)
        archive.writestr("head/trace-encoder.json.gz", TRACE_BYTES)
    github.fake.upload(50, "perfgate-default-1", github.zipped())
    github.fake.upload(50, "perfgate-default-1-traces", packed.getvalue())
    assert github.download(root=root).returncode == 1
    assert opened(github)["head/trace-encoder.json.gz"] == TRACE_BYTES


def test_publish__trial__keeps_nothing(github: Job, root: Path, tmp_path: Path) -> None:
    measured(github)
    github.fake.upload(50, "perfgate-default-1", github.zipped())
    assert github.download(root=root, dry_run=True).returncode == 1
    assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.parametrize("how", ["no package", "in the way", "too slow"])
def test_publish__artifacts_cannot_be_kept__same_verdict_and_comment_without_links(
    github: Job, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    measured(github)
    if how == "no package":
        github.environ["PERFGATE_ARTIFACTS"] = "oss://key:pa55word@bucket/perf"
    elif how == "in the way":
        shutil.rmtree(tmp_path / "kept")
        (tmp_path / "kept").write_text("a file")
    else:
        monkeypatch.setattr(artifacts, "MOST_SECONDS", -1)
    done = github.publish(root=root)
    assert (done.returncode, github.marked("failure")) == (1, github.statuses())
    assert "The artifacts were not kept: " in done.stdout
    assert "pa55word" not in done.stdout + github.comment()
    assert links(github) == {}
