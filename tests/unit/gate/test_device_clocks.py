"""The three clocks of an accelerator: kernels, the device's span, and the host, where the device waits for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.document.samples import BlockColumns, KernelBlocks, Replicate, pack, unpack
from perfgate.judging.report.view.headline import headline
from perfgate.judging.report.view.summary import Summary
from tests.fakes.card_times import LOOKS, Call, CardGate, CardNoise
from tests.fakes.records import changed
from tests.traps.virtual import SHAPE, judged
from tests.unit.gate.builders import sides, stretches_of

# Half of a call the device waits for the host.
EXPOSED = Call(exposed=1e-3)
# A pair compares four quads: its effect on the host has an sd of 6.5 %.
NOISY_HOST = CardNoise(quad=0.03, host=0.13)


def times_of(decision: DecisionDocument) -> dict[str, Paired]:
    return {row.metric: row for row in decision.comparisons if isinstance(row, Paired)}


def title_of(base: Call, head: Call, noise: CardNoise) -> str:
    decision = CardGate(base, head, noise, seed=5).decide()
    return headline(Summary(decision, "plain"))


def outcomes_of(base: Call, head: Call, noise: CardNoise | None = None) -> tuple[str, dict[str, str]]:
    decision = CardGate(base, head, noise or CardNoise(), seed=3).decide()
    return decision.verdict, {name: row.outcome for name, row in times_of(decision).items()}


def documents(pairs: int, noise: CardNoise | None = None) -> tuple[RunDocument, RunDocument]:
    gate = CardGate(Call(), Call(), noise or CardNoise(), seed=3)
    gate.measure(pairs=pairs)
    return gate.documents()


def with_replicates(run: RunDocument, change: Callable[[Replicate], Replicate]) -> RunDocument:
    return changed(run, replicates=[change(replicate) for replicate in run.pairs.replicates])


def with_kernels(replicate: Replicate, kernels: KernelBlocks) -> Replicate:
    return msgspec.structs.replace(replicate, kernels={SHAPE: kernels})


def test_decide__one_kernel_a_percent_of_all_slower_on_a_noisy_host__named_by_the_time_of_kernels() -> None:
    head = Call().slower_kernel("kernel_7", share_of_call=0.01)

    decision = CardGate(Call(), head, NOISY_HOST, seed=3).decide()

    assert decision.verdict == "FAIL"
    busy = times_of(decision)["device.busy"]
    assert busy.outcome == "regressed"
    assert busy.delta == pytest.approx(0.01, abs=0.004)
    assert [part.name for part in busy.parts] == ["kernel_7"]
    assert busy.cause is not None
    assert decision.explained.causes[busy.cause].op == "kernel_7"


def test_decide__another_kernel_longer_in_most_pairs_and_shorter_in_some__not_named() -> None:
    """Three of four pairs show 20 µs more, twice the loss, and the fourth 40 µs less: its growth is not proven."""

    def disturbed(replicate: Replicate) -> Replicate:
        blocks = replicate.kernels[SHAPE]
        more = -40_000 if replicate.pair % 4 == 0 else 20_000
        rows = []
        for row in blocks.rows:
            extra = more if row.name == "kernel_3" else 0
            rows.append(msgspec.structs.replace(row, ns=row.ns + extra))
        return with_kernels(replicate, msgspec.structs.replace(blocks, rows=rows))

    gate = CardGate(Call(), Call().slower_kernel("kernel_7", share_of_call=0.01), NOISY_HOST, seed=3)
    gate.measure(pairs=32)
    base, head = gate.documents()

    decision = judged(base, with_replicates(head, disturbed), policy=Policy(looks=LOOKS))

    busy = times_of(decision)["device.busy"]
    assert busy.outcome == "regressed"
    assert [part.name for part in busy.parts] == ["kernel_7"]


def test_decide__host_slower_and_the_device_waits_for_it__fails() -> None:
    verdict, outcomes = outcomes_of(EXPOSED, replace(EXPOSED, host=EXPOSED.host * 1.07, exposed=1.03e-3))

    assert verdict == "FAIL"
    assert outcomes["latency.host"] == "regressed"
    assert outcomes["device.busy"] == "unchanged"


def test_decide__host_slower_and_the_device_is_busy__informs() -> None:
    verdict, outcomes = outcomes_of(Call(), replace(Call(), host=Call().host * 1.5))

    assert verdict == "PASS"
    assert outcomes["latency.host"] == "informs"


def test_decide__wall_alone_is_longer__informs() -> None:
    """Two hundred microseconds after the device has finished."""

    def later(replicate: Replicate) -> Replicate:
        columns = replicate.shapes[SHAPE]
        shifted = shift_wall(columns, ns=200_000)
        return msgspec.structs.replace(replicate, shapes={SHAPE: shifted})

    base, head = documents(32)

    decision = judged(base, with_replicates(head, later), policy=Policy(looks=LOOKS))

    assert decision.verdict == "PASS"
    assert times_of(decision)["throughput.turnaround"].outcome == "informs"


def shift_wall(columns: BlockColumns, *, ns: int) -> BlockColumns:
    more = [calls * ns for calls in columns.calls]
    return msgspec.structs.replace(
        columns,
        times=msgspec.structs.replace(columns.times, wall=pack(unpack(columns.times.wall) + ns)),
        worker=msgspec.structs.replace(
            columns.worker,
            end_ns=[end + ns for end, ns in zip(columns.worker.end_ns, more)],
            took_ns=[took + 2 * ns for took, ns in zip(columns.worker.took_ns, more)],
        ),
        conductor=msgspec.structs.replace(
            columns.conductor, seen_ns=[seen + 2 * ns for seen, ns in zip(columns.conductor.seen_ns, more)]
        ),
    )


def test_decide__same_work_on_a_noisy_host__five_percent_are_excluded() -> None:
    decision = CardGate(EXPOSED, EXPOSED, NOISY_HOST, seed=5).decide()

    assert decision.verdict == "PASS"
    assert times_of(decision)["latency.host"].excluded == 0.05
    assert (times_of(decision)["device.busy"].excluded or 1.0) <= 0.02


def test_decide__other_work_on_a_noisy_host__undecided() -> None:
    verdict, outcomes = outcomes_of(EXPOSED, replace(EXPOSED, operators=39), NOISY_HOST)

    assert verdict == "INCONCLUSIVE"
    assert outcomes["latency.host"] == "inconclusive"


@pytest.mark.parametrize("sides", [(0,), (1,), (0, 1)])
def test_decide__kernels_left_out_of_a_pair__evidence_is_missing(sides: tuple[int, ...]) -> None:
    runs = list(documents(16))
    for side in sides:
        runs[side] = with_replicates(
            runs[side],
            lambda replicate: msgspec.structs.replace(replicate, kernels={}) if replicate.pair == 9 else replicate,
        )

    decision = judged(*runs, policy=Policy(looks=LOOKS))

    assert {entry.metric for entry in decision.gaps.missing} == {"device.busy"}
    assert decision.verdict == "INCONCLUSIVE"


def test_decide__no_kernels_on_a_gpu__evidence_is_missing() -> None:
    runs = []
    for run in documents(16):
        bare = with_replicates(run, lambda replicate: msgspec.structs.replace(replicate, kernels={}))
        runs.append(msgspec.structs.replace(bare, testbed=msgspec.structs.replace(bare.testbed, device_kind="cuda")))

    decision = judged(runs[0], runs[1], policy=Policy(looks=LOOKS))

    assert {entry.metric for entry in decision.gaps.missing} == {"device.busy"}


def slower_clock(replicate: Replicate, *, by: float, cycles: bool) -> Replicate:
    """The replicate as on a card whose clock is lower by this share."""
    columns, kernels = replicate.shapes[SHAPE], replicate.kernels[SHAPE]
    busy_ns = [round(ns / (1 - by)) for ns in kernels.busy_ns]
    slowed = msgspec.structs.replace(kernels, busy_ns=busy_ns, cycles=kernels.busy_ns if cycles else [])
    shares = [share and share * (1 - by) for share in columns.device.clock_share]
    lowered = msgspec.structs.replace(columns, device=msgspec.structs.replace(columns.device, clock_share=shares))
    return msgspec.structs.replace(with_kernels(replicate, slowed), shapes={SHAPE: lowered})


@pytest.mark.parametrize(("cycles", "verdict"), [(True, "PASS"), (False, "INCONCLUSIVE")])
def test_decide__clocks_differ__cycles_are_compared_and_without_them_times_are_invalid(
    cycles: bool, verdict: str
) -> None:
    base, head = documents(32)
    base = with_replicates(base, lambda replicate: slower_clock(replicate, by=0.0, cycles=cycles))
    head = with_replicates(head, lambda replicate: slower_clock(replicate, by=0.08, cycles=cycles))

    decision = judged(base, head, policy=Policy(looks=LOOKS))

    assert decision.verdict == verdict
    assert {entry.kind for entry in decision.gaps.invalid} == (set() if cycles else {"clocks_differ"})
    if cycles:
        assert times_of(decision)["device.busy"].outcome == "unchanged"
        assert not times_of(decision)["latency.low"].gating


def test_headline__host_slower_and_the_device_waits_for_it__both_clocks_and_the_reason() -> None:
    title = title_of(EXPOSED, EXPOSED.slower_host(0.07), CardNoise())

    assert title == "FAIL – device 0.0 % (±0.2 %), host +7.0 % (±0.4 %): calls wait for the host"


def test_headline__same_work_on_a_noisy_host__how_well_the_time_is_known() -> None:
    title = title_of(EXPOSED, EXPOSED, NOISY_HOST)

    assert title.startswith("PASS – same work; time within ±")


def test_stretches__on_a_device__mean_and_stalls_are_of_the_device() -> None:
    """The wall of head is twice as long, and the device takes as long as before."""
    base, head = sides([1.0] * 16, call=0.001)
    firsts, seconds = stretches_of(ratio=2.0)
    runs = []
    for run, stretches in ((base, firsts), (head, seconds)):
        timed = [on_device(replicate, ns=800_000) for replicate in (*run.pairs.replicates, *stretches)]
        runs.append(changed(run, replicates=timed))

    means = times_of(judged(runs[0], runs[1], policy=Policy(looks=LOOKS)))["latency.mean"]

    assert means.clock == "device"
    assert means.base == means.head == pytest.approx(0.0008)
    assert means.outcome == "unchanged"


STALLS = ((0, 0.0), (50, 0.03))


def device_gate(
    *,
    waited: tuple[float, float] = (0.0, 0.0),
    one_after_the_other: bool = False,
    on_device: bool = True,
    **stretches: Any,
) -> dict[str, Paired]:
    """The times of a gate on a device, or the CPU, whose hosts waited for these shares of both sides' turns."""
    base, head = sides([1.0] * 16, call=0.001)
    runs = []
    for run, members, share in zip((base, head), stretches_of(**stretches), waited):
        timed = [with_waits(member, share) for member in members]
        if one_after_the_other and run is head:
            timed = [later(member) for member in timed]
        replicates = [*run.pairs.replicates, *timed]
        if on_device:
            replicates = [as_device(replicate) for replicate in replicates]
        runs.append(changed(run, replicates=replicates))
    return times_of(judged(runs[0], runs[1], policy=Policy(looks=LOOKS)))


