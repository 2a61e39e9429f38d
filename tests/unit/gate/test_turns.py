"""Jobs are judged by quads and starts: noise passes, slowdowns fail, and other work is none."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
import numpy as np
import pytest

from perfgate.document.comparison import Exact
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.job import (
    CollectiveCount,
    CpuTime,
    JobKind,
    JobNumber,
    JobProfile,
    JobRecord,
    ProfiledOperator,
    RankCounts,
    Turn,
)
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.document.samples import SampleSet, pack
from perfgate.judging.gate.compare.jobs import foreseen
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.quads import LOOKS
from perfgate.judging.gate.look import Look
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.render.number_formats import csv_table
from perfgate.judging.report.view.number_rows import rows_of_check
from tests.fakes.documents import make_run
from tests.fakes.records import changed
from tests.wording import worded

NAME = "chat"
TPOT, TTFT, CPU = "serving.tpot", "serving.ttft", "serving.cpu"


def job(kind: JobKind = "server", better: Literal["lower", "higher"] = "lower") -> JobRecord:
    numbers = [
        JobNumber(metric=TPOT, unit="s", better=better),
        JobNumber(metric=CPU, unit="s", better="lower", gating=False),
    ]
    return JobRecord(name=NAME, kind=kind, reference="python serve.py", sha256="0" * 64, numbers=numbers)


def runs(
    slowdown: float = 0.0,
    *,
    quads: int = 64,
    per_start: int = 8,
    noise: float = 0.03,
    luck: float = 0.005,
    seed: int = 0,
    record: JobRecord | None = None,
    work: tuple[dict[str, int], dict[str, int]] = ({"requests": 8}, {"requests": 8}),
    output: tuple[str, str] = ("a", "a"),
) -> tuple[RunDocument, RunDocument]:
    """Return both documents of a job whose head takes so much longer; starts have luck, turns noise."""
    generator, record = np.random.default_rng(seed), record or job()
    base: list[Turn] = []
    head: list[Turn] = []
    start_luck = generator.normal(0, luck, quads)
    for quad in range(quads):
        start = quad // per_start if record.kind != "command" else quad
        for index, turns in enumerate((base, head)):
            for place in (0, 3) if index == 0 else (1, 2):
                shift = index * (np.log1p(slowdown) + start_luck[start]) + generator.normal(0, noise)
                turns.append(
                    Turn(
                        workload=NAME,
                        start=start,
                        quad=quad,
                        place=place,
                        values={TPOT: 0.01 * float(np.exp(shift)), CPU: 0.002},
                        work=work[index],
                        output=output[index],
                        seconds=0.2,
                        # The first turn of a start has none before it.
                        counters={"python_lines": 1000} if record.kind == "command" and quad == quads - 1 else {},
                        out_of_turn=None if quad % per_start == 0 and place == (index and 1) else 0.01,
                        late=0.001,
                        requests=f"{quad}:{place in (2, 3)}",
                    )
                )
    none: dict[str, Any] = {
        "workloads": [],
        "steps": [],
        "replicates": [],
        "counters": [],
        "correctness": [],
        "operators": [],
    }
    sides = (make_run("base", **none), make_run("head", **none))
    return (
        changed(sides[0], records=[record], turns=base),
        changed(sides[1], records=[record], turns=head),
    )


def judged(*documents: RunDocument, **fields: Any) -> DecisionDocument:
    return decide(*documents, policy=Policy(**fields), history=History())


def outcome(decision: DecisionDocument, metric: str = TPOT) -> str:
    (found,) = [c.outcome for c in decision.comparisons if c.metric == metric]
    return found


def test_job__equal_code__passes_with_the_slowdown_that_is_excluded() -> None:
    decision = judged(*runs())
    assert decision.verdict == "PASS"
    (row,) = [c for c in decision.comparisons if c.metric == TPOT]
    assert (row.evidence, row.pairs, row.starts, row.excluded) == ("quad", 64, 8, 0.03)


def test_job__ten_percent_slower__fails() -> None:
    decision = judged(*runs(0.10))
    assert (decision.verdict, outcome(decision)) == ("FAIL", "regressed")


def test_job__ten_percent_more_of_what_should_be_high__is_an_improvement() -> None:
    decision = judged(*runs(0.10, record=job(better="higher")))
    assert (decision.verdict, outcome(decision)) == ("PASS", "improved")


@pytest.mark.parametrize("slowdown", [0.0, 0.10])
def test_job__one_start__decides_nothing(slowdown: float) -> None:
    decision = judged(*runs(slowdown, per_start=64))
    assert (decision.verdict, outcome(decision)) == ("INCONCLUSIVE", "inconclusive")


def test_command__every_run_is_a_start__quads_alone_decide() -> None:
    decision = judged(*runs(0.10, quads=16, record=job("command")))
    (row,) = [c for c in decision.comparisons if c.metric == TPOT]
    assert (decision.verdict, row.starts) == ("FAIL", 16)


@pytest.mark.slow
def test_job__starts_that_differ__false_alarms_stay_rare() -> None:
    """Luck of 1 % a start, as it is expected of servers: of 200 gates of equal code at most 1 % may fail."""
    verdicts = [judged(*runs(quads=64, luck=0.01, seed=seed)).verdict for seed in range(200)]
    assert verdicts.count("FAIL") <= 4


def test_job__other_number_of_tokens__is_not_the_same_work() -> None:
    decision = judged(*runs(work=({"output_tokens": 96}, {"output_tokens": 120})))
    assert decision.verdict == "FAIL"
    (row,) = decision.comparisons
    assert (row.metric, row.outcome) == ("job.work", "regressed")
    assert row.reason is not None
    assert row.reason.values == {"what": "output_tokens", "before": 192, "after": 240}


def test_job__other_output_of_equal_work__fails_and_is_timed_all_the_same() -> None:
    decision = judged(*runs(output=("a", "b")))
    assert decision.verdict == "FAIL"
    assert (outcome(decision, "job.output"), outcome(decision)) == ("regressed", "unchanged")


def test_job__tolerance_of_the_policy__counts() -> None:
    assert judged(*runs(0.10), tolerances={f"{TPOT}@{NAME}": 0.2}).verdict == "PASS"


def test_job__one_side_works_on_in_the_turns_of_the_other__its_times_prove_nothing() -> None:
    base, head = runs()
    base, head = (
        changed(
            run,
            turns=[
                msgspec.structs.replace(turn, out_of_turn=None if turn.out_of_turn is None else used)
                for turn in run.jobs.turns
            ],
        )
        for run, used in ((base, 0.01), (head, 0.4))
    )
    decision = judged(base, head)
    assert (decision.verdict, outcome(decision)) == ("INCONCLUSIVE", "not_comparable")
    assert [(entry.workload, entry.kind) for entry in decision.gaps.invalid] == [("chat", "out_of_turn")]


def test_server__its_requests_differ__are_missing_by_name() -> None:
    base, head = runs()

    def of_head(**fields: Any) -> DecisionDocument:
        turns = [msgspec.structs.replace(turn, **(fields if turn.quad == 5 else {})) for turn in head.jobs.turns]
        return judged(base, changed(head, turns=turns))

    other, without = of_head(requests="c"), of_head(without=["ignore_eos"])
    assert {other.verdict, without.verdict} == {"INCONCLUSIVE"}
    for decision in (other, without):
        assert [(one.metric, one.pairs, one.differs) for one in decision.gaps.missing] == [("job.requests", [5], True)]
    comment = render_comment(other, CommentContext(marker="<!-- perfgate -->"))
    assert "the load of `chat` differs between base and head in 1 pair" in comment


def test_server__requests_go_without_something_on_both_sides__is_noted_and_decides_nothing() -> None:
    both = [
        changed(
            run,
            turns=[
                msgspec.structs.replace(turn, without=["ignore_eos", "keep-alive"], resent=int(turn.quad == 7))
                for turn in run.jobs.turns
            ],
        )
        for run in runs()
    ]
    decision = judged(both[0], both[1])
    assert decision.verdict == "PASS"
    assert worded(decision.warnings) == [
        "chat: the server rejects ignore_eos, so requests of both sides omit them",
        "chat: the server closes keep-alive connections, so every request of both sides uses its own connection",
        "chat: connections were closed during 2 requests to base and 2 to head; these were resent, and their times "
        "include it",
    ]


def cached(*shares: float, known: bool = True) -> list[str]:
    """The notes on turns whose prompt tokens were in the server's cache by these shares, start after start."""
    sides = []
    for run in runs(quads=16, work=({"input_tokens": 100}, {"input_tokens": 100})):
        counters = [{"cached_tokens": round(100 * shares[turn.quad % 8 % len(shares)])} for turn in run.jobs.turns]
        turns = [
            msgspec.structs.replace(turn, counters=counts if known else {})
            for turn, counts in zip(run.jobs.turns, counters)
        ]
        sides.append(changed(run, turns=turns))
    return worded(judged(sides[0], sides[1]).warnings)


