"""What every store must do, over all of them found in the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec
import pytest

from perfgate.document.conditions import StepConditions
from perfgate.document.history import Acceptance, Confirmation, GateRecord, Triage
from perfgate.document.run import CorrectnessResult, CounterSet, RunDocument, StepProcedure, Value
from perfgate.errors import StoreError, StoreRefusedError, UnknownRunError
from perfgate.judging.store import backends
from perfgate.judging.store.backends.service import ServiceStore
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.index import FollowedLog, read_index, read_log
from perfgate.judging.store.runs import prune_runs, record_run, record_runs, run_entries, stored_run, stored_runs
from perfgate.judging.store.store import (
    COPIER,
    Page,
    RunEntry,
    SeriesPlace,
    Store,
    StorePlace,
    labels_text,
)
from perfgate.judging.store.transfer import copy_store
from perfgate.plugins import load_members
from tests.fakes.recorded import record_as
from tests.fakes.records import changed
from tests.fakes.remote import clone_of_empty_remote
from tests.fakes.service import Listening, listening, serve_folder
from tests.unit.document.minimal import minimal_run

if TYPE_CHECKING:
    from tests.fakes.postgres import PostgresServer

BACKENDS = load_members(backends)


def _sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "folder" / "store.db")


def _postgres(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.address(server.create_database())


def _gitbranch(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    clone_of_empty_remote(tmp_path)
    return "branch://perfgate-data"


def _service(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    service = serve_folder(request.getfixturevalue("address"), tmp_path)
    request.getfixturevalue("monkeypatch").setenv("PERFGATE_STORE_TOKEN", service.token(None))
    return service.url


# How each kind of store is set up: by its name, so that a new one is missed here.
PLACES = {"sql": (_sqlite, _postgres), "gitbranch": (_gitbranch,), "service": (_service,)}
STORES = [(backend, place) for backend in BACKENDS for place in PLACES[backend.__name__.rpartition(".")[2]]]


@pytest.fixture(scope="module")
def address() -> Iterator[Listening]:
    with listening() as found:
        yield found


@pytest.fixture(params=STORES, ids=lambda store: store[1].__name__.strip("_"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    backend: ModuleType
    backend, place = request.param
    location = place(request, tmp_path)
    opened: Store = backend.open_backend(location, StorePlace(root=tmp_path / "clone", environ=os.environ))
    return opened


@pytest.fixture
def own_store(store: Store) -> None:
    """A store of one's own: a service neither removes runs nor takes those of another store."""
    if isinstance(store, ServiceStore):
        with pytest.raises(StoreError, match="on the machine of the service"):
            store.remove("shop", ["0" * 64])
        with pytest.raises(StoreError, match="into its store on its own machine"):
            record_as(store, COPIER, run_of_day(1))
        pytest.skip("refused by a service")


def run_of_day(day: int, *, value: float = 0.002, fingerprint: str = "f1", project: str = "shop") -> RunDocument:
    run = minimal_run(session=f"s{day}", value=value, fingerprint=fingerprint, project=project)
    session = msgspec.structs.replace(run.session, started_at=f"2026-03-{day:02}T12:00:00+00:00")
    return msgspec.structs.replace(run, session=session)


def history(store: Store, metric: str = "latency.p50", *, labels: dict[str, str] | None = None) -> list[float]:
    place = SeriesPlace("encoder", "short", metric, labels_text(labels or {}), "f1")
    return [value for _, value in read_index(store, "shop").history(place)]


def test_store__nothing_recorded__everything_is_empty(store: Store) -> None:
    assert stored_runs(store, "shop") == []
    assert history(store) == []
    assert store.damaged("shop") == []


def test_record__run__shown_again_as_it_was(store: Store) -> None:
    run_id = record_run(store, run_of_day(1))
    assert stored_run(store, "shop", run_id) == run_of_day(1)
    assert store.damaged("shop") == []
    assert stored_run(store, "shop", run_id[:8]) == run_of_day(1)


