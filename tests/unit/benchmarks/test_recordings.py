"""Reading recordings: the layout is the one the README beside the recordings describes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest
import recordings

from perfgate.catalogue.names import GAP
from perfgate.document.samples import BlockColumns, PackedTimes, Replicate, WorkerColumns, pack
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.pairs import paired_effects, pairs_of
from tests.samples import recorded
from tests.unit.gate.builders import SHAPE, WORKLOAD, replicate

MICROSECOND = 1_000


def write(path, blocks):
    """Write a file from rows (pair, quad, side, calls in us, gap in us, mode, level, injected us)."""
    wall = [call * MICROSECOND for row in blocks for call in row[3]]
    spans = [(sum(row[3]) + row[4] * len(row[3])) * MICROSECOND for row in blocks]
    np.savez(
        path,
        b_pair=np.array([row[0] for row in blocks], dtype=np.int32),
        b_quad=np.array([row[1] for row in blocks], dtype=np.int32),
        b_side=np.array([row[2] for row in blocks], dtype=np.int32),
        b_n=np.array([len(row[3]) for row in blocks], dtype=np.int32),
        b_t0=np.zeros(len(blocks), dtype=np.int64),
        b_t1=np.array(spans, dtype=np.int64),
        b_mode=np.array([row[5] for row in blocks], dtype=np.int32),
        b_level=np.array([row[6] for row in blocks], dtype=np.float32),
        b_inj_ns=np.array([row[7] * MICROSECOND for row in blocks], dtype=np.int64),
        wall=np.array(wall, dtype=np.uint32),
        cpu=np.array(wall, dtype=np.uint32) // 2,
    )


def plain(pair, quad, side, calls):
    return (pair, quad, side, calls, 1, 0, 0.0, 0)


def test_read_pairs__abba__blocks_of_each_side_in_time_order(tmp_path: Path) -> None:
    blocks = [plain(0, 0, 0, [10, 11]), plain(0, 0, 1, [20]), plain(0, 0, 1, [21]), plain(0, 0, 0, [12])]
    write(tmp_path / "aa-quiet-mlp-pass00.npz", [*blocks, plain(1, 0, 1, [30]), plain(1, 0, 0, [40])])
    first, second = recordings.read_pairs(tmp_path / "aa-quiet-mlp-pass00.npz", 0)
    base, head = recordings.runs_of(first, "wall")
    assert [block.tolist() for block in base] == [pytest.approx([10e-6, 11e-6]), pytest.approx([12e-6])]
    assert [block.tolist() for block in head] == [pytest.approx([20e-6]), pytest.approx([21e-6])]
    assert second.sides[0][0].wall[0] == pytest.approx(40e-6)
    assert first.seconds == pytest.approx((23 + 22 + 22 + 12) * 1e-6)  # the calls and a microsecond's gap after each


def test_runs_of__cpu_clock(tmp_path: Path) -> None:
    write(tmp_path / "aa-quiet-mlp-pass00.npz", [plain(0, 0, 0, [10, 20]), plain(0, 0, 1, [30])])
    base, head = recordings.runs_of(recordings.read_pairs(tmp_path / "aa-quiet-mlp-pass00.npz", 0)[0], "cpu")
    assert (base[0].tolist(), head[0].tolist()) == (pytest.approx([5e-6, 10e-6]), pytest.approx([15e-6]))


def test_runs_of__gap_clock__a_change_is_a_share_of_a_call(tmp_path: Path) -> None:
    rows = [(0, 0, 0, [100] * 20, 1, 0, 0.0, 0), (0, 0, 1, [100] * 10 + [180] * 10, 3, 0, 0.0, 0)]
    write(tmp_path / "aa-quiet-mlp-pass00.npz", rows)
    base, head = recordings.runs_of(recordings.read_pairs(tmp_path / "aa-quiet-mlp-pass00.npz", 0)[0], "gap")
    assert (base[0].tolist(), head[0].tolist()) == (pytest.approx([101e-6]), pytest.approx([103e-6]))


def test_read_cells__passes_of_one_condition_are_pooled(tmp_path: Path) -> None:
    for name in ("aa-quiet-mlp-pass00", "aa-quiet-mlp-pass02", "aa-quiet-mlp-pass04", "aa-disturbed-mlp-pass00"):
        write(tmp_path / f"{name}.npz", [plain(0, 0, 0, [10]), plain(0, 0, 1, [20])])
    cells = recordings.read_cells(tmp_path)
    assert {cell.name: [pair.number for pair in cell.pairs] for cell in cells} == {
        "mlp/busy": [0, 2],
        "mlp/calm": [4],
        "mlp/disturbed": [0],
    }


def test_read_cells__no_recordings__says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="with --recordings"):
        recordings.read_cells(tmp_path)


def test_read_injections__each_kind_with_the_base_of_its_quads(tmp_path: Path) -> None:
    rows = [
        (0, 0, 0, [100, 100], 0, 0, 0.0, 0),
        (0, 0, 1, [110, 110], 0, 1, 0.05, 5),
        (0, 1, 0, [200], 0, 0, 0.0, 0),
        (0, 1, 1, [200], 0, 2, 0.02, 100),
    ]
    write(tmp_path / "inj-quiet-mlp-pass00.npz", rows)
    spin, tail = recordings.read_injections(tmp_path)
    assert (spin.kind, spin.name) == ("spin", "mlp/spin 0.05")
    assert spin.share == pytest.approx(5 / 100)
    assert [block.wall[0] for block in spin.pairs[0].sides[0]] == [pytest.approx(100e-6)]
    assert tail.share == pytest.approx(0.02 * 100 / 100)  # two calls in a hundred wait one call longer


def test_slow_tail__p99_up_median_stays() -> None:
    run = [np.linspace(1.0, 2.0, 500), np.linspace(2.0, 1.0, 500)]
    slow = recordings.slow_tail(run, 0.10)
    before, after = np.concatenate(run), np.concatenate(slow)
    assert np.quantile(after, 0.99) == pytest.approx(1.1 * np.quantile(before, 0.99), rel=1e-3)
    assert np.quantile(after, 0.5) == np.quantile(before, 0.5)
    assert (after > before).sum() == 20


@pytest.mark.recordings
def test_read_cells__the_recordings_beside_the_repository__every_workload() -> None:
    folder = recorded(folder="gate-noise")
    cells = recordings.read_cells(folder)
    assert {cell.workload for cell in cells} == {"mlp", "conv", "tblock", "ewise", "tiny"}
    for pair in (pair for cell in cells for pair in cell.pairs):
        # 12 quads of two blocks a side, of which the first block is dropped or kept for both
        assert len(pair.sides[0]) == len(pair.sides[1]) >= 20
        for block in (*pair.sides[0], *pair.sides[1]):
            assert 0 < block.wall.sum() <= block.span


def columns_of(blocks: Sequence[recordings.Block]) -> BlockColumns:
    """The blocks as a worker reports them, one directly after another."""
    ends = np.cumsum([round(block.span * 1e9) for block in blocks])
    starts = [0, *ends[:-1]]
    nothing = [0] * len(blocks)
    return BlockColumns(
        quad=[block.quad for block in blocks],
        sequence=list(range(len(blocks))),
        calls=[block.wall.size for block in blocks],
        worker=WorkerColumns(
            start_ns=[int(start) for start in starts],
            end_ns=[int(end) for end in ends],
            involuntary_switches=nothing,
            minor_faults=nothing,
        ),
        times=PackedTimes(
            wall=pack(np.rint(np.concatenate([block.wall for block in blocks]) * 1e9).astype(np.int64)),
            cpu=pack(np.rint(np.concatenate([block.cpu for block in blocks]) * 1e9).astype(np.int64)),
        ),
    )


def member(blocks: Sequence[recordings.Block], of: Literal["first", "second"]) -> list[Replicate]:
    one = replicate(0, "ab", of, 1.0)
    return [msgspec.structs.replace(one, shapes={SHAPE: columns_of(blocks)})]


def waited(blocks: Sequence[recordings.Block]) -> float:
    computed, took = (sum(float(times.sum()) for times in column) for column in zip(*((b.cpu, b.wall) for b in blocks)))
    return 1 - computed / took


@pytest.mark.recordings
def test_gap__equal_code_that_waited_for_cpus__free_of_the_waits() -> None:
    cells = recordings.read_cells(recorded(folder="gate-noise"))
    waiting = [pair for cell in cells for pair in cell.pairs if waited([*pair.sides[0], *pair.sides[1]]) > 0.1]
    effects, of_means = [], []
    for base, head in (pair.sides for pair in waiting):
        pairs = pairs_of(member(base, "first"), member(head, "second"))[WORKLOAD]
        (difference,) = paired_effects(pairs, ShapePlace(WORKLOAD, SHAPE))[GAP].differences.values
        effects.append(difference)
        before, after = (
            np.mean([(one.span - one.wall.sum()) / one.wall.size for one in side]) for side in (base, head)
        )
        of_means.append((after - before) / np.quantile(np.concatenate([one.wall for one in base]), 0.1))
    assert len(effects) > 90
    assert np.std(effects) < 0.001
    assert np.abs(effects).max() < 0.003
    assert np.std(of_means) > 0.1
