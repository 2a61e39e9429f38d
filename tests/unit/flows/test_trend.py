"""`perfgate trend` over a real store and a fake forge: what it computes, writes, posts and refuses."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import requests

from perfgate.conductor.workers.foresight import Foresight
from perfgate.document.history import Acceptance, Confirmation, Triage, moment
from perfgate.document.job import JobNumber, JobRecord, Turn
from perfgate.document.run import CounterSite, OpCount, RunDocument, StepResult, Value
from perfgate.document.schema import load_schema
from perfgate.document.trend import ConfirmationsFile, TrendDocument, TrendSeries
from perfgate.errors import DocumentError, ForgeError, StoreError, UsageError
from perfgate.flows.bisect.bisect import search_commits
from perfgate.flows.check.check import check_change
from perfgate.flows.shared.artifacts import open_artifacts_at
from perfgate.flows.shared.doors import Bisect, Doors
from perfgate.flows.shared.scratch import ScratchRepository
from perfgate.flows.shared.trend.commits import MOST_COMMITS
from perfgate.flows.shared.trend.read import StoredHistories, open_documents
from perfgate.flows.trend.confirm import confirmation_of
from perfgate.flows.trend.trend import TrendRequest, run_trend
from perfgate.judging.report.render.trend import render_news
from perfgate.judging.store.backends.gitbranch import GitBranchStore
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.index import read_log
from perfgate.judging.store.runs import record_run, record_runs, stored_runs
from perfgate.judging.store.store import StorePlace
from tests.fakes.artifacts import artifact_set, file_server
from tests.fakes.documents import make_bound, make_comparison, make_decision
from tests.fakes.forge import BOT_TOKEN, FakeForge, Reply
from tests.fakes.forge_dialects import GitHubDialect, GitLabDialect
from tests.fakes.history import commit_of, main_runs, stepped
from tests.fakes.records import changed
from tests.fakes.remote import clone_of_empty_remote, git
from tests.fakes.trends import make_series, make_triage
from tests.unit.store.test_gitbranch import files, put

STEP = 40
TIMES = ("latency.low", "latency.p50", "throughput.median")
CONFIRMED_AT = "2026-07-20T00:00:00+00:00"


class Said:
    """Remembers what a flow says while it works."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def status(self, text: str) -> None:
        pass

    def expect(self, foresight: Foresight) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass
class Project:
    root: Path
    environ: dict[str, str]
    said: list[str] = field(default_factory=list)
    progress: Said = field(default_factory=Said)
    bisect: Bisect = search_commits

    @property
    def store(self) -> SqlStore:
        return SqlStore(Path(self.environ["PERFGATE_STORE"]))

    def record(self, runs: list[RunDocument]) -> None:
        record_runs(self.store, runs, allow_dirty=False, now=None)

    def record_in(self, year: int, run: RunDocument) -> None:
        """Record a run on a machine whose own clock shows a year, so that it sees nothing odd in a run of then."""
        path = Path(self.environ["PERFGATE_STORE"])
        record_run(SqlStore(path), run, now=datetime(year, 2, 1, tzinfo=timezone.utc))

    def take(self, store: Path) -> None:
        """Begin with a store that was filled before: to record a run takes as long as to look at all of them."""
        shutil.copyfile(store, self.environ["PERFGATE_STORE"])

    def trend(self, **options: Any) -> TrendDocument:
        doors = Doors(environ=self.environ, say=self.said.append, sleep=lambda _: None, clock=lambda: 1.8e9)
        return run_trend(TrendRequest(root=self.root, **options), doors, self.progress, check_change, self.bisect)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "project"
    root.mkdir()
    (root / "perfgate.toml").write_text('project = "demo"\nworkload = "perf/workload.py:encoder"\n')
    return Project(root, {"PERFGATE_STORE": str(tmp_path / "store.db")})