def test_record__run__listed_with_what_identifies_it(store: Store) -> None:
    run_id = record_run(store, run_of_day(1))
    (listed,) = stored_runs(store, "shop")
    assert listed.id == run_id
    assert (listed.project, listed.session, listed.started_at) == ("shop", "s1", "2026-03-01T12:00:00+00:00")
    assert (listed.fingerprint, listed.device_kind, listed.workloads) == ("f1", "cpu", ["encoder"])
    assert (listed.commit, listed.branch, listed.subject, listed.dirty) == ("a" * 40, "main", "Größer ✓", False)


def test_record__run_of_a_clock_years_ahead__refused_with_both_dates(store: Store) -> None:
    run = run_of_day(1)
    ahead = msgspec.structs.replace(
        run, session=msgspec.structs.replace(run.session, started_at="2131-03-01T12:00:00Z")
    )
    with pytest.raises(
        StoreError, match=r"is dated 2131-03-01T12:00:00Z, and it is 20\d\d-.* set the measuring machine"
    ):
        record_run(store, ahead)
    assert stored_runs(store, "shop") == []


def test_record__run_dated_before_all_clocks__refused(store: Store) -> None:
    """A time of the year 1 cannot be shown in another time zone."""
    run = run_of_day(1)
    for start in ("0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z"):
        session = msgspec.structs.replace(run.session, started_at=start)
        with pytest.raises(StoreError, match="before any computer's clock begins; set the measuring machine's clock"):
            record_run(store, msgspec.structs.replace(run, session=session))
    assert stored_runs(store, "shop") == []


def test_record__same_document_twice__kept_once(store: Store) -> None:
    assert record_run(store, run_of_day(1)) == record_run(store, run_of_day(1))
    assert len(stored_runs(store, "shop")) == 1


def test_record__session_kept_with_another_document__refused(store: Store) -> None:
    record_run(store, run_of_day(1))
    with pytest.raises(StoreError, match=r"session 's1' is already stored.*a session is stored once: measure again"):
        record_run(store, run_of_day(1, value=0.003))
    assert history(store) == [0.002]


@pytest.mark.usefixtures("own_store")
def test_record_all__one_of_them_refused__none_is_kept(store: Store) -> None:
    record_run(store, run_of_day(1))
    with pytest.raises(StoreError, match="session 's1' is already stored"):
        record_runs(store, [run_of_day(2), run_of_day(1, value=0.003)], allow_dirty=False, now=None)
    with pytest.raises(StoreError, match="uncommitted changes"):
        record_runs(store, [run_of_day(2), minimal_run(dirty=True)], allow_dirty=False, now=None)
    assert len(stored_runs(store, "shop")) == 1


def test_record_all__several_and_one_known__ids_of_the_new_ones_in_their_order(store: Store) -> None:
    known = record_run(store, run_of_day(2))
    ids = record_runs(store, [run_of_day(3), run_of_day(2), run_of_day(1)], allow_dirty=False, now=None)
    assert [listed.id for listed in stored_runs(store, "shop")] == [ids[0], known, ids[1]]
    assert (
        record_runs(store, [run_of_day(3), run_of_day(2)], allow_dirty=False, now=None)
        == record_runs(store, [], allow_dirty=False, now=None)
        == []
    )


def test_record__same_session_in_another_project__kept(store: Store) -> None:
    record_run(store, run_of_day(1))
    record_run(store, run_of_day(1, project="other"))
    assert len(stored_runs(store, "shop")) == 1
    assert len(stored_runs(store, "other")) == 1


def test_record__dirty_run__refused_unless_allowed_and_then_marked(store: Store) -> None:
    dirty = minimal_run(dirty=True)
    with pytest.raises(StoreError, match=r"uncommitted changes; commit them and measure again, or .* --allow-dirty"):
        record_run(store, dirty)
    assert stored_runs(store, "shop") == []
    record_run(store, dirty, allow_dirty=True)
    assert [listed.dirty for listed in stored_runs(store, "shop")] == [True]


def test_record__head_of_a_change__refused_even_with_allow_dirty(store: Store) -> None:
    with pytest.raises(StoreError, match="head of a change; only runs of main are kept"):
        record_run(store, msgspec.structs.replace(minimal_run(), side="head"), allow_dirty=True)


def test_record__correctness_check_failed__refused(store: Store) -> None:
    wrong = CorrectnessResult(workload="encoder", shape="short", status="failed", message="off by 3")
    with pytest.raises(StoreError, match="correctness check of workload 'encoder' failed"):
        record_run(store, changed(minimal_run(), correctness=[wrong]))


