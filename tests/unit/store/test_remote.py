"""Which repository a branch store lies in, and where its token goes: over a real git server, which asks for a password."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from perfgate.errors import StoreError, StoreRefusedError
from perfgate.judging.store.backends.gitbranch import GitBranchStore
from perfgate.judging.store.remote import find_link, parse_location
from perfgate.judging.store.runs import record_run, stored_run, stored_runs
from perfgate.judging.store.store import GitAccess, StorePlace
from tests.fakes.git_server import GitServer, serve_git
from tests.fakes.remote import clone_of_empty_remote, git
from tests.unit.document.minimal import minimal_run

TOKEN = "ghs_0123456789abcdefSECRET"
ROBOT = ("x-access-token", TOKEN)
BASIC = "Basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    clone_of_empty_remote(tmp_path)
    (tmp_path / "team").mkdir()
    (tmp_path / "remote.git").rename(tmp_path / "team" / "model.git")
    with serve_git(GitServer(tmp_path, reads={ROBOT}, writes={ROBOT})) as serving:
        git(tmp_path / "clone", "remote", "set-url", "origin", f"{serving.url}/team/model.git")
        yield serving


def access(server: GitServer, *, token: str = TOKEN) -> GitAccess:
    return GitAccess(server.url, f"{server.url}/team/model.git", "x-access-token", token)


def opened(server: GitServer, place: str = "clone", *, token: str = TOKEN, **environ: str) -> GitBranchStore:
    where = StorePlace(root=server.root / place, environ=environ, access=access(server, token=token))
    return GitBranchStore("branch://perfgate-data", where)


def test_record__token_of_the_job__kept_and_sent_to_this_server(server: GitServer) -> None:
    run_id = record_run(opened(server), minimal_run())
    assert stored_run(opened(server), "shop", run_id) == minimal_run()
    assert server.signed == {BASIC}


def test_record__no_clone__the_repository_the_job_runs_for(server: GitServer) -> None:
    record_run(opened(server, place=""), minimal_run())
    assert [run.session for run in stored_runs(opened(server), "shop")] == ["s1"]


def test_record__token__in_no_argument_and_no_file_of_git(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "bin" / "git"
    shim.parent.mkdir()
    shim.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" >> "{tmp_path}/log"\n{which("git")} "$@"\ncode=$?\n'
        f"cat config FETCH_HEAD >> '{tmp_path}/log' 2>/dev/null\nexit $code\n"
    )
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
    record_run(opened(server), minimal_run())
    log = (tmp_path / "log").read_text()
    assert "push --porcelain" in log
    assert "[core]" in log
    assert TOKEN not in log
    assert BASIC.split()[1] not in log


def test_record__redirect_to_another_server__not_followed(server: GitServer) -> None:
    with serve_git(GitServer(server.root)) as thief:
        server.elsewhere = thief.url
        with pytest.raises(StoreRefusedError, match=r"the repository has moved, and a redirect is not followed"):
            record_run(opened(server), minimal_run())
        assert thief.seen == []


def test_record__store_on_another_server__gets_no_token_and_the_error_says_so(server: GitServer) -> None:
    with serve_git(GitServer(server.root, reads=set(), writes=set())) as other:
        store = opened(server, PERFGATE_STORE_REMOTE=f"{other.url}/team/model.git")
        with pytest.raises(StoreRefusedError, match=f"the job's token is sent to {server.url} only"):
            record_run(store, minimal_run())
        assert other.seen != []
        assert other.signed == {None}


def test_record__netrc_helper_and_rewritten_address_left_on_the_machine__have_no_say(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text("machine 127.0.0.1 login mallory password planted\n")
    (home / ".netrc").chmod(0o600)
    with serve_git(GitServer(server.root)) as thief:
        (home / ".gitconfig").write_text(
            f'[url "{thief.url}/"]\n\tinsteadOf = {server.url}/\n\tpushInsteadOf = {server.url}/\n'
            f'[credential]\n\thelper = "!touch {tmp_path}/asked"\n[core]\n\taskPass = touch {tmp_path}/asked\n'
        )
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
        record_run(opened(server, place="clone"), minimal_run(session="s1"))
        record_run(opened(server, place=""), minimal_run(session="s2"))
        assert thief.seen == []
    assert server.signed == {BASIC}
    assert not (tmp_path / "asked").exists()


def test_runs__job_without_token_on_a_private_repository__refused_without_asking_anybody(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gitconfig").write_text(f'[credential]\n\thelper = "!touch {tmp_path}/asked"\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("SSH_ASKPASS", f"touch {tmp_path}/asked")
    with pytest.raises(StoreRefusedError, match="reading needs read access to the code"):
        stored_runs(opened(server, token=""), "shop")
    assert not (tmp_path / "asked").exists()


def test_record__wrong_token__refused_without_showing_it(server: GitServer) -> None:
    with pytest.raises(StoreRefusedError, match="the job's token or your key may not do this") as refused:
        record_run(opened(server, token="ghs_wrong"), minimal_run())
    assert "ghs_wrong" not in str(refused.value)
    assert base64.b64encode(b"x-access-token:ghs_wrong").decode() not in str(refused.value)


def test_record__token_that_may_only_read__refused_with_the_permission_to_give(server: GitServer) -> None:
    server.writes = set()
    with pytest.raises(StoreRefusedError, match=r"contents: write") as refused:
        record_run(opened(server), minimal_run())
    assert TOKEN not in str(refused.value)
    assert stored_runs(opened(server), "shop") == []


def test_record__answer_to_the_push_lost__kept_once(server: GitServer) -> None:
    server.drop_answers = 1
    record_run(opened(server), minimal_run())
    assert server.drop_answers == 0
    assert len(stored_runs(opened(server), "shop")) == 1
    assert git(server.root / "team" / "model.git", "rev-list", "--count", "perfgate-data") == "1"


def test_find_link__address_with_a_password__replaced_by_the_token_and_never_shown(server: GitServer) -> None:
    url = server.url.replace("//", "//gitlab-ci-token:hidden@")
    git(server.root / "clone", "remote", "set-url", "origin", f"{url}/team/model.git")
    link = find_link("x", None, StorePlace(server.root / "clone", {}, access(server)))
    assert link.url == f"{server.url}/team/model.git"
    without = find_link("x", None, StorePlace(server.root / "clone", {}))
    assert without.url == f"{url}/team/model.git"
    assert "hidden" not in f"{without!r} {without.name} {link!r}"
    assert TOKEN not in repr(link)
    assert TOKEN not in repr(access(server))


@pytest.mark.parametrize("origin", ["git@forge.example:team/model.git", "ssh://git@forge.example:2222/team/model.git"])
def test_find_link__clone_over_ssh_in_a_job_with_a_token__the_jobs_own_address(tmp_path: Path, origin: str) -> None:
    clone = clone_of_empty_remote(tmp_path)
    git(clone, "remote", "set-url", "origin", origin)
    job = GitAccess("https://forge.example", "https://forge.example/team/model.git", "oauth2", "t")
    assert find_link("x", None, StorePlace(clone, {}, job)).url == "https://forge.example/team/model.git"
    assert find_link("x", None, StorePlace(clone, {})).url == origin
    elsewhere = GitAccess("https://other.example", "https://other.example/team/model.git", "oauth2", "t")
    assert find_link("x", None, StorePlace(clone, {}, elsewhere)).url == origin


def test_find_link__server_in_the_clear__no_token_is_sent(tmp_path: Path) -> None:
    job = GitAccess("http://forge.example", "http://forge.example/team/model.git", "oauth2", "t")
    with pytest.raises(StoreError, match=r"http://forge\.example is not https; a token is not sent in the clear"):
        find_link("x", None, StorePlace(tmp_path, {}, job))


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "snow☃"])
def test_find_link__secret_that_is_no_token__refused_without_showing_it(tmp_path: Path, token: str) -> None:
    job = GitAccess("https://forge.example", "https://forge.example/team/model.git", "oauth2", token)
    with pytest.raises(StoreError, match="the token has characters no token has") as refused:
        find_link("x", None, StorePlace(tmp_path, {}, job))
    assert token not in str(refused.value)


def test_find_link__another_remote_of_the_clone__taken(tmp_path: Path) -> None:
    clone = clone_of_empty_remote(tmp_path)
    git(clone, "remote", "add", "upstream", "../other.git")
    assert find_link(*parse_location("branch://x?remote=upstream"), StorePlace(clone, {})).url == str(
        tmp_path / "other.git"
    )


@pytest.mark.parametrize(
    "location",
    [
        "branch://",
        "branch://a b",
        "branch://-x",
        "branch://../main",
        "branch://a..b",
        "branch://x.lock",
        "branch://x/",
        "branch://x\n",
        "branch://x?remote=https://evil.example/x.git",
        "branch://x?remote=--upload-pack=touch",
        "branch://x?remote=ext::sh",
        "branch://x?depth=1",
    ],
)
def test_parse_location__no_branch_or_no_name_of_a_remote__refused(location: str) -> None:
    with pytest.raises(StoreError, match=r"names no branch; write branch://NAME|only \?remote=NAME may follow"):
        parse_location(location)


@pytest.mark.parametrize("url", ["ext::sh -c 'touch pwned'", "-oProxyCommand=x", "a\nb"])
def test_find_link__address_that_git_would_run__refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(StoreError, match=r"PERFGATE_STORE_REMOTE is .*, not the address of a repository"):
        find_link("x", None, StorePlace(tmp_path, {"PERFGATE_STORE_REMOTE": url}))
