"""Of the differences that checks of unchanged code print, how many exclude "no change"?
One in twenty would be honest.

    for i in 1 2 3; do python benchmarks/gate/mistakes/gate_mistakes.py --only
      '*/unchanged' --out unchanged.jsonl --keep kept/$i
    done
    python benchmarks/gate/intervals.py kept

Reads every decision.json below the folders. A row is a metric of the checklist:
differences printed, intervals that exclude no change, and on how many of them the
head's number is the lower one, with the two-sided sign test of that. No difference may
be printed without an interval; where one is, the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import binomtest


@dataclass
class Tally:
    """What was printed of one metric, over all gates."""

    printed: int = 0
    excluding: int = 0
    bare: int = 0
    lower: int = 0
    higher: int = 0

    def add(self, difference: dict[str, Any]) -> None:
        interval = difference["interval"]
        self.printed += 1
        self.bare += interval is None
        self.excluding += interval is not None and not interval[0] <= 0 <= interval[1]
        self.lower += difference["delta"] < 0
        self.higher += difference["delta"] > 0

    def add_all(self, other: Tally) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def cells(self) -> str:
        moved = self.lower + self.higher
        chance = f"{binomtest(self.lower, moved).pvalue:.3f}" if moved else "–"
        share = f"{self.excluding / self.printed:.1%}"
        return f"{self.printed:8} {self.excluding:10} {share:>7} {self.lower:6} of {moved:<6} {chance:>6}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    decisions = [
        path
        for folder in parser.parse_args().folders
        for path in sorted(folder.rglob("decision.json"))
    ]
    by_metric: dict[str, Tally] = defaultdict(Tally)
    verdicts: dict[str, int] = defaultdict(int)
    for path in decisions:
        decision = json.loads(path.read_text())
        verdicts[decision["verdict"]] += 1
        for row in decision["checklist"]["numbers"]:
            difference = row["difference"]
            if (
                difference
                and difference["kind"] == "turns"
                and difference["delta"] is not None
            ):
                by_metric[row["metric"]].add(difference)
    total = Tally()
    print(
        f"{len(decisions)} gates: {', '.join(f'{count} {name}' for name, count in sorted(verdicts.items()))}"
    )
    print(
        f"{'metric':28} {'printed':>8} {'excluding':>10} {'':7} {'head lower':>16} {'p':>6}"
    )
    for metric, tally in sorted(by_metric.items()):
        total.add_all(tally)
        print(f"{metric:28} {tally.cells()}")
    if total.printed:
        print(f"{'all':28} {total.cells()}")
    print(f"differences without an interval: {total.bare}")
    return 1 if total.bare else 0


if __name__ == "__main__":
    sys.exit(main())
