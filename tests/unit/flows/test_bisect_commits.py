"""A search over real commits, with a gate that reads its answer from the commit and has known noise."""

from __future__ import annotations

import json
import math
import os
import random
import re
import subprocess
from collections.abc import Collection
from dataclasses import dataclass, field
from math import ceil, log2
from pathlib import Path

import msgspec
import pytest

from perfgate.conductor.machine.lock import machine_lock
from perfgate.conductor.workers.foresight import Foresight
from perfgate.config import load_config
from perfgate.document.bisection import BisectionDocument, CommitChange
from perfgate.document.comparison import Comparison
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import write_document
from perfgate.document.message import Message
from perfgate.document.run import CounterSet, Source
from perfgate.errors import ConfigError, MeasuringError, UsageError
from perfgate.flows.bisect.bisect import bisect_commits
from perfgate.flows.bisect.commits import states_between
from perfgate.flows.bisect.search import ImpossibleStateError, TrialSides
from perfgate.flows.shared.options import CheckOptions
from perfgate.flows.shared.store import open_project_store
from perfgate.git.repository import Repository
from perfgate.judging.report.render.bisection import BisectionWords
from perfgate.judging.store.runs import record_run
from perfgate.judging.store.store import STORE_VARIABLE
from tests.fakes.documents import make_comparison, make_counter, make_decision, make_failure, make_run
from tests.fakes.remote import git

TOML = 'project = "demo"\nworkload = "workload.py:encoder"\n'


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock that a search takes, in place of the machine's."""
    path = tmp_path / "machine.lock"
    monkeypatch.setenv("PERFGATE_LOCK", str(path))
    return path


@dataclass
class History:
    """A clone whose commits change the cost of a model, break it, or change nothing that runs; made in one go."""

    root: Path
    commits: list[str] = field(default_factory=list)

    def write(self, states: list[dict[str, str]]) -> None:
        """One commit a state, which maps each file that it changes to its text."""
        self.root.mkdir()
        git(self.root, "init", "-q", "-b", "main", ".")
        stream = []
        for number, files in enumerate(states):
            subject = f"commit {number}"
            stream += ["commit refs/heads/main", f"committer Ada <ada@example.org> {1_700_000_000 + number} +0000"]
            stream += [f"data {len(subject)}", subject]
            for name, text in files.items():
                stream += [f"M 100644 inline {name}", f"data {len(text)}", text]
        git(self.root, "fast-import", "--quiet", feed="\n".join(stream) + "\n")
        git(self.root, "reset", "-q", "--hard", "main")
        self.commits = git(self.root, "rev-list", "--reverse", "main").split()


def make_history(root: Path, count: int, culprit: int, special: dict[int, dict[str, str]] = {}) -> History:  # noqa: B006
    """A history in which every commit changes code; from ``culprit`` on the model costs 4 % more."""
    states = []
    for number in range(count):
        cost = 1.04 if number >= culprit else 1.0
        states.append(special.get(number, {"model.py": f"COST = {cost}\nNUMBER = {number}\n"}))
    states[0] = {"perfgate.toml": TOML, "workload.py": "def encoder(): ...\n", **states[0]}
    history = History(root)
    history.write(states)
    return history


