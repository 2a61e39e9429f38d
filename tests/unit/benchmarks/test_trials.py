"""Replayed gates: what is drawn, what a rule is shown, what is counted."""

from __future__ import annotations

import numpy as np
import pytest
from recordings import Block, Injection, Pair
from rivals import Rule
from trials import Plan, Task, rows_of, tasks_of

PLAN = Plan(unchanged=40, changed=10, budget=30.0, seed=7)


def pair(number, base, head, seconds=1.0):
    """A pair of one block of one call a side, measured in ``seconds``."""
    return Pair(number, tuple((Block(0, np.array([call]), np.array([call]), seconds / 2),) for call in (base, head)))


def task(*pairs, sizes=(0.0,), **named):
    return Task(named.pop("scenario", "unchanged"), "mlp/calm", pairs, sizes, "wall", **named)


class Watching:
    """A rule that keeps what it was shown and answers by a function of it."""

    def __init__(self, answer):
        self.seen = []
        self.answer = answer

    def __call__(self, base, head, ctx):
        calls = [[float(run[0][0]) for run in side] for side in (base, head)]
        self.seen.append((calls[0], calls[1], ctx))
        return {"decision": self.answer(*calls), "effect": 0.0, "ci": None}

    def rule(self, looks=()):
        return Rule("watching", self, looks)


def ok(base, head):
    return "ok"


def test_rows__budget__pairs_until_the_seconds_are_spent() -> None:
    watching = Watching(ok)
    (row,) = rows_of(task(pair(0, 1.0, 2.0, seconds=4.0)), [watching.rule()], PLAN)
    assert {len(base) for base, _, _ in watching.seen} == {7}  # 7 x 4 s fit into 30 s
    assert row.seconds == pytest.approx(28.0)
    assert (row.trials, row.ok, row.regressed, row.undecided) == (40, 40, 0, 0)


def test_rows__unchanged__labels_of_each_pair_swap_on_their_own() -> None:
    watching = Watching(ok)
    rows_of(task(pair(0, 1.0, 2.0)), [watching.rule()], PLAN)
    for base, head, _ in watching.seen:
        assert all({a, b} == {1.0, 2.0} for a, b in zip(base, head))
    swaps = [a == 2.0 for base, _, _ in watching.seen for a in base]
    assert 0.4 < np.mean(swaps) < 0.6
    assert any(len(set(base)) == 2 for base, _, _ in watching.seen)


def test_rows__unchanged_as_one__labels_of_a_gate_swap_together() -> None:
    watching = Watching(ok)
    rows_of(task(pair(0, 1.0, 2.0), swap="gate"), [watching.rule()], PLAN)
    assert all(len(set(base)) == 1 for base, _, _ in watching.seen)
    assert {base[0] for base, _, _ in watching.seen} == {1.0, 2.0}


def test_rows__slower__head_alone_is_scaled() -> None:
    watching = Watching(ok)
    rows_of(task(pair(0, 1.0, 1.0), sizes=(0.05,), scenario="slower"), [watching.rule()], PLAN)
    assert all(set(base) == {1.0} and set(head) == {1.05} for base, head, _ in watching.seen)


def test_rows__injected__labels_stay_and_nothing_is_scaled() -> None:
    watching = Watching(ok)
    rows_of(task(pair(0, 1.0, 2.0), sizes=(0.5,), scenario="injected", swap="none"), [watching.rule()], PLAN)
    assert all(set(base) == {1.0} and set(head) == {2.0} for base, head, _ in watching.seen)


def test_rows__stored__sides_from_different_passes_and_not_paired() -> None:
    watching = Watching(ok)
    pairs = [pair(0, 1.0, 1.5), pair(0, 1.1, 1.6), pair(2, 11.0, 11.5), pair(2, 11.1, 11.6)]
    rows_of(task(*pairs, scenario="stored", swap="stored"), [watching.rule()], PLAN)
    for base, head, ctx in watching.seen:
        assert len({call > 10 for call in base}) == len({call > 10 for call in head}) == 1
        assert (base[0] > 10) != (head[0] > 10)
        assert ctx["paired"] is False
    assert {base[0] > 10 for base, _, _ in watching.seen} == {True, False}


def test_rows__looks__asked_at_the_looks_and_at_the_end_until_it_decides() -> None:
    never = Watching(lambda base, head: "undecided")
    (row,) = rows_of(task(pair(0, 1.0, 1.0)), [never.rule(looks=(8, 12, 16, 24, 64))], PLAN._replace(unchanged=1))
    assert [len(base) for base, _, _ in never.seen] == [8, 12, 16, 24, 30]
    assert (row.undecided, row.seconds_to_ok) == (1, None)

    early = Watching(lambda base, head: "ok" if len(base) >= 12 else "undecided")
    (row,) = rows_of(task(pair(0, 1.0, 1.0)), [early.rule(looks=(8, 12, 16, 24, 64))], PLAN._replace(unchanged=1))
    assert [len(base) for base, _, _ in early.seen] == [8, 12]
    assert row.seconds_to_ok == pytest.approx(12.0)


def test_rows__at_once__one_question() -> None:
    never = Watching(lambda base, head: "undecided")
    rows_of(task(pair(0, 1.0, 1.0)), [never.rule(looks=(8, 12, 16, 24, 64))], PLAN._replace(unchanged=1, at_once=True))
    assert [len(base) for base, _, _ in never.seen] == [30]


def test_rows__looks__no_more_pairs_than_at_the_last_look() -> None:
    never = Watching(lambda base, head: "undecided")
    rows_of(task(pair(0, 1.0, 1.0)), [never.rule(looks=(8, 16))], PLAN._replace(unchanged=1))
    assert [len(base) for base, _, _ in never.seen] == [8, 16]


def test_rows__same_seed__same_draws_for_every_rule_and_run() -> None:
    first, second, other = Watching(ok), Watching(ok), Watching(ok)
    pairs = [pair(0, float(number), number + 0.5) for number in range(1, 9)]
    rows_of(task(*pairs), [first.rule(), second.rule()], PLAN)
    rows_of(task(*pairs), [other.rule()], PLAN._replace(seed=8))
    assert first.seen == second.seen
    assert first.seen != other.seen


def test_rows__unknown_answer__named() -> None:
    with pytest.raises(SystemExit, match="a decision is regressed, ok or undecided"):
        rows_of(task(pair(0, 1.0, 1.0)), [Watching(lambda base, head: "maybe").rule()], PLAN)


def test_rows__rule_with_a_metric_of_its_own__judges_that_scenario_by_it() -> None:
    watching, tail = Watching(ok), Watching(ok)
    rule = Rule("watching", watching, others={"p99": tail})
    rows_of(task(pair(0, 1.0, 1.0), scenario="p99"), [rule], PLAN)
    assert len(tail.seen) == PLAN.changed
    rows_of(task(pair(0, 1.0, 1.0), scenario="slower"), [rule], PLAN)
    assert len(watching.seen) == PLAN.changed


def test_tasks__gap_injection__judged_by_the_time_between_calls() -> None:
    (task_of_gap,) = tasks_of([], [Injection("mlp", "gap", 0.03, 0.033, (pair(0, 1.0, 1.0),))], PLAN)
    assert (task_of_gap.clock, task_of_gap.swap, task_of_gap.sizes) == ("gap", "none", (0.033,))
