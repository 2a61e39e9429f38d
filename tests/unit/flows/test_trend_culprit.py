"""`[trend] bisect`: the oldest open regression of main is bisected over real commits, with a gate that reads their cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from perfgate.config import load_config
from perfgate.document.history import Confirmation
from perfgate.document.trend import CommitLabel, ConfirmationsFile, TrendChange, TrendDocument
from perfgate.flows.bisect.bisect import bisect_commits
from perfgate.flows.shared.trend.commits import commit_names
from perfgate.flows.trend.confirm import read_confirmations
from perfgate.flows.trend.culprit import bisect_oldest
from perfgate.judging.store.index import read_log
from perfgate.judging.store.store import StorePlace, open_location
from perfgate.judging.trend.causes import causes, with_culprits
from perfgate.judging.trend.origin import with_origin
from perfgate.judging.trend.standing import judged
from perfgate.judging.trend.triage import TriagedChanges
from tests.fakes.history import commit_of
from tests.fakes.trends import make_change, make_confirmation, make_series, make_trend
from tests.unit.flows.test_bisect_commits import TOML, History, SimulatedGate, make_history, name_in_latin_1
from tests.unit.flows.test_trend import Said

CULPRIT, BAD = 5, 9


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "machine.lock"
    monkeypatch.setenv("PERFGATE_LOCK", str(path))
    return path


@pytest.fixture
def history(tmp_path: Path, lock: Path) -> History:
    """Ten commits, of which the sixth makes the model slower; bisections are switched on."""
    switched_on = {0: {"perfgate.toml": f"{TOML}[trend]\nbisect = true\n", "model.py": "COST = 1.0\nNUMBER = 0\n"}}
    history = make_history(tmp_path / "clone", BAD + 1, CULPRIT, switched_on)
    (history.root / "perfgate.toml").write_text(f"{TOML}[trend]\nbisect = true\n")
    return history


def step(history: History, **fields: object) -> TrendChange:
    """A regression between the first and the last commit."""
    values = {"last_good": history.commits[0], "first_bad": history.commits[BAD], "commit_count": BAD, "commits": []}
    return make_change(20, **{**values, **fields})


def trend_of(*changes: TrendChange) -> TrendDocument:
    return make_trend(*[make_series(change, metric="latency.low") for change in changes])


def bisected(
    history: History,
    document: TrendDocument,
    gate: SimulatedGate,
    progress: Said,
    clock: Callable[[], float] = lambda: 0.0,
) -> list[Confirmation]:
    config = load_config(history.root)
    return bisect_oldest(config, document, progress, check=gate, bisect=bisect_commits, clock=clock)


def test_bisect_oldest__open_regression_of_nine_commits__its_culprit_as_a_confirmation(history: History) -> None:
    (confirmation,) = bisected(history, trend_of(step(history)), SimulatedGate(history, spread=0.001), Said())
    assert confirmation.culprit == history.commits[CULPRIT]
    assert (confirmation.before, confirmation.after) == (history.commits[0], history.commits[BAD])


def test_bisect_oldest__two_regressions__the_oldest_first(history: History) -> None:
    older = step(history, first_seen="2026-01-01T00:00:00+00:00", last_good=history.commits[2])
    (confirmation,) = bisected(history, trend_of(step(history), older), SimulatedGate(history, spread=0.001), Said())
    assert confirmation.before == history.commits[2]


def test_bisect_oldest__single_commit_or_settled__nothing_is_measured(history: History) -> None:
    gate = SimulatedGate(history, spread=0.001)
    document = trend_of(step(history, commit_count=1), step(history, standing="resolved"))
    assert bisected(history, document, gate, Said()) == []
    assert gate.asked == []


def test_bisect_oldest__bisected_before__not_again(history: History) -> None:
    gate = SimulatedGate(history, spread=0.001)
    confirmations = bisected(history, trend_of(step(history)), gate, Said())
    asked = len(gate.asked)
    again = step(history, confirmation=confirmations[0])
    assert bisected(history, trend_of(again), gate, Said()) == []
    assert len(gate.asked) == asked


def test_bisect_oldest__machine_in_use__nothing_is_measured(history: History, lock: Path) -> None:
    gate, progress = SimulatedGate(history, spread=0.001), Said()
    # The lock of another process: this process would not wait for its own.
    with lock.open("w") as held:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX)
        assert bisected(history, trend_of(step(history)), gate, progress) == []
    assert gate.asked == []
    assert progress.notes == ["the machine is in use; the next report bisects the oldest regression"]


def test_bisect_oldest__minutes_are_over__no_further_gate(history: History) -> None:
    gate, progress = SimulatedGate(history, spread=0.001), Said()
    times = iter([0.0, 0.0, 1700.0, 1900.0])
    assert bisected(history, trend_of(step(history)), gate, progress, clock=lambda: next(times)) == []
    assert len(gate.asked) == 2
    assert "did not end within 30 minutes" in progress.notes[-1]


def test_bisect_oldest__bad_commit_is_not_slower__the_suspicion_is_refuted(tmp_path: Path, lock: Path) -> None:
    history = make_history(tmp_path / "clone", BAD + 1, culprit=BAD + 1)
    gate = SimulatedGate(history, spread=0.001)
    document = trend_of(step(history))
    (confirmation,) = bisected(history, document, gate, Said())
    assert (confirmation.culprit, confirmation.outcome) == ("", "unchanged")


def test_read_confirmations__culprit_of_an_exact_count__believed_if_it_lies_between_the_runs(tmp_path: Path) -> None:
    inside, outside = "ab" * 20, "cd" * 20
    labels = [
        CommitLabel(commit=inside, subject="Refine the output"),
        CommitLabel(commit=commit_of(20), subject="after"),
    ]
    change = make_change(20, evidence="exact", commits=labels, commit_count=2)
    document = make_trend(make_series(change, metric="counters.framework_ops", kind="exact"))
    entries = []
    for culprit in (inside, outside):
        entries.append(
            make_confirmation("inconclusive", metric="counters.framework_ops", low=None, high=None, culprit=culprit)
        )
    path = tmp_path / "confirmations.json"
    path.write_bytes(msgspec.json.encode(ConfirmationsFile(project="demo", confirmations=entries)))
    notes: list[str] = []
    assert [entry.culprit for entry in read_confirmations(path, document, note=notes.append)] == [inside]
    assert len(notes) == 1


def test_judged__confirmation_with_a_culprit__the_only_commit_of_the_entry_with_its_evidence() -> None:
    culprit = "ab" * 20
    change = make_change(20)
    confirmation = Confirmation(
        before=str(change.last_good), after=str(change.first_bad), workload="encoder", shape="long", metric="latency.p50",
        outcome="regressed", fingerprint="f" * 64, confirmed_at=change.first_seen, culprit=culprit,
    )  # fmt: skip
    series = judged(
        make_series(change), confirmations=[confirmation], accepted=[], triaged=TriagedChanges([], []), before=None,
        newest=change.first_seen,
    )  # fmt: skip
    (cause,) = causes(with_culprits([series]))
    assert ([label.commit for label in cause.commits], cause.commit_count) == ([culprit], 1)
    explained = with_origin(cause, [series], {})
    assert explained.origin == "code"
    assert [entry.sign for entry in explained.origin_evidence] == ["confirmed", "bisected"]


def test_bisect_oldest__minutes_are_over_before_the_last_gate__the_culprit_is_kept(history: History) -> None:
    """The last gate only shows the culprit alone."""
    gate = SimulatedGate(history, spread=0.001)
    bisected(history, trend_of(step(history)), gate, Said())
    times = iter([0.0] * len(gate.asked) + [1900.0])
    again = SimulatedGate(history, spread=0.001)
    (confirmation,) = bisected(history, trend_of(step(history)), again, Said(), clock=lambda: next(times))
    assert confirmation.culprit == history.commits[CULPRIT]
    assert len(again.asked) == len(gate.asked) - 1


def test_commit_names__author_and_subject_in_latin_1__can_be_written(tmp_path: Path) -> None:
    history = make_history(tmp_path / "clone", BAD + 1, CULPRIT)
    name_in_latin_1(history)
    empty = read_log(open_location(str(tmp_path / "store.db"), StorePlace(history.root, {})), "demo")
    named = commit_names(history.root, empty)(step(history))
    newest = named.commits[0]
    assert (newest.commit, newest.author, newest.subject) == (history.commits[BAD], "J?rg", "gr??er")
    assert msgspec.json.decode(msgspec.json.encode(named), type=TrendChange) == named