def as_device(replicate: Replicate) -> Replicate:
    return with_columns(replicate, lambda columns: changed(columns, cpu_source="device"))


def with_waits(replicate: Replicate, share: float) -> Replicate:
    """The replicate, seen for longer by what it waited for CPUs."""

    def waiting(columns: BlockColumns) -> BlockColumns:
        before = columns.conductor.seen_ns
        seen_ns = [round(ns / (1 - share)) for ns in before]
        delay_ns = [longer - ns for longer, ns in zip(seen_ns, before)]
        return changed(columns, seen_ns=seen_ns, run_delay_ns=delay_ns)

    return with_columns(replicate, waiting)


def later(replicate: Replicate) -> Replicate:
    """The replicate of a process that ran after the other side's had ended."""
    return with_columns(
        replicate,
        lambda columns: msgspec.structs.replace(columns, sequence=[1000 + number for number in columns.sequence]),
    )


def with_columns(replicate: Replicate, change: Callable[[BlockColumns], BlockColumns]) -> Replicate:
    shapes = {shape: change(columns) for shape, columns in replicate.shapes.items()}
    return msgspec.structs.replace(replicate, shapes=shapes)


def test_stretches__head_stalls_on_the_device__fails() -> None:
    assert device_gate(stalls=STALLS)["latency.stalls"].outcome == "regressed"


