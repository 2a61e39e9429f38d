"""False alarms on made noise: what no setting of stats/changes.py was chosen on.

    python benchmarks/trend/noise.py [--series 40] [--versions 100]

Every series has a spread of 2 % and no regression. Columns: alarms per 100 versions, to
the slower or the faster, over the whole history and when it is asked after every
version; and how often a slowdown of 4 and 6 %, planted at version 60, is found at the
end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np
from histories import Floats
from rich.console import Console
from rich.table import Table

from perfgate.stats.changes import ENOUGH_VALUES, shifts

SPREAD = 0.02
PLANTED_AT = 60
NEAR = 3
SEED = 7

Noise = Callable[[np.random.Generator, int], Floats]


def autocorrelated(correlation: float) -> Noise:
    """Return noise whose neighbours correlate so much, of spread 1."""

    def draw(random: np.random.Generator, count: int) -> Floats:
        drawn = random.normal(0, 1, count)
        drawn[1:] *= np.sqrt(1 - correlation**2)
        for index in range(1, count):
            drawn[index] += correlation * drawn[index - 1]
        return drawn

    return draw


def seasonal(size: float, period: int) -> Noise:
    """Return noise on a room that warms up and cools down."""
    return lambda r, n: (
        r.normal(0, 1, n)
        + size * np.sin(2 * np.pi * (np.arange(n) / period + r.random()))
    )


KINDS: dict[str, Noise] = {
    "white": lambda r, n: r.normal(0, 1, n),
    "autocorrelated 0.3": autocorrelated(0.3),
    "autocorrelated 0.5": autocorrelated(0.5),
    "autocorrelated 0.8": autocorrelated(0.8),
    "heavy tails (t, 2 degrees)": lambda r, n: r.standard_t(2, n),
    "one-sided (exponential)": lambda r, n: r.exponential(1, n),
    "a wild value in 20": lambda r, n: r.normal(0, 1, n) + 8 * (r.random(n) < 0.05),
    "two modes": lambda r, n: r.normal(0, 0.2, n) + 2 * (r.random(n) < 0.3),
    "temperature, ±2 % over 30 versions": seasonal(1, 30),
    "temperature, ±4 % over 90 versions": seasonal(2, 90),
    "drift of 4 % over all": lambda r, n: r.normal(0, 1, n) + 2 * np.linspace(0, 1, n),
}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", type=int, default=40, help="series of every kind")
    parser.add_argument(
        "--versions", type=int, default=100, help="versions of a series"
    )
    given = parser.parse_args()
    table = Table(
        title=f"{given.series} series of {given.versions} versions each, spread 2 %"
    )
    for column in (
        "noise",
        "false per 100",
        "… asked after every version",
        "4 % found",
        "6 % found",
    ):
        table.add_column(column)
    for name, noise in KINDS.items():
        random = np.random.default_rng(SEED)
        made = [SPREAD * noise(random, given.versions) for _ in range(given.series)]
        values = given.series * given.versions
        whole = 100 * sum(len(shifts(series)) for series in made) / values
        growing = 100 * sum(told(series) for series in made) / values
        found = [
            f"{sum(is_found(series, size) for series in made)} of {len(made)}"
            for size in (0.04, 0.06)
        ]
        table.add_row(name, f"{whole:.2f}", f"{growing:.2f}", *found)
    Console(width=120).print(table)
    return 0


def told(series: Floats) -> int:
    """Return how many alarms there are when every version is the newest once; one that
    moves a little is no other.
    """
    seen: list[int] = []
    for end in range(ENOUGH_VALUES, series.size + 1):
        seen += [
            found.at
            for found in shifts(series[:end])
            if all(abs(found.at - old) > 5 for old in seen)
        ]
    return len(seen)


def is_found(series: Floats, size: float) -> bool:
    """Return whether a slowdown is found that was planted in a series."""
    slower = series + size * (np.arange(series.size) >= PLANTED_AT)
    return any(
        abs(found.at - PLANTED_AT) <= NEAR and found.effect > 0
        for found in shifts(slower)
    )


if __name__ == "__main__":
    sys.exit(main())
