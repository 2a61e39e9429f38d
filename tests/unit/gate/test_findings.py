"""Which findings a change is said to have brought or removed."""

from __future__ import annotations

import random

import pytest

from perfgate.catalogue.lookup import METRICS, RULES, is_known
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.run import REPEAT, Finding, MessageValue, RunDocument, StepResult, StepStatus, Value
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.explain.findings import unmatched
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, counters, sides

UNCHANGED = [1.0 + 0.0005 * (-1) ** pair for pair in range(16)]


def finding(rule: str, **evidence: MessageValue) -> Finding:
    return Finding(rule=rule, severity="warning", evidence={"shape": SHAPE, **evidence})


def gelu(line: str | None = "model.py:10", share: float = 0.06, op: str = "aten::gelu") -> Finding:
    evidence: dict[str, MessageValue] = {} if line is None else {"line": line}
    return finding(
        "fusion.gelu", ops=["aten::mul", "aten::erf"], op=op, **{"fusion.share": share, "limit": 0.05}, **evidence
    )


def attention() -> Finding:
    return finding("fusion.attention", ops=["aten::bmm", "aten::softmax"], line="model.py:25", op="aten::bmm")


def with_step(
    run: RunDocument,
    *findings: Finding,
    patterns: float = 1.0,
    number: int = 6,
    status: StepStatus = "attention",
    values: tuple[Value, ...] = (),
) -> RunDocument:
    own = values or (Value(metric="fusion.patterns", value=patterns, labels={"shape": SHAPE}),)
    step = StepResult(
        number=number, slug="step", workload=WORKLOAD, status=status, findings=list(findings), values=list(own)
    )
    return changed(run, steps=[*run.checklist.steps, step], counters=[counters({"aten::add": 1})])


def judged(base: RunDocument, head: RunDocument) -> DecisionDocument:
    return decide(base, head, policy=Policy(), history=History())


def standings(decision: DecisionDocument, number: int = 6) -> tuple[list[tuple[str, str]], list[str]]:
    (step,) = [step for step in decision.checklist.steps if step.number == number]
    return [(one.rule, one.standing) for one in step.findings], [one.rule for one in step.gone]


def test_findings__pattern_that_the_change_wrote__new_and_the_old_one_unchanged() -> None:
    base, head = sides(UNCHANGED)
    decision = judged(
        with_step(base, gelu(), patterns=1), with_step(head, gelu("model.py:12"), attention(), patterns=2)
    )
    assert standings(decision) == ([("fusion.gelu", "unchanged"), ("fusion.attention", "new")], [])


def test_findings__pattern_that_the_change_removed__gone() -> None:
    base, head = sides(UNCHANGED)
    decision = judged(with_step(base, gelu(), attention(), patterns=2), with_step(head, gelu(), patterns=1))
    assert standings(decision) == ([("fusion.gelu", "unchanged")], ["fusion.attention"])


def test_findings__pattern_that_took_the_place_of_another__one_new_and_one_gone_though_their_count_stays() -> None:
    base, head = (with_step(run, one) for run, one in zip(sides(UNCHANGED), (gelu(op="aten::erf"), attention())))
    before, after = ({"aten::erf": 1, "aten::mul": 2}, {"aten::bmm": 2, "aten::softmax": 1})
    decision = judged(
        changed(base, counters=[counters(before)]),
        changed(head, counters=[counters(after)]),
    )
    assert standings(decision) == ([("fusion.attention", "new")], ["fusion.gelu"])


def test_findings__share_below_its_limit_because_the_call_got_slower__not_gone() -> None:
    base = with_step(sides(UNCHANGED)[0], gelu(share=0.06), patterns=1)
    head = with_step(sides(UNCHANGED)[1], attention(), patterns=2)
    before, after = ({"aten::erf": 1, "aten::mul": 2}, {"aten::erf": 1, "aten::mul": 3, "aten::bmm": 2})
    decision = judged(
        changed(base, counters=[counters(before)]),
        changed(head, counters=[counters(after)]),
    )
    assert standings(decision) == ([("fusion.attention", "new")], [])


def test_findings__unchanged_code_at_the_limit_of_a_rule__neither_new_nor_gone() -> None:
    base, head = sides(UNCHANGED)
    one_side = judged(with_step(base, status="ok"), with_step(head, gelu(share=0.051)))
    assert standings(one_side) == ([("fusion.gelu", "as_measured")], [])
    other_side = judged(with_step(base, gelu(share=0.051)), with_step(head, status="ok"))
    assert standings(other_side) == ([], [])


@pytest.mark.parametrize("status", ["error", "unavailable", "invalid", "not_applicable"])
def test_findings__step_that_base_could_not_measure__nothing_is_new(status: StepStatus) -> None:
    base, head = sides(UNCHANGED)
    decision = judged(with_step(base, patterns=1, status=status), with_step(head, attention(), patterns=2))
    assert standings(decision) == ([("fusion.attention", "as_measured")], [])


def cache(*numbers: float) -> tuple[Value, ...]:
    labels = {"shape": SHAPE, "buffers": "cold"}
    return tuple(
        Value(metric="cache.sensitivity", value=number, labels={**labels, **({REPEAT: str(turn)} if turn > 1 else {})})
        for turn, number in enumerate(numbers, 1)
    )


def colder(value: float) -> Finding:
    return finding("cache.sensitivity", buffers="cold", **{"cache.sensitivity": value, "limit": 1.2})