def test_server__prompts_are_found_in_its_cache_more_and_more__is_noted() -> None:
    (note,) = cached(0.0, *[0.9] * 7)
    assert note == (
        "chat: 0% of the prompt tokens were in the server's cache in the first turns of a start and 84% in later turns: "
        "repeated prompts are faster to serve"
    )
    assert cached(0.6, *[0.65] * 7) == cached(0.9) == cached(0.0, 0.9, known=False) == []


def test_job__most_requests_were_sent_late__its_times_prove_nothing() -> None:
    base, head = (
        changed(run, turns=[msgspec.structs.replace(turn, late=0.3) for turn in run.jobs.turns]) for run in runs()
    )
    decision = judged(base, head)
    assert (decision.verdict, [entry.kind for entry in decision.gaps.invalid]) == ("INCONCLUSIVE", ["late"])


def test_look__undecided__asks_for_more_turns_until_a_look_decides() -> None:
    few, many = runs(quads=8), runs(quads=64)
    assert Look(*few, Policy(), workload=NAME).more_turns_would_help()
    assert not Look(*many, Policy(), workload=NAME).more_turns_would_help()
    assert not Look(*runs(0.2), Policy(), workload=NAME).more_turns_would_help()
    other = runs(quads=8, work=({"steps": 1}, {"steps": 2}))
    assert not Look(*other, Policy(), workload=NAME).more_turns_would_help()


