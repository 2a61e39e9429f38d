"""Faults planted in recordings of 64 to 300 ranks, read from files: each is named, and equal ranks are clean."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import run_perfgate
from tests.fakes.training import MS, Training
from tests.unit.cli.test_trace_ranks import job

SLOW = 37
_Found = dict[str, Any]


def trained(extra: Callable[[int, int, int], float], **options: Any) -> Callable[[Path, int], Path]:
    def write(folder: Path, ranks: int) -> Path:
        tensor = ranks if options.get("kernel") else 8 if ranks % 8 == 0 else 4
        training = Training(ranks=ranks, tensor=tensor, extra=extra, steps=4, layers=2, **options)
        return training.write(folder)

    return write


def nothing(rank: int, step: int, layer: int) -> float:
    return 0.0


def killed(folder: Path, ranks: int) -> Path:
    """Write equal ranks, of which one was killed while its profiler wrote."""
    trained(nothing)(folder, ranks)
    file = folder / f"job_{SLOW}.pt.trace.json"
    file.write_text(file.read_text()[:500])
    return folder


def delayed(found: _Found) -> tuple[int, str, bool]:
    (delay,) = found["delays"]
    assert not found["slow_links"]
    return delay["rank"], delay["why"], delay["once"]


def gaps(found: _Found) -> int:
    return len(found["gaps"]["left_out"]) + len(found["gaps"]["ended_early"])


def clean(found: _Found) -> bool:
    return not (found["delays"] or found["slow_ranks"] or found["slow_links"] or found["slow_stages"])


FAULTS: dict[str, tuple[Callable[[Path, int], Path], Callable[[_Found], object], object]] = {
    "equal ranks": (trained(nothing), clean, True),
    "slow rank": (
        trained(lambda rank, step, layer: MS if rank == SLOW else 0.0), delayed, (SLOW, "computing", False)
    ),
    "late once": (
        trained(lambda rank, step, layer: 15 * MS if (rank, step, layer) == (SLOW, 2, 1) else 0.0),
        delayed, (SLOW, "computing", True),
    ),
    "slow expert rank": (
        trained(
            lambda rank, step, layer: 0.8 * MS if rank == SLOW else 0.0,
            named=False, kernel="void deep_ep::internode::combine<8>(int4*)",
        ),
        delayed, (SLOW, "computing", False),
    ),
    "killed rank": (
        killed, lambda found: (clean(found), gaps(found)), (True, 1)
    ),
    "slow link": (
        lambda folder, ranks: job(folder, ranks=ranks, slow_link=(SLOW, 3)),
        lambda found: [(link["source"], link["target"]) for link in found["slow_links"]], [(SLOW, 3)],
    ),
    "slow pipeline stage": (
        lambda folder, ranks: job(folder, ranks=ranks, stages=4, slow_stage=2),
        lambda found: [stage["stage"] for stage in found["slow_stages"]], [2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("ranks", [64, pytest.param(300, marks=pytest.mark.slow)])
def test_ranks__planted_fault__named_and_nothing_else(tmp_path: Path, fault: str, ranks: int) -> None:
    plant, answer, expected = FAULTS[fault]
    done = run_perfgate("trace", "ranks", str(plant(tmp_path / "job", ranks)), "--json", "--workers", "2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert answer(found) == expected
