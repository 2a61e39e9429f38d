"""`perfgate store upload`, `prune` and `baseline record` over a folder as artifact store."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from click.testing import Result

from perfgate.cli.commands.baseline import COMMAND as BASELINE
from perfgate.cli.commands.store import COMMAND as STORE
from perfgate.config import load_config
from perfgate.document.files import write_document
from perfgate.document.history import Triage, TriageState
from perfgate.errors import StoreError, StoreRefusedError, UsageError
from perfgate.flows.artifacts import prune, retained_runs
from perfgate.flows.shared.artifacts import open_artifacts_at
from perfgate.flows.shared.doors import Doors
from perfgate.judging.store.artifacts import ArtifactStore
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.runs import record_runs, stored_runs
from tests.fakes.artifacts import artifact_set, run_folder
from tests.fakes.history import commit_of, main_runs, stepped
from tests.fakes.runner import separating_runner
from tests.unit.document.minimal import minimal_decision
from tests.unit.flows.test_trend import Said

CONFIG = 'project = "shop"\nworkload = "w.py:encoder"\n[artifacts]\npath = "kept"\n'
NOW = datetime(2026, 6, 30, tzinfo=timezone.utc)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "perfgate.toml").write_text(CONFIG)
    return folder


def store_command(project: Path, *arguments: str, **environ: str) -> Result:
    environ = {"PERFGATE_STORE": str(project.parent / "store.db"), **environ}
    return separating_runner().invoke(STORE, [*arguments, "-C", str(project)], env=environ)


def record(project: Path, *arguments: str, **environ: str) -> Result:
    environ = {"PERFGATE_STORE": str(project.parent / "store.db"), **environ}
    return separating_runner().invoke(BASELINE, ["record", *arguments, "-C", str(project)], env=environ)


def kept_of(project: Path) -> ArtifactStore:
    return open_artifacts_at(str(project / "kept"), {}, "")


def test_upload__run_folder__sent_once_and_where_it_lies_is_printed(project: Path, tmp_path: Path) -> None:
    run_folder(tmp_path / "run")
    done = store_command(project, "upload", str(tmp_path / "run"))
    (kept,) = kept_of(project).sets("shop")
    assert done.exit_code == 0, done.exception
    first, *places = done.stdout.splitlines()
    assert first.startswith(f"artifacts sent to {project / 'kept'}: 2 (")
    assert first.endswith("already there: 0")
    assert [Path(place.strip()).read_bytes()[:2] for place in places] == [b"\x1f\x8b", b"<!"]
    again = store_command(project, "upload", str(tmp_path / "run"))
    assert again.stdout.splitlines()[0].endswith(": 0 (0 B); already there: 2")
    assert kept_of(project).sets("shop") == [kept]


def test_upload__check_folder__both_sides_and_the_report_under_the_verdict(project: Path, tmp_path: Path) -> None:
    check = tmp_path / "check"
    for side in ("base", "head"):
        run = run_folder(check / side, session="s1", files={"trace-encoder-short.json.gz": side.encode()})
        write_document(check / side / "run.json", msgspec.structs.replace(run, side=side))
    write_document(check / "decision.json", msgspec.structs.replace(minimal_decision(), verdict="FAIL"))
    (check / "report.html").write_text("<!doctype html>report")
    done = store_command(project, "upload", str(check), "--json")
    assert done.exit_code == 0, done.exception
    (kept,) = kept_of(project).sets("shop")
    assert (kept.verdict, [file.path for file in kept.files]) == (
        "FAIL",
        ["base/trace-encoder-short.json.gz", "head/trace-encoder-short.json.gz", "report.html"],
    )
    assert json.loads(done.stdout)["sent"] == 3


def test_upload__file_that_is_not_as_listed__named_and_left_out(project: Path, tmp_path: Path) -> None:
    run_folder(tmp_path / "run")
    (tmp_path / "run" / "flame.html").write_text("another")
    done = store_command(project, "upload", str(tmp_path / "run"))
    assert done.stderr.endswith("\nnot kept: flame.html is not the file that its document lists\n")
    (kept,) = kept_of(project).sets("shop")
    assert [file.kind for file in kept.files] == ["trace"]


def test_upload__refused__what_is_wrong_and_the_remedy(project: Path, tmp_path: Path) -> None:
    run_folder(tmp_path / "other", project="other")
    other = store_command(project, "upload", str(tmp_path / "other"))
    assert isinstance(other.exception, UsageError)
    assert "is of project 'other', and this is 'shop'" in str(other.exception)
    run_folder(tmp_path / "run")
    change = {"GITLAB_CI": "true", "CI_SERVER_URL": "https://gitlab.example.com", "CI_PROJECT_ID": "5",
              "CI_PIPELINE_SOURCE": "merge_request_event", "CI_MERGE_REQUEST_IID": "7", "CI_COMMIT_SHA": "a" * 40,
              "CI_MERGE_REQUEST_PROJECT_ID": "5", "CI_PROJECT_PATH": "team/model", "CI_PIPELINE_ID": "5",
              "CI_API_V4_URL": "https://gitlab.example.com/api/v4"}  # fmt: skip
    assert isinstance(store_command(project, "upload", str(tmp_path / "run"), **change).exception, UsageError)
    (project / "perfgate.toml").write_text('project = "shop"\nworkload = "w.py:encoder"\n')
    nowhere = store_command(project, "upload", str(tmp_path / "run"))
    assert "set path under [artifacts]" in str(nowhere.exception)


def test_record__run_with_traces__kept_beside_the_run_under_its_id(project: Path, tmp_path: Path) -> None:
    run_folder(tmp_path / "run")
    done = record(project, "--run", str(tmp_path / "run" / "run.json"))
    assert done.exit_code == 0, done.exception
    (run,) = stored_runs(SqlStore(project.parent / "store.db"), "shop")
    assert [kept.id for kept in kept_of(project).sets("shop")] == [run.id]
    assert "artifacts sent to" in done.stdout


def test_record__artifacts_refused__run_stored_and_the_reason_without_secrets(project: Path, tmp_path: Path) -> None:
    run_folder(tmp_path / "run")
    place = "oss://key:pa55word@bucket/perf"  # ossfs is not installed
    done = record(project, "--run", str(tmp_path / "run" / "run.json"), PERFGATE_ARTIFACTS=place)
    assert len(stored_runs(SqlStore(project.parent / "store.db"), "shop")) == 1
    assert done.stdout.startswith("kept run ")
    assert done.exit_code == 0
    assert done.stderr.startswith("the run is stored, but its artifacts are not kept: oss://***@bucket/perf needs")
    assert "pip install ossfs" in done.stderr
    assert "pa55word" not in done.stdout + done.stderr
    again = record(project, "--run", str(tmp_path / "run" / "run.json"))
    assert (again.exit_code, len(kept_of(project).sets("shop"))) == (0, 1)


def test_upload__folder_cannot_be_written__exit_code_of_a_store_that_refuses(project: Path, tmp_path: Path) -> None:
    run_folder(tmp_path / "run")
    (project / "kept").write_text("a file in the way")
    done = store_command(project, "upload", str(tmp_path / "run"))
    assert isinstance(done.exception, StoreRefusedError)
    assert done.exception.exit_code == 4


def pruned(project: Path, **request: object) -> dict[str, object]:
    doors = Doors(
        environ={"PERFGATE_STORE": str(project.parent / "store.db")},
        say=print,
        sleep=lambda _: None,
        clock=NOW.timestamp,
    )
    done = prune(project, doors, Said(), **request)  # type: ignore[arg-type]
    found: dict[str, object] = msgspec.to_builtins(done)
    return {**found, "removed": [one["id"] for one in found["removed"]]}  # type: ignore[attr-defined]


def test_prune__main_that_got_slower__keeps_both_sides_of_the_regression_and_the_newest_of_the_level(
    project: Path, tmp_path: Path
) -> None:
    (project / "perfgate.toml").write_text(CONFIG.replace('"shop"', '"demo"'))
    store = SqlStore(project.parent / "store.db")
    record_runs(
        store,
        main_runs(24, time=stepped(14, 1.3), operators=stepped(14, 1.5), shapes=("long",)),
        allow_dirty=False,
        now=None,
    )
    runs = sorted(stored_runs(store, "demo"), key=lambda run: run.started_at)
    kept = kept_of(project)
    for run in runs:
        folder = tmp_path / run.id
        made = artifact_set(folder, session=run.session, project="demo", kept_at="2026-01-01T00:00:00+00:00")
        kept.keep(msgspec.structs.replace(made, id=run.id), folder, lambda *_: None)
    open_check = msgspec.structs.replace(made, id="f" * 64, verdict="FAIL")
    kept.keep(open_check, folder, lambda *_: None)
    planned = pruned(project, older_than=timedelta(days=90), dry_run=True)
    assert len(kept.sets("demo")) == 25
    done = pruned(project, older_than=timedelta(days=90))
    assert done == {**planned, "dry_run": False}
    stay = {run.id for run in (runs[13], runs[14], *runs[-3:])} | {"f" * 64}
    assert {one.id for one in kept.sets("demo")} == stay
    assert (done["retained"], done["stay"]) == (6, 6)
    (entry,) = [entry for entry in store.ledger().entries(limit=50) if entry.action == "artifacts pruned"]
    assert (entry.project, entry.actor, entry.subject.partition(",")[0]) == ("demo", "local", "19 sets")


@pytest.mark.parametrize(
    ("state", "is_open"), [("new", True), ("acknowledged", True), ("fixed", False), ("expected", False)]
)
def test_retained_runs__regression_in_triage__its_runs_and_those_before_stay_while_it_is_open(
    project: Path, state: TriageState, is_open: bool
) -> None:
    (project / "perfgate.toml").write_text(CONFIG.replace('"shop"', '"demo"'))
    store = SqlStore(project.parent / "store.db")
    record_runs(store, main_runs(12, shapes=("long",)), allow_dirty=False, now=None)
    entry = Triage(commit=commit_of(4), state=state, reason="seen", author="Li", changed_at="2026-06-01T00:00:00+00:00")
    store.append("demo", [entry])
    runs = sorted(stored_runs(store, "demo"), key=lambda run: run.started_at)
    config = load_config(project)
    retained = retained_runs(config, store, Said(), seconds_since_1970=NOW.timestamp())
    assert retained == {run.id for run in (*(runs[3:5] if is_open else ()), *runs[-3:])}


def test_prune__runs_of_main_cannot_be_read__nothing_is_removed(project: Path, tmp_path: Path) -> None:
    kept = kept_of(project)
    made = artifact_set(tmp_path / "run", kept_at="2020-01-01T00:00:00+00:00")
    kept.keep(made, tmp_path / "run", lambda *_: None)
    (project.parent / "store.db").write_text("no database")
    with pytest.raises(StoreError):
        pruned(project, older_than=timedelta(days=90))
    assert kept.sets("shop") == [made]


def test_prune__limits_of_perfgate_toml__and_broken_off_uploads(project: Path, tmp_path: Path) -> None:
    with (project / "perfgate.toml").open("a") as file:
        file.write("keep_days = 30\n")
    kept = kept_of(project)
    for days in (40, 20):
        folder = tmp_path / str(days)
        made = artifact_set(folder, session=str(days), kept_at=(NOW - timedelta(days=days)).isoformat())
        kept.keep(made, folder, lambda *_: None)
    (project / "kept" / "shop-x").mkdir()
    done = pruned(project)
    assert (len(done["removed"]), done["stay"], done["unfinished"]) == (1, 1, 0)  # type: ignore[arg-type]
    assert [one.session for one in kept.sets("shop")] == ["20"]


def test_prune__command__summary_of_what_went_and_stays(project: Path, tmp_path: Path) -> None:
    made = artifact_set(tmp_path / "run", kept_at="2020-01-01T00:00:00+00:00")
    kept_of(project).keep(made, tmp_path / "run", lambda *_: None)
    dry = store_command(project, "prune", "--older-than", "90d", "--dry-run")
    assert dry.stdout.splitlines()[0].startswith(f"{made.id[:12]}  2020-01-01  ")
    assert "would be removed: 1 (" in dry.stdout
    done = store_command(project, "prune", "--larger-than", "1kB", "--older-than", "2y")
    assert done.exit_code == 0, done.exception
    assert "removed: 1 (" in done.stdout
    assert "stay: 0 (0 B); needed by a regression or main's level: 0" in done.stdout
    assert json.loads(store_command(project, "prune", "--older-than", "1w", "--json").stdout)["removed"] == []


@pytest.mark.parametrize("arguments", [["--older-than", "90"], ["--larger-than", "20"], ["--older-than", "0d"]])
def test_prune__age_or_size_that_is_none__how_to_write_it(project: Path, arguments: list[str]) -> None:
    done = store_command(project, "prune", *arguments)
    assert (done.exit_code, "write" in done.stderr) == (2, True)


def test_prune__no_limit__refused(project: Path) -> None:
    assert "give --older-than 90d" in str(store_command(project, "prune").exception)