TTFT, THROUGHPUT = "serving.ttft", "serving.throughput"


def with_number(
    documents: tuple[RunDocument, RunDocument],
    metric: str,
    *,
    noise: float,
    slowdown: float = 0.0,
    cpu: tuple[CpuTime | None, CpuTime | None] = (None, None),
    better: Literal["lower", "higher"] = "lower",
) -> tuple[RunDocument, RunDocument]:
    """The documents with another gating number, in place of one of that name, and the CPU time of each turn of a side."""
    generator = np.random.default_rng(7)
    sides = []
    for index, run in enumerate(documents):
        sign = -1 if better == "higher" else 1
        shifts = sign * index * np.log1p(slowdown) + generator.normal(0, noise, len(run.jobs.turns))
        turns = [
            msgspec.structs.replace(turn, values={**turn.values, metric: float(np.exp(shift))}, cpu=cpu[index])
            for turn, shift in zip(run.jobs.turns, shifts)
        ]
        numbers = [
            *(number for number in run.jobs.records[0].numbers if number.metric != metric),
            JobNumber(metric=metric, unit="s", better=better),
        ]
        jobs = [msgspec.structs.replace(run.jobs.records[0], numbers=numbers)]
        sides.append(changed(run, turns=turns, records=jobs))
    return sides[0], sides[1]


def closed_loop(*, ttft: float = 0.03, slowdown: float = 0.0) -> tuple[RunDocument, RunDocument]:
    """A job with the three numbers of a closed loop, of which throughput varies by 40 % a turn."""
    documents = with_number(runs(), TTFT, noise=ttft)
    return with_number(documents, THROUGHPUT, noise=0.4, slowdown=slowdown, better="higher")