@dataclass
class SimulatedGate:
    """Compares the costs that two commits state, with normal noise of a known standard error a gate."""

    history: History
    spread: float = 0.0
    spread_later: float | None = None
    seed: int = 0
    # The commit, by its number, of which the first gate finds no clock that is fair.
    unread: int | None = None
    asked: list[str] = field(default_factory=list)
    budgets: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def __call__(self, directory: Path, options: CheckOptions, progress: Quiet) -> DecisionDocument:
        assert options.base
        assert options.head
        assert options.always
        self.asked.append(options.head)
        self.budgets.append(options.budgets)
        (options.out / "head").mkdir(parents=True, exist_ok=True)
        write_document(options.out / "head" / "run.json", make_run("head"))
        cost, text = self._cost(options.head)
        if "wrong_config" in text:
            raise ConfigError("perfgate.toml: unknown key")
        if "spoils the good one" in text:
            return make_decision("INCONCLUSIVE", comparisons=[], failures=[make_failure("base")])
        if "broken" in text:
            return make_decision("INCONCLUSIVE", comparisons=[], failures=[make_failure("head")])
        delta = cost / self._cost(options.base)[0] - 1
        if not self.spread:
            counter = make_counter("counters.framework_ops", 100, round(100 * (1 + delta)))
            return make_decision("FAIL" if delta else "PASS", comparisons=[counter])
        spread = self.spread if self.spread_later is None or len(self.asked) == 1 else self.spread_later
        compared = self._noisy(delta, spread / math.sqrt(options.budgets))
        is_unread = self.unread is not None and options.head == self.history.commits[self.unread]
        if is_unread and self.asked.count(options.head) == 1:
            compared = msgspec.structs.replace(compared, outcome="inconclusive", delta=None, interval=None)
        return make_decision(
            {"regressed": "FAIL", "unchanged": "PASS"}.get(compared.outcome, "INCONCLUSIVE"),
            comparisons=[compared],
            reasons=[Message("verdict.undecided", {"name": "x"})],
        )

    def _noisy(self, delta: float, spread: float) -> Comparison:
        seen = delta + self.random.gauss(0.0, spread)
        half = 2.58 * spread
        outcome = "regressed" if seen > half else "unchanged" if seen + half < 0.02 else "inconclusive"
        return make_comparison(outcome=outcome, delta=seen, interval=(seen - half, seen + half), p_adjusted=0.01)

    def _cost(self, commit: str) -> tuple[float, str]:
        text = Repository(self.history.root).show(commit, "model.py") or ""
        return float(text.split("COST = ")[1].split()[0]) if "COST" in text else 1.0, text


@dataclass
class StatedCounts:
    """Counts the operators that two commits state; ``more`` on both sides is another way of counting."""

    history: History
    more: int = 0
    gated: frozenset[int] = frozenset()
    asked: list[str] = field(default_factory=list)

    def compare(self, sides: TrialSides, workloads: Collection[str]) -> list[Comparison] | None:
        assert sides.base
        assert sides.head
        assert workloads == {"encoder"}
        self.asked.append(sides.head)
        texts = [Repository(self.history.root).show(commit, "model.py") or "" for commit in (sides.base, sides.head)]
        if "broken" in texts[1]:
            raise ImpossibleStateError("RuntimeError: broken")
        if self.history.commits.index(sides.head) in self.gated:
            return None
        costs = [float(text.split("COST = ")[1].split()[0]) for text in texts]
        return [make_counter("counters.framework_ops", *(round(100 * cost) + self.more for cost in costs))]


