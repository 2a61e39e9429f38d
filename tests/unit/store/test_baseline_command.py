"""The command over a real store, through the same door as the shell."""

import json
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from perfgate.cli.commands.baseline import COMMAND
from perfgate.document.decision import SideSummary
from perfgate.document.files import write_document
from perfgate.document.history import Acceptance
from perfgate.errors import PerfgateError, RepositoryError, StoreError, UnfitRunError, UsageError
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.runs import record_runs, stored_runs
from tests.command import run_perfgate
from tests.fakes.documents import make_counter, make_decision, regressed_time
from tests.fakes.history import main_runs, stepped
from tests.fakes.records import changed
from tests.fakes.remote import clone_of_empty_remote
from tests.fakes.runner import separating_runner
from tests.unit.document.minimal import minimal_run
from tests.unit.store.test_gitbranch import files, opened, put, record


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "perfgate.toml").write_text('workload = "w.py:encoder"\n')
    return folder


def baseline(project: Path, *arguments: str) -> Result:
    environ = {"PERFGATE_STORE": str(project.parent / "store.db"), "COLUMNS": "200"}
    return CliRunner().invoke(COMMAND, [*arguments, "-C", str(project)], env=environ)


def write(folder: Path, name: str = "run.json", **changes: object) -> str:
    run = minimal_run(session=name)
    write_document(folder / name, changed(run, **changes))
    return str(folder / name)


def test_baseline_record__run_file__kept_and_said_where(project: Path) -> None:
    result = baseline(project, "record", "--run", write(project))
    (kept,) = stored_runs(SqlStore(project.parent / "store.db"), "shop")
    assert result.exit_code == 0
    assert result.output == f"kept run {kept.id[:12]} of shop in {project.parent}/store.db\n"


def test_baseline_record__json__the_whole_id(project: Path) -> None:
    result = baseline(project, "record", "--json", "--run", write(project))
    (kept,) = stored_runs(SqlStore(project.parent / "store.db"), "shop")
    store = f"{project.parent}/store.db"
    assert json.loads(result.output) == {"id": kept.id, "project": "shop", "store": store, "suspected": []}


def test_baseline_record__run_of_another_project__refused(project: Path) -> None:
    result = baseline(project, "record", "--run", write(project, project="other"))
    assert isinstance(result.exception, UsageError)
    assert "is a run of project 'other', and this is 'shop'" in str(result.exception)


def test_baseline_record__dirty_run__refused_unless_allowed(project: Path) -> None:
    dirty = write(project, source=msgspec.structs.replace(minimal_run().source, dirty=True))
    refused = baseline(project, "record", "--run", dirty)
    assert isinstance(refused.exception, StoreError)
    assert baseline(project, "record", "--allow-dirty", "--run", dirty).exit_code == 0
    assert "aaaaaaaaaaaa + changes" in baseline(project, "list").output


@pytest.mark.parametrize("source", [["--from", "out"], ["--download"]])
def test_baseline_record__changes_allowed_in_an_artifact_of_ci__refused_as_it_has_no_effect(
    project: Path, source: list[str]
) -> None:
    refused = baseline(project, "record", "--allow-dirty", *source)
    assert (refused.exit_code, "--allow-dirty is for a run of this machine" in refused.output) == (2, True)


def test_baseline_record__slower_than_main_was__kept_and_said_to_the_end_what_to_do(project: Path) -> None:
    (project / "perfgate.toml").write_text('workload = "w.py:encoder"\nproject = "demo"\n')
    runs = main_runs(13, shapes=("long",), time=stepped(12, 1.5))
    record_runs(SqlStore(project.parent / "store.db"), runs[:12], allow_dirty=False, now=None)
    write_document(project / "run.json", runs[12])
    result = baseline(project, "record", "--run", str(project / "run.json"))
    said = [
        line for line in result.output.splitlines() if line.startswith("suspected slower than main's earlier runs: ")
    ]
    assert any("latency.p50 of encoder/long (" in line for line in said)
    assert all(line.endswith("leaves it out until `perfgate baseline accept` accepts it") for line in said)


