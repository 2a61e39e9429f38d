"""What operators allocated, and what each of them held when all together held most."""

import numpy as np

from perfgate.trace.model.allocations import allocation_totals
from perfgate.trace.model.arithmetic import NO_NUMBER

NAMES = ("add", "mm", "weights")


def totals(*rows):
    operator, size, start, end = zip(*rows) if rows else ((), (), (), ())
    positions = np.array([NAMES.index(name) for name in operator], dtype=np.int64)
    times = (np.array([NO_NUMBER if at is None else at for at in column], dtype=np.int64) for column in (start, end))
    return allocation_totals(NAMES, positions, np.array(size, dtype=np.float64), *times)


def by_name(*rows):
    return {
        total.name: (total.count, total.total_bytes, total.largest_bytes, total.held_bytes) for total in totals(*rows)
    }


def test_totals__operators_that_come_and_go__held_at_the_peak() -> None:
    assert by_name(("mm", 100, 0, 10), ("mm", 60, 20, None), ("add", 50, 20, 30), ("add", 40, 40, 50)) == {
        "mm": (2, 160, 100, 60),
        "add": (2, 90, 50, 50),
    }


def test_totals__given_back_at_the_moment_of_another__makes_room_for_it() -> None:
    assert by_name(("mm", 100, 0, 10), ("add", 100, 10, 20)) == {"mm": (1, 100, 100, 100), "add": (1, 100, 100, 0)}


def test_totals__there_before_the_recording_and_after_it__held_throughout() -> None:
    assert by_name(("weights", 1000, None, None), ("mm", 1, 5, 6)) == {
        "weights": (1, 1000, 1000, 1000),
        "mm": (1, 1, 1, 1),
    }


def test_totals__nothing_allocated__nothing() -> None:
    assert totals() == ()


def test_totals__several_operators__in_the_order_of_their_first_allocations() -> None:
    rows = (("mm", 1, 0, 1), ("weights", 1, 0, 1), ("add", 1, 0, 1), ("mm", 1, 0, 1))

    assert [total.name for total in totals(*rows)] == ["mm", "weights", "add"]