def test_record__start_is_no_time__refused(store: Store) -> None:
    session = msgspec.structs.replace(minimal_run().session, started_at="yesterday")
    with pytest.raises(StoreError, match="start 'yesterday' is not an ISO 8601 time"):
        record_run(store, msgspec.structs.replace(minimal_run(), session=session))


def test_history__recorded_out_of_order__oldest_session_first(store: Store) -> None:
    for day, value in ((3, 0.003), (1, 0.001), (2, 0.002)):
        record_run(store, run_of_day(day, value=value))
    assert history(store) == [0.001, 0.002, 0.003]
    assert [listed.session for listed in stored_runs(store, "shop")] == ["s3", "s2", "s1"]
    assert [listed.session for listed in stored_runs(store, "shop", Page(limit=2))] == ["s3", "s2"]


def test_runs__one_page_behind_the_other__every_run_once_also_of_one_moment(store: Store) -> None:
    record_runs(
        store,
        [*(run_of_day(day) for day in (1, 2)), *(run_of_moment(number) for number in range(3))],
        allow_dirty=False,
        now=None,
    )
    everything = stored_runs(store, "shop")
    pages = [stored_runs(store, "shop", Page(limit=2))]
    while pages[-1]:
        pages.append(stored_runs(store, "shop", Page(limit=2, before=pages[-1][-1].id)))
    assert [run for page in pages for run in page] == everything
    assert len(everything) == 5


def run_of_moment(number: int) -> RunDocument:
    run = run_of_day(3)
    return msgspec.structs.replace(run, session=msgspec.structs.replace(run.session, id=f"same-{number}"))


def test_runs__page_behind_no_run_of_the_project__refused(store: Store) -> None:
    other = record_run(store, run_of_day(1, project="other"))
    for before in (other, "0" * 64):
        with pytest.raises(UnknownRunError, match="holds no run"):
            stored_runs(store, "shop", Page(before=before))


def test_stored_projects__runs_of_one_and_a_statement_of_another__both_named_or_told_of(store: Store) -> None:
    assert store.stored_projects().names == []
    record_run(store, run_of_day(1))
    store.append("quiet", [acceptance()])
    projects = store.stored_projects()
    assert not projects.unreadable
    # A service lists the projects with runs.
    told_of = len(projects.names) - 1 + len(projects.unnamed)
    assert ("shop" in projects.names, told_of) == (True, 0 if isinstance(store, ServiceStore) else 1)
    assert store.projects() == ["shop"]


def test_documents__run_of_another_project__refused(store: Store) -> None:
    run_id = record_run(store, run_of_day(1))
    assert stored_run(store, "shop", run_id) == run_of_day(1)
    with pytest.raises(UnknownRunError, match="holds no run"):
        stored_run(store, "other", run_id)


def test_revision__every_write_to_the_project__another_one(store: Store) -> None:
    seen = [store.revision("shop")]
    for write in (
        lambda: record_run(store, run_of_day(1)),
        lambda: record_run(store, run_of_day(2)),
        lambda: store.append("shop", [acceptance()]),
        lambda: store.append("shop", [acceptance(reason="still meant")]),
    ):
        write()
        seen.append(store.revision("shop"))
    assert len(set(seen)) == len(seen)
    assert store.revision("shop") == seen[-1]


def test_followed_log__runs_added_behind_and_before_others_and_removed__as_it_is_read_anew(store: Store) -> None:
    log = FollowedLog("shop")

    def check() -> None:
        followed, anew = log.read(store), read_log(store, "shop")
        assert followed.index.runs == anew.index.runs
        assert followed.index.series() == anew.index.series()
        for place in anew.index.series():
            assert followed.index.history(place) == anew.index.history(place)
        assert (followed.acceptances, followed.damaged) == (anew.acceptances, anew.damaged)

    check()
    for day in (5, 7, 9, 8):
        record_run(store, run_of_day(day))
        check()
    record_runs(store, [run_of_day(day, fingerprint="f2") for day in range(10, 29)], allow_dirty=False, now=None)
    check()
    store.append("shop", [acceptance()])
    record_run(store, run_of_day(1, value=0.001))
    check()
    if not isinstance(store, ServiceStore):
        store.remove("shop", [log.read(store).index.runs[2].id])
        check()
    record_run(store, run_of_day(30))
    check()