def test_baseline_record__work_tree_with_changes__refused_before_measuring(project: Path) -> None:
    for command in (["git", "init", "-q"], ["git", "add", "."]):
        subprocess.run(command, cwd=project, check=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *identity, "commit", "-q", "-m", "first"], cwd=project, check=True)
    (project / "perfgate.toml").write_text('workload = "other.py:encoder"\n')
    result = baseline(project, "record")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith("uncommitted changes, in perfgate.toml; commit them first")


def test_baseline_record__git_cannot_list_the_changes__refused_before_measuring(project: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    (project / ".git" / "index").write_bytes(b"no index")
    result = baseline(project, "record")
    assert isinstance(result.exception, RepositoryError)
    assert str(result.exception).startswith(f"git status failed in {project}")


def test_baseline_list__nothing_kept__says_how(project: Path) -> None:
    result = baseline(project, "list")
    assert result.output == "no run of shop is kept yet; `perfgate baseline record` keeps one\n"
    assert json.loads(baseline(project, "list", "--json").output) == []


def test_baseline_list__subject_with_terminal_codes_and_markup__harmless(project: Path) -> None:
    source = msgspec.structs.replace(minimal_run().source, subject="\x1b[2J[red]hello[/red]")
    baseline(project, "record", "--run", write(project, source=source))
    output = baseline(project, "list").output
    assert "[2J[red]hello[/red]" in output
    assert "\x1b" not in output


def test_baseline_list__80_columns__whole_ids_and_every_word_of_the_subject(project: Path) -> None:
    subject = "Keep the attention weights of each head for the page that explains a ranking"
    baseline(
        project,
        "record",
        "--run",
        write(project, source=msgspec.structs.replace(minimal_run().source, subject=subject)),
    )
    (kept,) = stored_runs(SqlStore(project.parent / "store.db"), "shop")
    environ = {"PERFGATE_STORE": str(project.parent / "store.db"), "COLUMNS": "80"}
    first, *rest = CliRunner().invoke(COMMAND, ["list", "-C", str(project)], env=environ).output.splitlines()
    assert first.startswith(f"{kept.id[:12]}  2026-")
    assert first.endswith(f"cpu   testbed {kept.fingerprint[:12]}  aaaaaaaaaaaa")
    assert " ".join(line.strip() for line in rest) == f"encoder: {subject}"
    assert all(len(line) <= 80 for line in [first, *rest])


def test_baseline_list__many_runs__the_newest_twenty_and_how_to_see_more(project: Path) -> None:
    (project / "perfgate.toml").write_text('workload = "w.py:encoder"\nproject = "demo"\n')
    store = SqlStore(project.parent / "store.db")
    record_runs(store, main_runs(22, shapes=("long",)), allow_dirty=False, now=None)
    newest = [run.id[:12] for run in stored_runs(store, "demo")]
    *listed, _, end = baseline(project, "list").output.splitlines()
    assert [line[:12] for line in listed if not line.startswith(" ")] == newest[:20]
    assert end == "`perfgate baseline list --limit N` lists older ones too"
    few = baseline(project, "list", "--limit", "2").output.splitlines()
    assert [line[:12] for line in few if line and line[0] not in " `"] == newest[:2]
    all_of_them = baseline(project, "list", "--limit", "22").output.splitlines()
    assert [line[:12] for line in all_of_them if not line.startswith(" ")] == newest
    assert len(newest) == 22
    assert len(json.loads(baseline(project, "list", "--json").output)) == 22


def test_baseline_show__beginning_of_the_id__values_in_base_units(project: Path) -> None:
    baseline(project, "record", "--run", write(project))
    (kept,) = stored_runs(SqlStore(project.parent / "store.db"), "shop")
    lines = [line.split() for line in baseline(project, "show", kept.id[:6]).output.splitlines()]
    assert ["encoder", "latency.p50", "shape", "short", "0.002"] in lines
    assert ["encoder", "latency.p99", "shape", "short", "none"] in lines
    shown = json.loads(baseline(project, "show", "--json", kept.id).output)
    assert (shown["schema"], shown["session"]["id"]) == ("perfgate/run", "run.json")


def test_baseline_show__unknown_id__store_error(project: Path) -> None:
    assert isinstance(baseline(project, "show", "abc").exception, StoreError)


def test_baseline_prune__three_kept__two_go(project: Path) -> None:
    for name in ("a", "b", "c"):
        baseline(project, "record", "--run", write(project, name))
    assert baseline(project, "prune", "--keep", "1").output == "removed 2 runs\n"
    assert json.loads(baseline(project, "prune", "--keep", "0", "--json").output) == {"removed": 1}


def test_baseline_record__more_than_are_to_stay__the_oldest_go_a_twentieth_at_once(project: Path) -> None:
    with (project / "perfgate.toml").open("a") as file:
        file.write("[store]\nkeep = 20\n")
    store = SqlStore(project.parent / "store.db")
    record_runs(store, [minimal_run(session=f"s{number}") for number in range(20)], allow_dirty=False, now=None)
    assert "removed" not in baseline(project, "record", "--run", write(project, "one more")).output
    assert len(stored_runs(store, "shop")) == 21
    assert baseline(project, "record", "--run", write(project, "two")).output.endswith(
        "removed the 2 oldest, as set by [store] keep\n"
    )
    assert len(stored_runs(store, "shop")) == 20


def test_baseline_record__run_of_a_clock_that_was_set_back__not_said_to_be_kept(project: Path) -> None:
    with (project / "perfgate.toml").open("a") as file:
        file.write("[store]\nkeep = 3\n")
    store = SqlStore(project.parent / "store.db")
    ids = record_runs(store, [minimal_run(session=f"s{number}") for number in range(3)], allow_dirty=False, now=None)
    late = msgspec.structs.replace(minimal_run().session, id="late", started_at="2020-01-01T00:00:00+00:00")
    refused = baseline(project, "record", "--run", write(project, session=late))
    assert isinstance(refused.exception, UnfitRunError)
    assert "this run is dated 2020-01-01" in str(refused.exception)
    assert "kept run" not in refused.output
    assert {run.id for run in stored_runs(store, "shop")} == set(ids)


def test_baseline__from_the_shell__broken_document_is_exit_code_2(project: Path) -> None:
    (project / "run.json").write_text('{"schema": "perfgate/run", ')
    done = run_perfgate("baseline", "record", "--run", "run.json", cwd=project)
    assert done.returncode == 2
    assert done.stderr.startswith("perfgate: run.json: at the end: the text ends in the middle; the file is truncated")


def commit(project: Path) -> str:
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=Li", "-c", "user.email=l@x", "commit", "--allow-empty", "-qm", "one"],
    ):
        subprocess.run(["git", "-C", str(project), *command], check=True)
    return subprocess.run(
        ["git", "-C", str(project), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_baseline_accept__metric_of_head__kept_with_who_and_why(project: Path) -> None:
    sha = commit(project)
    result = baseline(project, "accept", "latency.*", "--reason", "the new layer", "--by", "Li Wei")
    assert result.exit_code == 0, result.exception
    assert result.output == f"accepted latency.* of {sha[:12]} by Li Wei\n"
    (kept,) = SqlStore(project.parent / "store.db").entries("shop", Acceptance)
    assert (kept.metric, kept.reason, kept.accepted_by) == ("latency.*", "the new layer", "Li Wei")
    assert "the new layer" in baseline(project, "accepted").output


def write_check(folder: Path, commit: str, name: str = "perfgate-out", **head: object) -> Path:
    """Write what a check of this commit leaves: calls that got slower are cause 1, one more synchronisation is cause 2."""
    side = SideSummary(commit=commit, **head)
    decision = make_decision("FAIL", comparisons=[*regressed_time(), make_counter("counters.syncs", 0, 1)], head=side)
    (folder / name).mkdir()
    write_document(folder / name / "decision.json", decision)
    return folder / name


def test_baseline_accept__number_of_a_cause__its_metrics_of_the_newest_check(project: Path) -> None:
    sha = commit(project)
    write_check(project, sha)
    result = baseline(project, "accept", "2", "--reason", "must wait", "--by", "Li")
    assert result.output == f"accepted counters.syncs of {sha[:12]} by Li\n", result.exception
    first = baseline(project, "accept", "1", "--reason", "the new layer", "--by", "Li", "--commit", sha[:9])
    assert [line.split()[1] for line in first.output.splitlines()] == ["latency.low", "latency.p50"]


def test_baseline_accept__check_of_a_merge_in_another_folder__the_commit_it_reviewed(project: Path) -> None:
    sha = commit(project)
    write_check(project, "e" * 40, "elsewhere", reviewed=sha)
    named = ("--from", str(project / "elsewhere"), "--reason", "meant", "--by", "Li")
    assert baseline(project, "accept", "1", "2", *named).output.count(sha[:12]) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["3"], "there is no cause 3 that can be accepted; its comment numbers those that can"),
        (["0"], "there is no cause 0"),
        (
            ["1", "--commit", "HEAD~"],
            "perfgate-out/decision.json is about {new}, not about {old}; measure that, name the",
        ),
        (["1", "--from", "empty"], "empty/decision.json"),
        (["latency.low", "--from", "perfgate-out"], "--from {out} is for numbers of causes, and 'latency.low' is none"),
        (["1", "latency.low"], "no metric '1'"),
    ],
)
def test_baseline_accept__number_that_names_no_cause__refused(
    project: Path, arguments: list[str], message: str
) -> None:
    old, new = commit(project), commit(project)
    out = write_check(project, new)
    (project / "empty").mkdir()
    absolute = [str(project / word) if word in ("empty", "perfgate-out") else word for word in arguments]
    result = baseline(project, "accept", *absolute, "--reason", "meant", "--by", "Li")
    assert isinstance(result.exception, PerfgateError)
    assert message.format(old=old[:12], new=new[:12], out=out) in str(result.exception)
    assert not SqlStore(project.parent / "store.db").entries("shop", Acceptance)