def test_server__throughput_left_open_beside_decided_times_of_tokens__informs() -> None:
    decision = judged(*closed_loop())
    (row,) = [c for c in decision.comparisons if c.metric == THROUGHPUT]
    assert (decision.verdict, row.outcome, row.gating) == ("PASS", "inconclusive", False)
    assert row.reason == Message("gate.covered", {"by": [TPOT, TTFT]})
    assert not Look(*closed_loop(), Policy(), workload=NAME).more_turns_would_help()
    title = render_comment(decision, CommentContext(marker="<!-- perfgate -->")).splitlines()[2]
    assert "PASS – no slowdown above 3 % in 2 numbers (6 % for time to first token): worst is time" in title


@pytest.mark.parametrize(
    ("documents", "verdict"),
    [(closed_loop(ttft=0.6), "INCONCLUSIVE"), (closed_loop(slowdown=0.8), "FAIL")],
    ids=["time to first token is open too", "throughput itself is shown to be lower"],
)
def test_server__throughput__counts_where_nothing_finer_is_decided_or_it_is_shown_to_be_lower(
    documents: tuple[RunDocument, RunDocument], verdict: str
) -> None:
    assert judged(*documents).verdict == verdict


BUSY = CpuTime(used=0.12, waited=0.06, seconds=0.2)
IDLE = CpuTime(used=0.19, waited=0.0005, seconds=0.2)
SLEEPING = CpuTime(used=0.09, waited=0.03, seconds=0.2)


@pytest.mark.parametrize(
    ("cpu", "slowdown", "verdict"),
    [
        ((BUSY, BUSY), 0.0, "PASS"),
        ((IDLE, IDLE), 0.0, "INCONCLUSIVE"),
        ((None, BUSY), 0.0, "INCONCLUSIVE"),
        ((msgspec.structs.replace(BUSY, waited=None), BUSY), 0.0, "INCONCLUSIVE"),
        ((BUSY, SLEEPING), 0.0, "INCONCLUSIVE"),
        ((BUSY, BUSY), 0.25, "INCONCLUSIVE"),
    ],
    ids=["busy", "idle", "unknown of base", "not counted", "head sleeps", "looks worse than tolerated"],
)
def test_server__times_left_open_on_a_busy_host__cpu_time_decides_where_it_is_fair(
    cpu: tuple[CpuTime | None, CpuTime | None], slowdown: float, verdict: str
) -> None:
    documents = with_number(with_number(runs(), CPU, noise=0.01), TPOT, noise=0.5, slowdown=slowdown, cpu=cpu)
    decision = judged(*documents)
    (row,) = [c for c in decision.comparisons if c.metric == TPOT]
    assert (decision.verdict, row.outcome) == (verdict, "inconclusive")
    if verdict == "PASS":
        assert row.reason == Message("gate.cpu-decides", {"waited": pytest.approx(1 / 3), "by": CPU})
        comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
        assert (
            "runnable threads spent 33 % of their time waiting for a CPU; CPU time per output token decides" in comment
        )
        assert (
            "workers spent 33.3 % of the measured time waiting for a CPU that other processes were using; "
            "the verdict is based on CPU time" in comment
        )


def test_look__output_differs__no_time_is_waited_for() -> None:
    # Of one start, so that no time is decided.
    assert Look(*runs(0.2, quads=8), Policy(), workload=NAME).more_turns_would_help()
    differs = runs(0.2, quads=8, output=("a", "b"))
    assert not Look(*differs, Policy(), workload=NAME).more_turns_would_help()


LINES = "command.lines"


def with_lines(documents: tuple[RunDocument, RunDocument], *lines: tuple[int, int]) -> tuple[RunDocument, RunDocument]:
    """The documents of a command whose last two turns of base and of head counted so many lines of Python."""
    base, head = (
        changed(
            run,
            turns=[
                *run.jobs.turns[:-2],
                *(
                    msgspec.structs.replace(t, counters={"python_lines": n})
                    for t, n in zip(run.jobs.turns[-2:], of_side)
                ),
            ],
        )
        for run, of_side in zip(documents, lines)
    )
    return base, head


