"""The proxy that judges the other tests: what is legal passes through it, what is not is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from tests.ci.prism import prism_proxy
from tests.fakes.forge import BOT, BOT_TOKEN, Dialect, FakeForge, StoredChange
from tests.fakes.forge_dialects import GitHubDialect, GitLabDialect

SIGNED = {"Authorization": f"Bearer {BOT_TOKEN}"}


@pytest.mark.parametrize(
    ("dialect", "path"),
    [
        (GitHubDialect(), "/repos/team/model/issues/7/comments"),
        (GitLabDialect(), "/projects/5/merge_requests/7/notes"),
    ],
    ids=["github", "gitlab"],
)
def test_prism__comments__legal_ones_pass_and_illegal_ones_are_noticed(
    dialect: Dialect, path: str, tmp_path: Path
) -> None:
    with FakeForge(dialect) as forge, prism_proxy(forge, tmp_path) as prism:
        forge.changes.append(StoredChange(7, "team", "feature", "a" * 40))
        for number in range(101):
            forge.write(7, f"comment {number}", BOT)
        first = requests.get(f"{prism.api_url}{path}?per_page=100", headers=SIGNED, timeout=30)
        second = requests.get(first.links["next"]["url"], headers=SIGNED, timeout=30)
        written = requests.post(prism.api_url + path, json={"body": "ours"}, headers=SIGNED, timeout=30)
        assert (len(first.json()), len(second.json()), written.status_code) == (100, 1, 201)
        assert prism.requests() == 3
        assert prism.violations() == []
        assert forge.violations == []

        refused = requests.post(prism.api_url + path, json={"text": "no body"}, headers=SIGNED, timeout=30)
        assert refused.status_code in (400, 422)
        assert len(prism.violations()) == 1
        assert len(forge.comments[7]) == 102


def test_prism__collaborator_that_github_does_not_know__passes_as_documented(tmp_path: Path) -> None:
    with FakeForge(GitHubDialect()) as forge, prism_proxy(forge, tmp_path) as prism:
        path = "/repos/team/model/collaborators/mallory/permission"
        assert requests.get(prism.api_url + path, headers=SIGNED, timeout=30).status_code == 404
        assert prism.violations() == []


def test_prism__download_of_an_artifact__sends_on_and_follows_nothing_itself(tmp_path: Path) -> None:
    with FakeForge(GitHubDialect()) as forge, prism_proxy(forge, tmp_path) as prism:
        kept = forge.upload(50, "perfgate-default-1", b"a zip")
        url = f"{prism.api_url}/repos/team/model/actions/artifacts/{kept.id}/zip"
        answer = requests.get(url, headers=SIGNED, timeout=30, allow_redirects=False)
        assert answer.status_code == 302
        assert answer.headers["Location"].startswith(forge.blobs.url)
        assert forge.blobs.requests == []
        assert prism.violations() == []