def test_baseline_accept__number_and_no_check__what_to_name_instead(project: Path) -> None:
    commit(project)
    result = baseline(project, "accept", "1", "--reason", "meant", "--by", "Li")
    assert "perfgate-out and .perfgate/local hold no decision that numbers causes; name the folder" in str(
        result.exception
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["latency.lo", "--reason", "x"], "did you mean 'latency.low'?"),
        (["latency.low", "--reason", " "], "give the reason for the regression"),
    ],
)
def test_baseline_accept__nonsense__refused(project: Path, arguments: list[str], message: str) -> None:
    commit(project)
    result = baseline(project, "accept", *arguments, "--by", "Li")
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)


def test_baseline_accept__until__counts_to_that_day_and_is_listed(project: Path) -> None:
    sha = commit(project)
    accept = ("accept", "latency.low", "--reason", "meant", "--by", "Li")
    kept = baseline(project, *accept, "--until", "2999-01-31")
    assert kept.output == f"accepted latency.low of {sha[:12]} by Li until 2999-01-31\n", kept.exception
    assert "2999-01-31" in baseline(project, "accepted").output
    store = SqlStore(project.parent / "store.db")
    (entry,) = store.entries("shop", Acceptance)
    store.append("shop", [msgspec.structs.replace(entry, until="2026-01-31")])
    assert "2026-01-31, expired" in baseline(project, "accepted").output
    past = baseline(project, *accept, "--until", "2020-01-01")
    assert "2020-01-01 is in the past; give the last day of the acceptance" in str(past.exception)
    wrong = baseline(project, *accept, "--until", "2027-02-30")
    assert (wrong.exit_code, "'2027-02-30' does not match the format '%Y-%m-%d'" in wrong.output) == (2, True)