@pytest.mark.parametrize(
    ("base", "head", "outcome_of_lines", "verdict"),
    [
        ((1000, 1000), (1004, 1005), "unchanged", "INCONCLUSIVE"),
        ((1000, 1000), (1140, 1140), "regressed", "FAIL"),
        ((1140, 1140), (1000, 1000), "improved", "INCONCLUSIVE"),
        ((1000, 1200), (1500, 1500), "informs", "INCONCLUSIVE"),
        ((1000, 1000), (1500, 0), "inconclusive", "INCONCLUSIVE"),
    ],
    ids=["within the tolerance", "more", "fewer", "varies from run to run", "not counted in head"],
)
def test_command__lines_of_python__decide_where_they_repeat_though_the_times_are_open(
    base: tuple[int, int], head: tuple[int, int], outcome_of_lines: str, verdict: str
) -> None:
    decision = judged(*with_lines(runs(quads=10, noise=0.3, record=job("command")), base, head))
    assert outcome(decision, LINES) == outcome_of_lines
    assert decision.verdict == verdict
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    assert "lines of Python of a run" in comment
    if outcome_of_lines == "informs":
        assert "runs of the same code differ by up to 20 %, so this does not decide" in comment


def test_command__more_lines_and_shown_not_to_be_slower__warns() -> None:
    documents = with_lines(runs(quads=64, noise=0.01, record=job("command")), (1000, 1000), (1140, 1140))
    assert judged(*documents).verdict == "WARN"


def test_command__lines_of_two_stacks__inform() -> None:
    documents = with_lines(runs(quads=64, noise=0.01, record=job("command")), (1000, 1000), (1140, 1140))
    base, head = (
        msgspec.structs.replace(
            run,
            source=documents[0].source,
            session=msgspec.structs.replace(run.session, command="upgrade"),
        )
        for run in documents
    )
    decision = judged(base, head)
    assert (decision.verdict, outcome(decision, LINES)) == ("PASS", "informs")


def test_command__no_python__is_judged_by_its_times_alone() -> None:
    decision = judged(*with_lines(runs(quads=64, noise=0.01, record=job("command")), (0, 0), (0, 0)))
    assert (decision.verdict, [c for c in decision.comparisons if c.metric == LINES]) == ("PASS", [])


def counted(
    documents: tuple[RunDocument, RunDocument], calls: tuple[int, int] = (2, 2)
) -> tuple[RunDocument, RunDocument]:
    """The documents of ranks, of which every first turn of a start has counts: so many all-reduces in each of 4 steps."""
    sides = []
    for run, count in zip(documents, calls):
        turns, seen = [], set()
        for turn in run.jobs.turns:
            ranks = [
                RankCounts(
                    rank=rank,
                    steps=4,
                    operators=400,
                    calls=4 * count,
                    collectives=[CollectiveCount(name="allreduce", count=4 * count, elements=4 * 1000 * count)],
                    communication=0.002,
                    exposed=0.001,
                )
                for rank in (0, 1)
            ]
            samples = [SampleSet(metric="ranks.step", samples=pack([1]), labels={"rank": str(rank)}) for rank in (0, 1)]
            counts = [] if turn.start in seen else ranks
            seen.add(turn.start)
            turns.append(msgspec.structs.replace(turn, counts=counts, samples=samples))
        sides.append(changed(run, turns=turns))
    return sides[0], sides[1]


def test_ranks__a_collective_twice__fails_by_name_whatever_the_times_say() -> None:
    decision = judged(*counted(runs(record=job("ranks")), calls=(2, 4)))
    assert decision.verdict == "FAIL"
    (row,) = [c for c in decision.comparisons if c.metric == "ranks.collectives"]
    assert (type(row), row.base, row.head, row.gating) == (Exact, 4, 8, True)
    assert [(part.name, part.ranks, part.base, part.head) for part in row.parts] == [("allreduce", "each", 2, 4)]
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    assert "2 more `allreduce` in each rank (2 → 4)" in comment