@pytest.mark.usefixtures("own_store")
def test_followed_log__oldest_of_the_newest_removed_and_recorded_again__as_it_is_read_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfgate.judging.store.index._NEWEST_RUNS", 3)
    ids = record_runs(store, [run_of_day(day) for day in (1, 2, 3, 4, 5)], allow_dirty=False, now=None)
    log = FollowedLog("shop")
    log.read(store)
    store.remove("shop", ids[2:3])
    assert [run.session for run in log.read(store).index.runs] == ["s1", "s2", "s4", "s5"]
    record_run(store, run_of_day(3))
    assert [run.session for run in log.read(store).index.runs] == ["s1", "s2", "s3", "s4", "s5"]


@pytest.mark.usefixtures("own_store")
def test_followed_log__run_removed_and_an_older_one_added__as_it_is_read_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfgate.judging.store.index._NEWEST_RUNS", 3)
    ids = record_runs(store, [run_of_day(day) for day in (2, 4, 5, 6, 7)], allow_dirty=False, now=None)
    log = FollowedLog("shop")
    log.read(store)
    store.remove("shop", ids[:1])
    record_run(store, run_of_day(3))
    assert [run.session for run in log.read(store).index.runs] == ["s3", "s4", "s5", "s6", "s7"]


def test_run_entries__more_than_are_read_at_once__all_in_order_or_as_many_as_asked_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfgate.judging.store.runs._READ_AT_ONCE", 2)
    record_runs(store, [run_of_day(day) for day in (1, 2, 3, 4, 5)], allow_dirty=False, now=None)
    assert [run.session for run in stored_runs(store, "shop")] == ["s5", "s4", "s3", "s2", "s1"]
    assert [run.session for run in stored_runs(store, "shop", Page(limit=3))] == ["s5", "s4", "s3"]
    assert [run.session for run in read_index(store, "shop", Page(limit=4)).runs] == ["s2", "s3", "s4", "s5"]