def test_baseline_triage__commit_of_a_stored_run_by_its_first_digits__state_kept_and_listed(project: Path) -> None:
    assert baseline(project, "triaged").output == (
        "no regression was given a state yet; `perfgate baseline triage` does\n"
    )
    baseline(project, "record", "--run", write(project))
    given = baseline(project, "triage", "aaaaaaaaaa", "acknowledged", "--reason", "in #12", "--by", "Li Wei")
    assert given.output == f"{'a' * 12} is acknowledged, by Li Wei\n", given.exception
    again = baseline(project, "triage", "aaaaaaaaaa", "fixed", "--reason", "by #13", "--by", "Li Wei", "--json")
    (kept,) = json.loads(baseline(project, "triaged", "--json").output)
    assert kept == json.loads(again.output)
    assert (kept["commit"], kept["state"], kept["reason"]) == ("a" * 40, "fixed", "by #13")
    assert "by #13" in baseline(project, "triaged").output


def test_baseline_triage__revision_of_the_clone__its_commit(project: Path) -> None:
    sha = commit(project)
    assert baseline(project, "triage", "HEAD", "new", "--by", "Li").output == f"{sha[:12]} is new, by Li\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["f" * 10, "fixed", "--reason", "x"],
            "no stored run of main is of commit 'ffffffffff', nor is it one of this",
        ),
        (["HEAD", "expected"], "give the reason for the state 'expected'"),
    ],
)
def test_baseline_triage__nonsense__refused(project: Path, arguments: list[str], message: str) -> None:
    commit(project)
    result = baseline(project, "triage", *arguments, "--by", "Li")
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)


