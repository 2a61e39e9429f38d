"""Each rival's rule on inputs small enough to do by hand."""

from __future__ import annotations

import numpy as np
import pytest
import rivals

PAIRED = {"paired": True, "seed": 1}


def runs(*means):
    """One run a mean: two blocks of two calls each, all of that time."""
    return [[np.full(2, mean), np.full(2, mean)] for mean in means]


def one_run(*calls):
    return [[np.array(calls, dtype=float)]]


def decision(rule, base, head):
    return rule(base, head, PAIRED)["decision"]


def rising(first, step, count):
    return [first + step * number for number in range(count)]


def test_every_rival__any_runs__answers_decision_effect_and_ci() -> None:
    base, head = runs(*rising(1.0, 0.01, 12)), runs(*rising(1.5, 0.01, 12))
    for rule in rivals.RIVALS:
        answer = rule.decide(base, head, PAIRED)
        assert answer.keys() == {"decision", "effect", "ci"}
        assert answer["decision"] in {"regressed", "ok", "undecided"}
        assert answer["effect"] == pytest.approx(0.45, abs=0.05)  # 0.5 over 1.0 (minimum) to 1.11 (P99)


def test_every_rival__faster_head__never_regressed() -> None:
    base, head = runs(*rising(1.5, 0.01, 12)), runs(*rising(1.0, 0.01, 12))
    for rule in rivals.RIVALS:
        assert decision(rule.decide, base, head) != "regressed", rule.name


def test_checklist_p99__tail_six_percent_up__regressed() -> None:
    base = one_run(*[1.0] * 95, *[2.0] * 5)  # P99 is 2.0
    assert decision(rivals.checklist_p99, base, one_run(*[1.0] * 95, *[2.12] * 5)) == "regressed"
    assert decision(rivals.checklist_p99, base, one_run(*[1.0] * 95, *[2.08] * 5)) == "ok"


def test_github_action_benchmark__alerts_above_twice_only() -> None:
    assert decision(rivals.github_action_benchmark, runs(1.0), runs(2.0)) == "ok"
    assert decision(rivals.github_action_benchmark, runs(1.0), runs(2.01)) == "regressed"


def test_pytest_benchmark_mean__limit_five_percent() -> None:
    base = one_run(1.0, 3.0)  # mean 2.0
    assert decision(rivals.pytest_benchmark_mean, base, one_run(1.0, 3.22)) == "regressed"  # mean 2.11
    assert decision(rivals.pytest_benchmark_mean, base, one_run(1.0, 3.18)) == "ok"  # mean 2.09


def test_pytest_benchmark_min__only_the_minimum_counts() -> None:
    base = one_run(1.0, 3.0)
    assert decision(rivals.pytest_benchmark_min, base, one_run(1.06, 1.06)) == "regressed"
    assert decision(rivals.pytest_benchmark_min, base, one_run(1.04, 300.0)) == "ok"


def test_mann_whitney__separated_samples__two_over_the_number_of_orders() -> None:
    # Three against three, all of one below all of the other: 2 of the C(6, 3) = 20 orders are so extreme.
    assert rivals.mann_whitney(np.array([1.0, 2, 3]), np.array([4.0, 5, 6])) == pytest.approx(2 / 20)


def test_mann_whitney__conservative_ties__count_as_no_difference() -> None:
    same = np.ones(30)
    assert rivals.mann_whitney(same, same, ties_conservative=True) == 1.0
    # 30 x 30 pairs of which 450 are ties and 450 above: U lies between 450, the middle, and 900: no evidence
    half = np.repeat([1.0, 2.0], 15)
    assert rivals.mann_whitney(same, half, ties_conservative=True) == 1.0


def test_benchstat__four_separated_runs__regressed_three_are_too_few() -> None:
    # 4 against 4: p = 2/70 = .029; 3 against 3: .1
    assert decision(rivals.benchstat, runs(1.0, 1.1, 1.2, 1.3), runs(1.4, 1.5, 1.6, 1.7)) == "regressed"
    assert decision(rivals.benchstat, runs(1.0, 1.1, 1.2), runs(1.4, 1.5, 1.6)) == "ok"


def test_asv__needs_both_the_test_and_the_factor() -> None:
    base = [[np.array([1 + number / 1000]) for number in range(10)]]
    head = [[np.array([1.05 + number / 1000]) for number in range(10)]]  # separated: p = 2 / C(20, 10) < .002
    assert decision(rivals.asv_continuous(1.01), base, head) == "regressed"
    assert decision(rivals.asv_continuous(1.1), base, head) == "ok"
    few = [side[0][:4] for side in (base, head)]  # 4 against 4: p = .029
    assert decision(rivals.asv_continuous(1.01), [few[0]], [few[1]]) == "ok"


def test_bencher_t_test__limit_is_mean_plus_t_times_sd() -> None:
    stored = runs(1.0, 2.0, 3.0)  # mean 2, sd 1, t(.99, 2) = 6.965: limit 8.965
    assert decision(rivals.bencher_t_test, stored, runs(8.9)) == "ok"
    assert decision(rivals.bencher_t_test, stored, runs(9.0)) == "regressed"


