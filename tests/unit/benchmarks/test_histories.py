"""The change points of recorded performance histories, labelled by people (SAP HANA, CC-BY-4.0: ../shared/gate-noise).

The settings of ``stats/changes.py`` were chosen on these very series, so the numbers say what they reach, not what they would
on others; benchmarks/trend shows them beside simple rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from histories import PLANTED_IN, load_histories, planted

from perfgate.stats.changes import shifts
from tests.samples import recorded

NEAR = 3


@pytest.fixture(scope="module")
def histories() -> Any:
    return load_histories(recorded("history", folder="gate-noise"))


def slower(values: np.ndarray) -> list[int]:
    return [found.at for found in shifts(np.log(values)) if found.effect > 0]


@pytest.mark.recordings
def test_shifts__labelled_regressions__every_one_found_and_nothing_else(histories: Any) -> None:
    labelled = [history for history in histories if history.change]
    assert len(labelled) == 3
    for history in labelled:
        (at,) = slower(history.values)
        assert abs(at - history.change) <= NEAR, history.name


@pytest.mark.recordings
def test_shifts__series_without_a_regression__at_most_one_alarm_in_a_thousand_versions(histories: Any) -> None:
    quiet = [history for history in histories if not history.change]
    versions = sum(history.values.size for history in quiet)
    alarms = sum(len(slower(history.values)) for history in quiet)
    assert versions > 1600
    assert 100 * alarms / versions <= 0.1


@pytest.mark.recordings
def test_shifts__asked_after_every_version__no_more_alarms_than_afterwards(histories: Any) -> None:
    """A rule may look calm over a whole history and cry wolf on its way there: so every version is the newest once."""
    quiet = [history for history in histories if not history.change]
    alarms = 0
    for history in quiet:
        told: list[int] = []
        for end in range(8, history.values.size + 1):
            told += [at for at in slower(history.values[:end]) if all(abs(at - old) > 5 for old in told)]
        alarms += len(told)
    assert 100 * alarms / sum(history.values.size for history in quiet) <= 0.1


@pytest.mark.recordings
@pytest.mark.parametrize(("size", "least_found", "most_delay"), [(0.02, 4, 8), (0.05, 6, 5), (0.10, 6, 2)])
def test_shifts__step_planted_in_the_middle__found_soon(
    histories: Any, size: float, least_found: int, most_delay: int
) -> None:
    """Of nine series; three of them spread by 15 % and more from run to run, and no rule finds 2 % in these."""
    delays = []
    for history in histories:
        if history.kind in PLANTED_IN:
            values, middle = planted(history, size)
            ends = range(middle + 1, min(middle + 40, values.size) + 1)
            at_end = (end for end in ends if any(abs(at - middle) <= NEAR for at in slower(values[:end])))
            delays.append(next((end - middle for end in at_end), None))
    seen = [delay for delay in delays if delay is not None]
    assert len(delays) == 9
    assert len(seen) >= least_found
    assert float(np.median(seen)) <= most_delay
