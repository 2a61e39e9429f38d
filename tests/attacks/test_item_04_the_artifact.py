"""Item 4: an artifact anybody may have made: whatever it holds, the job ends with 3 and one comment that says why."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfgate.document.files import canonical_bytes, read_run, write_document
from tests.end_to_end.publishing import Job, Project
from tests.fakes.documents import make_run
from tests.fakes.records import changed


def _refused(job: Job, words: str, **request: Any) -> None:
    done = job.publish(**request)
    assert done.returncode == 3, done.stderr
    body = job.comment()
    assert " perfgate: INCONCLUSIVE" in body
    assert words in body
    assert str(job.folder) not in body
    assert job.statuses() == job.marked("error")


def _zip(*files: tuple[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files:
            archive.writestr(name, text)
    return data.getvalue()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda whole: _zip(("base/run.json", b" " * 15_000_000), ("head/run.json", b" " * 15_000_000)),
            "times its size",
        ),
        (lambda whole: _zip(("../../head/run.json", b"{}")), "is not a valid file name"),
        (lambda whole: _zip(("/head/run.json", b"{}")), "is not a valid file name"),
        (lambda whole: whole[: len(whole) // 2], "cannot be read"),
        (lambda whole: b"PK\x01\x02" * 1000, "more than 256 entries"),
        (lambda whole: _zip(("artifact.zip", whole)), "see the log of the measuring job"),
    ],
    ids=["bomb", "traversal", "absolute", "truncated", "entries", "nested"],
)
def test_item_4__hostile_zip_downloaded__refused(github: Job, make: Callable[[bytes], bytes], words: str) -> None:
    github.measure()
    github.fake.upload(50, "perfgate-default-1", make(github.zipped()))
    _refused(github, words, artifact=None)


def test_item_4__more_than_twenty_megabytes__is_not_even_fetched(job: Job) -> None:
    job.fake.upload(50, "perfgate-default-1", bytes(20 * 1024 * 1024 + 1))
    _refused(job, "at most 20971520 are read", artifact=None)
    assert job.fake.blobs.requests == []


def test_item_4__links_in_the_folder__refused(github: Job) -> None:
    github.measure()
    secret = github.folder / "secret.json"
    (github.artifact / "head" / "run.json").rename(secret)
    (github.artifact / "head" / "run.json").symlink_to(secret)
    _refused(github, "symbolic link")
    (github.artifact / "head" / "run.json").unlink()
    os.link(secret, github.artifact / "head" / "run.json")
    assert github.publish().returncode == 3


_HOSTILE_JSON = {
    "depth": (b"[" * 5000, "nested deeper"),
    "not a number": (b'{"schema": "perfgate/run", "schema_version": 1, "x": NaN}', "not a finite number"),
    "infinite": (b'{"schema": "perfgate/run", "schema_version": 1, "x": 1e999}', "not a finite number"),
    "key twice": (b'{"schema": "perfgate/run", "schema": "perfgate/run"}', "stands twice"),
    "surrogate": (b'{"schema": "perfgate/run", "schema_version": 1, "x": "\\ud800"}', "lone surrogate"),
    "huge integer": (b'{"schema": "perfgate/run", "schema_version": 1, "x": ' + b"9" * 5000 + b"}", "beyond 64 bits"),
    "values": (b"[" + b"1," * 2_000_001 + b"1]", "more than 2000000 values"),
}


@pytest.mark.parametrize(("text", "words"), _HOSTILE_JSON.values(), ids=_HOSTILE_JSON.keys())
def test_item_4__hostile_json__refused(github: Job, text: bytes, words: str) -> None:
    github.measure()
    (github.artifact / "head" / "run.json").write_bytes(text)
    _refused(github, words)


@pytest.mark.parametrize(
    "fields",
    [
        {"unknown_field": 1},
        {"project": "x" * 1_000_000},
        {"session": "none"},
        {"counters": {"a": 1}},
        {"session": None},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_item_4__not_what_the_schema_allows__refused(github: Job, fields: dict[str, Any]) -> None:
    github.measure()
    github.change("head", **fields)
    _refused(github, "head/run.json")


def test_item_4__forged_verdict__the_samples_decide(job: Job) -> None:
    job.measure(ops=64)
    path = job.artifact / "decision.json"
    forged = {**json.loads(path.read_bytes()), "verdict": "PASS", "reasons": [], "comparisons": []}
    path.write_text(json.dumps(forged))
    assert job.publish().returncode == 1
    assert " perfgate: FAIL" in job.comment()


def test_item_4__forged_history__is_not_read(github: Job) -> None:
    github.measure(ops=64)
    acceptance = {
        "commit": github.project.merge,
        "metric": "*",
        "reason": "fine",
        "accepted_by": "me",
        "accepted_at": "now",
    }
    history = {"schema": "perfgate/history", "schema_version": 1, "series": [], "accepted": [acceptance]}
    (github.artifact / "history.json").write_text(json.dumps(history))
    assert github.publish().returncode == 1


def test_item_4__forged_change_request__the_comment_goes_where_the_forge_says(github: Job) -> None:
    github.workflow_run()
    github.measure(ops=64, ci=msgspec.structs.replace(github.ci, change_request=666))
    _refused(github, "change request")
    assert github.comments(666) == []


_OTHERS = {
    "repository": {"repository": "mallory/model"},
    "run": {"run_id": "49"},
    "attempt": {"run_attempt": 2},
    "head": {"head_sha": "d" * 40},
    "forge": {"forge": "gitea"},
}


@pytest.mark.parametrize("changes", _OTHERS.values(), ids=_OTHERS.keys())
def test_item_4__a_base_of_another_run__refused(github: Job, changes: dict[str, Any]) -> None:
    github.measure()
    path = github.artifact / "base" / "run.json"
    base = read_run(path)
    session = msgspec.structs.replace(base.session, ci=msgspec.structs.replace(github.ci, **changes))
    write_document(path, msgspec.structs.replace(base, session=session))
    _refused(github, "base/run.json")


def test_item_4__sides_of_two_checks__refused(github: Job) -> None:
    github.measure()
    path = github.artifact / "base" / "run.json"
    base = read_run(path)
    write_document(path, msgspec.structs.replace(base, session=msgspec.structs.replace(base.session, id="s-2")))
    _refused(github, "not of one check")


def test_item_4__an_earlier_session_of_another_head__refused(github: Job) -> None:
    github.measure()
    for side in ("base", "head"):
        path = github.artifact / side / "run.json"
        run = read_run(path)
        foreign = msgspec.structs.replace(run.session, ci=msgspec.structs.replace(github.ci, head_sha="d" * 40))
        write_document(path, changed(run, earlier=[foreign]))
    _refused(github, "head commit")


def test_item_4__testbed_that_only_claims_to_be_the_same__refused(github: Job) -> None:
    github.measure()
    path = github.artifact / "head" / "run.json"
    head = read_run(path)
    testbed = msgspec.structs.replace(head.testbed, comparable={"device.name": "a faster one"})
    write_document(path, msgspec.structs.replace(head, testbed=testbed))
    _refused(github, "fingerprint")


def test_item_4__pairs_that_do_not_belong_together__refused(github: Job) -> None:
    github.measure()
    path = github.artifact / "head" / "run.json"
    head = read_run(path)
    pair = make_run("head", pairs=1).pairs.replicates[0]
    write_document(path, changed(head, replicates=[pair, pair]))
    _refused(github, "twice")
    write_document(path, changed(head, replicates=[msgspec.structs.replace(pair, workload="other")]))
    assert github.publish().returncode == 3


def test_item_4__sides_swapped__refused(github: Job) -> None:
    github.measure(ops=64)
    base, head = (github.artifact / side / "run.json" for side in ("base", "head"))
    base.rename(github.folder / "kept")
    head.rename(base)
    (github.folder / "kept").rename(head)
    _refused(github, "side")


@pytest.mark.parametrize("commit", ["older", "head", "unrelated", "merge"])
def test_item_4__a_base_of_the_changes_own_choice__refused(job: Job, commit: str) -> None:
    # The change would look fast beside a slow commit of long ago, and unchanged beside itself.
    job.measure(base=getattr(job.project, commit))
    _refused(job, "not both in the repository" if commit == "unrelated" else "the change branched off")


def test_item_4__head_taken_away_while_it_is_judged__a_slow_base_of_long_ago_gives_no_green(job: Job) -> None:
    # Pushed back afterwards, the head would carry the status.
    job.fake.changes[0] = replace(job.fake.changes[0], head_sha="d" * 40)
    job.measure(base=job.project.older)
    assert job.publish().returncode == 3
    assert job.statuses() == job.marked("error")


def test_item_4__tag_named_like_the_target__says_nothing_of_the_target(
    job: Job, project: Project, tmp_path: Path
) -> None:
    # The forge of this test answers as git does: of a tag and a branch of one name it takes the tag.
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(project.root), str(clone)], check=True)
    bare = tmp_path / "forge"
    subprocess.run(["git", "clone", "-q", "--mirror", str(project.root), str(bare)], check=True)
    subprocess.run(["git", "tag", "main", project.older], cwd=bare, check=True)
    job.fake.repository = bare
    job.measure(base=project.older)
    _refused(job, "the change branched off", root=clone)


@pytest.mark.parametrize("commit", ["--upload-pack=touch /tmp/x", "HEAD", "refs/heads/main", "d" * 40])
def test_item_4__a_base_that_is_no_commit__refused(job: Job, commit: str) -> None:
    job.measure(base=commit)
    _refused(job, "not both in the repository" if commit.startswith("d") else "in place of a commit")


def test_item_4__a_merge_of_the_changes_own_making__does_not_prove_its_base(github: Job) -> None:
    project = github.project
    forged = project.git(
        "commit-tree", f"{project.head}^{{tree}}", "-p", project.older, "-p", project.head, "-m", "Merge"
    )
    github.measure(commit=forged, base=project.older)
    _refused(github, "which is not on")


def test_item_4__an_older_merge_by_the_forge__is_known_by_its_parents(github: Job) -> None:
    # Main went on after the measuring, and the forge has made its merge anew.
    project = github.project
    github.environ["GITHUB_SHA"] = project.newer_merge
    github.fake.changes[0] = replace(
        github.fake.changes[0], merge_sha=project.newer_merge, base_sha=project.newer, target="moved"
    )
    github.measure()
    assert github.publish().returncode == 0


@pytest.mark.parametrize("data", ["", "AAAA", "x" * 100, base64.b64encode(zlib.compress(bytes(10_000_000))).decode()])
def test_item_4__samples_that_are_none__refused(github: Job, data: str) -> None:
    github.measure()
    for side in ("base", "head"):
        path = github.artifact / side / "run.json"
        run = read_run(path)
        pair = json.loads(canonical_bytes(make_run(side, pairs=8), name=side))  # type: ignore[arg-type]
        for replicate in pair["pairs"]["replicates"]:
            columns = replicate["shapes"].pop("long")
            columns["times"]["wall"]["data"] = data
            replicate["shapes"]["short"] = columns
        path.write_text(json.dumps({**json.loads(canonical_bytes(run, name=side)), "pairs": pair["pairs"]}))
    _refused(github, "packed samples")