@pytest.mark.usefixtures("own_store")
def test_run_entries__runs_removed_meanwhile__to_be_repeated(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfgate.judging.store.runs._READ_AT_ONCE", 2)
    ids = record_runs(store, [run_of_day(day) for day in (1, 2, 3, 4, 5)], allow_dirty=False, now=None)
    entries = run_entries(store, "shop")
    next(entries)
    store.remove("shop", ids[:4])
    with pytest.raises(StoreRefusedError, match="runs of 'shop' were removed while they were read; repeat it"):
        list(entries)


def test_history__sessions_of_other_time_zones__ordered_by_the_moment(store: Store) -> None:
    for name, start in (("late", "2026-03-01T10:00:00Z"), ("early", "2026-03-01T11:00:00+02:00")):
        session = msgspec.structs.replace(minimal_run().session, id=name, started_at=start)
        record_run(store, msgspec.structs.replace(minimal_run(), session=session))
    assert [listed.session for listed in stored_runs(store, "shop")] == ["late", "early"]


def test_history__other_testbed_project_shape_or_metric__left_out(store: Store) -> None:
    record_run(store, run_of_day(1))
    record_run(store, run_of_day(2, fingerprint="f2"))
    record_run(store, run_of_day(3, project="other"))
    assert history(store) == [0.002]
    places = read_index(store, "shop").series()
    assert {(place.workload, place.shape, place.fingerprint) for place in places} == {
        ("encoder", "short", "f1"),
        ("encoder", "short", "f2"),
    }
    assert history(store, "latency.p90") == []


def test_history__value_that_is_not_available__left_out(store: Store) -> None:
    record_run(store, run_of_day(1))
    assert history(store, "latency.p99") == []


def test_history__values_with_more_labels__found_by_them_only(store: Store) -> None:
    run = run_of_day(1)
    batches = [
        Value(metric="batch.throughput", value=value, labels={"shape": "short", "batch": batch})
        for batch, value in (("8", 80.0), ("16", 150.0))
    ]
    record_run(store, changed(run, steps=[msgspec.structs.replace(run.checklist.steps[0], values=batches)]))
    assert history(store, "batch.throughput") == []
    assert history(store, "batch.throughput", labels={"batch": "16"}) == [150.0]


def test_history__counters__kept_unless_unstable(store: Store) -> None:
    counts = {"counters.framework_ops": 41, "memory.peak": 9}
    counters = CounterSet(workload="encoder", shape="short", repeats=3, values=counts, ops=[], unstable=["memory.peak"])
    record_run(store, changed(run_of_day(1), counters=[counters]))
    assert history(store, "counters.framework_ops") == [41.0]
    assert history(store, "memory.peak") == []


def test_index__runs_of_a_testbed__their_values_and_in_their_entries_how_steps_were_measured(store: Store) -> None:
    run = run_of_day(1, value=0.001)
    procedure = StepProcedure(quick=True, clock="awake", after=[4])
    steps = [msgspec.structs.replace(step, waited=0.25, procedure=procedure) for step in run.checklist.steps]
    counters = CounterSet(workload="encoder", shape="short", repeats=3, values={"memory.peak": 9}, ops=[])
    record_run(store, changed(run, steps=steps, counters=[counters]))
    # Recorded in another order than they started.
    record_runs(store, [run_of_day(3, value=0.003), run_of_day(2, value=0.002)], allow_dirty=False, now=None)
    record_run(store, run_of_day(4, fingerprint="f2"))
    record_run(store, run_of_day(5, project="other"))
    index = read_index(store, "shop", Page(testbed="f1"))
    places = [
        SeriesPlace("encoder", "short", metric, labels, "f1")
        for metric, labels in (("memory.peak", ""), ("latency.p50", ""), ("latency.p50", '{"batch": "8"}'))
    ]
    assert [run.session for run in index.runs] == ["s1", "s2", "s3"]
    assert [index.history(place) for place in places] == [[(0, 9.0)], [(0, 0.001), (1, 0.002), (2, 0.003)], []]
    quick = StepConditions(workload="encoder", step=1, procedure="quick awake", after="4", waited=0.25)
    newest, _, oldest = store.entries("shop", RunEntry, Page(testbed="f1"))
    assert (oldest.conditions, len(newest.conditions)) == ([quick], 1)
    assert [run.session for run in read_index(store, "shop", Page(testbed="f1", limit=2)).runs] == ["s2", "s3"]


def test_show__unknown_ambiguous_or_empty_id__refused(store: Store) -> None:
    with pytest.raises(StoreError, match="holds no run 'abc'; `perfgate baseline list` shows"):
        stored_run(store, "shop", "abc")
    ids = record_runs(store, [run_of_day(day) for day in range(1, 18)], allow_dirty=False, now=None)
    first = [run_id[0] for run_id in ids]
    repeated = next(letter for letter in first if first.count(letter) > 1)  # 17 ids begin with 16 digits
    with pytest.raises(StoreError, match="several runs that begin with"):
        stored_run(store, "shop", repeated)
    for wrong in ("", "%", "_"):
        with pytest.raises(StoreError, match="holds no run"):
            stored_run(store, "shop", wrong)


@pytest.mark.usefixtures("own_store")
def test_prune__three_runs_on_one_testbed_one_on_another__newest_of_each_stay(store: Store) -> None:
    for day in (1, 2, 3):
        record_run(store, run_of_day(day, value=day / 1000))
    record_run(store, run_of_day(4, fingerprint="f2"))
    record_run(store, run_of_day(5, project="other"))
    assert prune_runs(store, "shop", keep=2) == 1
    assert [listed.session for listed in stored_runs(store, "shop")] == ["s4", "s3", "s2"]
    assert history(store) == [0.002, 0.003]
    assert len(stored_runs(store, "other")) == 1
    assert prune_runs(store, "shop", keep=0) == 3
    assert stored_runs(store, "shop") == []
    assert history(store) == []


@pytest.mark.usefixtures("own_store")
def test_prune__negative__refused(store: Store) -> None:
    with pytest.raises(StoreError, match="0 or more, found -1"):
        prune_runs(store, "shop", keep=-1)


def acceptance(
    commit: str = "a1", *, day: int = 1, reason: str = "meant", until: str | None = "2027-01-31"
) -> Acceptance:
    return Acceptance(
        commit=commit,
        metric="latency.low",
        reason=reason,
        accepted_by="Li",
        accepted_at=f"2026-03-{day:02}",
        until=until,
    )


def test_accept__of_several_commits__newest_first_and_by_commit(store: Store) -> None:
    store.append("shop", [acceptance("a1", day=1)])
    store.append("shop", [acceptance("b2", day=2)])
    store.append("other", [acceptance("a1", day=3)])
    assert [one.commit for one in store.entries("shop", Acceptance)] == ["b2", "a1"]


def test_accept__the_same_again__replaces_it(store: Store) -> None:
    store.append("shop", [acceptance()])
    store.append("shop", [acceptance(reason="still meant", until=None)])
    assert store.entries("shop", Acceptance) == [acceptance(reason="still meant", until=None)]


def test_accepted__no_store_yet__empty(store: Store) -> None:
    assert store.entries("shop", Acceptance) == []


def test_triage__the_same_commit_again__replaces_its_state(store: Store) -> None:
    first = Triage(commit="a1", state="acknowledged", reason="in #12 ✓", author="Li", changed_at="2026-03-01")
    other = msgspec.structs.replace(first, commit="b2", state="fixed", changed_at="2026-03-02")
    again = msgspec.structs.replace(first, state="expected", reason="", changed_at="2026-03-03")
    assert store.entries("shop", Triage) == []
    for triage in (first, other, again):
        store.append("shop", [triage])
    assert store.entries("shop", Triage) == [again, other]
    assert store.entries("another", Triage) == []


def test_series__runs_on_two_testbeds__one_series_each_with_its_runs(store: Store) -> None:
    for day, fingerprint in ((1, "f1"), (2, "f1"), (3, "f2")):
        record_run(store, run_of_day(day, fingerprint=fingerprint))
    index = read_index(store, "shop")
    found = [place for place in index.series() if place.metric == "latency.p50"]
    assert [(place.workload, place.shape, place.fingerprint, len(index.history(place))) for place in found] == [
        ("encoder", "short", "f1", 2),
        ("encoder", "short", "f2", 1),
    ]
    assert read_index(store, "another").series() == {}


def test_series__names_in_upper_and_lower_case__ordered_by_code_points(store: Store) -> None:
    for day, name in enumerate(("zebra", "Zebra", "äpfel", "apple"), start=1):
        run = run_of_day(day)
        steps = [msgspec.structs.replace(step, workload=name) for step in run.checklist.steps]
        workloads = [msgspec.structs.replace(workload, name=name) for workload in run.workloads]
        record_run(store, changed(run, steps=steps, workloads=workloads))
    assert [place.workload for place in read_index(store, "shop").series()] == ["Zebra", "apple", "zebra", "äpfel"]


def test_projects__runs_of_two__both_in_order(store: Store) -> None:
    assert store.projects() == []
    for day, project in ((1, "shop"), (2, "Bank"), (3, "shop")):
        record_run(store, run_of_day(day, project=project))
    assert store.projects() == ["Bank", "shop"]


@pytest.mark.usefixtures("own_store")
def test_copy_store__runs_of_a_store__same_ids_times_and_lists(store: Store, tmp_path: Path) -> None:
    source = SqlStore(tmp_path / "source.db")
    now = datetime(2026, 5, 1, tzinfo=timezone.utc)
    record_runs(source, [run_of_day(1), run_of_day(2, value=0.003)], now=now, allow_dirty=False)
    record_run(source, minimal_run(session="dirty", dirty=True), allow_dirty=True, now=now)
    for runs in (3, 0):
        assert copy_store(source, store, ["shop"], lambda *_: None, is_whole=True).runs == runs
        assert store.entries("shop", RunEntry) == source.entries("shop", RunEntry)
    ids = [run.id for run in stored_runs(source, "shop")]
    there, copied = source.documents("shop", ids), store.documents("shop", ids)
    assert [(one.id, one.data) for one in copied] == [(one.id, one.data) for one in there]
    assert history(store) == history(source)


@pytest.mark.usefixtures("own_store")
def test_copy_store__session_kept_with_another_document__none_is_stored(store: Store, tmp_path: Path) -> None:
    source = SqlStore(tmp_path / "source.db")
    record_runs(source, [run_of_day(1), run_of_day(2)], allow_dirty=False, now=None)
    record_run(store, run_of_day(1, value=0.009))
    with pytest.raises(StoreError, match="session 's1' is already stored"):
        copy_store(source, store, ["shop"], lambda *_: None, is_whole=True)
    assert history(store) == [0.009]


@pytest.mark.usefixtures("own_store")
def test_copy_store__tokens_and_audit_history__there_once_or_counted_as_left_out(store: Store, tmp_path: Path) -> None:
    source = SqlStore(tmp_path / "source.db")
    record_as(source, "token 1 runner", run_of_day(1), run_of_day(2))
    secret = source.ledger().create_token("runner", "shop", "write").secret
    everywhere = source.ledger().create_token("wall", None, "read").secret
    history = [msgspec.structs.replace(entry, number=0) for entry in source.ledger().history()]
    copies = [copy_store(source, store, ["shop"], lambda *_: None, is_whole=True) for _ in range(2)]
    assert stored_runs(store, "shop") == stored_runs(source, "shop")
    ledger = store.ledger()
    left, brought = [(copy.not_copied.tokens, copy.not_copied.audit_entries) for copy in copies], copies[0]
    if ledger is None:
        assert (left, brought.tokens, brought.audit_entries) == ([(2, 4), (2, 4)], 0, 0)
        return
    assert left == [(0, 0), (0, 0)]
    assert [(copy.tokens, copy.audit_entries) for copy in copies] == [(2, 4), (0, 0)]
    assert ledger.stored_tokens() == source.ledger().stored_tokens()
    assert {found.name for found in map(ledger.find, (secret, everywhere)) if found} == {"runner", "wall"}
    assert [msgspec.structs.replace(entry, number=0) for entry in ledger.history()][:4] == history


def test_copy_store__from_each_kind__runs_are_there_and_the_history_of_those_that_keep_one(
    store: Store, tmp_path: Path
) -> None:
    record_runs(store, [run_of_day(1), run_of_day(2)], allow_dirty=False, now=None)
    target = SqlStore(tmp_path / "target.db")
    copied = copy_store(store, target, ["shop"], lambda *_: None, is_whole=True)
    ledger = store.ledger()
    there = list(ledger.history()) if ledger is not None else []
    assert (copied.runs, copied.audit_entries) == (2, len(there))
    assert stored_runs(target, "shop") == stored_runs(store, "shop")
    actions = [entry.action for entry in target.ledger().history()]
    assert actions == [*(entry.action for entry in there), "runs copied"]


def test_confirm__the_same_commits_again__replaces_it(store: Store) -> None:
    first = Confirmation(
        before="a" * 40, after="b" * 40, workload="encoder", shape="short", metric="latency.low", outcome="inconclusive",
        fingerprint="f1", confirmed_at="2026-03-01T12:00:00+00:00",
    )  # fmt: skip
    second = msgspec.structs.replace(
        first, outcome="regressed", low=0.02, high=0.04, confirmed_at="2026-03-02T12:00:00+00:00"
    )
    other = msgspec.structs.replace(first, metric="latency.p99", confirmed_at="2026-03-03T12:00:00+00:00")
    assert store.entries("shop", Confirmation) == []
    for confirmation in (first, second, other):
        store.append("shop", [confirmation])
    assert store.entries("shop", Confirmation) == [other, second]
    assert store.entries("another", Confirmation) == []


def test_keep_gates__the_same_commit_again__replaces_its_verdict(store: Store) -> None:
    first = GateRecord(
        gate="default", commit="a" * 40, testbed="910b", change=7, verdict="FAIL", judged_at="2026-03-01T12:00:00+00:00"
    )
    other = msgspec.structs.replace(first, testbed="a3", verdict="PASS")
    again = msgspec.structs.replace(first, verdict="WARN", judged_at="2026-03-02T12:00:00+00:00")
    assert store.entries("shop", GateRecord) == []
    store.append("shop", [first, other])
    store.append("shop", [again])
    assert store.entries("shop", GateRecord) == [again, other]
    assert store.entries("another", GateRecord) == []
