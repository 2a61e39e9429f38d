"""The gates of planted effects and the runs of the batch knee: what they plant, and how they read what was measured."""

from __future__ import annotations

import ast
import math

import effects
import knee
import pytest


def test_with_code__every_group__code_of_each_effect_once_and_python() -> None:
    names = [effect.name for group in effects.GROUPS for effect in group]
    assert len(names) == len(set(names)) == 8
    for group in effects.GROUPS:
        for side in ("base", "code"):
            source = effects.with_code((effect.above, getattr(effect, side)) for effect in group)
            ast.parse(source)
            assert all(source.count(code) == 1 for effect in group if (code := getattr(effect, side).strip()))


@pytest.mark.parametrize(
    ("interval", "resolved"), [((-0.08, -0.02), True), ((-0.08, 0.02), False), ((0.02, 0.08), False), (None, False)]
)
def test_row_of__interval__resolved_where_it_excludes_no_change_on_the_right_side(
    interval: tuple[float, float] | None, resolved: bool
) -> None:
    row = {"metric": "throughput.median", "interval": interval, "delta": -0.05}
    decision = {"verdict": "PASS", "checklist": [row], "comparisons": []}
    assert effects.row_of(effects.EFFECTS["throughput"], decision, 60.0)["resolved"] is resolved


def test_row_of__exact_count__resolved_where_it_rose() -> None:
    count = {"metric": "memory.kept", "method": "exact", "base": 0.0, "head": 64.0}
    found = {"verdict": "FAIL", "checklist": [], "comparisons": [count]}
    assert effects.row_of(effects.EFFECTS["kept"], found, 60.0)["resolved"] is True
    found["comparisons"] = [{**count, "head": 0.0}]
    assert effects.row_of(effects.EFFECTS["kept"], found, 60.0)["resolved"] is False


def test_print_table__one_of_two_gates_resolved__is_too_few(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"effect": "kept", "seconds": 60.0, "delta": 64.0, "resolved": True}
    assert effects.print_table([row, {**row, "resolved": False}]) == 1
    assert "kept         memory.kept             1 of 2" in capsys.readouterr().out
    assert effects.print_table([row]) == 0


def step(*values: dict[str, object]) -> dict[str, object]:
    return {"values": list(values)}


RATES = [{"metric": "batch.throughput", "value": 1.0, "labels": {"batch": size}} for size in ("32", "64")]


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (step({"metric": "batch.knee", "value": 8.0}), (8.0, 8.0)),
        (
            step({"metric": "batch.knee", "value": None, "reason": {"values": {"earliest": 4, "shown": 32}}}),
            (4.0, 32.0),
        ),
        (
            step({"metric": "batch.knee", "value": None, "reason": {"code": "times.knee-not-reached"}}, *RATES),
            (64, math.inf),
        ),
        (step(), None),
    ],
)
def test_range_of__what_a_run_shows__from_the_earliest_size_to_the_shown_one(
    measured: dict[str, object], expected: knee.Range | None
) -> None:
    assert knee.range_of(measured) == expected


@pytest.mark.parametrize(
    ("ranges", "agreeing"),
    [
        ([(8.0, 8.0), (4.0, 4.0), (8.0, 8.0)], True),
        ([(16.0, 16.0), (4.0, 4.0), (8.0, 8.0)], False),
        ([(16.0, 16.0), (4.0, 32.0), (8.0, 8.0)], True),
        ([(32.0, math.inf), (16.0, 16.0), (16.0, 32.0)], True),
        ([None, None, None], True),
    ],
)
def test_agree__three_runs__within_one_size(ranges: list[knee.Range | None], agreeing: bool) -> None:
    assert knee.agree(ranges) is agreeing
    assert knee.print_table([{"project": "vision", "knees": ranges}]) == (0 if agreeing else 1)
