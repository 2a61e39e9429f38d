"""How long does a check of equal code take for a model that loads for seconds?

    python benchmarks/accelerator/loads.py 8 30 120

The model is that of tests/plugins/test_card.py, on a card of software that behaves like
a real one: it has a queue and a clock, and cannot be forked once it was opened. Prints
the seconds to the verdict and the quads a minute of the pairs. The machine should do
nothing else.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.plugins.environment import install
from tests.plugins.test_card import BASE, CARD, check, pairs_of


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "seconds", nargs="+", type=float, help="how long the model loads"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = install(CARD, Path(folder) / "environment")
        for seconds in options.seconds:
            print(result_of(python, Path(folder) / str(seconds), seconds), flush=True)


def result_of(python: Path, folder: Path, seconds: float) -> str:
    """A line of the table: the load, the time of the whole check, and its verdict."""
    folder.mkdir()
    began = time.monotonic()
    run, decision = check(
        python, folder, BASE + "# Equal.\n", variables={"LOAD_SECONDS": str(seconds)}
    )
    took = time.monotonic() - began
    return f"load {seconds:g} s: {took:.0f} s, {decision['verdict']}, {quads_per_minute(run):.0f} quads a minute"


def quads_per_minute(run: Any) -> float:
    """The quads of base and head in a minute, from the first block of the pairs to the
    last.
    """
    quads = 0
    asked: list[int] = []
    for pair in pairs_of(run):
        for blocks in pair["shapes"].values():
            quads += len(set(blocks["quad"]))
            asked += blocks["conductor"]["asked_ns"]
    return 60e9 * quads / (max(asked) - min(asked))


if __name__ == "__main__":
    main()