def test_bencher_iqr__limit_is_median_plus_three_iqr() -> None:
    stored = runs(1.0, 2.0, 3.0, 4.0, 5.0)  # quartiles 2, 3, 4: limit 3 + 3 * 2
    assert decision(rivals.bencher_iqr, stored, runs(8.9)) == "ok"
    assert decision(rivals.bencher_iqr, stored, runs(9.1)) == "regressed"


def test_pinpoint__three_answers() -> None:
    eight = rising(1.0, 0.01, 8)
    assert decision(rivals.pinpoint, runs(*eight), runs(*rising(2.0, 0.01, 8))) == "regressed"
    # The same eight values on both sides: p = 1, above the high threshold of .793
    assert decision(rivals.pinpoint, runs(*eight), runs(*eight)) == "ok"
    # Shifted by three places: U = 15 of 64, p = .08 by the U test, between .01 and .793
    assert decision(rivals.pinpoint, runs(*eight), runs(*rising(1.035, 0.01, 8))) == "undecided"


@pytest.mark.parametrize(("attempts", "published"), [(6, 0.9362), (10, 0.5708), (20, 0.0859), (30, 0.0095)])
def test_pinpoint_high_threshold__near_the_published_table(attempts: int, published: float) -> None:
    # thresholds.py, row "1.0": the 6th, 10th, 20th and 30th number
    assert rivals.pinpoint_high_threshold(attempts) == pytest.approx(published, rel=0.1)


def test_kolmogorov_smirnov__disjoint_samples__known_value() -> None:
    # D = 1 at 10 against 10: lambda = (sqrt(5) + .12 + .11 / sqrt(5)) = 2.4053, 2 exp(-2 lambda^2) = 1.89e-5
    assert rivals.kolmogorov_smirnov(np.arange(10.0), np.arange(10.0) + 50) == pytest.approx(1.89e-5, rel=0.01)


def test_perfherder__needs_twelve_values_and_two_percent() -> None:
    base = runs(*[1.0, 1.001] * 6)
    assert decision(rivals.perfherder, base, runs(*[1.03, 1.031] * 6)) == "regressed"
    assert decision(rivals.perfherder, base, runs(*[1.015, 1.016] * 6)) == "ok"
    assert decision(rivals.perfherder, base[:11], runs(*[1.03, 1.031] * 6)) == "ok"


def test_perfherder__values_near_the_change_weigh_more() -> None:
    # Base rose from 1 to 2 halfway; head is 2. Back from the change the weights are 12 … 1: mean (57 x 2 + 21 x 1) / 78.
    answer = rivals.perfherder(runs(*[1.0] * 6, *[2.0] * 6), runs(*[2.0] * 12), PAIRED)
    assert answer["effect"] == pytest.approx(2.0 / (135 / 78) - 1)


def test_kalibera_jones__fieller_interval_by_hand() -> None:
    # Means 2 and 4, sd .1, two runs each: t(.995, 2) = 9.925, half-width 9.925 x .1 = .9925.
    # a = 2, b = 4, h = .9925: (8 -+ sqrt(64 - (4 - .985)(16 - .985))) / (4 - .985) - 1
    spread = 0.1 / np.sqrt(2)
    answer = rivals.kalibera_jones(runs(2 - spread, 2 + spread), runs(4 - spread, 4 + spread), PAIRED)
    half = 9.9248**2 * 0.01 / 2
    root = np.sqrt(64 - (4 - half) * (16 - half))
    assert answer["ci"] == pytest.approx(((8 - root) / (4 - half) - 1, (8 + root) / (4 - half) - 1), rel=1e-4)
    assert answer["decision"] == "regressed"


def test_kalibera_jones__interval_reaches_no_change__ok() -> None:
    assert decision(rivals.kalibera_jones, runs(1.0, 1.2, 1.1), runs(1.05, 1.25, 1.15)) == "ok"


def test_criterion__significant_but_within_noise_threshold__ok() -> None:
    base = [[np.array([1 + number / 1e5]) for number in range(100)]]
    assert decision(rivals.criterion, base, [[block * 1.009 for block in base[0]]]) == "ok"
    assert decision(rivals.criterion, base, [[block * 1.02 for block in base[0]]]) == "regressed"


def test_diy_median__three_percent() -> None:
    assert decision(rivals.diy_median, one_run(1.0, 1.0, 9.0), one_run(1.04, 1.04, 1.04)) == "regressed"
    assert decision(rivals.diy_median, one_run(1.0, 1.0, 9.0), one_run(1.02, 1.02, 90.0)) == "ok"


def test_diy_t_test__all_calls_are_one_sample() -> None:
    # 100 calls of 1 and 3 a side: variance 1.01, standard error of the difference .142; t = 2.1 and 1.8
    base = one_run(*[1.0, 3.0] * 50)
    assert decision(rivals.diy_t_test, base, one_run(*[1.3, 3.3] * 50)) == "regressed"
    assert decision(rivals.diy_t_test, base, one_run(*[1.25, 3.25] * 50)) == "ok"


def test_moments__put_together_from_runs__as_from_all_calls() -> None:
    side = [*one_run(1.0, 2.0, 6.0), *one_run(4.0, 8.0)]
    number, mean, variance = rivals._moments(side)
    assert (number, mean) == (5, pytest.approx(4.2))
    assert variance == pytest.approx(np.var([1, 2, 6, 4, 8], ddof=1))