def test_ranks__a_collective_twice_and_profiled__with_the_line_that_calls_it() -> None:
    documents = counted(runs(record=job("ranks")), calls=(2, 4))
    called = [
        ProfiledOperator(
            name="c10d::allreduce_", function="step", line="train.py:20", calls=calls, seconds=1e-4, spread=0
        )
        for calls in (4, 8)
    ]
    profiled = [
        changed(
            run,
            profiles=[
                JobProfile(
                    workload=NAME, per="step", units=8, seconds=0.01, cpu=0.01, operators=[operator], operator_units=4
                )
            ],
        )
        for run, operator in zip(documents, called)
    ]
    decision = judged(profiled[0], profiled[1])
    (row,) = [c for c in decision.comparisons if c.metric == "ranks.collectives"]
    assert [(part.name, part.line) for part in row.parts] == [("allreduce", "train.py:20")]
    title = render_comment(decision, CommentContext(marker="<!-- perfgate -->")).splitlines()[2]
    assert "2 more `allreduce` in each rank (2 → 4) at `train.py:20`" in title


def test_ranks__a_collective_twice_and_slower__the_time_is_put_down_to_what_is_exact() -> None:
    decision = judged(*counted(runs(0.1, record=job("ranks")), calls=(2, 3)))
    time = next(c for c in decision.comparisons if c.metric == TPOT)
    assert (time.outcome, time.cause) == ("regressed", 0)
    assert (decision.explained.causes[0].op, decision.explained.causes[0].ranks) == ("allreduce", "each")


def test_ranks__operators_more_often__the_ten_that_differ_most_are_named() -> None:
    names = {f"aten::op{number}": 4 * number for number in range(1, 13)}
    documents = []
    for index, run in enumerate(counted(runs(record=job("ranks")))):
        turns = [
            msgspec.structs.replace(
                turn,
                counts=[
                    msgspec.structs.replace(
                        count,
                        operators=400 + 4 * index * sum(range(1, 13)),
                        by_name={name: times * (1 + index) for name, times in names.items()},
                    )
                    for count in turn.counts
                ],
            )
            for turn in run.jobs.turns
        ]
        documents.append(changed(run, turns=turns))
    decision = judged(*documents)
    (row,) = [c for c in decision.comparisons if c.metric == "ranks.operators"]
    assert (row.outcome, row.base, row.head) == ("regressed", 200, 356)
    assert [part.name for part in row.parts] == [f"aten::op{number}" for number in range(12, 2, -1)]
    assert {(part.ranks, part.head - part.base) for part in row.parts[:1]} == {("each", 12)}


@pytest.mark.parametrize(("starts", "outcome"), [(6, "informs"), (8, "unchanged")])
def test_ranks__times_under_the_profiler__inform_until_there_are_starts_to_test_them(starts: int, outcome: str) -> None:
    documents = counted(runs(record=job("ranks"), quads=starts * 8))
    decision = judged(
        *(_with_exposed(run, [0.001 * (1 + 0.3 * (start % 3)) for start in range(starts)]) for run in documents)
    )
    (row,) = [c for c in decision.comparisons if c.metric == "ranks.exposed"]
    assert (row.outcome, row.gating, row.interval is None) == (outcome, False, outcome == "informs")
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    # No rank waits longer than the other, and nothing has no ratio.
    assert ("2 informational" if outcome == "informs" else "1 informational") in comment


def _with_exposed(run: RunDocument, seconds: list[float]) -> RunDocument:
    """The document with ranks that communicate so long in each start, a little longer on the head."""
    factor = 1.0 if run.side == "base" else 1.01
    turns = [
        msgspec.structs.replace(
            turn,
            counts=[msgspec.structs.replace(c, exposed=factor * seconds[turn.start]) for c in turn.counts],
        )
        for turn in run.jobs.turns
    ]
    return changed(run, turns=turns)


