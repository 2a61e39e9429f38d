"""`perfgate token` and `perfgate baseline log` over a real store."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from perfgate.cli.commands import baseline, token
from perfgate.errors import ConfigError, StoreError, UnknownRunError, UsageError
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.runs import record_run, record_runs, stored_runs
from tests.unit.document.minimal import minimal_run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "perfgate.toml").write_text('workload = "w.py:encoder"\n')
    return folder


def tokens(project: Path, *arguments: str, location: str | None = None) -> Result:
    environ = {"PERFGATE_STORE": location or str(project.parent / "store.db")}
    return CliRunner().invoke(token.COMMAND, [*arguments, "-C", str(project)], env=environ)


def log(project: Path, *arguments: str) -> Result:
    environ = {"PERFGATE_STORE": str(project.parent / "store.db")}
    return CliRunner().invoke(baseline.COMMAND, ["log", *arguments, "-C", str(project)], env=environ)


def test_token__created_listed_and_revoked__its_secret_is_printed_once(project: Path) -> None:
    assert "there is no token yet" in tokens(project, "list").output
    created = tokens(project, "create", "ci runner", "--scope", "write")
    secret = created.stdout.strip()
    assert len(secret) > 50
    assert "may write shop" in created.stderr
    everywhere = json.loads(tokens(project, "create", "wall", "--scope", "read", "--all-projects", "--json").stdout)
    ledger = SqlStore(project.parent / "store.db").ledger()
    found = ledger.find(secret)
    assert found is not None
    assert (found.name, found.project, found.scope) == ("ci runner", "shop", "write")
    assert everywhere["token"]["project"] is None
    listed = tokens(project, "list").output
    assert [secret in listed, everywhere["secret"] in listed, found.id in listed] == [False, False, True]
    assert f"revoked {found.id} (ci runner) of shop" in tokens(project, "revoke", found.id).output
    assert ledger.find(secret) is None
    assert "revoked 20" in tokens(project, "list").output


def test_baseline_log__changes_of_two_projects__of_the_own_unless_all_are_asked_for(project: Path) -> None:
    assert log(project).output == "nothing was changed yet\n"
    store = SqlStore(project.parent / "store.db")
    run_id = record_run(store, minimal_run())
    record_run(store, minimal_run(project="bank"))
    assert [line.split("  ")[1:] for line in log(project).output.splitlines()] == [
        ["local", "run recorded", run_id[:12]]
    ]
    every = json.loads(log(project, "--all-projects", "--json").output)
    assert [entry["project"] for entry in every] == ["bank", "shop"]


def test_baseline_log_and_prune__on_the_machine_of_a_service__need_no_perfgate_toml(tmp_path: Path) -> None:
    location = str(tmp_path / "store.db")
    store = SqlStore(tmp_path / "store.db")
    for project in ("shop", "bank"):
        record_runs(
            store,
            [minimal_run(session=f"s{number}", project=project) for number in range(4)],
            allow_dirty=False,
            now=None,
        )

    def command(*arguments: str) -> Result:
        return CliRunner().invoke(baseline.COMMAND, [*arguments, "--store", location, "-C", str(tmp_path)])

    assert len(command("log", "--project", "shop").output.splitlines()) == 4
    assert command("prune", "--keep", "3", "--project", "shop").output == "removed 1 run\n"
    assert [len(stored_runs(store, project)) for project in ("shop", "bank")] == [3, 4]
    assert command("prune", "--keep", "1", "--all-projects").output == "removed 5 runs\n"
    assert [len(stored_runs(store, project)) for project in ("shop", "bank")] == [1, 1]
    assert isinstance(command("prune", "--keep", "1").exception, ConfigError)
    assert "exclude each other" in command("prune", "--keep", "1", "--all-projects", "--project", "shop").output


@pytest.mark.parametrize("command", [["log"], ["prune", "--keep", "1"], ["remove", "abc"]])
def test_baseline__project_that_the_store_does_not_hold__refused(tmp_path: Path, command: list[str]) -> None:
    location = str(tmp_path / "store.db")
    options = ["--store", location, "--project", "shopp", "-C", str(tmp_path)]
    empty = CliRunner().invoke(baseline.COMMAND, [*command, *options])
    assert str(empty.exception) == f"{location} holds no run; is this its location?"
    record_run(SqlStore(tmp_path / "store.db"), minimal_run())
    typo = CliRunner().invoke(baseline.COMMAND, [*command, *options])
    assert str(typo.exception) == f"{location} holds no run of project 'shopp', only of 'shop'; correct the name"
    assert isinstance(typo.exception, UsageError)


@pytest.mark.parametrize("name", ["", " "])
def test_project__variable_that_is_not_set__does_not_mean_the_project_of_the_folder(project: Path, name: str) -> None:
    record_run(SqlStore(project / "store.db"), minimal_run())
    command = ["--project", name, "-C", str(project)]
    pruned = CliRunner().invoke(baseline.COMMAND, ["prune", "--keep", "0", *command])
    made = tokens(project, "create", "runner", "--scope", "write", "--project", name)
    for done in (pruned, made):
        assert (done.exit_code, "the name is empty" in done.output) == (2, True)


def test_baseline_log__project_with_a_token_alone__its_entries(tmp_path: Path) -> None:
    SqlStore(tmp_path / "store.db").ledger().create_token("runner", "new", "write")
    options = ["--store", str(tmp_path / "store.db"), "--project", "new", "-C", str(tmp_path)]
    assert "token created" in CliRunner().invoke(baseline.COMMAND, ["log", *options]).output


def test_baseline_remove__damaged_run__gone_and_named_in_the_audit_log(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    store = SqlStore(place)
    damaged, sound = record_runs(
        store, [minimal_run(session="s1"), minimal_run(session="s2")], allow_dirty=False, now=None
    )
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("UPDATE run_documents SET document = x'00' WHERE run = ?", [damaged])
        connection.commit()

    def remove(digits: str) -> Result:
        options = ["--project", "shop", "--store", str(place), "-C", str(tmp_path)]
        return CliRunner().invoke(baseline.COMMAND, ["remove", digits, *options])

    assert remove(damaged[:10]).output == f"removed run {damaged[:12]}\n"
    assert [run.id for run in stored_runs(store, "shop")] == [sound]
    newest = store.ledger().entries(project="shop", limit=1)[0]
    assert (newest.action, newest.actor, newest.subject) == ("runs pruned", "local", damaged)
    assert isinstance(remove(damaged).exception, UnknownRunError)


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (["create", " ", "--scope", "read"], UsageError, "the token needs a name"),
        (["revoke", "ffff"], StoreError, "has no token 'ffff'; `perfgate token list` shows them"),
    ],
)
def test_token__wrong_use__said(project: Path, arguments: list[str], kind: type[Exception], said: str) -> None:
    result = tokens(project, *arguments)
    assert isinstance(result.exception, kind)
    assert said in str(result.exception)


def test_token__of_a_branch__refused_with_what_keeps_tokens(project: Path) -> None:
    result = tokens(project, "list", location="branch://perfgate-data")
    assert isinstance(result.exception, UsageError)
    assert "keeps no tokens and no audit log; a database does" in str(result.exception)
