"""Planted histories of main: is the origin of each movement right, and the list of open
regressions exact?

    python benchmarks/trend/planted.py [--only NAME] [--list] [--draw N]

Sixty histories of 60 to 90 versions on one or two machines, with two workloads of two
shapes each, noise of 1.2 % and a wild value in 17. What moved them, when, and which
regressions are open at the end is planted. ``--draw`` plants them in other noise.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fakes.planted_histories import HISTORIES, answer_of, redrawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--draw", type=int, default=0)
    arguments = parser.parse_args()
    table = Table(
        "history", "origin planted", "origin", "open planted", "open", "right", "exact"
    )
    right = exact = count = 0
    for history in HISTORIES:
        if arguments.only and arguments.only not in history.name:
            continue
        answer = answer_of(redrawn(history, arguments.draw))
        count += 1
        right += answer.has_right_origin
        exact += answer.is_exact
        if arguments.list or not (answer.has_right_origin and answer.is_exact):
            table.add_row(
                history.name,
                history.origin,
                ", ".join(answer.origins),
                str(sorted(history.is_open)),
                str(answer.open_versions),
                "yes" if answer.has_right_origin else "no",
                "yes" if answer.is_exact else "no",
            )
    console = Console(width=160)
    console.print(table)
    console.print(
        f"right origin {right} of {count}, open list exact {exact} of {count}"
    )


if __name__ == "__main__":
    main()