def test_server__its_own_counters__inform_as_ratios_of_all_turns() -> None:
    base, head = runs()
    sides = [
        changed(
            run,
            turns=[
                msgspec.structs.replace(t, counters={"prefix_queries": 100, "prefix_hits": hits})
                for t in run.jobs.turns
            ],
        )
        for run, hits in ((base, 90), (head, 30))
    ]
    decision = judged(*sides)
    (row,) = [c for c in decision.comparisons if c.metric == "serving.prefix_hits"]
    assert (decision.verdict, row.base, row.head, row.gating) == ("PASS", 0.9, 0.3, False)


def test_server__requests_of_all_turns__their_quantiles_stand_beside_each_other() -> None:
    base, head = runs(quads=16)
    sides = []
    for run, factor in ((base, 1), (head, 2)):
        turns = [
            msgspec.structs.replace(
                turn, samples=[SampleSet(metric=TPOT, samples=pack([factor * 1_000_000 * (index % 2 + 1)] * 50))]
            )
            for index, turn in enumerate(run.jobs.turns)
        ]
        sides.append(changed(run, turns=turns))
    decision = judged(*sides)
    (row,) = decision.checklist.job_quantiles
    assert (row.metric, row.base, row.head, row.counts) == (
        TPOT,
        [0.0015, 0.002, 0.002],
        [0.003, 0.004, 0.004],
        (1600, 1600),
    )
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    numbers = "1.50 ms | 2.00 ms | 2.00 ms | 3.00 ms | 4.00 ms | 4.00 ms"
    assert f"| time per output token · `chat` | {numbers} | 1,600 / 1,600 |" in comment
    assert f"20,{TPOT},chat,,quantile=P99,head,0.004,s,lower,,,,1600" in csv_table(rows_of_check(decision, *sides))


def test_ranks__equal_counts__pass() -> None:
    assert judged(*counted(runs(record=job("ranks")))).verdict == "PASS"


def swapped(slowdown: float, halves: float) -> tuple[RunDocument, RunDocument]:
    """Both documents of a job whose sides swap halves, of which the second is so much slower."""
    first = runs(slowdown, record=msgspec.structs.replace(job(), fits="swap"), luck=0.0)
    second = runs(slowdown, luck=0.0, seed=1)
    documents = []
    for index, (before, after) in enumerate(zip(first, second)):
        turns = []
        for half, side in enumerate((before, after)):
            factor = 1 + halves if half != index else 1.0
            turns += [
                msgspec.structs.replace(
                    turn, place=turn.place + 4 * half, values={**turn.values, TPOT: turn.values[TPOT] * factor}
                )
                for turn in side.jobs.turns
            ]
        documents.append(changed(before, turns=turns))
    return documents[0], documents[1]


@pytest.mark.parametrize(("slowdown", "verdict"), [(0.0, "PASS"), (0.06, "FAIL")])
def test_swap__one_half_is_slower__adds_up_to_nothing_and_is_told(slowdown: float, verdict: str) -> None:
    decision = judged(*swapped(slowdown, halves=0.10))
    (row,) = [c for c in decision.comparisons if c.metric == "job.halves"]
    assert decision.verdict == verdict
    assert (row.gating, row.head) == (False, pytest.approx(1.10, abs=0.01))


def test_alternate__every_visit_is_a_start__quads_alone_decide() -> None:
    decision = judged(*runs(0.10, quads=16, per_start=1, record=msgspec.structs.replace(job(), fits="alternate")))
    (row,) = [c for c in decision.comparisons if c.metric == TPOT]
    assert (decision.verdict, row.starts) == ("FAIL", 16)


@pytest.mark.parametrize(
    ("kind", "measured", "needed"),
    [
        ("command", "6 runs", r"about \d+ runs per side would settle it"),
        ("server", "6 quads", r"about \d+ quads would settle it"),
    ],
)
def test_comment__undecided_job__says_how_many_runs_or_quads_would_decide(
    kind: JobKind, measured: str, needed: str
) -> None:
    decision = judged(*runs(quads=6, per_start=3, record=job(kind)))
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    assert f"after {measured}" in comment
    assert re.search(needed, comment)


