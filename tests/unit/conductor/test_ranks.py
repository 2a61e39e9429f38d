"""Ranks take turns: what a turn gives, that ranks are told apart, and how a side ends whose ranks do something else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from perfgate.conductor.sides.program import SideError
from perfgate.conductor.sides.ranks.rank_counts import read_counts
from perfgate.conductor.sides.ranks.ranks import RanksSide
from perfgate.conductor.sides.side import SidePlace
from perfgate.document.samples import unpack
from perfgate.errors import ResultsError
from perfgate.job_settings import JobReference, JobSettings
from tests.fakes import torchrun
from tests.waiting import left_in_the_end

ROOT = Path(__file__).parents[3]
LOOP = """
import os, signal, sys, time
import perfgate
rank = int(os.environ["RANK"])
def spin(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
{before}
for step in range({steps}):
    spin(0.0005)
    {step}
    perfgate.turn(loss=1 / (step + 1 + rank), samples=2)
"""
MakeSide = Callable[..., RanksSide]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeSide]:
    """Make sides whose script does something before its loop or in every step."""
    fake = torchrun.install(tmp_path)
    sides: list[RanksSide] = []

    def make_side(step: str = "pass", before: str = "", steps: int = 10_000, **settings: object) -> RanksSide:
        folder, table = tmp_path / f"side{len(sides)}", tmp_path / "ranks.json"
        folder.mkdir()
        (folder / "train.py").write_text(LOOP.format(step=step, before=before, steps=steps))
        environment = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(fake), str(ROOT)]),
            "TMPDIR": str(tmp_path),
            "RANK_TABLE_FILE": str(table),
        }
        table.write_text('{"server_list": [{"device": [{"device_id": "0", "rank_id": "0"}]}]}')
        place = SidePlace(root=folder, environment=environment, log=folder / "log")
        options = {"ranks": 2, "steps": 3, "warm_up": 4, "timeout": 20.0, "ready_timeout": 20.0, **settings}
        reference = JobReference("train", JobSettings(torchrun="train.py", **options))  # type: ignore[arg-type]
        sides.append(RanksSide(reference, place))
        return sides[-1]

    yield make_side
    for side in sides:
        side.stop()


def begin(side: RanksSide) -> RanksSide:
    side.start()
    side.warm_up()
    return side


def failure(side: RanksSide, turns: int = 3) -> SideError:
    """Return how the side failed, from its start to the last of some turns."""
    try:
        begin(side)
        for number in range(turns):
            side.turn(number)
    except SideError as error:
        return error
    raise AssertionError("it did not fail")


def at_work_in(folder: Path) -> list[int]:
    """Return the processes whose current directory it is."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is not ours
            found += [int(process.name)] if (process / "cwd").readlink() == folder else []
    return found


# --- what a turn gives


def test_turn__two_ranks__numbers_work_and_samples_by_rank(make: MakeSide) -> None:
    side = begin(make("spin(0.004 * rank)"))
    turn = side.turn(0)
    assert turn.work == {"steps": 3, "ranks": 2, "samples": 12}
    assert [number.metric for number in side.numbers] == list(turn.values)
    assert set(turn.values) == {
        *("ranks.step", "ranks.step_p99", "ranks.cpu", "ranks.imbalance", "ranks.memory", "ranks.throughput")
    }
    _, slowest = [unpack(entry.samples).sum() for entry in turn.samples if entry.metric == "ranks.step"]
    assert turn.values["ranks.throughput"] == pytest.approx(12 / (slowest / 1e9), rel=1e-6)
    assert turn.values["ranks.step"] > 0.0045
    assert turn.values["ranks.cpu"] > 0.005
    assert turn.values["ranks.imbalance"] > 1.3
    assert turn.values["ranks.memory"] > 2**20
    cpu = {entry.labels["rank"]: int(unpack(entry.samples)[0]) for entry in turn.samples if entry.metric == "ranks.cpu"}
    assert cpu["1"] > 2 * cpu["0"] > 0
    assert [entry.samples.count for entry in turn.samples if entry.metric == "ranks.step"] == [3, 3]
    assert {number.metric for number in side.numbers if number.gating} == {"ranks.step", "ranks.cpu"}


def test_turn__first_of_a_start__has_the_counts_of_profiled_steps(make: MakeSide) -> None:
    real_torch = "sys.path = [path for path in sys.path if 'fake-torch' not in path]\nimport torch\n"
    before = f"{real_torch}import torch.nn.functional as F\nones = torch.ones(4)"
    side = begin(make("[F.relu(ones) for _ in range(1 + rank)]\n    ones[0].item()", before))
    counts = side.turn(0).counts
    assert [(count.rank, count.steps, count.syncs, count.collectives) for count in counts] == [
        (0, 3, 3, []),
        (1, 3, 3, []),
    ]
    assert counts[1].operators > counts[0].operators > 0
    assert side.turn(1).counts == []


def test_turn__script_without_torch__says_that_nothing_was_profiled(make: MakeSide) -> None:
    assert [(count.rank, count.steps) for count in begin(make()).turn(0).counts] == [(0, 0), (1, 0)]


def test_read_counts__a_rank_left_no_trace_but_a_pipe__said_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank-0.json")
    with pytest.raises(ResultsError, match="trace of rank 0 cannot be read"):
        read_counts(tmp_path / "rank-0.json", rank=0, steps=1)


def test_turn__four_ranks__all_of_them(make: MakeSide) -> None:
    turn = begin(make(ranks=4)).turn(0)
    assert turn.work == {"steps": 3, "ranks": 4, "samples": 24}
    assert {entry.labels["rank"] for entry in turn.samples} == {"0", "1", "2", "3"}


def test_turn__ranks_connect_in_another_order__equal_output(make: MakeSide) -> None:
    first = begin(make(before="time.sleep(0.4 * rank)"))
    last = begin(make(before="time.sleep(0.4 - 0.4 * rank)"))
    outputs = [(first.turn(number).output, last.turn(number).output) for number in range(3)]
    assert all(before == after != "" for before, after in outputs)
    assert len({before for before, _ in outputs}) == 3


def test_turn__another_loss__another_output(make: MakeSide) -> None:
    equal, other = begin(make()), begin(make("rank += 1e-12"))
    assert equal.turn(0).output != other.turn(0).output


def test_turn__losses_may_differ_a_little__their_mean_is_a_value(make: MakeSide) -> None:
    first, second = (begin(make(step, loss_tolerance=0.01)) for step in ("pass", "rank += 1e-9"))
    before, after = first.turn(0), second.turn(0)
    assert before.output == after.output
    # The turn begins behind the first call, which asks for it, and four steps of warm-up.
    expected = sum(1 / (step + 1 + rank) for step in (8, 9, 10) for rank in (0, 1)) / 6
    assert before.values["ranks.loss"] == pytest.approx(expected)
    assert after.values["ranks.loss"] == pytest.approx(expected)


def test_turn__a_loss_that_is_no_number__another_output(make: MakeSide) -> None:
    first, second = (begin(make(step, loss_tolerance=0.01)) for step in ("pass", "rank = float('nan')"))
    before, after = first.turn(0), second.turn(0)
    assert before.output != after.output
    assert after.values["ranks.loss"] == 0.0


def test_turn__output_may_differ__none(make: MakeSide) -> None:
    assert begin(make(same_output=False)).turn(0).output == ""


def test_sides__at_once__ports_of_their_own(make: MakeSide) -> None:
    told = (
        "print('told', *(os.environ[n] for n in ('MASTER_PORT', 'HCCL_IF_BASE_PORT', 'RANK_TABLE_FILE')), flush=True)"
    )
    ports = []
    for _ in range(2):
        side = begin(make(before=told, ranks=1))
        line = next(line for line in side._running.output().splitlines() if line.startswith("told"))
        master, hccl, table = line.split()[1:]
        card = json.loads(Path(table).read_text())["server_list"][0]["device"][0]["device_port"]
        ports.append((int(master), int(hccl), int(card)))
    assert ports[0][0] != ports[1][0]
    assert abs(ports[0][1] - ports[1][1]) >= 16
    assert ports[0][2] != ports[1][2]


# --- how a side ends


def test_stop__in_the_middle_of_the_loop__nothing_left(make: MakeSide, tmp_path: Path) -> None:
    side = begin(make())
    side.turn(0)
    side.stop()
    side.stop()
    assert left_in_the_end(lambda: at_work_in(tmp_path / "side0")) == []
    assert not list(tmp_path.glob("ranks-*"))


@pytest.mark.parametrize(
    ("step", "message", "kind"),
    [
        ("rank == 1 and step == 8 and os.kill(os.getpid(), 9)", "rank 1 was killed by SIGKILL after 7 steps", "exit"),
        (
            "rank == 1 and step == 8 and os.kill(os.getpid(), 40)",
            "rank 1 was killed by signal 40 after 7 steps",
            "exit",
        ),
        ("rank == 1 and step == 8 and sys.exit(3)", "rank 1 exited after 7 steps with code 3", "exit"),
        ("rank == 0 and step == 8 and sys.exit(0)", "rank 0 left its loop after 7 steps; let the loop run", "exit"),
        ("rank == 1 and step == 8 and time.sleep(60)", "rank 1 did not finish a turn of 3 steps within 2 s", "timeout"),
        (
            "perfgate.measuring.rank._rank and perfgate.measuring.rank._rank._send({'losses': 3})",
            "rank [01] sent something other than the report of a turn",
            "protocol",
        ),
    ],
)
def test_turn__rank_fails__says_which_and_how(make: MakeSide, step: str, message: str, kind: str) -> None:
    error = failure(make(step, before="import perfgate.measuring.rank", timeout=2.0))
    assert error.detail.kind == kind
    with pytest.raises(SideError, match=message):
        raise error


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("if rank == 1: time.sleep(60)", "1 of 2 ranks called perfgate.turn.. within 3 s, rank 1 did not"),
        (
            "time.sleep(60)",
            "no rank called perfgate.turn.. within 3 s; call it once per step in the loop of `train.py`",
        ),
        ("sys.exit(0)", "the script exited with code 0 before all ranks had called perfgate.turn..; 0 of 2 had"),
        ("import nonsense", "the script exited with code 1 before all ranks had called"),
        ("os.environ['RANK'] = '0'", "a process identifies itself as rank 0; the ranks are 0 to 1, one process each"),
        ("os.environ['RANK'] = '7'", "a process identifies itself as rank 7"),
    ],
)
def test_warm_up__ranks_do_not_come__says_how_many(make: MakeSide, before: str, message: str) -> None:
    error = failure(make(before=before, ready_timeout=3.0))
    with pytest.raises(SideError, match=message):
        raise error


def test_warm_up__script_fails__its_last_words(make: MakeSide) -> None:
    assert "No module named 'nonsense'" in (failure(make(before="import nonsense")).detail.log_tail or "")


def test_start__after_a_failure__as_new(make: MakeSide) -> None:
    side = make(steps=12)
    failure(side)
    side.stop()
    assert begin(side).turn(0).work["steps"] == 3
