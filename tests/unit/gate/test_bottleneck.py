"""What holds a call up: what it waits for, then the roofline."""

from __future__ import annotations

import pytest

from perfgate.document.run import OUTSIDE_OPERATORS, CallAccount, LeastWork, Roof
from perfgate.judging.gate.explain.bottleneck import better_roof, bottleneck

ROOF = Roof(flops_per_second=1e11, bytes_per_second=1e10)


def account(work: list[LeastWork] | None = None, **parts: float) -> CallAccount:
    return CallAccount(
        workload="encoder", shape="long", calls=10, wall=sum(parts.values()), parts=parts, rows=[], work=work or []
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "bound"),
    [
        ({"compute": 6.0, "gap_host": 3.0, "gap_queue": 1.0}, "scheduling"),
        ({"compute": 6.0, "gap_synchronization": 3.1, "gap_host": 0.9}, "synchronisation"),
        ({"compute": 6.0, "copy": 4.0}, "transfer"),
        ({"compute": 6.0, "communication": 3.0, "copy": 1.0}, "communication"),
        ({"operators": 6.0, "outside": 4.0}, "scheduling"),
        ({"compute": 8.0, "gap_host": 1.0, "copy": 1.0}, None),
    ],
)
def test_bottleneck__waits_for_a_good_part_of_the_call__what_it_waits_for(
    parts: dict[str, float], bound: str | None
) -> None:
    assert bottleneck(account(**parts), [], None) == bound


# At this roof 1e9 operations take 10 ms, and 1e8 bytes too.
COMPUTE, MEMORY = LeastWork(flops=1e9, moved_bytes=1e6, count=1), LeastWork(flops=0, moved_bytes=1e8, count=1)


@pytest.mark.parametrize(
    ("work", "bound"),
    [
        ([COMPUTE, COMPUTE, MEMORY], "compute"),
        ([COMPUTE, MEMORY, MEMORY], "memory"),
        ([COMPUTE, MEMORY], None),
        ([LeastWork(flops=1e6, moved_bytes=1e4, count=10)], "scheduling"),
        ([], None),
    ],
)
def test_bottleneck__works_all_the_time__the_roofline_tells(work: list[LeastWork], bound: str | None) -> None:
    assert bottleneck(account(work, operators=0.03), [], ROOF) == bound


def test_bottleneck__pairs_say_how_much_is_outside_operators__they_are_believed() -> None:
    traced = account([COMPUTE], operators=0.006, outside=0.004)
    assert bottleneck(traced, [], ROOF) == "scheduling"
    assert bottleneck(traced, [{"aten::mm": 0.009, OUTSIDE_OPERATORS: 0.001}], ROOF) == "compute"


def test_better_roof__sides_saw_different_rates__the_better_of_each() -> None:
    busy = Roof(flops_per_second=2e11, bytes_per_second=5e9)
    accounts = [CallAccount(workload="w", shape="s", calls=1, wall=1.0, parts={}, rows=[], roof=roof)
                for roof in (ROOF, busy, None)]  # fmt: skip
    assert better_roof(accounts) == Roof(flops_per_second=2e11, bytes_per_second=1e10)
    assert better_roof(accounts[2:]) is None


def test_bottleneck__numbers_that_no_machine_has__nothing_is_said() -> None:
    assert bottleneck(account([COMPUTE], operators=0.0), [], ROOF) is None
    nothing = Roof(flops_per_second=0.0, bytes_per_second=-1.0)
    silent = CallAccount(workload="w", shape="s", calls=1, wall=1.0, parts={}, rows=[], roof=nothing)
    assert better_roof([silent]) is None
