"""What operators allocated, and what each of them held when all together held most."""

from perfgate.trace.allocations import Allocations


def totals(*rows):
    allocations = Allocations()
    for row in rows:
        allocations.add(*row)
    return {
        total.name: (total.count, total.total_bytes, total.largest_bytes, total.held_bytes)
        for total in allocations.totals()
    }


def test_totals__operators_that_come_and_go__held_at_the_peak():
    assert totals(("mm", 100, 0, 10), ("mm", 60, 20, None), ("add", 50, 20, 30), ("add", 40, 40, 50)) == {
        "mm": (2, 160, 100, 60),
        "add": (2, 90, 50, 50),
    }


def test_totals__given_back_at_the_moment_of_another__makes_room_for_it():
    assert totals(("mm", 100, 0, 10), ("add", 100, 10, 20)) == {"mm": (1, 100, 100, 100), "add": (1, 100, 100, 0)}


def test_totals__there_before_the_recording_and_after_it__held_throughout():
    assert totals(("weights", 1000, None, None), ("mm", 1, 5, 6)) == {
        "weights": (1, 1000, 1000, 1000),
        "mm": (1, 1, 1, 1),
    }


def test_totals__nothing_allocated__nothing():
    assert Allocations().totals() == ()