@pytest.fixture(scope="module")
def slower_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 48 runs, the last eight of them slower; one failed."""
    path = tmp_path_factory.mktemp("slower") / "store.db"
    record_runs(SqlStore(path), slower(failing=[45]), allow_dirty=False, now=None)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def slower(count: int = 48, **fields: Any) -> list[RunDocument]:
    return main_runs(count, **{"time": stepped(STEP, 1.08), "shapes": ("long",), **fields})


def found_in(document: TrendDocument, metric: str = "latency.p50") -> TrendSeries:
    return next(one for one in document.series if one.metric == metric and one.shape == "long" and one.current)


def answer(document: TrendDocument, outcome: Any = "regressed", **fields: Any) -> Confirmation:
    series = found_in(document)
    (change,) = series.changes
    values = {"before": change.last_good, "after": change.first_bad, "workload": "encoder", "shape": "long"}
    values |= {"metric": series.metric, "low": 0.06, "high": 0.1, "fingerprint": series.fingerprint}
    return Confirmation(outcome=outcome, **{"confirmed_at": CONFIRMED_AT, **values, **fields})


def confirmations_file(folder: Path, *entries: Any, project: str = "demo") -> Path:
    path = folder / "confirmations.json"
    path.write_bytes(msgspec.json.encode(ConfirmationsFile(project=project, confirmations=list(entries))))
    return path


def test_trend__slower_since_a_commit__the_commits_beside_it_and_by_how_much(
    project: Project, slower_store: Path
) -> None:
    project.take(slower_store)
    document = project.trend()
    for metric in TIMES:
        (change,) = found_in(document, metric).changes
        assert (change.last_good, change.first_bad) == (commit_of(STEP - 1), commit_of(STEP))
        assert (change.direction, change.evidence, change.standing) == ("worse", "suspected", "new")
        assert change.interval is not None
    assert document.open_regressions
    assert document.runs.count == 48


def test_trend__quiet_main__nothing_and_how_much_was_looked_at(project: Project) -> None:
    project.record(main_runs(40, shapes=("long",)))
    document = project.trend()
    assert [change for series in document.series for change in series.changes] == []
    assert document.searched.looked_at == 12  # of the counters, the times and the key metrics of the checklist
    assert document.searched.values == 480
    assert not document.open_regressions


def with_utilization(runs: list[RunDocument], level: Any) -> list[RunDocument]:
    """The runs with a number of step 2 that the gate does not judge, and one that the comment does not even show."""
    labels = {"shape": "long"}
    made = []
    for index, run in enumerate(runs):
        values = [
            Value(metric=name, value=0.8 * level(index) * (1 + 0.002 * (index % 3)), labels=labels)
            for name in ("utilization.busy", "utilization.free")
        ]
        step = StepResult(number=2, slug="utilization", workload="encoder", status="ok", values=values, duration=1.0)
        made.append(changed(run, steps=[run.checklist.steps[0], step, *run.checklist.steps[2:]]))
    return made


def test_trend__leading_number_of_the_checklist_moved__informs_and_is_no_regression(
    project: Project, tmp_path: Path
) -> None:
    project.record(with_utilization(main_runs(48, shapes=("long",)), stepped(STEP, 0.5)))

    document = project.trend(out=tmp_path / "out")

    series = found_in(document, "utilization.busy")
    (change,) = series.changes
    assert (series.informing, change.direction, change.first_bad) == (True, "changed", commit_of(STEP))
    assert [found.informing for found in document.series if found.metric in TIMES] == [False] * 3
    assert not document.open_regressions
    assert render_news(document, "en") is None
    text = (tmp_path / "out" / "trend.md").read_text()
    moved = text.partition("<details>")[0]
    (told,) = [line for line in moved.splitlines() if "utilization.busy" in line or "utilization · " in line]
    assert "50.0 % lower" in told
    assert "regression" not in text.splitlines()[0]
    (left_out,) = [one for one in document.searched.not_looked_at if one.reason == "metric"]
    assert [name for name in left_out.names if name.startswith("utilization")] == ["utilization.free"]


def test_trend__checklist_moved_with_a_regression__one_cause_that_the_regression_leads(project: Project) -> None:
    project.record(with_utilization(slower(), stepped(STEP, 0.5)))

    document = project.trend()
    (cause,) = [one for one in document.causes if one.first_bad == commit_of(STEP)]
    assert cause.direction == "worse"
    moved = [document.series[place.series] for place in cause.changes]
    assert [one.informing for one in moved] == [False] * 4 + [True] * 2
    assert {one.metric for one in moved[4:]} == {"latency.p90", "utilization.busy"}


def test_trend__metric_asked_for_by_name__is_judged(project: Project) -> None:
    project.record(with_utilization(main_runs(48, shapes=("long",)), stepped(STEP, 0.5)))

    document = project.trend(metrics=("utilization.busy",))
    (change,) = found_in(document, "utilization.busy").changes
    assert change.direction == "worse"


def test_trend__number_of_a_command__followed_with_its_own_unit_and_direction(project: Project) -> None:
    number = JobNumber(metric="number.rate", unit="tokens/s", better="higher")
    job = JobRecord(name="bench", kind="command", reference="python bench.py", sha256="0" * 64, numbers=[number])
    runs = []
    for index, run in enumerate(main_runs(30, shapes=("long",))):
        values = {"number.rate": (700.0 if index >= 20 else 1000.0) * (1 + 0.001 * (index % 3))}
        turn = Turn(workload="bench", start=0, quad=0, place=0, values=values, seconds=1.0)
        runs.append(changed(run, records=[job], turns=[turn]))
    project.record(runs)
    (series,) = [entry for entry in project.trend().series if entry.metric == "number.rate"]
    assert (series.unit, series.better, series.kind) == ("tokens/s", "higher", "noisy")
    (change,) = series.changes
    assert (change.first_bad, change.direction) == (commit_of(20), "worse")


def test_trend__new_testbed__its_series_start_anew_and_that_is_no_change(project: Project) -> None:
    project.record(main_runs(40, time=stepped(25, 1.3), new_testbed=25, shapes=("long",)))
    document = project.trend()
    assert [change for series in document.series for change in series.changes] == []
    before, after = document.testbeds
    assert (before.runs, after.runs) == (25, 15)
    assert [difference.field for difference in after.differences] == ["torch"]
    assert len({series.fingerprint for series in document.series}) == 2


def test_trend__commit_measured_on_the_old_and_the_new_testbed__the_uplift_is_one_event_with_its_effect(
    project: Project, tmp_path: Path
) -> None:
    again = main_runs(
        34,
        new_testbed=20,
        time=stepped(20, 1.3),
        commits=lambda index: commit_of(index - (index >= 20)),
        shapes=("long",),
    )
    project.record(again)
    document = project.trend(out=tmp_path / "out")
    (uplift,) = document.uplifts
    assert [(one.field, one.head) for one in uplift.differences] == [("torch", "2.14.0+cpu")]
    assert uplift.commits == [commit_of(19)]
    moved = {document.series[one.after].metric: one for one in uplift.moved}
    assert set(moved) == {"latency.low", "latency.p50", "latency.p90", "latency.p99", "throughput.median"}
    assert all(one.interval is not None for one in moved.values())
    assert {moved[metric].direction for metric in TIMES} == {"worse"}
    text = (tmp_path / "out" / "trend.md").read_text()
    assert f"1 commit measured on both: 5 metrics moved, {uplift.unmoved} did not." in text
    assert (f"For {uplift.undecided} metrics the noise is too large to tell." in text) == (uplift.undecided > 1)


def test_trend__old_testbed__named_as_not_looked_at(project: Project, tmp_path: Path) -> None:
    project.record(main_runs(60, time=stepped(5, 1.3), new_testbed=12, shapes=("long",)))
    document = project.trend(out=tmp_path / "out")
    assert [change for series in document.series for change in series.changes] == []
    assert next(one for one in document.searched.not_looked_at if one.reason == "old_testbed").series == 12
    assert [difference.field for difference in document.testbeds[1].differences] == ["torch"]


def test_trend__no_run_stored__says_how_many_it_takes(project: Project) -> None:
    with pytest.raises(UsageError, match=r"no run of project 'demo' is stored.*8 versions.*baseline record"):
        project.trend()


def test_trend__few_runs__nothing_looked_at_but_counters(project: Project) -> None:
    project.record(main_runs(4, shapes=("long",), operators=stepped(3, 1.3)))
    document = project.trend()
    short = next(one for one in document.searched.not_looked_at if one.reason == "too_short")
    assert (document.searched.looked_at, short.series) == (4, 8)
    (change,) = found_in(document, "counters.framework_ops").changes
    assert (change.before, change.after, change.evidence) == (40, 52, "exact")


def test_trend__one_run__says_that_it_is_too_few_and_not_that_nothing_moved(project: Project, tmp_path: Path) -> None:
    project.record(main_runs(1, shapes=("long",)))
    assert project.trend(out=tmp_path / "out").searched.looked_at == 0
    text = (tmp_path / "out" / "trend.md").read_text()
    assert text.startswith("## `demo` on main: too few runs to look at yet\n")
    assert "nothing moved" not in (tmp_path / "out" / "trend.html").read_text()


def dated(run: RunDocument, started_at: str) -> RunDocument:
    return msgspec.structs.replace(
        run, session=msgspec.structs.replace(run.session, id=started_at, started_at=started_at)
    )


def test_trend__run_of_a_clock_that_was_wrong__left_out_and_said(project: Project, slower_store: Path) -> None:
    project.take(slower_store)
    ahead = main_runs(1, shapes=("long",), new_testbed=0)[0]
    project.record_in(2099, dated(ahead, "2099-01-01T00:00:00+00:00"))
    document = project.trend()
    assert (document.runs.count, document.runs.newest[:10], len(document.runs.weeks)) == (48, "2026-07-08", 10)
    assert found_in(document).changes[0].standing == "new"
    (note,) = document.notes
    assert "1 of 49 runs are dated weeks after today, 2027-01-15; the last is" in note
    assert (
        "of 2099-01-01: correct the clock of the machine that measured, or of this machine; they are left out" in note
    )


def test_trend__every_run_after_today__says_to_set_the_clock(project: Project) -> None:
    project.record_in(2099, dated(main_runs(1)[0], "2099-01-01T00:00:00+00:00"))
    with pytest.raises(UsageError, match=r"1 of 1 runs are dated weeks after today.*or of this machine$"):
        project.trend()


def test_trend__run_of_a_clock_that_was_never_set__looked_at(project: Project) -> None:
    project.record([dated(main_runs(1)[0], "1970-01-01T00:00:00+00:00")])
    assert next(iter(project.trend().runs.weeks)) == "1969-12-29"


def test_trend__workload_renamed__its_regression_is_open_no_more_and_it_is_named(
    project: Project, tmp_path: Path
) -> None:
    renamed = [
        dated(
            changed(
                run,
                counters=[],
                steps=[msgspec.structs.replace(step, workload="decoder") for step in run.checklist.steps],
            ),
            (moment(run.session.started_at) + timedelta(days=110)).isoformat(),
        )
        for run in main_runs(12, shapes=("long",))
    ]
    project.record([*slower(), *renamed])
    document = project.trend(out=tmp_path / "out")
    assert not document.open_regressions
    assert {series.workload for series in document.series if series.current} == {"decoder"}
    (ended,) = (one for one in document.searched.not_looked_at if one.reason == "not_measured")
    assert (ended.series, "latency.p50 · encoder/long" in ended.names) == (12, True)
    assert "12 series have no run in the last four weeks:" in (tmp_path / "out" / "trend.md").read_text()
    assert "12 series have no run in the last four weeks:" in (tmp_path / "out" / "trend.html").read_text()


@pytest.mark.parametrize("strange", [5e-324, 1e308, -1e308], ids=str)
def test_trend__value_that_nothing_measures__left_out_and_said(
    project: Project, strange: float, tmp_path: Path
) -> None:
    runs = main_runs(12, shapes=("long",))
    for index in range(10, 12):
        values = [
            msgspec.structs.replace(value, value=strange, interval=None)
            for value in runs[index].checklist.steps[0].values
        ]
        first = msgspec.structs.replace(runs[index].checklist.steps[0], values=values)
        runs[index] = changed(runs[index], steps=[first, *runs[index].checklist.steps[1:]])
    project.record(runs)
    document = project.trend(out=tmp_path / "out")
    assert (len(found_in(document).points), found_in(document).changes) == (10, [])
    assert (
        f"2 of 12 values of latency.p50 are left out because they are impossible: the last is {strange:g}, in"
        in " ".join(document.notes)
    )


@pytest.mark.parametrize("value", [0.0, -0.25])
def test_trend__zero_and_less__values_like_any(project: Project, value: float, tmp_path: Path) -> None:
    runs = main_runs(12, shapes=("long",), operators=lambda _: 0.0)
    steps = [msgspec.structs.replace(found, value=value, interval=None) for found in runs[-1].checklist.steps[0].values]
    first = msgspec.structs.replace(runs[-1].checklist.steps[0], values=steps)
    runs[-1] = changed(runs[-1], steps=[first, *runs[-1].checklist.steps[1:]])
    project.record(runs)
    document = project.trend(out=tmp_path / "out")
    assert [point.value for point in found_in(document).points][-1] == value
    assert document.notes == []


def test_trend__metric_by_pattern__that_alone(project: Project) -> None:
    project.record(main_runs(10, shapes=("long",)))
    assert {one.metric for one in project.trend(metrics=("latency.p9*",)).series} == {"latency.p90", "latency.p99"}
    with pytest.raises(UsageError, match=r"no stored series .* stored metrics are .*latency\.low"):
        project.trend(metrics=("latency.p77",))
    with pytest.raises(UsageError, match="no stored series is of workload 'decoder'; stored workloads are encoder"):
        project.trend(workloads=("decoder",))


def test_trend__misspelled_among_others__refused_instead_of_left_out(project: Project) -> None:
    project.record(main_runs(10, shapes=("long",)))
    with pytest.raises(UsageError, match="no stored series is of workload 'encodr'"):
        project.trend(workloads=("encoder", "encodr"))
    with pytest.raises(UsageError, match=r"no stored series is of metric 'latency.p77'; stored metrics are .*latency"):
        project.trend(metrics=("latency.p90", "latency.p77"))


def test_trend__several_runs_of_a_commit__one_value_a_version(project: Project) -> None:
    project.record(main_runs(12, shapes=("long",), commits=lambda index: commit_of(index // 3)))
    points = found_in(project.trend()).points
    assert [point.runs for point in points] == [3, 3, 3, 3]


def test_trend__out__page_text_and_documents(project: Project, slower_store: Path, tmp_path: Path) -> None:
    project.take(slower_store)
    document = project.trend(out=tmp_path / "out")
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files >= {"trend.html", "trend.md", "trend.json", "trend-state.json"}
    written = msgspec.json.decode((tmp_path / "out" / "trend.json").read_bytes(), type=TrendDocument)
    assert written == document
    value = json.loads((tmp_path / "out" / "trend.json").read_bytes())
    assert value["schema"] == "perfgate/trend"
    jsonschema.validate(value, load_schema("trend"))
    assert len(document.runs.health) == 26
    assert [run.failed for run in document.runs.health if run.failed] == [["encoder: step 4"]]
    assert sum(point.interval is not None for point in found_in(document).points) == 27  # and the testbed's first


def test_trend__same_folder_again__open_and_no_longer_new(project: Project, slower_store: Path, tmp_path: Path) -> None:
    project.take(slower_store)
    assert found_in(project.trend(out=tmp_path / "out")).changes[0].standing == "new"
    assert found_in(project.trend(out=tmp_path / "out")).changes[0].standing == "open"


def test_trend__state_that_is_none__said_with_its_path(project: Project, slower_store: Path, tmp_path: Path) -> None:
    project.take(slower_store)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trend-state.json").write_text('{"schema": "something else"}')
    with pytest.raises(DocumentError, match=r"trend-state\.json.*remove it"):
        project.trend(out=tmp_path / "out")


def test_trend__accepted_in_the_store__accepted(project: Project, slower_store: Path) -> None:
    project.take(slower_store)
    word = Acceptance(
        commit=commit_of(STEP), metric="*", reason="a larger model", accepted_by="mei", accepted_at=CONFIRMED_AT
    )
    project.store.append("demo", [word])
    document = project.trend()
    assert found_in(document).changes[0].accepted == "mei: a larger model"
    assert not document.open_regressions


def test_trend__acceptance_that_expired__open_again_and_named(project: Project, slower_store: Path) -> None:
    project.take(slower_store)
    word = Acceptance(
        commit=commit_of(STEP), metric="*", reason="a larger model", accepted_by="mei", accepted_at=CONFIRMED_AT
    )
    project.store.append("demo", [msgspec.structs.replace(word, until="2999-12-31")])
    assert project.trend().expired == []
    ended = msgspec.structs.replace(word, until="2026-08-01")
    project.store.append("demo", [ended])
    document = project.trend()
    assert (found_in(document).changes[0].standing, document.expired) == ("new", [ended])
    assert document.open_regressions


def test_trend__triaged_in_the_store__expected_closes_it_and_acknowledged_does_not(
    project: Project, slower_store: Path
) -> None:
    project.take(slower_store)
    state = Triage(commit=commit_of(STEP), state="acknowledged", reason="in #12", author="mei", changed_at=CONFIRMED_AT)
    project.store.append("demo", [state])
    document = project.trend()
    assert document.causes[0].triage == state
    assert document.open_regressions
    project.store.append("demo", [msgspec.structs.replace(state, state="expected")])
    document = project.trend()
    assert found_in(document).changes[0].accepted == "mei: in #12"
    assert not document.open_regressions


def test_trend__email__one_file_that_needs_no_folder_of_ours(
    project: Project, slower_store: Path, tmp_path: Path
) -> None:
    project.take(slower_store)
    project.trend(email=tmp_path / "weekly.html")
    text = (tmp_path / "weekly.html").read_text()
    assert text.startswith("<!doctype html>")
    assert f"{commit_of(STEP)[:10]}" in text
    assert "Failed, of the last 26 runs" in text
    with pytest.raises(UsageError, match="is not a folder; create it"):
        project.trend(email=tmp_path / "nowhere" / "weekly.html")


def test_trend__confirmation_in_the_store__confirmed(project: Project, slower_store: Path) -> None:
    project.take(slower_store)
    project.store.append("demo", [answer(project.trend())])
    (change,) = found_in(project.trend()).changes
    assert change.confirmation is not None
    assert (change.evidence, change.confirmation.low, change.confirmation.high) == ("confirmed", 0.06, 0.1)


def test_trend__confirmations_of_another_job__kept_where_they_answer_a_suspicion(
    project: Project, slower_store: Path, tmp_path: Path
) -> None:
    project.take(slower_store)
    good = answer(project.trend())
    stranger = msgspec.structs.replace(good, before=commit_of(3), after=commit_of(4))
    forged = [
        stranger,
        msgspec.structs.replace(good, workload="decoder"),
        msgspec.structs.replace(good, low=0.1, high=0.06),
        msgspec.structs.replace(good, low=None),
        msgspec.structs.replace(good, confirmed_at="2999-01-01T00:00:00Z"),
        msgspec.structs.replace(good, confirmed_at="yesterday"),
    ]
    document = project.trend(confirmations=confirmations_file(tmp_path, *forged, good))
    assert found_in(document).changes[0].evidence == "confirmed"
    assert project.store.entries("demo", Confirmation) == [good]
    assert "6 entries of confirmations.json answer no suspicion and are left out" in project.progress.notes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "confirmations.json"),
        ('{"schema": "perfgate/confirmations", "project": "demo", "confirmations": [], "more": 1}', "unknown field"),
        ('{"schema": "perfgate/run", "project": "demo"}', "Invalid"),
        ('{"project": "demo", "project": "demo"}', "twice|duplicate"),
        ('{"project": "demo", "confirmations": [{"low": NaN}]}', "NaN"),
        ('{"project": "other"}', "of project 'other'"),
        ("[" * 5000, "deep|nest|confirmations.json"),
        (" " * 2_000_000, "bytes"),
    ],
    ids=["cut", "more", "schema", "twice", "nan", "project", "deep", "large"],
)
def test_trend__confirmations_that_are_none__refused(
    project: Project, slower_store: Path, tmp_path: Path, text: str, words: str
) -> None:
    project.take(slower_store)
    path = tmp_path / "confirmations.json"
    path.write_text(text)
    with pytest.raises(DocumentError, match=words):
        project.trend(confirmations=path)


def test_trend__in_a_clone__the_commits_that_may_have_done_it(project: Project) -> None:
    repository = ScratchRepository(project.root, "trend")
    repository.start("the first")
    for number in range(1, 12):
        merged = {5: " (#12)", 6: "\n\nSee merge request team/model!7"}.get(number, "")
        repository.git("commit", "--quiet", "--allow-empty", "--message", f"commit {number}{merged}")
    commits = repository.git("log", "--reverse", "--format=%H").split()
    # Every third commit is measured.
    runs = main_runs(4, shapes=("long",), operators=stepped(2, 1.3), commits=lambda index: commits[3 * index])
    project.record(runs)
    (change,) = found_in(project.trend(), "counters.framework_ops").changes
    assert [label.subject for label in change.commits] == ["commit 6", "commit 5 (#12)", "commit 4"]
    assert [label.change_request for label in change.commits] == ["!7", "#12", ""]
    assert {label.author for label in change.commits} == {repository.git("log", "-1", "--format=%an").strip()}
    assert (change.last_good, change.first_bad, change.commit_count) == (commits[3], commits[6], 3)
    word = Acceptance(
        commit=commits[5], metric="counters.*", reason="wanted", accepted_by="mei", accepted_at=CONFIRMED_AT
    )
    project.store.append("demo", [word])
    assert found_in(project.trend(), "counters.framework_ops").changes[0].standing == "accepted"


@pytest.mark.parametrize("state", ["accepted", "expected"])
def test_trend__more_commits_between_two_runs_than_are_listed__the_one_that_a_person_named_counts(
    project: Project, state: str
) -> None:
    repository = ScratchRepository(project.root, "trend")
    repository.start("the first")
    for number in range(1, 61):
        repository.git("commit", "--quiet", "--allow-empty", "--message", f"commit {number}")
    commits = repository.git("log", "--reverse", "--format=%H").split()
    runs = main_runs(3, shapes=("long",), operators=stepped(1, 1.3), commits=lambda index: commits[30 * index])
    project.record(runs)
    (change,) = found_in(project.trend(), "counters.framework_ops").changes
    assert (len(change.commits), change.commit_count, change.standing) == (MOST_COMMITS, 30, "new")
    named: Acceptance | Triage = make_triage(commit=commits[2], state="expected", changed_at=CONFIRMED_AT)
    if state == "accepted":
        named = Acceptance(
            commit=commits[2], metric="counters.*", reason="wanted", accepted_by="mei", accepted_at=CONFIRMED_AT
        )
    project.store.append("demo", [named])
    (change,) = found_in(project.trend(), "counters.framework_ops").changes
    assert change.standing == "accepted"
    assert (change.commits[-1].subject, len(change.commits)) == ("commit 2", MOST_COMMITS + 1)


@pytest.mark.parametrize("rewritten", [False, True], ids=["shallow and partial", "rewritten"])
def test_trend__clone_that_does_not_know_all_between__names_no_commits_rather_than_some(
    project: Project, tmp_path: Path, rewritten: bool
) -> None:
    origin, clone = tmp_path / "origin", project.root / "clone"
    git(tmp_path, "init", "-q", "-b", "main", "origin")
    git(origin, "config", "uploadpack.allowFilter", "true")
    for number in range(6):
        git(origin, "commit", "-q", "--allow-empty", "-m", f"commit {number}")
    commits = git(origin, "log", "--reverse", "--format=%H").split()
    if rewritten:
        git(tmp_path, "clone", "-q", f"file://{origin}", str(clone))
        git(origin, "reset", "-q", "--hard", commits[1])
        git(origin, "commit", "-q", "--allow-empty", "-m", "instead")
        git(clone, "fetch", "-q", "origin")
    else:
        git(tmp_path, "clone", "-q", "--depth=2", "--filter=blob:none", f"file://{origin}", str(clone))
    measured = [commits[0], commits[2], *2 * [git(origin, "rev-parse", "HEAD")]]
    shutil.copy(project.root / "perfgate.toml", clone)
    project.record(main_runs(4, shapes=("long",), operators=stepped(2, 1.3), commits=measured.__getitem__))
    (change,) = found_in(replace(project, root=clone).trend(), "counters.framework_ops").changes
    assert (change.last_good, change.first_bad) == (measured[1], measured[2])
    assert (change.commits, change.commit_count) == ([], 0)


@pytest.mark.parametrize(
    ("metric", "compared", "expected"),
    [
        ("latency.p50", {"metric": "latency.p50", "outcome": "regressed", "interval": (0.04, 0.08)}, (0.04, 0.08)),
        ("latency.p90", {"metric": "latency.p50", "outcome": "regressed", "interval": (0.04, 0.08)}, (0.04, 0.08)),
        ("throughput.median", {"metric": "throughput.turnaround", "outcome": "regressed", "interval": (0.25, 1.0)},
         (-0.5, -0.2)),
        ("latency.p50", {"metric": "latency.p50", "outcome": "inconclusive", "interval": (-1.0, float("inf"))}, (None, None)),
    ],
)  # fmt: skip
def test_confirmation_of__comparison_that_answers__its_interval(metric: str, compared: Any, expected: Any) -> None:
    found = confirmation_of(
        make_decision(comparisons=[make_comparison(**compared)]), "a", "b", make_series(metric=metric), "f" * 64
    )
    assert found is not None
    assert found.outcome == compared["outcome"]
    assert (found.low, found.high) == pytest.approx(expected)


def test_confirmation_of__nothing_that_answers__none() -> None:
    elsewhere = [make_comparison("latency.p50", shape="short"), make_bound("latency.p50", 0.05, 0.04)]
    assert confirmation_of(make_decision(comparisons=elsewhere), "a", "b", make_series(), "f" * 64) is None


def test_trend__confirm_outside_a_clone__says_that_it_needs_one(project: Project, slower_store: Path) -> None:
    project.take(slower_store)
    with pytest.raises(Exception, match="--confirm measures two commits, so it needs a clone"):
        project.trend(confirm=True)


def test_trend__confirm_with_nothing_suspected__measures_nothing(project: Project, tmp_path: Path) -> None:
    project.record(main_runs(20, shapes=("long",)))
    project.trend(confirm=True, out=tmp_path / "out")
    assert project.progress.notes == ["every suspected change is already confirmed or refuted"]
    assert json.loads((tmp_path / "out" / "confirmations.json").read_bytes())["confirmations"] == []


@dataclass
class Job:
    """The weekly job of a project on a fake forge."""

    project: Project
    fake: FakeForge

    def week(self, run: int, *, attempt: int = 1, token: str | None = BOT_TOKEN, **options: Any) -> TrendDocument:
        numbers = {"GITHUB_RUN_ID": str(run), "GITHUB_RUN_ATTEMPT": str(attempt), "CI_PIPELINE_ID": str(run)}
        environ = {**self.project.environ, **numbers, **({"PERFGATE_TOKEN": token} if token else {})}
        return replace(self.project, environ=environ).trend(post=True, **options)

    @property
    def issue(self) -> str:
        (issue,) = self.fake.issues
        return issue.body


@pytest.fixture(params=[GitHubDialect, GitLabDialect], ids=["github", "gitlab"])
def job(request: pytest.FixtureRequest, project: Project, tmp_path: Path) -> Iterator[Job]:
    with FakeForge(request.param()) as fake:
        (tmp_path / "event.json").write_text('{"schedule": "30 3 * * 1"}')
        github = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": "schedule",
            "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
            "GITHUB_REPOSITORY": "team/model",
            "GITHUB_SERVER_URL": fake.url,
            "GITHUB_API_URL": fake.api_url,
            "GITHUB_SHA": "a" * 40,
        }
        gitlab = {
            "GITLAB_CI": "true",
            "CI_SERVER_URL": fake.url,
            "CI_API_V4_URL": fake.api_url,
            "CI_PROJECT_ID": "5",
            "CI_PROJECT_PATH": "team/model",
            "CI_COMMIT_SHA": "a" * 40,
            "CI_PIPELINE_SOURCE": "schedule",
            "CI_COMMIT_BRANCH": "main",
        }
        project.environ |= github if isinstance(fake.dialect, GitHubDialect) else gitlab
        yield Job(project, fake)
        assert fake.violations == []


def test_weekly__three_weeks__one_issue_a_comment_only_for_news(job: Job) -> None:
    runs = slower(60)
    job.project.record(runs[:STEP])
    job.week(1, metrics=TIMES)
    assert "nothing moved" in job.issue
    assert "No metric got worse on main." in job.issue
    job.project.record(runs[STEP:50])
    job.week(2, metrics=TIMES)
    assert "1 regression" in job.issue
    (comment,) = job.fake.comments[job.fake.issues[0].number]
    assert comment.body.startswith("perfgate: 1 regression")
    job.project.record(runs[50:])
    document = job.week(3, metrics=TIMES)
    assert "1 regression still open" in job.issue
    assert "Still open" in job.issue
    assert len(job.fake.comments[job.fake.issues[0].number]) == 1
    assert document.searched.new_values == 3 * 10
    assert job.project.said[-1] == f"The issue {job.fake.issues[0].number} was updated."


def test_weekly__older_run_posts_last__the_newer_text_stays(job: Job, slower_store: Path) -> None:
    job.project.take(slower_store)
    job.week(7)
    before = job.issue
    job.week(6)
    assert job.issue == before
    assert "from a newer run" in job.project.said[-1]


def test_weekly__settled_since_last_week__said_in_text_and_comment(job: Job, slower_store: Path) -> None:
    job.project.take(slower_store)
    document = job.week(1)
    for metric in TIMES:
        job.project.store.append("demo", [answer(document, "unchanged", metric=metric, low=-0.003, high=0.004)])
    job.week(2)
    assert "1 settled" in job.issue
    assert "refuted: both commits measured side by side show 0.3 % faster to 0.4 % slower" in job.issue
    assert "refuted" in job.fake.comments[job.fake.issues[0].number][-1].body


def test_weekly__without_a_token__printed_and_nothing_sent(job: Job, slower_store: Path) -> None:
    job.project.take(slower_store)
    job.week(1, token=None)
    assert job.fake.calls == []
    assert "Nothing was posted: no token in" in job.project.said[-1]
    assert "1 regression" in job.project.said[0]


def test_weekly__forge_refuses__exit_code_of_the_forge(job: Job, slower_store: Path) -> None:
    job.project.take(slower_store)
    job.fake.script("POST", Reply(403, {"message": "Resource not accessible"}))
    with pytest.raises(ForgeError) as refused:
        job.week(1)
    assert refused.value.exit_code == 4


def test_weekly__chinese__issue_in_chinese(job: Job, slower_store: Path) -> None:
    job.project.take(slower_store)
    job.week(1, language="zh")
    assert "的 main：1 项劣化" in job.issue


def test_weekly__outside_ci__printed(project: Project, slower_store: Path) -> None:
    project.take(slower_store)
    project.trend(post=True)
    assert project.said[-1] == "Nothing was posted: this is not a CI job of a forge that perfgate knows."


def test_trend__one_run_file_of_a_branch_damaged__left_out_and_said_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    clone, remote = clone_of_empty_remote(tmp_path), tmp_path / "remote.git"
    (clone / "perfgate.toml").write_text('project = "demo"\nworkload = "perf/workload.py:encoder"\n')
    store = GitBranchStore("branch://perfgate-data", StorePlace(root=clone, environ={}))
    ids = record_runs(store, main_runs(10, shapes=("long",)), allow_dirty=False, now=None)
    paths = [path for path in files(remote) if path.startswith("runs/")]
    put(remote, next(path for path in paths if ids[3] in path), b"{")
    project = Project(clone, {"PERFGATE_STORE": "branch://perfgate-data"})
    document = project.trend()
    assert document.runs.count == 9
    assert [point.run_id for point in found_in(document).points] == [*ids[:3], *ids[4:]]
    assert document.notes == project.progress.notes
    assert "a run is left out: the branch perfgate-data of" in project.progress.notes[0]
    for path in paths:
        put(remote, path, b"{")
    with pytest.raises(StoreError, match=r"is damaged: .*restore an earlier commit"):
        project.trend()


def test_open_documents__server_is_gone_since_the_lists_were_read__asked_once_and_said(tmp_path: Path) -> None:
    clone, remote = clone_of_empty_remote(tmp_path), tmp_path / "remote.git"
    store = GitBranchStore("branch://perfgate-data", StorePlace(root=clone, environ={}))
    record_runs(store, main_runs(3, shapes=("long",)), allow_dirty=False, now=None)
    stored = StoredHistories(stored_runs(store, "demo"), [], [])
    log = read_log(store, "demo")
    remote.rename(tmp_path / "moved.git")
    notes: list[str] = []
    assert open_documents(log, stored, note=notes.append).documents == {}
    (note,) = notes
    assert note.startswith("the checklist over time has 0 runs alone: the branch perfgate-data of")


def test_trend__more_versions_than_are_searched_with_two_runs_each__the_newest_with_both_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfgate.flows.shared.trend.read.MOST_POINTS", 5)
    record_runs(
        project.store,
        main_runs(24, shapes=("long",), commits=lambda index: commit_of(index // 2)),
        allow_dirty=False,
        now=None,
    )
    points = found_in(project.trend()).points
    assert [(point.commit, point.runs) for point in points] == [(commit_of(version), 2) for version in range(7, 12)]


def test_trend__table_alone__says_nothing_of_unreadable_documents(project: Project, slower_store: Path) -> None:
    """They give the origin of a change if they can be read; the page shows more of them."""
    project.take(slower_store)
    with closing(sqlite3.connect(project.environ["PERFGATE_STORE"])) as connection:
        connection.execute("UPDATE run_documents SET document = x'00'")
        connection.commit()
    assert found_in(project.trend()).changes
    assert project.progress.notes == []
    document = project.trend(out=project.root / "out")
    assert found_in(document).changes
    assert document.runs.health == []
    assert "a run is left out of the checklist over time" in project.progress.notes[0]
    assert document.notes == project.progress.notes


def waiting_since(run: RunDocument, index: int, at: int) -> RunDocument:
    """A run whose encoder reads a number back from the device in every call since one version."""
    if index < at:
        return run
    ops = [OpCount(op="aten::add", count=12, line="model.py:88"), OpCount(op="aten::item", count=1, line="model.py:91")]
    sites = [
        CounterSite(metric=metric, name="aten::item", count=1, line="model.py:91", code="scale = x.max().item()")
        for metric in ("counters.syncs", "counters.framework_ops")
    ]
    counters = [
        msgspec.structs.replace(
            entry,
            values={**entry.values, "counters.syncs": 1, "counters.framework_ops": 41, "counters.copies": 3},
            ops=ops,
            sites=sites,
        )
        for entry in run.checklist.counters
    ]
    return changed(run, counters=counters)


def test_trend__one_item_and_a_slowdown_of_another_commit__two_regressions_with_one_chart_each(
    project: Project, tmp_path: Path
) -> None:
    waits, slows = 16, 29
    levels = {True: 1.2, False: 1.04}
    runs = main_runs(
        40, shapes=("long",), time=lambda index: 1.0 if index < waits else levels[index >= slows], days=1.0, seed=3
    )
    project.record([waiting_since(run, index, waits) for index, run in enumerate(runs)])
    document = project.trend(out=tmp_path / "out")
    by_commit = {cause.first_bad: cause for cause in document.causes}
    assert [commit_of(waits), commit_of(slows)] == sorted(by_commit)
    assert [cause.standing for cause in document.causes] == ["new", "new"]

    def metrics(commit: str) -> list[str]:
        return [document.series[place.series].metric for place in by_commit[commit].changes]

    assert metrics(commit_of(waits))[0] == "latency.p50"
    assert {"counters.syncs", "counters.framework_ops", "counters.copies"} < set(metrics(commit_of(waits)))
    assert set(metrics(commit_of(slows))) <= {*TIMES, "latency.p90", "latency.p99"}
    (operator,) = by_commit[commit_of(waits)].operators
    assert (operator.op, operator.base_count, operator.head_count) == ("aten::item", 0, 1)
    assert operator.line == "model.py:91"
    assert by_commit[commit_of(slows)].operators == []

    issue = (tmp_path / "out" / "trend.md").read_text()
    assert issue.startswith("## `demo` on main: 2 regressions\n")
    assert "1 more `aten::item`" in issue
    assert (tmp_path / "out" / "trend.html").read_text().count('<svg class="plot history') == 2
    assert len(json.loads((tmp_path / "out" / "trend.json").read_text())["causes"]) == 2


def test_trend__artifacts_of_the_runs_beside_a_change__linked_and_every_link_opens(
    project: Project, slower_store: Path, tmp_path: Path
) -> None:
    project.take(slower_store)
    with file_server(tmp_path / "kept") as url:
        config = project.root / "perfgate.toml"
        config.write_text(f'{config.read_text()}[artifacts]\npath = "{tmp_path / "kept"}"\nurl = "{url}"\n')
        store = open_artifacts_at(str(tmp_path / "kept"), {}, url)
        for run in stored_runs(project.store, "demo"):
            if run.commit in (commit_of(STEP - 1), commit_of(STEP)):
                folder = tmp_path / run.id
                made = artifact_set(folder, session=run.session, project="demo")
                store.keep(msgspec.structs.replace(made, id=run.id), folder, lambda *_: None)
        project.trend(out=tmp_path / "out")
        links = re.findall(rf'href="({url}/[^"]+)"', (tmp_path / "out" / "trend.html").read_text())
        assert {requests.get(link, timeout=30).status_code for link in links} == {200}
    assert len(set(links)) == 4
    (tmp_path / "kept").rename(tmp_path / "moved")
    (tmp_path / "kept").write_text("a file in the way")
    project.trend(out=tmp_path / "out")
    assert project.progress.notes[-1].startswith("artifacts are not linked: ")