class Quiet:
    def status(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def expect(self, foresight: Foresight) -> None: ...


def search(
    gate: SimulatedGate, out: Path, *, good: int = 0, always: bool = False, counter: StatedCounts | None = None
) -> BisectionDocument:
    history = gate.history
    options = CheckOptions(out=out, always=always)
    return bisect_commits(history.root, history.commits[good], "main", options, gate, Quiet(), counter)[0]


def name_in_latin_1(history: History) -> None:
    """Give the last commit an author and a subject that are not UTF-8, as old tools wrote them."""
    commit = subprocess.run(["git", "cat-file", "commit", "main"], cwd=history.root, check=True, capture_output=True)
    named = commit.stdout.replace(b"Ada", "Jörg".encode("latin-1"))
    number = len(history.commits) - 1
    named = named.replace(f"commit {number}".encode(), "größer".encode("latin-1"))
    write = ["git", "hash-object", "-t", "commit", "-w", "--stdin"]
    written = subprocess.run(write, cwd=history.root, input=named, check=True, capture_output=True)
    history.commits[-1] = written.stdout.decode().strip()
    git(history.root, "update-ref", "refs/heads/main", history.commits[-1])


def broken_commit(number: int) -> dict[str, str]:
    return {"model.py": f"COST = 1.0\nNUMBER = {number}\nbroken = True\n"}


def test_bisect__irrelevant_and_broken_commits__the_slow_one_found_in_log2_gates(tmp_path: Path) -> None:
    comments = {number: {"model.py": f"# {number}\nCOST = 1.0\nNUMBER = 4\n"} for number in range(5, 30)}
    broken = {number: broken_commit(number) for number in (31, 36, 37, 38)}
    history = make_history(tmp_path / "clone", 60, 43, {**comments, **broken})
    gate = SimulatedGate(history)
    document = search(gate, tmp_path / "out")
    assert [document.searched.changes[at].commit for at in document.culprits[0]] == [history.commits[43]]
    assert (document.outcome, document.searched.irrelevant, document.error) == ("found", 25, 0.0)
    assert BisectionWords(document).result == f"Slower since {history.commits[43][:10]}, by Ada: commit 43"
    assert document.followed == ["encoder/long counters.framework_ops"]
    # The ends, log2 of the commits that count, the broken ones that were met, and the culprit against its parent.
    assert len(gate.asked) <= 1 + ceil(log2(34)) + 2 + 1
    assert document.confirmation is not None
    assert (document.confirmation.changes, document.confirmation.answer) == (document.culprits[0], "slow")
    written = json.loads((tmp_path / "out" / "bisection.json").read_text())
    assert written["searched"]["good"] == history.commits[0]
    assert written["searched"]["changes"][0]["kind"] == "commit"


def test_bisect__counters_differ_between_the_ends__all_other_commits_counted_and_the_culprit_gated(
    tmp_path: Path,
) -> None:
    broken = {number: broken_commit(number) for number in (31, 36, 37, 38)}
    history = make_history(tmp_path / "clone", 60, 43, broken)
    gate, counter = SimulatedGate(history), StatedCounts(history, gated=frozenset({44}))
    document = search(gate, tmp_path / "out", counter=counter)
    assert [document.searched.changes[at].commit for at in document.culprits[0]] == [history.commits[43]]
    # The ends, the culprit against its parent, and the commit of which counters tell nothing.
    parent_of = {history.commits[59]: "ends", history.commits[43]: "culprit", history.commits[44]: "uncounted"}
    assert sorted(parent_of[commit] for commit in gate.asked) == sorted(
        ["ends", "culprit", *["uncounted"] * (history.commits[44] in counter.asked)]
    )
    assert len(counter.asked) == len(document.tried) - 1
    assert {trial.answered_by for trial in document.tried[1:]} <= {"count", "gate", "nothing"}
    skipped = [trial.reason for trial in document.tried if trial.answer == "impossible"]
    assert set(skipped) <= {"RuntimeError: broken"}
    assert (document.gates, document.error) == (len(gate.asked), 0.0)


def test_bisect__old_state_counted_differently_than_in_its_gate__gates_decide(tmp_path: Path) -> None:
    history = make_history(tmp_path / "clone", 16, 9)
    document = search(SimulatedGate(history), tmp_path / "out", counter=StatedCounts(history, more=1))
    assert document.culprits == [[8]]
    assert {trial.answered_by for trial in document.tried} == {"gate"}


def test_bisect__times_alone_differ__nothing_counted(tmp_path: Path) -> None:
    history = make_history(tmp_path / "clone", 16, 9)
    counter = StatedCounts(history)
    document = search(SimulatedGate(history, spread=0.006), tmp_path / "out", counter=counter)
    assert (document.outcome, counter.asked) == ("found", [])


def test_bisect__first_commit_is_the_slow_one_and_was_counted__gated_for_its_comment(tmp_path: Path) -> None:
    history = make_history(tmp_path / "clone", 16, 1)
    gate = SimulatedGate(history)
    document = search(gate, tmp_path / "out", counter=StatedCounts(history))
    assert (document.culprits, document.confirmation) == ([[0]], None)
    assert gate.asked == [history.commits[15], history.commits[1]]
    assert document.deciding is not None
    assert document.tried[document.deciding].changes == [0]


def test_bisect__commits_around_the_slow_one_cannot_be_tried__all_of_them_named(tmp_path: Path) -> None:
    broken = {10: broken_commit(10), 11: {"model.py": "COST = 1.04\nwrong_config = True\n"}}
    history = make_history(tmp_path / "clone", 20, 11, broken)
    document = search(SimulatedGate(history), tmp_path / "out")
    assert [document.searched.changes[at].commit for at in document.culprits[0]] == history.commits[10:13]
    assert BisectionWords(document).result == (
        f"{history.commits[12][:10]} is slower and {history.commits[9][:10]} is not; those between cannot be tried"
    )
    assert document.confirmation is None
    assert {trial.reason for trial in document.tried if trial.answer == "impossible"} >= {"perfgate.toml: unknown key"}


def test_bisect__good_commit_fails_in_a_later_gate__an_error_and_no_commit_is_blamed(tmp_path: Path) -> None:
    spoils = {8: {"model.py": "COST = 1.0\n# spoils the good one\nNUMBER = 8\n"}}
    history = make_history(tmp_path / "clone", 17, 12, spoils)
    with pytest.raises(MeasuringError, match="the old state cannot be measured"):
        search(SimulatedGate(history), tmp_path / "out")


def test_bisect__culprit_cannot_be_gated_against_its_parent__found_all_the_same(tmp_path: Path) -> None:
    history = make_history(tmp_path / "clone", 16, 9)

    class FailsOnParent(SimulatedGate):
        def __call__(self, directory: Path, options: CheckOptions, progress: Quiet) -> DecisionDocument:
            if options.base == self.history.commits[8]:
                return make_decision("INCONCLUSIVE", comparisons=[], failures=[make_failure("base")])
            return super().__call__(directory, options, progress)

    document = search(FailsOnParent(history), tmp_path / "out", counter=StatedCounts(history))
    assert [document.searched.changes[at].commit for at in document.culprits[0]] == [history.commits[9]]
    assert document.confirmation is not None
    assert (document.confirmation.answer, document.confirmation.answered_by) == ("impossible", "nothing")
    assert BisectionWords(document).certainty[-1] == (
        "this commit alone, against the preceding one, cannot be measured: "
        "the old state cannot be measured: loading of workload encoder fails"
    )
    assert (tmp_path / "out" / "bisection.json").is_file()


def test_bisect__bad_is_not_slower__one_gate_and_no_culprit(tmp_path: Path) -> None:
    history = make_history(tmp_path / "clone", 9, 99)
    gate = SimulatedGate(history)
    document = search(gate, tmp_path / "out")
    assert (document.outcome, len(gate.asked)) == ("none", 1)
    assert BisectionWords(document).result == f"{history.commits[8][:10]} is not slower than {history.commits[0][:10]}"


@pytest.mark.parametrize(("good", "complaint"), [(8, "is not before"), (3, "none of the 5 commits")])
def test_bisect__nothing_to_search__says_what_to_do(tmp_path: Path, good: int, complaint: str) -> None:
    comments = {number: {"model.py": f"# {number}\nCOST = 1.0\nNUMBER = 3\n"} for number in range(4, 9)}
    history = make_history(tmp_path / "clone", 9, 99, comments)
    with pytest.raises(UsageError, match=complaint):
        search(SimulatedGate(history), tmp_path / "out", good=good)


def test_bisect__all_commits_wanted__irrelevant_ones_count_too(tmp_path: Path) -> None:
    history = make_history(tmp_path / "clone", 9, 4, {2: {"README.md": "text\n"}})
    document = search(SimulatedGate(history), tmp_path / "out", always=True)
    assert (len(document.searched.changes), document.searched.irrelevant, document.culprits) == (8, 0, [[3]])


@pytest.mark.parametrize("seed", range(3))
def test_bisect__noisy_times__found_and_the_stated_error_within_what_was_allowed(tmp_path: Path, seed: int) -> None:
    culprit = 7 + 11 * seed
    history = make_history(tmp_path / "clone", 40, culprit)
    document = search(SimulatedGate(history, spread=0.006, seed=seed), tmp_path / "out")
    assert [document.searched.changes[at].commit for at in document.culprits[0]] == [history.commits[culprit]]
    assert document.followed == ["encoder/long latency.low"]
    assert 0 < document.error <= 0.05


def test_bisect__gates_and_counts__under_one_lock_that_ends_with_the_search(tmp_path: Path, lock: Path) -> None:
    holders: list[str] = []

    class WatchingGate(SimulatedGate):
        def __call__(self, directory: Path, options: CheckOptions, progress: Quiet) -> DecisionDocument:
            with machine_lock(lock, purpose="perfgate check", say=print, timeout=0.0):
                holders.append(lock.read_text())
            return super().__call__(directory, options, progress)

    class WatchingCounter(StatedCounts):
        def compare(self, sides: TrialSides, workloads: Collection[str]) -> list[Comparison] | None:
            holders.append(lock.read_text())
            return super().compare(sides, workloads)

    history = make_history(tmp_path / "clone", 20, 13)
    gate, counter = WatchingGate(history), WatchingCounter(history)
    search(gate, tmp_path / "out", counter=counter)
    assert len(holders) == len(gate.asked) + len(counter.asked) > 4
    assert re.fullmatch(rf"process {os.getpid()} on \S+: perfgate bisect in {history.root}, since .* UTC\n", holders[0])
    assert set(holders) == {holders[0]}
    assert lock.read_text() == ""


def test_bisect__gate_without_a_fair_clock__measured_anew_and_not_passed_over(tmp_path: Path) -> None:
    history = make_history(tmp_path / "clone", 17, 9)
    gate = SimulatedGate(history, spread=0.003, unread=8)
    document = search(gate, tmp_path / "out")
    assert (document.outcome, document.culprits) == ("found", [[8]])
    again = [trial for trial in document.tried if trial.repeated]
    assert [history.commits.index(document.searched.changes[max(trial.changes)].commit) for trial in again] == [8]  # type: ignore[union-attr]
    assert (again[0].answer, gate.asked.count(history.commits[8])) == ("fast", 2)


def test_bisect__gates_stay_inconclusive__suspects_and_no_guess(tmp_path: Path) -> None:
    history = make_history(tmp_path / "clone", 16, 8)
    gate = SimulatedGate(history, spread=0.006)
    document = search(gate, tmp_path / "first")
    assert document.outcome == "found"
    document = search(SimulatedGate(history, spread=0.006, spread_later=0.2), tmp_path / "out")
    assert (document.outcome, document.culprits, document.deciding) == ("undecided", [], 3)
    assert 7 in document.suspects
    # A gate that follows a time may take as long as both gates of the ends, and then is not repeated.
    assert (gate.budgets[0], set(gate.budgets[1:])) == (1.0, {4.0})
    assert not any(trial.repeated for trial in document.tried[1:])


@pytest.mark.parametrize("more", [0, 1])
def test_bisect__stored_runs_know_the_counters__their_commits_need_no_gate_unless_counted_in_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    history = make_history(tmp_path / "clone", 32, 21)
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store.db"))
    store = open_project_store(load_config(history.root), os.environ)
    for number in (0, *range(1, 31, 2)):
        operators = {"counters.framework_ops": (104 if number >= 21 else 100) + more}
        counted = CounterSet(workload="encoder", shape="long", repeats=3, values=operators, ops=[])
        run = make_run(None, counters=[counted], source=Source(commit=history.commits[number], branch="main"))
        session = msgspec.structs.replace(run.session, id=f"session-{number}")
        record_run(store, msgspec.structs.replace(run, session=session))
    gate = SimulatedGate(history)
    document = search(gate, tmp_path / "out")
    assert [document.searched.changes[at].commit for at in document.culprits[0]] == [history.commits[21]]
    stored = sum(trial.answered_by == "store" for trial in document.tried)
    if more:
        # The good commit's own count differs from the measured one, so the others were counted in another way too.
        assert stored == 0
        return
    assert stored >= 3
    # Both ends, the one commit between that no run is stored of, and the culprit against its parent.
    assert len(gate.asked) == 3


def test_bisect__stored_runs_of_another_workload_file__their_commits_are_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For some commits the workload itself did more, which a gate measures on both sides."""
    history = make_history(tmp_path / "clone", 16, 11)
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store.db"))
    store = open_project_store(load_config(history.root), os.environ)
    for number in range(1, 15):
        is_other = 3 <= number <= 8
        operators = 150 if is_other else (104 if number >= 11 else 100)
        values = {"counters.framework_ops": operators}
        counted = CounterSet(workload="encoder", shape="long", repeats=3, values=values, ops=[])
        run = make_run(None, counters=[counted], source=Source(commit=history.commits[number], branch="main"))
        workloads = run.workloads
        if is_other:
            workloads = [msgspec.structs.replace(workload, sha256="b" * 64) for workload in workloads]
        session = msgspec.structs.replace(run.session, id=f"session-{number}")
        record_run(store, msgspec.structs.replace(run, session=session, workloads=workloads))
    document = search(SimulatedGate(history), tmp_path / "out")
    assert [document.searched.changes[at].commit for at in document.culprits[0]] == [history.commits[11]]
    assert document.confirmation is not None
    assert document.confirmation.answer == "slow"
    assert sum(trial.answered_by == "store" for trial in document.tried) > 0


def test_states__commits_of_a_merged_branch__the_merge_alone_is_one(tmp_path: Path) -> None:
    history = make_history(tmp_path / "clone", 3, 99)
    git(history.root, "checkout", "-q", "-b", "topic", history.commits[1])
    for number in (1, 2):
        (history.root / "model.py").write_text(f"COST = 1.0\nTOPIC = {number}\n")
        git(history.root, "commit", "-qam", f"topic {number}")
    git(history.root, "checkout", "-q", "main")
    git(history.root, "merge", "-q", "--no-ff", "-X", "theirs", "-m", "merge topic", "topic")
    repository = Repository(history.root)
    states = states_between(
        repository,
        history.root,
        load_config(history.root),
        history.commits[0],
        repository.head(),
        always=False,
        say=lambda _: None,
    )
    assert [change.subject for change in states.changes] == ["commit 1", "commit 2", "merge topic"]


def test_bisect__good_commit_of_a_merged_branch__commits_without_it_are_not_blamed(tmp_path: Path) -> None:
    """Main is slow until the branch with the good commit, which repairs it, is merged; a later commit is the culprit."""
    history = make_history(tmp_path / "clone", 2, 1)
    git(history.root, "checkout", "-q", "-b", "topic")
    (history.root / "model.py").write_text("COST = 1.0\nTOPIC = True\n")
    git(history.root, "commit", "-qam", "repair")
    good = git(history.root, "rev-parse", "HEAD")
    git(history.root, "checkout", "-q", "main")
    for number in range(8):
        (history.root / "other.py").write_text(f"NUMBER = {number}\n")
        git(history.root, "add", "other.py")
        git(history.root, "commit", "-qm", f"innocent {number}")
    git(history.root, "merge", "-q", "--no-ff", "-m", "merge topic", "topic")
    for number, cost in enumerate((1.0, 1.04, 1.04)):
        (history.root / "model.py").write_text(f"COST = {cost}\nNUMBER = {number}\n")
        git(history.root, "commit", "-qam", f"later {number}")
    history.commits = [good]
    document = search(SimulatedGate(history), tmp_path / "out")
    subjects = [change.subject for change in document.searched.changes if isinstance(change, CommitChange)]
    assert subjects == ["merge topic", "later 0", "later 1", "later 2"]
    assert [subjects[at] for at in document.culprits[0]] == ["later 1"]


def test_bisect__author_and_subject_in_latin_1__found_and_written(tmp_path: Path) -> None:
    history = make_history(tmp_path / "clone", 4, 3)
    name_in_latin_1(history)
    search(SimulatedGate(history), tmp_path / "out")
    document = json.loads((tmp_path / "out" / "bisection.json").read_text(encoding="utf-8"))
    last = document["searched"]["changes"][-1]
    assert (last["author"], last["subject"]) == ("J?rg", "gr??er")
