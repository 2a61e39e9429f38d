"""`perfgate store` over real stores of all three kinds."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from click.testing import Result

from perfgate.cli.commands.store import COMMAND
from perfgate.document.files import parse_run
from perfgate.document.history import Acceptance, Confirmation, GateRecord, Triage
from perfgate.errors import PerfgateError, StoreError, StoreRefusedError, UsageError
from perfgate.judging.store import layout
from perfgate.judging.store.backends.gitbranch import GitBranchStore
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.runs import record_run, record_runs, run_entry, stored_runs
from perfgate.judging.store.store import Store, StorePlace, open_location
from perfgate.judging.store.transfer import copy_store
from perfgate.judging.store.verify import verify_store
from tests.command import run_perfgate
from tests.fakes.postgres import PostgresServer
from tests.fakes.remote import clone_of_empty_remote
from tests.fakes.runner import separating_runner
from tests.fakes.service import listening, serve_folder
from tests.unit.document.minimal import minimal_run
from tests.unit.store.test_gitbranch import files, put

ACCEPTED = Acceptance(
    commit="c" * 40, metric="latency.*", reason="meant", accepted_by="Li", accepted_at="2026-03-01T12:00:00+00:00"
)
TRIAGED = Triage(
    commit="b" * 40, state="acknowledged", reason="in #12", author="Li", changed_at="2026-03-01T12:00:00+00:00"
)
CONFIRMED = Confirmation(
    before="a" * 40, after="b" * 40, workload="encoder", shape="short", metric="latency.low", outcome="regressed",
    fingerprint="f1", confirmed_at="2026-03-01T12:00:00+00:00",
)  # fmt: skip

JUDGED = GateRecord(
    gate="default", commit="a" * 40, testbed="910b", change=7, verdict="FAIL", judged_at="2026-03-01T12:00:00+00:00"
)
# What `old` holds, as a copy or an export of it prints.
ALL = "runs: 4; acceptances: 1; triages: 1; confirmations: 1; verdicts: 1\n"
NONE = "runs: 0; acceptances: 0; triages: 0; confirmations: 0; verdicts: 0\n"


def store_command(*arguments: str, folder: Path, **environ: str) -> Result:
    return separating_runner().invoke(COMMAND, [*arguments, "-C", str(folder)], env=environ)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store with three runs of one project, one of them dirty, what was said of it, and a run of another project."""
    store = SqlStore(tmp_path / "old.db")
    for number in range(3):
        record_run(store, minimal_run(session=f"s{number}", dirty=number == 2), allow_dirty=True)
    record_run(store, minimal_run(project="Other project"))
    store.append("shop", [ACCEPTED])
    store.append("shop", [TRIAGED])
    store.append("shop", [CONFIRMED])
    store.append("shop", [JUDGED])
    return tmp_path / "old.db"


