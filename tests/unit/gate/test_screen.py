"""Which of main's sessions screen later ones."""

from __future__ import annotations

from perfgate.document.history import Acceptance
from perfgate.judging.gate.screen import accepts_a_slower_call, level

# Six sessions within one percent: the prediction interval for a seventh ends some 3 % above them.
QUIET = [2.00, 2.01, 1.99, 2.02, 1.98, 2.00]


def never(_: int) -> bool:
    return False


def test_level__regression_that_nobody_accepted__left_out_however_often_it_repeats() -> None:
    assert level([*QUIET, 2.6, 2.6, 2.6, 2.01], never) == [*QUIET, 2.01]


def test_level__regression_accepted__the_level_before_it_is_left_behind() -> None:
    values = [*QUIET, 2.6, 2.61, 2.59]
    assert level(values, lambda index: index == 6) == [2.6, 2.61, 2.59]


def test_level__faster_sessions__part_of_it() -> None:
    assert level([*QUIET, 1.5, 1.49], never) == [*QUIET, 1.5, 1.49]


def test_level__fewer_sessions_than_say_something__all_of_them() -> None:
    assert level([2.0, 2.0, 9.0, 2.0], never) == [2.0, 2.0, 9.0, 2.0]


def test_accepts_a_slower_call__metric_and_place__as_the_acceptance_says() -> None:
    def said(metric: str) -> bool:
        acceptance = Acceptance(commit="c", metric=metric, reason="r", accepted_by="a", accepted_at="t")
        return accepts_a_slower_call(acceptance, "encoder", "short")

    assert said("latency.*")
    assert said("latency.low@encoder/short")
    assert not said("latency.low@decoder")
    assert not said("counters.framework_ops")