def test_baseline__one_run_file_of_a_branch_damaged__the_others_listed_and_it_is_named(
    tmp_path: Path,
) -> None:
    clone, remote = clone_of_empty_remote(tmp_path), tmp_path / "remote.git"
    (clone / "perfgate.toml").write_text('workload = "w.py:encoder"\nproject = "shop"\n')
    broken, sound = record(clone, "s1", "s2")
    (path,) = [path for path in files(remote) if path.startswith("runs/") and broken in path]
    put(remote, path, b"{")

    def ran(*arguments: str) -> Result:
        environ = {"PERFGATE_STORE": "branch://perfgate-data", "COLUMNS": "200"}
        return separating_runner().invoke(COMMAND, [*arguments, "-C", str(clone)], env=environ)

    named = f"left out: the branch perfgate-data of {remote}: {path} is damaged: "
    listed = ran("list")
    assert (listed.exit_code, sound[:12] in listed.stdout, broken[:12] in listed.stdout) == (0, True, False)
    assert listed.stderr.startswith(named)
    assert "restore an earlier commit of the branch" in listed.stderr
    assert [run["id"] for run in json.loads(ran("list", "--json").stdout)] == [sound]
    kept = ran("record", "--run", write(tmp_path, "s3"))
    assert (kept.exit_code, len(stored_runs(opened(clone), "shop"))) == (0, 2)


def test_baseline_record__clock_of_the_measuring_machine_is_ahead__said_and_stored(project: Path) -> None:
    began = datetime.now(timezone.utc) + timedelta(days=1)
    session = msgspec.structs.replace(
        minimal_run().session, started_at=began.isoformat(), finished_at=(began + timedelta(minutes=50)).isoformat()
    )
    result = baseline(project, "record", "--run", write(project, session=session))
    assert result.exit_code == 0
    assert "the clock of the measuring machine is wrong: the run ended 24 h " in result.output
    assert len(stored_runs(SqlStore(project.parent / "store.db"), "shop")) == 1
