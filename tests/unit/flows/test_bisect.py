"""What a bisection asks for, and how it reads pip and gates."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perfgate.config import load_config
from perfgate.document.budget import PlacePattern, parse_place
from perfgate.document.comparison import Comparison
from perfgate.document.decision import DecisionDocument
from perfgate.document.message import Message
from perfgate.errors import MeasuringError, UsageError
from perfgate.flows.bisect import stacks
from perfgate.flows.bisect.answers import (
    Signal,
    TrialReading,
    read_first,
    read_last,
    read_next,
    read_time,
    signal_of,
)
from perfgate.flows.bisect.request import (
    InterpreterList,
    LaunchedVersions,
    PackageSets,
    Pins,
    ReleaseRange,
    parse_between,
    parse_bisect,
)
from perfgate.flows.bisect.stacks import StackMaker, releases_between, versions_in
from tests.fakes.documents import make_comparison, make_counter, make_decision, make_failure
from tests.fakes.wheels import write_wheel


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("torch==2.13,attrs==26.1", {"torch": "2.13", "attrs": "26.1"}),
        (" PyYAML==6.0.2 , typing_extensions==4.12,", {"pyyaml": "6.0.2", "typing-extensions": "4.12"}),
        ("torch==2.13.0+cpu", {"torch": "2.13.0+cpu"}),
        ("attrs==23.1..26.1", ReleaseRange("attrs", "23.1", "26.1")),
        ("torch==2.12.0..2.13.0rc1", ReleaseRange("torch", "2.12.0", "2.13.0rc1")),
    ],
)
def test_parse_bisect__packages_or_releases__as_written(text: str, wanted: Pins | ReleaseRange) -> None:
    assert parse_bisect(text) == wanted


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (" , ", "names no package"),
        ("torch>=2.13", "does not understand 'torch>=2.13'; write e.g."),
        ("torch==", "does not understand"),
        ("torch==newest", "'newest' is not a version"),
        ("torch==2.12,Torch==2.13", "names torch twice"),
        ("attrs==26.1..23.1", "must be older"),
        ("attrs==23.1..", "does not understand"),
        ("attrs==23.1..26.1,torch==2.13", "releases of one package, or one version each of several"),
    ],
)
def test_parse_bisect__anything_else__says_how_to_write_it(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_bisect(text)


SOURCE = "source /opt/{}/set_env.sh"


@pytest.mark.parametrize(
    ("text", "lines", "wanted"),
    [
        ("attrs==23.1..26.1", None, ReleaseRange("attrs", "23.1", "26.1")),
        ("a==1, a==2 ,a==3,", None, PackageSets([{"a": "1"}, {"a": "2"}, {"a": "3"}])),
        (
            "torch==2.7.1 torch_npu==2.7.1, torch==2.8.0  torch_npu==2.8.0",
            None,
            PackageSets([{"torch": "2.7.1", "torch-npu": "2.7.1"}, {"torch": "2.8.0", "torch-npu": "2.8.0"}]),
        ),
        ("old/bin/python, new/bin/python", None, InterpreterList([Path("old/bin/python"), Path("new/bin/python")])),
        ("8.1.RC1, 8.2.RC1", SOURCE, LaunchedVersions(["8.1.RC1", "8.2.RC1"], SOURCE)),
        ("quay.io/a/b:v1,quay.io/a/b:v2", "run {}", LaunchedVersions(["quay.io/a/b:v1", "quay.io/a/b:v2"], "run {}")),
    ],
)
def test_parse_between__list_of_environments__as_written(text: str, lines: str | None, wanted: object) -> None:
    assert parse_between(text, lines) == wanted


@pytest.mark.parametrize(
    ("text", "lines", "complaint"),
    [
        ("", None, "needs an old and a new environment; write e.g."),
        ("8.1", SOURCE, "needs an old and a new environment"),
        ("8.1,8.2,8.1", SOURCE, "names 8.1 twice"),
        ("8.1,8.2", "source /opt/set_env.sh", "has no {} for the version; write e.g. 'source /usr"),
        ("8.1,$(id)", SOURCE, r"'\$\(id\)' is not a version"),
        ("8.1,a b", SOURCE, "'a b' is not a version"),
        ("8.1,8.2", None, "does not understand '8.1'"),
        ("torch==1,torch>=2", None, "does not understand 'torch>=2'"),
        ("torch==1 torch==2,torch==3", None, "does not understand 'torch==1 torch==2'"),
        ("torch==1,new/bin/python", None, "does not understand 'new/bin/python'"),
        ("torch==newest,torch==2", None, "'newest' is not a version"),
        ("attrs==26.1..23.1", None, "must be older"),
    ],
)
def test_parse_between__anything_else__says_how_to_write_it(text: str, lines: str | None, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_between(text, lines)


LISTED = ["26.1.0", "25.4.0", "25.4.0rc1", "24.1.0", "not-a-version", "23.1.0", "9.0"]


def test_releases_between__listed_in_any_order__ascending_with_both_ends() -> None:
    assert releases_between(LISTED, ReleaseRange("attrs", "23.1", "25.4")) == [
        "23.1.0",
        "24.1.0",
        "25.4.0rc1",
        "25.4.0",
    ]


def test_releases_between__an_end_is_not_listed__names_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"has no attrs 23\.2 for this Python; it has 26\.1\.0, 25\.4\.0"):
        releases_between(LISTED, ReleaseRange("attrs", "23.2", "26.1"))


UNDECIDED = [Message("verdict.undecided", {"name": "x"})]
REGRESSED = [make_counter("counters.framework_ops", 40, 65)]


@pytest.mark.parametrize(
    ("decision", "answer"),
    [
        (make_decision("PASS"), "fast"),
        (make_decision("WARN", reasons=[Message("verdict.unsteady", {"name": "x"})]), "fast"),
        (make_decision("WARN", comparing="stack", comparisons=REGRESSED), "slow"),
        (make_decision("INCONCLUSIVE", reasons=UNDECIDED, comparisons=REGRESSED), "slow"),
        (make_decision("INCONCLUSIVE", reasons=UNDECIDED), "undecided"),
        (make_decision("INCONCLUSIVE", failures=[make_failure("pair")]), "undecided"),
        (make_decision("INCONCLUSIVE", failures=[make_failure("head")]), "impossible"),
    ],
)
def test_read_first__gate__its_own_verdict_and_nothing_else(decision: DecisionDocument, answer: str) -> None:
    assert read_first(decision, pattern=None).answer == answer


OPS = PlacePattern("counters.framework_ops", "encoder", "long")
SLOWER = make_comparison("latency.low", outcome="regressed")
SAME_OPS = make_counter("counters.framework_ops", 40, 40)
OTHER_OPS = make_counter("counters.framework_ops", 40, 65, outcome="not_comparable", gating=False)


def test_signal_of__gate_of_all_changes__its_counters_and_no_times() -> None:
    signal = signal_of(make_decision("WARN", comparisons=[*REGRESSED, SLOWER]), pattern=None)
    assert signal == Signal(frozenset([OPS]))
    assert signal.names == ["encoder/long counters.framework_ops"]


@pytest.mark.parametrize(
    ("verdict", "comparisons", "answer"),
    [
        ("WARN", [*REGRESSED, SLOWER], "slow"),
        ("WARN", [SAME_OPS, SLOWER], "fast"),
        ("INCONCLUSIVE", [SAME_OPS], "fast"),
        ("PASS", [OTHER_OPS], "undecided"),
        ("PASS", [], "undecided"),
    ],
)
def test_read_next__counters_to_follow__they_alone_answer(
    verdict: str, comparisons: list[Comparison], answer: str
) -> None:
    decision = make_decision(verdict, comparisons=comparisons)
    assert read_next(decision, Signal(frozenset([OPS])), 0.01).answer == answer


def test_read_first__regression_that_may_be_noise__undecided_beyond_the_allowed_probability() -> None:
    slower = make_decision("FAIL", comparisons=[make_comparison(outcome="regressed", p_adjusted=0.03)])
    assert read_first(slower, allowed=0.025, pattern=None).answer == "undecided"
    assert read_first(slower, allowed=0.03, pattern=None) == TrialReading("slow", 0.03)
    unstated = make_decision("FAIL", comparisons=[make_comparison(outcome="regressed")])
    assert read_first(unstated, allowed=0.025, pattern=None) == TrialReading("slow", unstated.procedure.policy.alpha)


@pytest.mark.parametrize(
    ("outcome", "answer"), [("inconclusive", "undecided"), ("unchanged", "fast"), ("improved", "fast")]
)
def test_read_first__metric_that_is_named__not_answered_by_the_verdict_on_others(outcome: str, answer: str) -> None:
    named = make_comparison("latency.p50", outcome=outcome)
    assert (
        read_first(make_decision("FAIL", comparisons=[*REGRESSED, named]), parse_place("latency.p50")).answer == answer
    )


def test_read_first__metric_that_follows_another__answered_by_that_one() -> None:
    slower = make_decision("FAIL", comparisons=[make_comparison("latency.p50", outcome="regressed", p_adjusted=0.001)])
    assert read_first(slower, parse_place("latency.p90@encoder/long")).answer == "slow"
    assert read_first(slower, parse_place("throughput.median")).answer == "undecided"


def test_read_first__old_state_fails__no_answer() -> None:
    with pytest.raises(MeasuringError, match="the old state cannot be measured"):
        read_first(make_decision("INCONCLUSIVE", failures=[make_failure("base")]), pattern=None)


def make_maker(folder: Path, **environ: str) -> StackMaker:
    (folder / "perfgate.toml").write_text('workload = "perf/workload.py:small"\n')
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PIP_CONFIG_FILE": "/dev/null", **environ}
    return StackMaker(load_config(folder), folder, folder / "logs", lambda _: None, environment)


WANTED = ReleaseRange("planted", "1.0", "1.10")


def test_releases__folder_of_wheels__those_between_in_the_order_of_versions(tmp_path: Path) -> None:
    for version in ("0.9", "1.0", "1.2", "1.10", "2.0"):
        write_wheel(tmp_path / "wheels", "planted", version, "")
    maker = make_maker(tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path / "wheels"))
    assert maker.releases(Path(sys.executable), WANTED) == ["1.0", "1.2", "1.10"]


def test_releases__package_that_is_not_there__exit_2_with_pips_words(tmp_path: Path) -> None:
    maker = make_maker(tmp_path, PIP_NO_INDEX="1")
    with pytest.raises(UsageError, match="lists no release of planted: No matching distribution found for planted"):
        maker.releases(Path(sys.executable), WANTED)


def test_releases__index_does_not_answer__exit_4_and_what_to_do(tmp_path: Path) -> None:
    maker = make_maker(tmp_path, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="1")
    with pytest.raises(MeasuringError, match=r"cannot reach the package index.*PIP_FIND_LINKS"):
        maker.releases(Path(sys.executable), WANTED)


def test_versions_in__interpreter__installed_ones_and_none_for_others() -> None:
    versions = versions_in(Path(sys.executable), ["PyTest", "no-such-package"])
    assert versions == {"PyTest": pytest.__version__, "no-such-package": None}


def make_launcher(folder: Path, lines: str) -> Path:
    launcher = folder / "python"
    launcher.write_text(f"#!/usr/bin/env bash\n{lines}\n")
    launcher.chmod(0o755)
    return launcher


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("echo ready", "did not list its packages: ready"),
        ("exit 0", "did not list its packages"),
        (r"printf '\xb2\xe2 failed' >&2; exit 1", "did not list its packages: .* failed"),
    ],
)
def test_versions_in__launcher_that_starts_no_python__an_error_with_its_words(
    lines: str, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(MeasuringError, match=complaint):
        versions_in(make_launcher(tmp_path, lines), ())


def test_versions_in__launcher_that_hangs__an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_START_SECONDS", 0.4)
    with pytest.raises(MeasuringError, match="did not start within 0 s"):
        versions_in(make_launcher(tmp_path, "exec sleep 60"), ())


def test_releases__index_hangs__exit_4_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_INDEX_SECONDS", 0.4)
    hanging = make_launcher(tmp_path, "exec sleep 60")
    with pytest.raises(MeasuringError, match="cannot reach the package index"):
        make_maker(tmp_path).releases(hanging, WANTED)


def time_moved(metric: str, delta: float, half: float, outcome: str = "regressed") -> Comparison:
    return make_comparison(
        metric, outcome=outcome, delta=delta, interval=(delta - half, delta + half), p_adjusted=0.001
    )


def test_signal_of__times_alone_moved__the_one_that_moved_most_clearly() -> None:
    moved = [time_moved("latency.p50", 0.05, 0.03), time_moved("latency.low", 0.04, 0.005)]
    signal = signal_of(make_decision("FAIL", comparisons=moved), pattern=None)
    assert (signal.counters, signal.time) == (frozenset(), PlacePattern("latency.low", "encoder", "long"))
    assert signal.size == pytest.approx(0.0392, abs=1e-4)


def test_signal_of__metric_that_is_named__nothing_else_counts() -> None:
    moved = [*REGRESSED, time_moved("latency.p50", 0.05, 0.03)]
    signal = signal_of(make_decision("FAIL", comparisons=moved), parse_place("latency.*@enc*"))
    assert signal.time == PlacePattern("latency.p50", "encoder", "long")
    assert signal_of(make_decision("FAIL", comparisons=moved), parse_place("latency.*@other")) == Signal()


TIME = Signal(time=PlacePattern("latency.low", "encoder", "long"), size=0.04)


@pytest.mark.parametrize(
    ("delta", "half", "answer"),
    [
        (0.040, 0.008, "slow"),
        (0.001, 0.008, "fast"),
        (-0.030, 0.008, "fast"),
        (0.019, 0.008, "undecided"),
        (0.040, 0.080, "undecided"),
    ],
)
def test_read_next__time_to_follow__whether_half_of_the_slowdown_is_there_and_how_surely(
    delta: float, half: float, answer: str
) -> None:
    decision = make_decision("WARN", comparisons=[time_moved("latency.low", delta, half, "unchanged")])
    reading = read_next(decision, TIME, 0.01)
    assert reading.answer == answer
    assert reading.error == 1.0 if answer == "undecided" else reading.error <= 0.01


def test_read_time__one_of_several_looks_at_a_gate__the_error_covers_them_all() -> None:
    comparisons = [time_moved("latency.low", 0.04, 0.02, "regressed")]
    once, often = (read_time(comparisons, TIME, looks, 1.0) for looks in ([14], [14, 28, 56]))
    assert once is not None
    assert often is not None
    # (log 1.04 - 0.02) / (0.0193 / 2.576) = 2.56 standard errors beyond half.
    assert once.error == pytest.approx(0.0052, abs=5e-4)
    assert 1.5 * once.error < often.error < 3 * once.error


def test_read_time__times_that_prove_nothing__no_reading() -> None:
    void = time_moved("latency.low", 0.04, 0.001, "not_comparable")
    assert read_time([void], TIME, [8], 0.05) is None
    assert read_time([], TIME, [8], 0.05) is None


def test_read_last__part_of_the_slowdown_is_certain__slow_as_the_first_of_several() -> None:
    third = make_decision("FAIL", comparisons=[time_moved("latency.low", 0.013, 0.008)])
    assert read_last(third, TIME, 0.001) == TrialReading("slow", 0.001)
    assert read_last(third, TIME, 0.0009).answer == "undecided"
    unclear = make_decision("WARN", comparisons=[time_moved("latency.low", 0.01, 0.02, "inconclusive")])
    assert read_last(unclear, TIME, 0.05) == TrialReading("undecided", 1.0)
