"""Item 6: no address of an artifact, a comment or a configuration is asked or linked; the token goes to the API alone."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from shutil import which

import cmarkgfm
import msgspec
import pytest

from perfgate.document.files import read_run, write_document
from perfgate.document.message import quote
from tests.attacks.canary import canary
from tests.end_to_end.publishing import Job
from tests.fakes.forge import BOT_TOKEN, PERSON, Fault, Reply
from tests.fakes.records import changed


@pytest.mark.parametrize("key", ["$ref", "$schema", "$id", "$dynamicRef"])
def test_item_6__remote_reference_in_the_artifact__is_not_fetched(github: Job, key: str) -> None:
    with canary() as bird:
        github.measure()
        github.change("head", **{key: f"{bird.url}/schema.json"})
        path = github.artifact / "base" / "run.json"
        run = json.loads(path.read_bytes())
        path.write_text(json.dumps({**run, "source": {**run["source"], "changes": [{key: bird.url}]}}))
        assert github.publish().returncode == 3
    assert bird.heard == []
    page = cmarkgfm.github_flavored_markdown_to_html(github.comment())
    assert bird.url not in "".join(re.findall(r"<a\b[^>]*>", page))


def test_item_6__addresses_all_over_the_artifact__are_neither_asked_nor_links(job: Job) -> None:
    with canary() as bird:
        job.measure(ops=64)
        link = f"[click]({bird.url}/x) <a href='{bird.url}'>y</a> ![z]({bird.url}/pixel.png) {bird.url}"
        for side in ("base", "head"):
            path = job.artifact / side / "run.json"
            run = read_run(path)
            source = msgspec.structs.replace(run.source, subject=link, branch=link)
            counters = [
                msgspec.structs.replace(
                    found, ops=[msgspec.structs.replace(op, line=f"{bird.url}:1") for op in found.ops]
                )
                for found in run.checklist.counters
            ]
            write_document(path, changed(run, source=source, counters=counters, warnings=[quote(link)]))
        planted = job.fake.write(7, f"perfgate: {link}", PERSON)
        assert job.publish().returncode == 1
    assert bird.heard == []
    body = job.comment()
    assert planted.body.startswith("perfgate: ")
    assert body.count(bird.url) >= 3
    page = cmarkgfm.github_flavored_markdown_to_html(body, cmarkgfm.cmark.Options.CMARK_OPT_UNSAFE)
    assert bird.url not in "".join(re.findall(r"<(?:a|img)\b[^>]*>", page))


@pytest.mark.parametrize(
    "url", ["http://api.example.com", "https://user:pass@api.example.com", "ftp://api.example.com"]
)
def test_item_6__api_address_that_is_not_https__wrong_use_before_anything_is_sent(job: Job, url: str) -> None:
    job.environ["GITHUB_API_URL" if job.host == "github" else "CI_API_V4_URL"] = url
    job.measure()
    done = job.publish()
    assert done.returncode == 2
    assert "pass@" not in done.stderr
    assert job.fake.calls == []


def test_item_6__download_redirected__the_storage_never_sees_the_token(job: Job) -> None:
    job.measure()
    job.fake.upload(50, "perfgate-default-1", job.zipped("" if job.host == "github" else "perfgate-out/"))
    done = job.download()
    assert done.returncode == 0, done.stderr
    (request,) = job.fake.blobs.requests
    assert not {"authorization", "private-token", "job-token", "cookie"} & request.headers.keys()
    assert BOT_TOKEN not in str(request)
    # To the forge the token goes in one header, which every client drops when the host changes.
    headers = [call.headers for call in job.fake.calls if not call.path.startswith("/team/model.git")]
    assert {sent.get("authorization") for sent in headers} == {f"Bearer {BOT_TOKEN}"}
    assert not any("private-token" in sent or "job-token" in sent for sent in headers)
    assert not any(BOT_TOKEN in call.path + str(call.query) for call in job.fake.calls)


@pytest.mark.parametrize(
    "location",
    [
        "http://storage.example.com/x",
        "file:///etc/passwd",
        "https://u:p@storage.example.com",
        "",
        "/relative",
        "https://[x",
    ],
)
def test_item_6__download_redirected_to_a_strange_address__is_not_followed(job: Job, location: str) -> None:
    artifact = job.fake.upload(50, "perfgate-default-1", b"")
    path = f"/{artifact.id}/"
    job.fake.faults.append(Fault("GET", path, Reply(302, b"", {"Location": location})))
    done = job.download()
    assert done.returncode == 4
    assert "download" in done.stderr or "not an address" in done.stderr
    (comment,) = job.comments()
    assert "INCONCLUSIVE" in comment


def test_item_6__storage_redirects_again__is_not_followed(job: Job) -> None:
    with canary() as bird:
        job.fake.upload(50, "perfgate-default-1", b"x")
        job.fake.blobs.redirects = f"{bird.url}/second"
        done = job.download()
    assert done.returncode == 4
    assert "redirects once more" in done.stderr
    assert bird.heard == []
    assert "secret" not in done.stderr  # of the signed address


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_item_6__api_redirects__the_token_does_not_go_along(job: Job, method: str) -> None:
    with canary() as bird:
        job.measure()
        job.fake.faults.append(Fault(method, "7", Reply(302, {}, {"Location": f"{bird.url}/steal?x=1"})))
        done = job.publish()
    assert done.returncode == 4
    assert "a redirect to" in done.stderr
    assert bird.heard == []


def test_item_6__api_redirects_to_no_address__is_no_bug(github: Job) -> None:
    github.measure()
    github.fake.faults.append(Fault("GET", "7", Reply(302, {}, {"Location": "https://[x"})))
    done = github.publish()
    assert done.returncode == 4
    assert "is not followed" in done.stderr


def test_item_6__pages_of_another_host__are_not_followed(job: Job) -> None:
    with canary() as bird:
        job.measure()
        page = Reply(200, [], {"Link": f'<{bird.url}/repos?page=2>; rel="next"'})
        job.fake.faults.append(Fault("GET", "comments" if job.host == "github" else "notes", page))
        done = job.publish()
    assert done.returncode == 4
    assert bird.heard == []


def test_item_6__netrc_and_proxy_of_the_runner__change_nothing(github: Job) -> None:
    """The real command: the environment and the home of a runner are what an earlier job may have left."""
    github.measure()
    github.fake.upload(50, "perfgate-default-1", github.zipped())
    home = github.folder / "home"
    home.mkdir()
    (home / ".netrc").write_text("default login mallory password other\n")
    (home / ".netrc").chmod(0o600)
    # What a new repository begins with may be configured too.
    template = home / "template"
    template.mkdir()
    (home / ".gitconfig").write_text(
        '[url "http://127.0.0.1:9/"]\n\tinsteadOf = http://\n[credential]\n\thelper = store\n'
        f"[init]\n\ttemplateDir = {template}\n"
    )
    with canary() as bird:
        (template / "config").write_text(f'[url "{bird.url}/"]\n\tinsteadOf = {github.fake.url}/\n')
        proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"), bird.url)
        # Without a clone the base comes from the forge, by git.
        outside = github.folder / "outside"
        outside.mkdir()
        done = github.command("--download", "--directory", str(outside), HOME=str(home), **proxies)
    assert done.returncode == 0, done.stderr
    assert bird.heard == []
    assert "authorization" not in github.fake.blobs.requests[0].headers
    assert len(github.comments()) == 1
    signed = {call.headers.get("authorization") for call in github.fake.calls if "team/model.git" in call.path}
    assert signed == {"Basic " + base64.b64encode(f"x-access-token:{BOT_TOKEN}".encode()).decode()}


def test_item_6__token_in_what_git_is_called_with__is_not(github: Job, tmp_path: Path) -> None:
    """A process's arguments can be read by everybody on the machine, and what is written to a configuration stays."""
    github.measure()
    outside, bin_folder, log = tmp_path / "outside", tmp_path / "bin", tmp_path / "git.log"
    outside.mkdir()
    bin_folder.mkdir()

    (bin_folder / "git").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" >> "{log}"\n{which("git")} "$@"\ncode=$?\n'
        f"cat config .git/config >> '{log}' 2> '{log}.errors'\nexit $code\n"
    )
    (bin_folder / "git").chmod(0o755)

    done = github.command(
        str(github.artifact), "--directory", str(outside), PATH=f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    )
    assert done.returncode == 0, done.stderr
    said = log.read_text()
    assert "fetch" in said
    assert "[remote" in said
    assert BOT_TOKEN not in said
    assert "Authorization" not in said
    sent = {call.headers.get("authorization", "") for call in github.fake.calls if "team/model.git" in call.path}
    assert all(header.startswith("Basic ") for header in sent)
    assert sent


def test_item_6__forge_that_echoes_the_token__is_not_repeated(job: Job) -> None:
    job.measure()
    job.fake.faults.append(Fault("GET", "7", Reply(400, {"message": f"bad token {BOT_TOKEN} \n::error::x"})))
    done = job.publish()
    assert done.returncode == 4
    assert BOT_TOKEN not in done.stdout + done.stderr
    assert "\n" not in done.stderr


def test_item_6__a_signed_address__is_not_in_the_log(job: Job) -> None:
    job.fake.upload(50, "perfgate-default-1", b"x" * 1000)
    job.fake.blobs.cut = 10
    done = job.download()
    assert done.returncode == 4
    assert "10 of 1000 bytes arrived" in done.stderr or "no answer" in done.stderr
    assert "secret" not in done.stdout + done.stderr
    assert len(job.fake.blobs.requests) == 3