def test_stretches__hosts_of_both_sides_waited_for_cpus__mean_and_stalls_inform() -> None:
    times = device_gate(waited=(0.1, 0.1), stalls=STALLS)

    for metric in ("latency.mean", "latency.stalls"):
        assert (times[metric].outcome, times[metric].gating) == ("informs", False)
        assert times[metric].reason == Message("gate.host-waited")


def test_stretches__on_the_cpu_while_both_sides_waited_for_it__the_mean_fails() -> None:
    """Their clock stops while they wait."""
    assert device_gate(on_device=False, waited=(0.1, 0.1), ratio=1.2)["latency.mean"].outcome == "regressed"


def test_stretches__only_the_host_of_head_waited__fails() -> None:
    """Head keeps its CPUs busy itself."""
    assert device_gate(waited=(0.0, 0.1), stalls=STALLS)["latency.stalls"].outcome == "regressed"


def test_stretches__processes_ran_one_after_the_other__nothing_is_compared() -> None:
    times = device_gate(one_after_the_other=True, stalls=STALLS, ratio=1.2)

    assert times.keys().isdisjoint({"latency.mean", "latency.stalls"})


def test_decide__lone_processes_whose_hosts_were_disturbed__passes() -> None:
    noise = CardNoise(visit=0.003, disturbed=0.5)

    verdicts = [CardGate(Call(), Call(), noise, seed=seed, lone=True).decide().verdict for seed in range(8)]

    assert verdicts == ["PASS"] * 8


def on_device(replicate: Replicate, *, ns: int) -> Replicate:
    """The replicate with calls that take the device so long."""
    shapes = {}
    for shape, columns in replicate.shapes.items():
        shapes[shape] = msgspec.structs.replace(
            columns,
            times=msgspec.structs.replace(columns.times, cpu=pack([ns] * columns.times.cpu.count), cpu_source="device"),
        )
    return msgspec.structs.replace(replicate, shapes=shapes)
