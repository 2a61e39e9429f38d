"""The gates of planted effects and of batch sizes: what they plant, and how they read what was measured."""

from __future__ import annotations

import ast

import batch_sizes
import effects
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
    row = {"metric": "throughput.median", "difference": {"kind": "turns", "interval": interval, "delta": -0.05}}
    decision = {"verdict": "PASS", "checklist": {"numbers": [row]}, "comparisons": []}
    assert effects.row_of(effects.EFFECTS["throughput"], decision, 60.0)["resolved"] is resolved


def test_row_of__exact_count__resolved_where_it_rose() -> None:
    count = {"metric": "memory.kept", "kind": "exact", "base": 0.0, "head": 64.0}
    found = {"verdict": "FAIL", "checklist": {"numbers": []}, "comparisons": [count]}
    assert effects.row_of(effects.EFFECTS["kept"], found, 60.0)["resolved"] is True
    found["comparisons"] = [{**count, "head": 0.0}]
    assert effects.row_of(effects.EFFECTS["kept"], found, 60.0)["resolved"] is False


def test_print_table__one_of_two_gates_resolved__is_too_few(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"effect": "kept", "seconds": 60.0, "delta": 64.0, "resolved": True}
    assert effects.print_table([row, {**row, "resolved": False}]) == 1
    assert "kept         memory.kept             1 of 2" in capsys.readouterr().out
    assert effects.print_table([row]) == 0


def batch_gate(change: str, best: list[float], *intervals: tuple[float, float]) -> dict[str, object]:
    sizes = {str(2**index): list(interval) for index, interval in enumerate(intervals)}
    return {"project": "p", "change": change, "best": best, "compared": True, "sizes": sizes}


def test_batch_sizes__gates__counted_by_best_size_intervals_and_resolved_mistakes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    same = batch_gate("equal", [32, 32], (-0.1, 0.1), (-0.1, 0.2))
    other = batch_gate("equal", [32, 16], (0.01, 0.1), (-0.1, 0.2))
    found = batch_gate("mistake", [32, 8], (-0.3, -0.1), (-0.2, -0.1))
    missed = batch_gate("mistake", [32, 8], (-0.3, 0.1), (-0.2, -0.1))
    assert batch_sizes.print_table([same, found]) == 0
    assert batch_sizes.print_table([same, other, found]) == 1
    assert "best size compared and the same on both sides in 1 of 2" in capsys.readouterr().out
    assert batch_sizes.print_table([same, found, missed]) == 1
    assert batch_sizes.print_table([]) == 1


def test_sizes_of__decision__best_size_and_intervals_of_step_5() -> None:
    rows = [
        {"step": 4, "metric": "ops.coverage"},
        {
            "step": 5,
            "metric": "batch.best",
            "base": 32.0,
            "head": 32.0,
            "difference": {"kind": "turns", "unit": "turn"},
        },
        {
            "step": 5,
            "metric": "batch.throughput",
            "labels": {"batch": "8"},
            "difference": {"kind": "turns", "interval": [-0.1, 0.1]},
        },
    ]
    expected = {"best": [32.0, 32.0], "compared": True, "sizes": {"8": [-0.1, 0.1]}}
    assert batch_sizes.sizes_of({"checklist": {"numbers": rows}}) == expected