def test_comment__several_undecided_numbers__advice_is_for_the_one_that_looks_worst() -> None:
    documents = with_number(runs(quads=16), TTFT, noise=0.6, slowdown=0.3)
    documents = with_number(documents, TPOT, noise=0.25)
    comment = render_comment(judged(*documents), CommentContext(marker="<!-- perfgate -->"))
    assert "INCONCLUSIVE – time to first token undecided" in comment
    advice, *_ = (line for line in comment.splitlines() if line.startswith("- "))
    needed = re.search(r"about ([\d,]+) quads would settle it", advice)
    row = re.search(r"time to first token · `chat` .* about ([\d,]+) quads", comment)
    assert needed
    assert row
    assert needed[1] == row[1]


def test_foreseen__more_quads_and_starts__show_less() -> None:
    documents = runs(quads=4)
    seen = [
        foreseen(Evidence(*documents).jobs[NAME], Policy(), quads=quads, starts=quads // 8) for quads in (16, 64, 256)
    ]
    assert all(one is not None and one > 0.02 for one in seen)
    assert seen == sorted(seen, key=lambda one: -(one or 0))


def test_looks__of_every_kind__grow() -> None:
    assert all(list(looks) == sorted(set(looks)) for looks in LOOKS.values())


def with_gaps(
    documents: tuple[RunDocument, RunDocument], stalls: tuple[int, int], factor: float = 1.0
) -> list[RunDocument]:
    """The documents of a server with 200 gaps a turn, of which so many are stalls in every other turn of each side."""
    sides = []
    for run, count, slower in zip(documents, stalls, (1.0, factor)):
        turns = []
        for number, turn in enumerate(run.jobs.turns):
            some = count if number % 2 else 0
            gaps = [round(slower * (10_000_000 + 10_000 * index)) for index in range(200 - some)] + [90_000_000] * some
            samples = [*turn.samples, SampleSet(metric="serving.itl", samples=pack(gaps))]
            turns.append(msgspec.structs.replace(turn, samples=samples))
        sides.append(changed(run, turns=turns))
    return sides


def test_stalls__more_on_the_head__told_as_a_tail_before_the_mean_that_they_shift() -> None:
    decision = judged(*with_gaps(runs(0.10), (0, 2)))
    (row,) = [c for c in decision.comparisons if c.metric == "serving.stalls"]
    assert (decision.verdict, row.outcome, row.gating, row.base, row.head) == ("FAIL", "regressed", True, 0.0, 0.005)
    title = render_comment(decision, CommentContext(marker="<!-- perfgate -->")).splitlines()[2]
    assert "stalls between tokens" in title


@pytest.mark.parametrize(
    ("stalls", "factor"),
    [
        ((2, 2), 1.0),
        ((2, 0), 1.0),
        # Whatever slows every token alike makes no tail.
        ((0, 0), 4.0),
        ((1, 1), 4.0),
    ],
)
def test_stalls__not_more__neither_fail_nor_leave_the_verdict_open(stalls: tuple[int, int], factor: float) -> None:
    decision = judged(*with_gaps(runs(), stalls, factor))
    assert decision.verdict == "PASS"
    assert not [c for c in decision.comparisons if c.metric == "serving.stalls" and c.gating]


def test_headline__a_slower_first_token_and_cpu_time__names_what_a_user_feels() -> None:
    numbers = [JobNumber(metric=metric, unit="s", better="lower") for metric in (TTFT, CPU)]
    documents = []
    for factor, run in zip((1.0, 1.3), runs(record=msgspec.structs.replace(job(), numbers=numbers))):
        turns = [
            msgspec.structs.replace(
                turn, values={TTFT: 0.1 * factor * turn.values[TPOT], CPU: factor**4 * turn.values[TPOT]}
            )
            for turn in run.jobs.turns
        ]
        documents.append(changed(run, turns=turns))
    title = render_comment(judged(*documents), CommentContext(marker="<!-- perfgate -->")).splitlines()[2]
    assert "time to first token" in title
