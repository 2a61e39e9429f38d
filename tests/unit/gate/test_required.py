"""What a verdict needs: each part that is taken out of measured documents is named, and no verdict gets better by it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from perfgate.document.decision import DecisionDocument, Missing, Policy
from perfgate.document.history import History
from perfgate.document.run import CorrectnessResult, CounterSite, RunDocument, StepResult, Value
from perfgate.document.samples import BlockColumns, Replicate
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.trusted import Required
from perfgate.judging.gate.verdict import exit_code
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.unit.gate.builders import SHAPE, WORKLOAD, counters, sides
from tests.wording import worded

replace = msgspec.structs.replace
NO_CHANGE = [1.0 + 0.0005 * (-1) ** pair for pair in range(16)]
SLOWER = [1.3] * 16
Change = Callable[[RunDocument], RunDocument]


def judged(
    base: RunDocument,
    head: RunDocument,
    required: Required = Required(),  # noqa: B008 - a frozen record
) -> DecisionDocument:
    return decide(base, head, policy=Policy(), history=History(), required=required)


def same(run: RunDocument) -> RunDocument:
    return run


def without_replicates(run: RunDocument) -> RunDocument:
    return replace(run, replicates=[])


def without_shape(run: RunDocument) -> RunDocument:
    """The shape is still listed, but no process has blocks of it."""
    return replace(run, replicates=[replace(one, shapes={}) for one in run.replicates])


def without_counters(run: RunDocument) -> RunDocument:
    return replace(run, counters=[])


def without_counts(run: RunDocument) -> RunDocument:
    return replace(run, counters=[replace(one, values={}) for one in run.counters])


def without_checks(run: RunDocument) -> RunDocument:
    return replace(run, correctness=[])


def without_twins(run: RunDocument) -> RunDocument:
    return replace(run, replicates=[one for one in run.replicates if one.arm == "ab"])


def without_pair(run: RunDocument) -> RunDocument:
    return replace(run, replicates=[one for one in run.replicates if one.pair != 3])


def without_column(name: str) -> Change:
    def emptied(columns: BlockColumns) -> BlockColumns:
        return replace(columns, **{name: []})

    def of(one: Replicate) -> Replicate:
        return replace(one, shapes={shape: emptied(columns) for shape, columns in one.shapes.items()})

    return lambda run: replace(run, replicates=[of(one) for one in run.replicates])


def without_listed_shape(run: RunDocument) -> RunDocument:
    return replace(run, workloads=[replace(one, shapes=[]) for one in run.workloads])


def without_workloads(run: RunDocument) -> RunDocument:
    return replace(run, workloads=[])


def as_text(missing: Missing) -> str:
    place = "/".join(filter(None, (missing.workload, missing.shape)))
    return " ".join(filter(None, (place, missing.metric, f"({missing.side})")))


EVERYWHERE, HERE = f"encoder/{SHAPE}", "encoder"


@pytest.mark.parametrize("ratios", [NO_CHANGE, SLOWER], ids=["PASS", "FAIL"])
@pytest.mark.parametrize(
    ("of_base", "of_head", "named"),
    [
        (without_replicates, without_replicates, f"{EVERYWHERE} latency.low (both)"),
        (same, without_replicates, f"{HERE} latency.low (head)"),
        (without_replicates, same, f"{HERE} latency.low (base)"),
        (without_shape, without_shape, f"{EVERYWHERE} latency.low (both)"),
        (same, without_shape, f"{EVERYWHERE} latency.low (head)"),
        (without_pair, without_pair, f"{HERE} latency.low (both)"),
        (same, without_pair, f"{HERE} latency.low (head)"),
        (without_column("seen_ns"), without_column("seen_ns"), f"{EVERYWHERE} seen_ns (both)"),
        (same, without_column("seen_ns"), f"{EVERYWHERE} seen_ns (head)"),
        (same, without_column("used_ns"), f"{EVERYWHERE} used_ns (head)"),
        (same, without_counters, f"{EVERYWHERE} counters.framework_ops (head)"),
        (without_counters, without_counters, f"{EVERYWHERE} counters.framework_ops (both)"),
        (same, without_counts, f"{EVERYWHERE} counters.copies (head)"),
        (without_counts, same, f"{EVERYWHERE} counters.copies (base)"),
        (same, without_checks, f"{EVERYWHERE} correctness (head)"),
        (without_checks, without_checks, f"{EVERYWHERE} correctness (both)"),
        (without_listed_shape, without_listed_shape, f"{EVERYWHERE} (both)"),
        (same, without_workloads, f"{HERE} (head)"),
        (without_workloads, without_workloads, f"{HERE} (both)"),
    ],
)
def test_decide__evidence_left_out__inconclusive_and_named(
    ratios: list[float], of_base: Change, of_head: Change, named: str
) -> None:
    base, head = sides(ratios)
    decision = judged(of_base(base), of_head(head))
    assert named in [as_text(missing) for missing in decision.missing]
    if decision.verdict != "FAIL":
        assert any(f"missing: {named}" in reason for reason in worded(decision.reasons))
    # A regression that is still shown still fails.
    assert decision.verdict in ("FAIL", "INCONCLUSIVE")
    assert ratios is SLOWER or (decision.verdict, exit_code(decision)) == ("INCONCLUSIVE", 3)


@pytest.mark.parametrize("ratios", [NO_CHANGE, SLOWER], ids=["INCONCLUSIVE", "FAIL"])
def test_comment__evidence_left_out__at_most_eight_names_and_how_many_more(ratios: list[float]) -> None:
    base, head = sides(ratios)
    bare = replace(without_column("used_ns")(without_counters(without_checks(head))), steps=[])
    asked = replace(bare, workloads=[replace(bare.workloads[0], steps=list(range(1, 11)))])
    decision = judged(base, asked)
    assert len(decision.missing) == 13
    english, chinese = (
        render_comment(decision, CommentContext(marker="<!-- perfgate:v1:demo -->", language=language))
        for language in ("en", "zh")
    )
    assert f"- the check of the output of `{EVERYWHERE}` is missing in the head" not in english  # the last
    assert "- `used_ns` of `encoder/long` is missing in the head" in english
    assert "- 5 more numbers in `decision.json`" in english
    assert "- head 缺少 `encoder/long` `used_ns`" in chinese
    assert ("13 numbers missing, possibly regressed</summary>" in english) == (decision.verdict == "FAIL")


def test_decide__twins_left_out_where_the_base_asks_for_them__inconclusive() -> None:
    base, head = sides(NO_CHANGE)
    decision = judged(without_twins(base), head, Required(aa_pairs=7))
    assert worded(decision.reasons) == ["missing: encoder replicates.aa (base)"]


def test_decide__workload_of_the_base_config_not_measured__inconclusive_by_its_name() -> None:
    decision = judged(*sides(NO_CHANGE), Required(workloads=(WORKLOAD, "tagger")))
    assert worded(decision.reasons) == ["missing: tagger (both)"]
    assert "INCONCLUSIVE – `tagger` was not measured, although the base's perfgate.toml requires it" in render_comment(
        decision, CommentContext(marker="<!-- perfgate:v1:demo -->")
    )


def test_decide__shape_of_the_stored_run_not_measured__inconclusive_by_its_name() -> None:
    base, head = sides(NO_CHANGE)
    stored = replace(base, workloads=[replace(base.workloads[0], shapes=[SHAPE, "short"])])
    decision = judged(base, head, Required(stored=(stored,)))
    assert worded(decision.reasons)[0] == "missing: encoder/short (both)"
    assert decision.missing[0].named_by == "store"


def with_all_of(run: RunDocument) -> RunDocument:
    """Return a side of a workload that has a check and preprocessing, and whose counts are said to be steady."""
    counted = counters({"aten::mm": 1})
    checked = CorrectnessResult(workload=WORKLOAD, shape=SHAPE, status="passed", signature="float32[4]")
    return replace(
        run,
        counters=[replace(counted, steady=sorted(counted.values))],
        correctness=[checked],
        replicates=[replace(one, preprocess=dict(one.shapes)) for one in run.replicates],
    )


def stored_of(run: RunDocument) -> RunDocument:
    """Return what ``baseline record`` keeps of the same code: its checklist, no pairs."""
    steps = [
        StepResult(number=number, slug=metric.split(".")[0], workload=WORKLOAD, status="ok", values=[value])
        for number, metric in ((1, "latency.p50"), (11, "preprocess.time"))
        for value in [Value(metric=metric, value=0.01, labels={"shape": SHAPE})]
    ]
    return replace(run, side=None, replicates=[], steps=steps)


def without_copies(run: RunDocument) -> RunDocument:
    def of(names: list[str]) -> list[str]:
        return [name for name in names if name != "counters.copies"]

    sets = [
        replace(one, values={name: one.values[name] for name in of(list(one.values))}, steady=of(one.steady))
        for one in run.counters
    ]
    return replace(run, counters=sets)


def without_steady(run: RunDocument) -> RunDocument:
    return replace(run, counters=[replace(one, steady=[]) for one in run.counters])


def without_preprocess(run: RunDocument) -> RunDocument:
    return replace(run, replicates=[replace(one, preprocess={}) for one in run.replicates])


def not_checked(run: RunDocument) -> RunDocument:
    return replace(run, correctness=[replace(one, status="not_checked") for one in run.correctness])


def unsigned(run: RunDocument) -> RunDocument:
    return replace(run, correctness=[replace(one, signature=None) for one in run.correctness])


@pytest.mark.parametrize(
    ("left_out", "named"),
    [
        (without_copies, "counters.copies"),
        (without_steady, "counters.copies"),
        (without_counters, "counters.framework_ops"),
        (without_preprocess, "preprocess.low"),
        (without_shape, "latency.low"),
        (without_checks, "correctness"),
        (not_checked, "correctness"),
        (unsigned, "correctness.signature"),
    ],
)
def test_decide__both_sides_lack_what_the_stored_run_measured__inconclusive_by_its_name(
    left_out: Change, named: str
) -> None:
    base, head = (with_all_of(run) for run in sides(NO_CHANGE))
    required = Required(stored=(stored_of(base),))
    assert judged(base, head, required).verdict == "PASS"
    decision = judged(left_out(base), left_out(head), required)
    assert decision.verdict == "INCONCLUSIVE"
    assert f"missing: {EVERYWHERE} {named} (both)" in worded(decision.reasons)
    assert next(entry for entry in decision.missing if entry.metric == named).named_by == "store"


@pytest.mark.parametrize("side", ["base", "head"])
def test_decide__output_checked_on_one_side_only__inconclusive(side: str) -> None:
    base, head = (with_all_of(run) for run in sides(NO_CHANGE))
    decision = judged(not_checked(base), head) if side == "base" else judged(base, not_checked(head))
    assert worded(decision.reasons) == [f"missing: {EVERYWHERE} correctness ({side})"]


def test_decide__stored_run_of_another_workload_file__nothing_required_by_it() -> None:
    base, head = sides(NO_CHANGE)
    stored = stored_of(with_all_of(base))
    other = replace(stored, workloads=[replace(one, sha256="0" * 64) for one in stored.workloads])
    assert judged(base, head, Required(stored=(other,))).verdict == "PASS"


def test_decide__stored_run_counts_what_perfgate_no_longer_counts__nothing_required_by_it() -> None:
    base, head = (with_all_of(run) for run in sides(NO_CHANGE))
    old = replace(base.counters[0], values={**base.counters[0].values, "counters.of_old": 3})
    assert judged(base, head, Required(stored=(stored_of(replace(base, counters=[old])),))).verdict == "PASS"


def test_decide__head_counts_what_the_base_says_does_not_apply__not_missing() -> None:
    base, head = sides(NO_CHANGE)
    compiled = replace(head.counters[0], values={**head.counters[0].values, "counters.graph_breaks": 1})
    plain = replace(base.counters[0], not_applicable=["counters.graph_breaks"])
    decision = judged(replace(base, counters=[plain]), replace(head, counters=[compiled]))
    assert decision.verdict == "PASS"


KEPT = "memory.kept_python"


@pytest.mark.parametrize(
    ("base_has", "head_has", "said", "reasons"),
    [
        (False, False, ("base", "head"), []),
        (False, True, ("base",), []),
        # Only the base's word excuses, and what it has must be there.
        (True, False, ("head",), ["missing: encoder/{shape} memory.kept_python (head)"]),
        (True, False, ("base", "head"), ["missing: encoder/{shape} memory.kept_python (head)"]),
        (False, True, (), ["missing: encoder/{shape} memory.kept_python (base)"]),
    ],
)
def test_decide__calls_that_cannot_be_counted__inform_unless_the_base_was_counted(
    base_has: bool, head_has: bool, said: tuple[str, ...], reasons: list[str]
) -> None:
    def counted(run: RunDocument, has: bool, side: str) -> RunDocument:
        one = run.counters[0]
        values = {**one.values, KEPT: 12} if has else one.values
        uncounted = [KEPT] if side in said else []
        return replace(run, counters=[replace(one, values=values, steady=sorted(values), uncounted=uncounted)])

    base, head = sides(NO_CHANGE)
    decision = judged(counted(base, base_has, "base"), counted(head, head_has, "head"))
    assert worded(decision.reasons) == [reason.format(shape=SHAPE) for reason in reasons]
    assert decision.verdict == ("INCONCLUSIVE" if reasons else "PASS")


def test_decide__count_that_is_no_longer_said_to_waver__inconclusive() -> None:
    base, head = sides(NO_CHANGE)
    names = sorted(base.counters[0].values)
    before = replace(counters({"aten::mm": 1}), steady=names)
    count = before.values[names[0]]
    after = replace(before, steady=names[1:], unstable=names[:1], ranges={names[0]: (count, count + 1)})
    wavering = judged(replace(base, counters=[before]), replace(head, counters=[after]))
    silent = judged(replace(base, counters=[before]), replace(head, counters=[replace(after, unstable=[])]))
    assert wavering.verdict == "WARN"
    unranged = judged(replace(base, counters=[before]), replace(head, counters=[replace(after, ranges={})]))
    assert worded(silent.reasons) == [f"missing: encoder/{SHAPE} {names[0]} (head)"]
    assert worded(unranged.reasons) == [f"missing: encoder/{SHAPE} ranges.{names[0]} (head)"]


def test_decide__step_that_was_asked_for_is_gone__inconclusive() -> None:
    base, head = sides(NO_CHANGE)
    asked = [replace(head.workloads[0], steps=[1, 4])]
    step = StepResult(number=4, slug="top_ops", workload=WORKLOAD, status="ok")
    decision = judged(base, replace(head, workloads=asked, steps=[step]))
    assert worded(decision.reasons) == ["missing: encoder steps.latency (head)"]


def test_decide__operator_in_low_precision_that_never_ran__inconclusive_by_its_name() -> None:
    """Renamed on the base, what the head computes in full precision would have lost nothing."""

    def counted(run: RunDocument, *, low: int, name: str = "aten::mm") -> RunDocument:
        whole = CounterSite(metric="counters.framework_ops", name="aten::mm", count=2)
        low_sites = [CounterSite(metric="counters.low_precision_ops", name=name, count=low)] if low else []
        one = counters({"aten::mm": 2})
        values = {**one.values, "counters.low_precision_ops": low}
        one = msgspec.structs.replace(one, values=values, sites=[whole, *low_sites], steady=sorted(values))
        return msgspec.structs.replace(run, counters=[one])

    base, head = sides([1.0] * 14)
    honest = decide(counted(base, low=2), counted(head, low=0), policy=Policy(), history=History())
    renamed = decide(counted(base, low=2, name="other"), counted(head, low=0), policy=Policy(), history=History())
    assert (honest.verdict, renamed.verdict) == ("FAIL", "INCONCLUSIVE")
    assert "sites.counters.low_precision_ops:other" in [missing.metric for missing in renamed.missing]