SLOW, FAST = (1.5, 1.52, 1.49, 1.5, 1.51, 1.48), (1.0, 1.01, 0.99, 1.0, 1.02, 0.98)
NOISE = ((1.0, 1.3, 1.1, 1.4, 0.9, 1.2), (1.3, 1.0, 1.2, 1.1, 1.3, 1.0))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (cache(*FAST), cache(*SLOW), "new"),
        # The first turn lies above the limit by chance, and the turns together below it.
        (cache(*SLOW), cache(*FAST), None),
        (cache(*NOISE[0]), cache(*NOISE[1]), None),
        (cache(*NOISE[0]), cache(*(1.1 * turn for turn in NOISE[1])), "as_measured"),
        (cache(1.0), cache(1.5), "as_measured"),
    ],
)
def test_findings__of_a_noisy_number__new_only_if_turns_show_that_it_moved_to_the_findings_side(
    before: tuple[Value, ...], after: tuple[Value, ...], expected: str | None
) -> None:
    base, head = sides(UNCHANGED)
    decision = judged(
        with_step(base, number=15, values=before, status="ok"), with_step(head, colder(1.5), number=15, values=after)
    )
    assert standings(decision, 15) == ([("cache.sensitivity", expected)] if expected else [], [])


@pytest.mark.parametrize("draws", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_findings__times_on_unchanged_code_drawn_at_random__none_is_new(draws: int) -> None:
    """Findings come and go around their limits while counts stay; the operator named as the heaviest changes as well."""
    lot = random.Random(3)
    base, head = sides(UNCHANGED)

    def some() -> list[Finding]:
        drawn = [gelu(f"model.py:{line}", op=lot.choice(["aten::mul", "aten::erf"])) for line in (3, 7, 9)]
        return [one for one in drawn if lot.random() < 0.5]

    for _ in range(draws):
        found, gone = standings(judged(with_step(base, *some(), patterns=3), with_step(head, *some(), patterns=3)))
        assert "new" not in {standing for _, standing in found}
        assert gone == []


def test_unmatched__lines_moved_by_code_above_them__nearest_belong_together() -> None:
    before = [gelu("model.py:10"), gelu("model.py:20")]
    after = [gelu("model.py:13"), gelu("model.py:23"), gelu("model.py:40")]
    only_base, only_head = unmatched(before, after)
    assert only_base == []
    assert [one.evidence["line"] for one in only_head] == ["model.py:40"]


def test_unmatched__other_shape_operator_or_rule__both_alone() -> None:
    loop = finding("small_ops.loop", op="aten::add", line="model.py:3")
    others = [
        finding("small_ops.loop", op="aten::mul", line="model.py:3"),
        finding("small_ops.loop", op="aten::add", line="model.py:3", shape="other"),
        finding("ops.fallback", op="aten::add", line="model.py:3"),
    ]
    assert unmatched([loop], others) == ([loop], others)


def test_unmatched__document_that_claims_a_hundred_thousand_findings__answers_soon() -> None:
    many = [gelu(f"model.py:{line}") for line in range(100_000)]
    only_base, only_head = unmatched(many, many[:50_000])
    assert len(only_base) - len(only_head) == 50_000


def test_rules__number_that_a_finding_rests_on__a_metric_of_the_catalogue() -> None:
    names = {rule.rests_on for rule in RULES.values() if rule.rests_on}
    assert all(is_known(name) for name in names)
    compared = {name for name, card in METRICS.items() if card.display.leading or card.kind == "exact"}
    assert names <= compared


def rendered(decision: DecisionDocument) -> str:
    return render_comment(decision, CommentContext(marker="<!-- perfgate -->"))


def test_comment__new_and_gone_findings__before_the_folds_and_counted_in_the_title_of_theirs() -> None:
    base, head = sides(UNCHANGED)
    rms = finding("fusion.rms_norm", ops=["aten::pow", "aten::mean"], line="model.py:4", op="aten::pow")
    before, after = ({"aten::pow": 1, "aten::mul": 1}, {"aten::bmm": 2, "aten::mul": 1})
    decision = judged(
        changed(with_step(base, gelu(), rms), counters=[counters(before)]),
        changed(with_step(head, gelu(), attention()), counters=[counters(after)]),
    )
    above_folds, _, folds = rendered(decision).partition("<details>")
    new, _, gone = above_folds.partition("**No longer in the checklist**")
    assert "\n- New in the checklist: step 6, Operator fusion (`model.py:25`)\n" in new
    assert "(`model.py:4`)" in gone
    assert "model.py:10" not in above_folds
    assert " · 2 attention · 13 not run · 1 new · 1 gone</summary>" in folds
    assert "| new: attention " in folds


def test_comment__two_new_findings_of_a_step_on_one_line__its_cause_names_the_step_once() -> None:
    base, head = sides(UNCHANGED)
    decision = judged(
        changed(with_step(base, gelu()), counters=[counters({"aten::pow": 1, "aten::mul": 1})]),
        changed(
            with_step(head, gelu(), attention(), attention()), counters=[counters({"aten::bmm": 2, "aten::mul": 1})]
        ),
    )
    assert rendered(decision).count("\n- New in the checklist: step 6") == 1


def test_comment__nothing_new__says_nothing_before_the_folds() -> None:
    base, head = sides(UNCHANGED)
    above_folds, _, folds = rendered(judged(with_step(base, gelu()), with_step(head, gelu()))).partition("<details>")
    assert "in the checklist" not in above_folds
    assert " · 2 attention · 13 not run</summary>" in folds
