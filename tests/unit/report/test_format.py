"""Base units become what people read, and changes become words."""

from __future__ import annotations

import pytest

from perfgate.judging.report.text import formats, numbers
from tests.each import each
from tests.fakes.documents import make_bound, make_comparison, make_counter


@each(
    "value, unit, expected",
    [
        (0.0386, "s", "38.6 ms"),
        (1.5, "s", "1.50 s"),
        (0.0000123, "s", "12.3 µs"),
        (0.0009994, "s", "999 µs"),
        (0.0009996, "s", "1.00 ms"),
        (0.9997, "s", "1.00 s"),
        (9.996e-10, "s", "1.00 ns"),
        (1023.4 * 1024, "B", "1,023 KiB"),
        (1023.6 * 1024, "B", "1.00 MiB"),
        (1023, "B", "1,023 B"),
        (999_600, "B/s", "1.00 MB/s"),
        (0.0, "s", "0 s"),
        (-2.2e-16, "s", "0 s"),
        (2_909_798_400, "B", "2.71 GiB"),
        (512, "B", "512 B"),
        (65, "1", "65"),
        (1234567, "1", "1,234,567"),
        (None, "s", "–"),
        (float("nan"), "s", "–"),
        (1234.5, "items/s", "1,234 items/s"),
        (12_300_000_000, "B/s", "12.3 GB/s"),
    ],
)
def test_quantity__base_units__readable_unit_and_three_digits(value: float, unit: str, expected: str) -> None:
    assert formats.quantity(value, formats.Measure(unit)) == expected


def test_interval__both_ends_on_one_side_and_tiny__is_said_once() -> None:
    assert formats.interval(make_comparison(delta=0.0004, interval=(0.0001, 0.0004))) == "under 0.1 %"


def test_quantity__share__reads_as_a_percentage() -> None:
    share = formats.measure_of("utilization.host")
    assert formats.quantity(0.91, share) == "91.0 %"
    # Its percentage is no float.
    assert formats.quantity(1e308, share) == "–"


def test_quantities__nearly_equal__get_the_digits_that_tell_them_apart() -> None:
    assert formats.quantities([0.0361, 0.0362], formats.SECONDS) == ["36.10 ms", "36.20 ms"]


def test_quantities__nearly_equal_and_nearly_a_larger_unit__are_in_the_unit_that_the_larger_rounds_to() -> None:
    assert formats.quantities([0.9999e-3, 0.99999e-3], formats.SECONDS) == ["0.9999 ms", "1.000 ms"]


def test_quantities__far_apart__share_the_unit_of_the_larger() -> None:
    assert formats.quantities([0.0009, 0.0028], formats.SECONDS) == ["0.900 ms", "2.80 ms"]


@pytest.mark.parametrize(
    ("delta", "interval", "expected"),
    [
        (0.068, (0.059, 0.077), "6.8 % slower (5.9 to 7.7 %)"),
        (-0.068, (-0.077, -0.059), "6.8 % faster (5.9 to 7.7 %)"),
        (0.004, (-0.009, 0.017), "0.4 % slower (0.9 % faster to 1.7 % slower)"),
        (0.5, None, "not resolved"),
        (0.0001, (-0.0001, 0.0002), "no change"),
        (0.0003, (-0.0001, 0.002), "no change (no change to 0.2 % slower)"),
        (1.4, (1.2, 1.6), "140 % slower (120 to 160 %)"),
        (None, None, "–"),
    ],
)
def test_change__time__says_slower_or_faster_and_never_a_sign(
    delta: float | None, interval: tuple[float, float] | None, expected: str
) -> None:
    assert formats.change(make_comparison(delta=delta, interval=interval)) == expected


@pytest.mark.parametrize(
    ("metric", "base", "head", "expected"),
    [
        ("counters.framework_ops", 40, 65, "25 more (exact)"),
        ("counters.framework_ops", 65, 40, "25 fewer (exact)"),
        ("counters.copies", 0, 1, "1 more (exact)"),
        ("memory.peak", 3_145_728, 3_145_728, "the same (exact)"),
        ("memory.peak", 3_145_728, 1_572_864, "1.50 MiB less (exact)"),
    ],
)
def test_change__exact_counter__says_how_many_more_or_fewer(metric: str, base: int, head: int, expected: str) -> None:
    assert formats.change(make_counter(metric, base, head)) == expected


def test_quantities__one_too_small_for_the_unit_of_the_larger__has_its_own() -> None:
    assert formats.quantities([1_572_864, 4], formats.Measure("B")) == ["1.50 MiB", "4 B"]
    assert formats.quantities([2e-6, 1.0, 0.0], formats.SECONDS) == ["2.00 µs", "1.00 s", "0 s"]
    assert formats.quantities([0.0009, 1.0], formats.SECONDS) == ["0.001 s", "1.00 s"]


def test_percent_change__exact_counter_that_hardly_moved__is_still_a_change() -> None:
    assert formats.percent_change(make_counter("counters.bytecodes", 1_000_000, 999_900)) == "under 0.1 % fewer"
    assert formats.percent_change(make_counter("counters.bytecodes", 1_000_000, 1_000_000)) == "no change"
    assert formats.percent_change(make_comparison(delta=-0.0001)) == "no change"


def test_sides__exact_sizes_that_differ_by_few_bytes__are_shown_to_the_byte() -> None:
    copied = make_counter("counters.copy_bytes", 3_328_599_654, 3_328_600_166)
    assert formats.sides(copied) == ("3,328,599,654 B", "3,328,600,166 B")
    same = make_counter("counters.copy_bytes", 3_328_599_654, 3_328_599_654)
    assert formats.sides(same) == ("3.10 GiB", "3.10 GiB")


def test_limit__counter_that_may_rise_by_an_amount__says_the_amount() -> None:
    kept = make_counter("memory.kept_native", 208.0, 208.0, unit="B", tolerance=65536 / 208)
    assert formats.limit(kept) == "64.0 KiB more"


def test_change__throughput__says_higher_or_lower() -> None:
    comparison = make_comparison(
        "throughput.median", unit="items/s", better="higher", delta=-0.05, interval=(-0.06, -0.04)
    )
    assert formats.change(comparison) == "5.0 % lower (4.0 to 6.0 %)"


def test_change__sla__says_how_far_above_the_promise() -> None:
    comparison = make_bound("sla.p99", 0.010, 0.012, outcome="regressed")
    assert formats.change(comparison) == "20.0 % above the SLA"
    assert formats.sides(comparison) == ("–", "12.0 ms")
    assert formats.limit(comparison) == "10.0 ms"


@pytest.mark.parametrize(("tolerance", "expected"), [(0.0, "0"), (0.01, "1 %"), (0.025, "2.5 %"), (None, "–")])
def test_limit__tolerance__reads_as_it_was_set(tolerance: float | None, expected: str) -> None:
    assert formats.limit(make_comparison(tolerance=tolerance)) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.2, "0 s"), (59.6, "1 m 0 s"), (460, "7 m 40 s"), (7260, "2 h 1 m")]
)
def test_duration__seconds__minutes_and_hours(seconds: float, expected: str) -> None:
    assert numbers.duration(seconds) == expected


def test_span__same_unit__is_said_once() -> None:
    assert numbers.span(formats.Words("36.1 ms"), formats.Words("38.6 ms")) == "36.1 → 38.6 ms"
    assert numbers.span(formats.Words("40"), formats.Words("65")) == "40 → 65"
