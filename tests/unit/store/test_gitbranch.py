"""The branch under trouble: other writers, a foreign, newer or damaged one, a server that refuses or is not there."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from shutil import which

import pytest

from perfgate.document.files import canonical_bytes
from perfgate.document.history import Acceptance
from perfgate.errors import EXIT_MEASURING, StoreError, StoreRefusedError
from perfgate.judging.store import layout
from perfgate.judging.store.backends.gitbranch import GitBranchStore
from perfgate.judging.store.index import read_index
from perfgate.judging.store.runs import prune_runs, record_run, record_runs, run_entry, stored_run, stored_runs
from perfgate.judging.store.store import StorePlace
from tests.fakes.remote import clone_of_empty_remote, git
from tests.forking import exit_code, forked
from tests.unit.document.minimal import minimal_run

DATA = "refs/heads/perfgate-data"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return clone_of_empty_remote(tmp_path)


@pytest.fixture
def remote(clone: Path) -> Path:
    return clone.parent / "remote.git"


def opened(clone: Path, *, max_commits: int = 200, **environ: str) -> GitBranchStore:
    return GitBranchStore("branch://perfgate-data", StorePlace(root=clone, environ=environ), max_commits=max_commits)


def record(clone: Path, *sessions: str) -> list[str]:
    return record_runs(
        opened(clone), [minimal_run(session=session) for session in sessions], allow_dirty=False, now=None
    )


def files(remote: Path) -> list[str]:
    return git(remote, "ls-tree", "-r", "--name-only", DATA).splitlines()


def sessions(clone: Path) -> set[str]:
    return {run.session for run in stored_runs(opened(clone), "shop")}


def commits(remote: Path) -> int:
    return int(git(remote, "rev-list", "--count", DATA))


def put(remote: Path, path: str, data: bytes) -> None:
    """Write a file of the branch by hand, as somebody who may push can."""
    parent = git(remote, "rev-parse", DATA)
    stream = f"commit {DATA}\ncommitter x <x@x> 1 +0000\ndata 1\n.\nfrom {parent}\nM 100644 inline {path}\ndata {len(data)}\n"
    subprocess.run(["git", "fast-import", "--quiet", "--force"], cwd=remote, input=stream.encode() + data, check=True)


def content_of(remote: Path, path: str) -> bytes:
    return subprocess.run(["git", "show", f"{DATA}:{path}"], cwd=remote, capture_output=True, check=True).stdout


def hook(remote: Path, name: str, script: str) -> None:
    path = remote / "hooks" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_record__first_run__a_branch_of_its_own_and_nothing_else_moves(clone: Path, remote: Path) -> None:
    before = git(clone, "for-each-ref"), (clone / ".git" / "config").read_text(), (clone / ".git" / "index").stat()
    main = git(remote, "rev-parse", "main")
    (run_id,) = record(clone, "s1")
    assert files(remote) == [
        "README.md",
        f"documents/{run_id}.json.gz",
        "perfgate-store-v1",
        f"runs/shop-8d9001d32c6a/90afadf3c4de0eae-{run_id}.json",
    ]
    assert git(remote, "log", "-1", "--format=%s", DATA) == f"record run {run_id[:12]} of {'a' * 12} [skip ci]"
    assert git(remote, "for-each-ref", "--format=%(refname)").splitlines() == ["refs/heads/main", DATA]
    assert git(remote, "rev-parse", "main") == main
    with pytest.raises(subprocess.CalledProcessError):
        git(remote, "merge-base", "main", DATA)
    after = git(clone, "for-each-ref"), (clone / ".git" / "config").read_text(), (clone / ".git" / "index").stat()
    assert after == before


def test_runs__no_branch_yet__empty_and_still_none(clone: Path, remote: Path) -> None:
    assert stored_runs(opened(clone), "shop") == []
    assert opened(clone).entries("shop", Acceptance) == []
    assert git(remote, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_store__server_without_partial_clones__the_same(tmp_path: Path) -> None:
    clone = clone_of_empty_remote(tmp_path, partial=False)
    (run_id, _) = record(clone, "s1", "s2")
    assert stored_run(opened(clone), "shop", run_id) == minimal_run(session="s1")
    assert sessions(clone) == {"s1", "s2"}
    assert prune_runs(opened(clone), "shop", keep=1) == 1


def test_store__project_in_a_shallow_partial_clone__the_same(clone: Path, tmp_path: Path) -> None:
    record(clone, "s1")
    git(tmp_path, "clone", "-q", "--depth=1", "--filter=blob:none", f"file://{tmp_path}/remote.git", "shallow")
    assert sessions(tmp_path / "shallow") == {"s1"}
    record(tmp_path / "shallow", "s2")
    assert sessions(clone) == {"s1", "s2"}


def test_record__four_processes_start_on_no_branch__every_run_is_kept(clone: Path, remote: Path) -> None:
    gate, release = os.pipe()

    def record_three(name: str) -> None:
        store = opened(clone)
        os.read(gate, 1)
        for number in range(3):
            record_run(store, minimal_run(session=f"{name}-{number}"))

    writers = [forked(partial(record_three, name)) for name in "abcd"]
    os.write(release, b"....")
    assert [exit_code(writer) for writer in writers] == [0, 0, 0, 0]
    for descriptor in (gate, release):
        os.close(descriptor)
    assert sessions(clone) == {f"{name}-{number}" for name in "abcd" for number in range(3)}
    assert commits(remote) == 12
    assert len([path for path in files(remote) if path.startswith("documents/")]) == 12


def test_append__to_two_stores_opened_before__both_are_kept(clone: Path) -> None:
    first, second = opened(clone), opened(clone)
    assert first.entries("shop", Acceptance) == second.entries("shop", Acceptance) == []
    for store, commit in ((first, "a1"), (second, "b2")):
        meant = Acceptance(
            commit=commit, metric="latency.*", reason="meant", accepted_by="Li", accepted_at="2026-03-01"
        )
        store.append("shop", [meant])
    assert {one.commit for one in opened(clone).entries("shop", Acceptance)} == {"a1", "b2"}


def test_record_all__a_session_twice_among_them__refused_and_nothing_is_kept(clone: Path, remote: Path) -> None:
    runs = [minimal_run(session="s1"), minimal_run(session="s2"), minimal_run(session="s1", value=0.003)]
    with pytest.raises(StoreError, match="session 's1' is already stored"):
        record_runs(opened(clone), runs, allow_dirty=False, now=None)
    assert git(remote, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_record__history_has_grown_long__begins_anew_with_all_that_it_holds(clone: Path, remote: Path) -> None:
    store = opened(clone, max_commits=3)
    for number in range(4):
        record_run(store, minimal_run(session=f"s{number}"))
    assert commits(remote) == 1
    assert sessions(clone) == {"s0", "s1", "s2", "s3"}
    record_run(store, minimal_run(session="s4"))
    assert commits(remote) == 2


def test_prune__two_go__the_server_can_forget_them(clone: Path, remote: Path) -> None:
    ids = record(clone, "s1", "s2", "s3")
    assert prune_runs(opened(clone), "shop", keep=1) == 2
    assert commits(remote) == 1
    (kept,) = stored_runs(opened(clone), "shop")
    assert [path for path in files(remote) if path.startswith("documents/")] == [f"documents/{kept.id}.json.gz"]
    git(remote, "reflog", "expire", "--expire=now", "--all")
    git(remote, "gc", "--quiet", "--prune=now")
    gone = next(run_id for run_id in ids if run_id != kept.id)
    with pytest.raises(StoreError, match="holds no run"):
        stored_run(opened(clone), "shop", gone)
    assert stored_run(opened(clone), "shop", kept.id).session.id == kept.session


def test_show__branch_was_read_before_and_rewritten_since__still_shown_or_said_to_be_gone(
    clone: Path, remote: Path
) -> None:
    ids = record(clone, "s1", "s2", "s3")
    store = opened(clone)
    newest = stored_runs(store, "shop")[0].id
    assert stored_run(store, "shop", newest).session.id in {"s1", "s2", "s3"}
    prune_runs(opened(clone), "shop", keep=1)
    git(remote, "reflog", "expire", "--expire=now", "--all")
    git(remote, "gc", "--quiet", "--prune=now")
    assert stored_run(store, "shop", newest).session.id in {"s1", "s2", "s3"}
    with pytest.raises(StoreError, match="holds no run"):
        stored_run(store, "shop", next(run_id for run_id in ids if run_id != newest))


@pytest.mark.parametrize(
    ("harm", "left"),
    [("deleted", 1), ("begun anew", 2)],
)
def test_record__branch_deleted_or_begun_anew_after_it_was_read__thought_out_again(
    clone: Path, remote: Path, harm: str, left: int
) -> None:
    record(clone, "s1", "s2")
    times = 0

    def clock() -> datetime:  # asked between reading and pushing
        nonlocal times
        times += 1
        if times == 1 and harm == "deleted":
            git(remote, "update-ref", "-d", DATA)
        elif times == 1:
            prune_runs(opened(clone), "shop", keep=1)
        return datetime.now(timezone.utc)

    store = GitBranchStore("branch://perfgate-data", StorePlace(root=clone, environ={}), clock=clock)
    record_run(store, minimal_run(session="s3"))
    assert times == 2
    assert len(sessions(clone)) == left
    assert "s3" in sessions(clone)
    assert "README.md" in files(remote)


def test_store__older_protocol_in_the_users_settings__the_same(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COUNT": "1", "KEY_0": "protocol.version", "VALUE_0": "0"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    (run_id,) = record(clone, "s1")
    store = opened(clone)
    assert [run.session for run in stored_runs(store, "shop")] == ["s1"]
    assert stored_run(store, "shop", run_id) == minimal_run(session="s1")


def test_prune__server_lets_nobody_rewrite__an_ordinary_commit_removes_them(clone: Path, remote: Path) -> None:
    git(remote, "config", "receive.denyNonFastForwards", "true")
    record(clone, "s1", "s2", "s3")
    assert prune_runs(opened(clone), "shop", keep=1) == 2
    assert commits(remote) == 2
    assert len(stored_runs(opened(clone), "shop")) == 1


def test_record__server_lets_nobody_rewrite_and_history_is_long__goes_on(clone: Path, remote: Path) -> None:
    git(remote, "config", "receive.denyNonFastForwards", "true")
    store = opened(clone, max_commits=2)
    for number in range(5):
        record_run(store, minimal_run(session=f"s{number}"))
    assert commits(remote) == 5
    assert len(sessions(clone)) == 5


def test_store__branch_of_something_else__refused_and_untouched(clone: Path, remote: Path) -> None:
    git(remote, "branch", "perfgate-data", "main")
    for use in (lambda: stored_runs(opened(clone), "shop"), lambda: record(clone, "s1")):
        with pytest.raises(StoreError, match=r"is not a store of perfgate; give the store another name"):
            use()
    assert git(remote, "rev-parse", "perfgate-data") == git(remote, "rev-parse", "main")


def test_store__layout_of_a_newer_perfgate__refused(clone: Path, remote: Path) -> None:
    record(clone, "s1")
    put(remote, "perfgate-store-v7", b"")
    for use in (lambda: stored_runs(opened(clone), "shop"), lambda: record(clone, "s2")):
        with pytest.raises(StoreError, match=r"newer perfgate \(layout 7, this one knows 1\); upgrade perfgate"):
            use()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"schema": "perfgate/stored-run", ', "is damaged: .*the text ends in the middle"),
        (b'{"schema": "perfgate/stored-run", "run": NaN}', "is damaged: .*NaN is not a finite number"),
        (b'{"started": 1, "started": 2}', "is damaged: .*'started' stands twice"),
        (b"[" * 100_000, "is damaged: .*nested deeper"),
        (b'{"run": {"started_at": "2026-03-01"}, "schema_version": 2}', "is damaged: "),
    ],
)
def test_runs__file_damaged__left_out_and_named_once_with_what_to_do(
    clone: Path, remote: Path, data: bytes, message: str
) -> None:
    damaged, sound = record(clone, "s1", "s2")
    (path,) = [path for path in files(remote) if path.startswith("runs/") and damaged in path]
    put(remote, path, data)
    store = opened(clone)
    assert [run.id for run in stored_runs(store, "shop")] == [sound]
    assert [run.id for run in read_index(store, "shop").runs] == [sound]
    (why,) = store.damaged("shop")
    assert re.search(message, why)
    assert why.count(path) == 1
    assert "restore an earlier commit of the branch" in why
    assert prune_runs(store, "shop", keep=0) == 1
    assert {path, f"documents/{damaged}.json.gz"} <= set(files(remote))


@pytest.mark.parametrize(
    ("sound", "broken", "message"),
    [
        (b'"started_at":"2026-', b'"started_at":"last ', "is damaged: Invalid isoformat string"),
        (
            b'["encoder","short","latency.p50","",',
            b'["encoder","short","latency.p50","[]",',
            "is damaged: Expected `object`",
        ),
    ],
    ids=["start", "labels"],
)
def test_runs__field_damaged__left_out_and_named(
    clone: Path, remote: Path, sound: bytes, broken: bytes, message: str
) -> None:
    record(clone, "s1")
    (path,) = [path for path in files(remote) if path.startswith("runs/")]
    content = content_of(remote, path)
    assert sound in content
    put(remote, path, content.replace(sound, broken))
    assert stored_runs(opened(clone), "shop") == []
    (why,) = opened(clone).damaged("shop")
    assert re.search(message, why)


def test_runs__file_larger_than_any_run__refused_before_it_is_read(clone: Path, remote: Path) -> None:
    record(clone, "s1")
    (path,) = [path for path in files(remote) if path.startswith("runs/")]
    put(remote, path, b" " * (layout.MAX_SMALL_BYTES + 1))
    with pytest.raises(StoreError, match="holds more than perfgate ever writes there"):
        stored_runs(opened(clone), "shop")


def test_runs__file_under_the_name_of_another_run__left_out(clone: Path, remote: Path) -> None:
    (run_id,) = record(clone, "s1")
    (path,) = [path for path in files(remote) if path.startswith("runs/")]
    put(remote, path[:-7] + "00.json", content_of(remote, path))
    assert [run.id for run in stored_runs(opened(clone), "shop")] == [run_id]
    (why,) = opened(clone).damaged("shop")
    assert "is damaged: it holds run" in why


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"not gzip", "cannot be read"),
        (gzip.compress(b"{}"), "differs from the recorded document"),
        (gzip.compress(b" " * (70 * 1024 * 1024), compresslevel=1), "differs from the recorded document"),
    ],
    ids=["no gzip", "another document", "bomb"],
)
def test_show__document_damaged__refused(clone: Path, remote: Path, data: bytes, message: str) -> None:
    (run_id,) = record(clone, "s1")
    put(remote, f"documents/{run_id}.json.gz", data)
    with pytest.raises(StoreError, match=message):
        stored_run(opened(clone), "shop", run_id)


def test_show__document_of_a_newer_perfgate__says_to_upgrade_and_not_to_delete_it(clone: Path, remote: Path) -> None:
    record(clone, "s1")
    run = minimal_run(session="s2")
    newer = canonical_bytes(run, name="x").replace(b'"schema_version":1', b'"schema_version":2')
    run_id = hashlib.sha256(newer).hexdigest()
    entry = run_entry(run, run_id, "2026-03-01T12:00:00+00:00")
    put(remote, layout.entry_path("shop", entry), layout.encode(entry))
    put(remote, f"documents/{run_id}.json.gz", gzip.compress(newer))
    with pytest.raises(StoreError, match=r"written by a newer perfgate; .* upgrade perfgate$"):
        stored_run(opened(clone), "shop", run_id)


def test_record__protected_branch__the_servers_words_and_what_to_do(clone: Path, remote: Path) -> None:
    hook(remote, "pre-receive", "echo 'GH006: Protected branch update failed' >&2; exit 1")
    with pytest.raises(
        StoreRefusedError, match=r"GH006: Protected branch.*let the job's account push to it"
    ) as refused:
        record(clone, "s1")
    assert refused.value.exit_code == EXIT_MEASURING
    assert stored_runs(opened(clone), "shop") == []


def test_store__server_is_gone__said_and_nothing_left(clone: Path, remote: Path, tmp_path: Path) -> None:
    remote.rename(tmp_path / "moved.git")
    for use in (lambda: stored_runs(opened(clone), "shop"), lambda: record(clone, "s1")):
        with pytest.raises(StoreRefusedError, match=r"cannot be read: .*there is no such repository, or this account"):
            use()


def test_store__nobody_listens__offline(clone: Path) -> None:
    with pytest.raises(StoreRefusedError, match="is the server reachable from here"):
        stored_runs(opened(clone, PERFGATE_STORE_REMOTE="http://127.0.0.1:9/team/model.git"), "shop")


def test_store__folder_without_clone__says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"it lies in no git clone that can be read .*or set PERFGATE_STORE_REMOTE"):
        stored_runs(opened(tmp_path), "shop")


def test_store__clone_without_remote__says_what_to_set(clone: Path) -> None:
    git(clone, "remote", "remove", "origin")
    with pytest.raises(StoreError, match=r"it has no remote 'origin'; add one \(git remote add origin URL\)"):
        stored_runs(opened(clone), "shop")


def test_store__git_too_old__says_which_is_needed(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "bin" / "git"
    old.parent.mkdir()
    # It knows nothing of GIT_CONFIG_COUNT.
    old.write_text(
        '#!/bin/sh\ncase "$*" in *version) echo git version 2.25.1;; '
        f'*) unset GIT_CONFIG_COUNT; exec {which("git")} "$@";; esac\n'
    )
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
    with pytest.raises(
        StoreError, match=r"needs git 2\.31 or newer, found 'git version 2\.25\.1'; install a newer git"
    ):
        stored_runs(opened(clone), "shop")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_record__scratch_disk_full__says_so_and_the_branch_stays(
    clone: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(clone, "s1")
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    (small_disk / "ballast").write_bytes(os.urandom(150_000))
    with pytest.raises(StoreError, match="free space in the folder for temporary files, or set TMPDIR"):
        record(clone, "s2")
    monkeypatch.undo()
    assert sessions(clone) == {"s1"}
    assert sorted(path.name for path in small_disk.iterdir()) == ["ballast"]


def test_runs__no_folder_for_temporary_files__says_what_to_set(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    with pytest.raises(StoreError, match=r"no scratch folder can be made .* or set TMPDIR to one with space"):
        stored_runs(opened(clone), "shop")


def test_store__hooks_and_templates_of_the_machine__run_in_the_server_alone(
    clone: Path, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "template" / "hooks"
    hooks.mkdir(parents=True)
    for name in ("pre-push", "reference-transaction", "post-commit"):
        (hooks / name).write_text(f"#!/bin/sh\npwd >> '{tmp_path}/ran'\n")
        (hooks / name).chmod(0o755)
    (tmp_path / "gitconfig").write_text(f"[core]\n\thooksPath = {hooks}\n[init]\n\ttemplateDir = {hooks.parent}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(hooks.parent))
    record(clone, "s1")
    # That of the repository which stands for the server, on this machine: what it runs is its own matter.
    assert set((tmp_path / "ran").read_text().splitlines()) == {str(remote)}