def tamper(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture(params=["sqlite", "postgres", "gitbranch"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A folder to run commands in, and the location of an empty store."""
    clone = clone_of_empty_remote(tmp_path) if request.param == "gitbranch" else tmp_path
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return clone, server.address(server.create_database())
    return clone, {"sqlite": str(tmp_path / "new.db"), "gitbranch": "branch://perfgate-data"}[request.param]


def contents(store: Store) -> object:
    return [
        (
            stored_runs(store, name),
            [document.data for document in store.documents(name, [run.id for run in stored_runs(store, name)])],
            store.entries(name, Acceptance),
            store.entries(name, Triage),
            store.entries(name, Confirmation),
            store.entries(name, GateRecord),
        )
        for name in store.projects()
    ]


def test_store_copy__to_each_kind_of_store_and_back__all_of_it_once(old: Path, target: tuple[Path, str]) -> None:
    folder, location = target
    there = store_command("copy", str(old), location, folder=folder)
    assert (there.stdout.startswith(ALL), there.exit_code) == (True, 0), there.exception
    again = store_command("copy", str(old), location, folder=folder)
    assert again.stdout == f"{NONE}tokens: 0; audit entries: 0\n"
    back = store_command("copy", location, str(old.with_name("back.db")), folder=folder)
    assert back.stdout.startswith(ALL), back.exception
    assert contents(SqlStore(old.with_name("back.db"))) == contents(SqlStore(old))
    assert contents(open_location(location, StorePlace(folder, {}))) == contents(SqlStore(old))
    checked = store_command("verify", location, folder=folder)
    assert (checked.stdout, checked.exit_code) == ("runs read: 4; faults: 0\n", 0)


def history(store: SqlStore) -> list[tuple[str, str, str, str, str]]:
    return [(entry.at, entry.actor, entry.action, entry.project, entry.subject) for entry in store.ledger().history()]


def opened(location: str) -> SqlStore:
    store = open_location(location, StorePlace(Path(), {}))
    assert isinstance(store, SqlStore)
    return store


@pytest.fixture
def secrets(old: Path) -> dict[str, str]:
    """The secrets of four tokens of ``old``: of each project, of all, and a revoked one."""
    ledger = SqlStore(old).ledger()
    new = {
        "runner": ledger.create_token("runner", "shop", "write"),
        "other": ledger.create_token("other", "Other project", "read"),
        "wall": ledger.create_token("wall", None, "read"),
        "lost": ledger.create_token("lost", "shop", "write"),
    }
    ledger.revoke(new["lost"].token.id)
    return {name: token.secret for name, token in new.items()}


def valid(store: SqlStore, secrets: dict[str, str]) -> set[str]:
    return {name for name, secret in secrets.items() if store.ledger().find(secret)}


@pytest.mark.parametrize("target", ["sqlite", "postgres"], indirect=True)
def test_store_copy__database_to_database_and_back__tokens_work_and_the_history_is_there(
    old: Path, secrets: dict[str, str], target: tuple[Path, str]
) -> None:
    before = history(SqlStore(old))
    folder, location = target
    there = store_command("copy", str(old), location, folder=folder)
    assert there.stdout == f"{ALL}tokens: 4; audit entries: {len(before)}\n", there.exception
    assert "not copied" not in there.stderr
    assert store_command("copy", location, str(old.with_name("back.db")), folder=folder).exit_code == 0
    for store in (opened(location), SqlStore(old.with_name("back.db"))):
        assert store.ledger().stored_tokens() == SqlStore(old).ledger().stored_tokens()
        assert valid(store, secrets) == {"runner", "other", "wall"}
        # The oldest entries, with their times and writers; behind them the copy says what it brought.
        assert history(store)[: len(before)] == before
        copied = [entry for entry in history(store)[len(before) :] if entry[1] == "store copy"]
        assert {entry[2] for entry in copied} >= {"runs copied", "token copied", "regression accepted"}
        assert [entry[3:] for entry in copied if entry[2] == "runs copied"][:2] == [
            ("Other project", "1"),
            ("shop", "3"),
        ]


def test_store_copy__database_to_branch__says_how_many_tokens_and_entries_it_left(
    old: Path, secrets: dict[str, str], tmp_path: Path
) -> None:
    clone = clone_of_empty_remote(tmp_path)
    done = store_command("copy", str(old), "branch://perfgate-data", folder=clone)
    assert (done.stdout, done.exit_code) == (f"{ALL}tokens: 0; audit entries: 0\n", 0), done.exception
    entries = len(history(SqlStore(old)))
    assert done.stderr.splitlines()[-1] == (
        "branch://perfgate-data keeps no tokens and no audit log; not copied: "
        f"tokens: {len(secrets)}; audit entries: {entries}"
    )
    as_json = json.loads(store_command("copy", str(old), "branch://perfgate-data", "--json", folder=clone).stdout)
    assert as_json["not_copied"] == {"tokens": 4, "audit_entries": entries, "tokens_of_all_projects": 0}


def test_store_copy__token_revoked_in_one_of_two_stores__revoked_in_both_after_a_copy_each_way(
    old: Path, secrets: dict[str, str], tmp_path: Path
) -> None:
    new = tmp_path / "new.db"
    assert store_command("copy", str(old), str(new), folder=tmp_path).exit_code == 0
    ids = {token.name: token.id for token in SqlStore(old).ledger().tokens()}
    SqlStore(old).ledger().revoke(ids["runner"])
    SqlStore(new).ledger().revoke(ids["wall"])
    assert "tokens: 1;" in store_command("copy", str(old), str(new), folder=tmp_path).stdout
    assert valid(SqlStore(new), secrets) == {"other"}
    assert valid(SqlStore(old), secrets) == {"other", "wall"}
    assert store_command("copy", str(new), str(old), folder=tmp_path).exit_code == 0
    assert valid(SqlStore(old), secrets) == {"other"}


def test_store_copy__id_of_a_token_taken_by_another__both_work(
    old: Path, secrets: dict[str, str], tmp_path: Path
) -> None:
    new = SqlStore(tmp_path / "new.db")
    own = new.ledger().create_token("own", None, "read")
    tamper(tmp_path / "new.db", f"UPDATE tokens SET id = (SELECT '{SqlStore(old).ledger().tokens()[-1].id}')")
    assert "tokens: 4;" in store_command("copy", str(old), str(tmp_path / "new.db"), folder=tmp_path).stdout
    assert valid(new, {**secrets, "own": own.secret}) == {"runner", "other", "wall", "own"}
    assert len({token.id for token in new.ledger().tokens()}) == 5


def test_store_copy__one_project__its_tokens_and_history_and_the_number_of_tokens_for_all(
    old: Path, secrets: dict[str, str], tmp_path: Path
) -> None:
    new = tmp_path / "new.db"
    done = store_command("copy", str(old), str(new), "--project", "Other project", folder=tmp_path)
    assert done.stdout.endswith("\ntokens: 1; audit entries: 2\n")
    assert done.stderr.endswith("not copied, as --project names some projects: tokens for all projects: 1\n")
    assert valid(SqlStore(new), secrets) == {"other"}
    assert {entry[3] for entry in history(SqlStore(new))} == {"Other project"}


def test_store_copy__from_a_service__runs_and_a_line_about_tokens_and_history(old: Path, tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    shutil.copy(old, tmp_path / "served" / "store.db")
    with listening() as address:
        service = serve_folder(address, tmp_path / "served")
        token = service.token("shop", "read")
        new = str(tmp_path / "new.db")
        done = store_command("copy", service.url, new, folder=tmp_path, PERFGATE_STORE_TOKEN=token)
    assert done.stdout.splitlines()[0].startswith("runs: 3; acceptances: 1;"), done.exception
    assert "gives out neither its tokens nor its audit log, so neither was copied" in done.stderr
    assert SqlStore(tmp_path / "new.db").ledger().stored_tokens() == []


def test_store_copy__store_before_its_first_run__tokens_and_verdicts_are_copied(tmp_path: Path) -> None:
    store = SqlStore(tmp_path / "first.db")
    secret = store.ledger().create_token("wall", None, "read").secret
    assert store_command("copy", str(tmp_path / "first.db"), str(tmp_path / "1.db"), folder=tmp_path).exit_code == 0
    assert SqlStore(tmp_path / "1.db").ledger().find(secret)
    store.append("advised", [JUDGED])
    assert store_command("copy", str(tmp_path / "first.db"), str(tmp_path / "2.db"), folder=tmp_path).exit_code == 0
    assert SqlStore(tmp_path / "2.db").entries("advised", GateRecord) == [JUDGED]


def test_store_copy__one_project__nothing_of_the_others(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    done = store_command("copy", str(old), str(new), "--project", "Other project", "--json", folder=tmp_path)
    told = json.loads(done.stdout)
    assert (told["runs"], told["acceptances"], told["confirmations"], told["damaged"]) == (1, 0, 0, [])
    assert SqlStore(new).projects() == ["Other project"]


def test_store_copy__newer_acceptance_in_one_of_them__the_newer_counts(old: Path, tmp_path: Path) -> None:
    new = SqlStore(tmp_path / "new.db")
    newer = msgspec.structs.replace(ACCEPTED, reason="meant, and reviewed", accepted_at="2026-04-01T12:00:00+00:00")
    new.append("shop", [newer])
    for source, target in ((old, tmp_path / "new.db"), (tmp_path / "new.db", old)):
        assert store_command("copy", str(source), str(target), folder=tmp_path).exit_code == 0
    assert SqlStore(old).entries("shop", Acceptance) == new.entries("shop", Acceptance) == [newer]


def test_copy_store__interrupted_after_fifty_runs__the_next_one_copies_the_rest(tmp_path: Path) -> None:
    source, target = SqlStore(tmp_path / "source.db"), SqlStore(tmp_path / "target.db")
    record_runs(source, [minimal_run(session=f"s{number}") for number in range(70)], allow_dirty=False, now=None)

    def interrupt(_project: str, done: int, _runs: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_store(source, target, ["shop"], interrupt, is_whole=True)
    assert len(stored_runs(target, "shop")) == 50
    steps: list[tuple[int, int]] = []
    done = copy_store(source, target, ["shop"], lambda _project, done, runs: steps.append((done, runs)), is_whole=True)
    assert (done.runs, steps) == (20, [(0, 20)])
    assert stored_runs(target, "shop") == stored_runs(source, "shop")


def test_store_copy__documents_of_an_older_perfgate__keep_their_ids(old: Path, tmp_path: Path) -> None:
    """A later perfgate would write the same run in other bytes, e.g. with a new field; the recorded bytes are copied."""
    store = SqlStore(old)
    (run,) = stored_runs(store, "Other project")
    (document,) = store.documents("Other project", [run.id])
    shorter = json.dumps({name: value for name, value in json.loads(document.data).items() if name != "jobs"}).encode()
    older = run_entry(parse_run(shorter, name="a run"), hashlib.sha256(shorter).hexdigest(), run.recorded_at)
    SqlStore(tmp_path / "older.db").append("Other project", [older], {older.run.id: shorter})
    for runs in ("1", "0"):
        copied = store_command("copy", str(tmp_path / "older.db"), str(tmp_path / "new.db"), folder=tmp_path)
        assert copied.stdout.startswith(f"runs: {runs};")
    assert [run.id for run in stored_runs(SqlStore(tmp_path / "new.db"), "Other project")] == [older.run.id]


OF_RUN = "run = '{id}'"
DAMAGE = {
    "document": (
        f"UPDATE run_documents SET document = x'00' WHERE {OF_RUN}",
        "differs from the recorded document; the store is damaged: restore a copy",
    ),
    "no zlib": (f"UPDATE run_documents SET document = x'ffff' WHERE {OF_RUN}", "cannot be read (Error -3"),
    "no document": (f"DELETE FROM run_documents WHERE {OF_RUN}", "differs from the recorded document"),
    "fields": (
        f"UPDATE log SET entry = json_set(entry, '$.run.subject', 'x', '$.run.dirty', json('true')) WHERE {OF_RUN}",
        "subject, dirty differ from its document",
    ),
    "start": (
        f"UPDATE log SET started = 1.0, entry = json_set(entry, '$.started', 1.0) WHERE {OF_RUN}",
        "started differ from its document",
    ),
    "order": (f"UPDATE log SET started = 1.0 WHERE {OF_RUN}", "is not listed in the order of its start"),
    "value": (
        f"UPDATE log SET entry = json_set(entry, '$.values[0][4]', 0.1) WHERE {OF_RUN}",
        "2 of its values differ from its document",
    ),
    "value gone": (
        f"UPDATE log SET entry = json_remove(entry, '$.values[0]') WHERE {OF_RUN}",
        "1 of its values differ from its document",
    ),
    "condition": (
        f"UPDATE log SET entry = json_set(entry, '$.conditions', json('[]')) WHERE {OF_RUN}",
        "1 of its conditions differ from its document",
    ),
}


def test_store_verify__entry_that_is_no_json__exit_1_and_it_is_named(old: Path) -> None:
    run = stored_runs(SqlStore(old), "shop")[1]
    tamper(old, f"UPDATE log SET entry = '[' WHERE {OF_RUN}".format(id=run.id))
    done = store_command("verify", str(old), folder=old.parent)
    first, last = done.stdout.splitlines()
    assert (done.exit_code, last) == (1, "runs read: 1; faults: 1")
    assert f"run {run.id[:12]} has an entry that cannot be read" in first


@pytest.mark.parametrize(("statement", "message"), DAMAGE.values(), ids=DAMAGE)
def test_store_verify__something_of_a_run_altered__exit_1_and_it_is_named(
    old: Path, statement: str, message: str
) -> None:
    run = stored_runs(SqlStore(old), "shop")[1]
    tamper(old, statement.format(id=run.id))
    done = store_command("verify", str(old), folder=old.parent)
    first, last = done.stdout.splitlines()
    assert (done.exit_code, last) == (1, "runs read: 4; faults: 1")
    assert first.startswith("damaged: ")
    assert f"run {run.id[:12]}" in first
    assert message in first
    (fault,) = json.loads(store_command("verify", str(old), "--json", folder=old.parent).stdout)["faults"]
    assert message in fault


def test_store_verify__files_of_a_branch_damaged_or_gone__each_is_named(tmp_path: Path) -> None:
    clone, remote = clone_of_empty_remote(tmp_path), tmp_path / "remote.git"
    store = GitBranchStore("branch://perfgate-data", StorePlace(clone, {}))
    ids = record_runs(store, [minimal_run(session=f"s{number}") for number in range(4)], allow_dirty=False, now=None)
    (entry,) = [path for path in files(remote) if path.startswith("runs/") and ids[0] in path]
    put(remote, entry, b"{")
    put(remote, f"documents/{ids[1]}.json.gz", b"no gzip")
    put(remote, f"acceptances/{layout.project_key('shop')}/{'0' * 16}-20260301.json", b"[1]")
    done = store_command("verify", "branch://perfgate-data", folder=clone)
    *faults, last = done.stdout.splitlines()
    assert (done.exit_code, last) == (1, "runs read: 3; faults: 3")
    for part, fault in zip((f"{entry} is damaged", f"{ids[1]}.json.gz cannot be read", "acceptances/shop-"), faults):
        assert part in fault
    copied = store_command("copy", "branch://perfgate-data", str(tmp_path / "new.db"), folder=clone)
    assert isinstance(copied.exception, StoreError)  # a statement that cannot be read is not left out
    assert {run.id for run in stored_runs(SqlStore(tmp_path / "new.db"), "shop")} == set(ids[2:])


def test_store__project_of_a_branch_without_a_run_that_can_be_read__named_and_exit_1(tmp_path: Path) -> None:
    clone, remote = clone_of_empty_remote(tmp_path), tmp_path / "remote.git"
    store = GitBranchStore("branch://perfgate-data", StorePlace(clone, {}))
    record_run(store, minimal_run())
    (run_id,) = record_runs(store, [minimal_run(project="lost")], allow_dirty=False, now=None)
    (entry,) = [path for path in files(remote) if path.startswith("runs/lost-") and run_id in path]
    put(remote, entry, b"{")
    verified = store_command("verify", "branch://perfgate-data", folder=clone)
    assert (verified.exit_code, verified.stdout.splitlines()[-1]) == (1, "runs read: 1; faults: 1")
    assert f"the project in the folders {layout.project_key('lost')} has no run that can be read" in verified.stdout
    for command, target in (("copy", str(tmp_path / "new.db")), ("export", f"--out={tmp_path / 'new.tar'}")):
        done = store_command(command, "branch://perfgate-data", target, folder=clone)
        assert (done.exit_code, done.stdout.splitlines()[0]) == (1, NONE.replace("runs: 0", "runs: 1").strip())
        assert "left out: the branch perfgate-data" in done.stderr
    named = store_command("verify", "branch://perfgate-data", "--project", "lost", folder=clone)
    assert (named.exit_code, f"{entry} is damaged" in named.stdout) == (1, True)


def test_store__project_of_a_branch_with_statements_alone__left_out_unless_it_is_named(tmp_path: Path) -> None:
    clone = clone_of_empty_remote(tmp_path)
    store = GitBranchStore("branch://perfgate-data", StorePlace(clone, {}))
    record_run(store, minimal_run())
    store.append("quiet", [ACCEPTED])
    copy = ("copy", "branch://perfgate-data", str(tmp_path / "new.db"))
    done = store_command(*copy, folder=clone)
    assert done.exit_code == 1
    assert f"{layout.project_key('quiet')} has no run that names it; give its name by --project" in done.stderr
    named = store_command(*copy, "--project", "quiet", folder=clone)
    assert (named.exit_code, named.stdout.splitlines()[0]) == (
        0,
        NONE.replace("acceptances: 0", "acceptances: 1").strip(),
    )
    assert SqlStore(tmp_path / "new.db").entries("quiet", Acceptance) == [ACCEPTED]
    assert store_command("verify", "branch://perfgate-data", folder=clone).exit_code == 0


def test_store_export__project_with_statements_alone__in_it(old: Path) -> None:
    SqlStore(old).append("quiet", [ACCEPTED])
    done = store_command("export", str(old), "--out", str(old.parent / "out"), folder=old.parent)
    assert done.stdout == ALL.replace("acceptances: 1", "acceptances: 2"), done.exception
    assert store_command("verify", str(old), "--project", "quiet", folder=old.parent).exit_code == 0


def test_verify_store__locked_meanwhile__no_fault_in_the_store(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfgate.judging.store.sqlite.BUSY_SECONDS", 0.1)
    store = SqlStore(old)
    with closing(sqlite3.connect(old, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE log SET number = number")
        with pytest.raises(StoreRefusedError, match="is locked"):
            verify_store(store, ["shop"], lambda *_: None)


@pytest.mark.parametrize("command", [["verify"], ["export", "--out", "there"], ["copy"]])
def test_store__location_without_a_store__is_no_sound_store(command: list[str], tmp_path: Path) -> None:
    first, *rest = command
    targets = [str(tmp_path / "target.db")] if first == "copy" else []
    done = store_command(first, str(tmp_path / "typo.db"), *targets, *rest, folder=tmp_path)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == f"{tmp_path}/typo.db holds no run; is this its location?"
    assert list(tmp_path.iterdir()) == []


def test_store_verify__project_that_it_does_not_hold__named_with_those_it_does(old: Path) -> None:
    done = store_command("verify", str(old), "--project", "shopp", folder=old.parent)
    assert (
        str(done.exception)
        == f"{old} holds no run of project 'shopp', only of 'Other project', 'shop'; correct the name"
    )


@pytest.mark.parametrize("name", ["export", "export.tar"])
def test_store_export__folder_or_tar__every_document_under_its_hash(old: Path, name: str) -> None:
    target = old.parent / "new" / name
    done = store_command("export", "--out", str(target), folder=old.parent, PERFGATE_STORE=str(old))
    assert (done.stdout, done.exit_code) == (ALL, 0), done.exception
    exported = read_export(target)
    index = json.loads(exported["index.json"])
    assert [(entry["project"], len(entry["runs"])) for entry in index] == [("Other project", 1), ("shop", 3)]
    for entry in index:
        for run in entry["runs"]:
            data = exported[f"{entry['folder']}/runs/{run['id']}.json"]
            assert hashlib.sha256(data).hexdigest() == run["id"]
            assert parse_run(data, name="exported").session.id == run["session"]
    shop = index[1]["folder"]
    assert msgspec.json.decode(exported[f"{shop}/acceptances.json"], type=list[Acceptance]) == [ACCEPTED]
    assert msgspec.json.decode(exported[f"{shop}/confirmations.json"], type=list[Confirmation]) == [CONFIRMED]
    assert msgspec.json.decode(exported[f"{shop}/triages.json"], type=list[Triage]) == [TRIAGED]
    assert len(exported) == 1 + 4 + 2 * 4
    assert [path.name for path in target.parent.iterdir()] == [name]


def read_export(target: Path) -> dict[str, bytes]:
    if target.suffix == ".tar":
        with tarfile.open(target) as archive:
            opened = {member.name: archive.extractfile(member) for member in archive}
            return {name: file.read() for name, file in opened.items() if file is not None}
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def test_store_export__damaged_run__the_rest_and_exit_1(old: Path) -> None:
    run = stored_runs(SqlStore(old), "shop")[0]
    tamper(old, DAMAGE["document"][0].format(id=run.id))
    done = store_command("export", str(old), "--out", str(old.parent / "out"), folder=old.parent)
    assert (done.exit_code, done.stdout[:8]) == (1, "runs: 3;")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"left out: {old}: run {run.id[:12]} differs from the recorded document")
    assert run.id not in (old.parent / "out" / "index.json").read_text()


@pytest.mark.parametrize("name", ["there", "there.tar", "store.db/new"])
def test_store_export__target_exists_or_cannot_be__refused_and_nothing_is_left(old: Path, name: str) -> None:
    (old.parent / "there").mkdir()
    (old.parent / "there.tar").write_text("mine")
    (old.parent / "store.db").write_text("a file")
    before = sorted(old.parent.rglob("*"))
    done = store_command("export", str(old), "--out", str(old.parent / name), folder=old.parent)
    assert isinstance(done.exception, PerfgateError)
    assert re.search(r"exists already; remove it|cannot be written: .*; free space", str(done.exception))
    assert sorted(old.parent.rglob("*")) == before


def test_store_copy__in_the_job_of_a_change_to_a_shared_store__refused(old: Path, postgres: PostgresServer) -> None:
    address = postgres.address(postgres.create_database())
    environ = {
        "PERFGATE_FORGE": "github", "PERFGATE_REPOSITORY": "team/shop", "PERFGATE_CHANGE_REQUEST": "7",
        "PERFGATE_HEAD_SHA": "a" * 40, "PERFGATE_BASE_SHA": "b" * 40, "PERFGATE_RUN_ID": "1",
    }  # fmt: skip
    done = store_command("copy", str(old), address, folder=old.parent, **environ)
    assert isinstance(done.exception, UsageError), done.exception
    assert "nothing of a change is written to the store" in str(done.exception)


def test_store_verify__real_command_and_a_damaged_run__its_process_ends_with_1(old: Path) -> None:
    tamper(old, "UPDATE run_documents SET document = x'00' WHERE run = (SELECT min(run) FROM run_documents)")
    done = run_perfgate("store", "verify", str(old), cwd=old.parent)
    assert (done.returncode, "damaged: " in done.stdout) == (1, True)
