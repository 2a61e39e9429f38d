"""Between two pairs only the workload that is measured is judged, and as if all the others had been."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pytest

from perfgate.document.decision import Policy
from perfgate.document.history import History
from perfgate.document.run import RunDocument
from perfgate.document.samples import PackedArray
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.index import RunIndex, of_workload
from perfgate.judging.gate.look import Look
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, counters, sides
from tests.unit.gate.test_turns import NAME, TPOT, job
from tests.unit.gate.test_turns import runs as runs_of_job

Documents = tuple[RunDocument, RunDocument]
TEN_PAIRS = Policy(looks=[10])


def renamed(run: RunDocument, name: str) -> RunDocument:
    def of_other(value: Any) -> Any:
        if isinstance(value, msgspec.Struct) and getattr(value, "workload", None) == WORKLOAD:
            return msgspec.structs.replace(value, workload=name)
        return value

    checklist = {}
    for key in run.checklist.__struct_fields__:
        checklist[key] = [of_other(entry) for entry in getattr(run.checklist, key)]
    replicates = [of_other(replicate) for replicate in run.pairs.replicates]
    workloads = [msgspec.structs.replace(run.workloads[0], name=name)]
    return changed(run, workloads=workloads, replicates=replicates, **checklist)


def together(*documents: Documents) -> Documents:
    """The documents of a job that measured the workload of the first one, and after it those of the others."""
    named = [documents[0]]
    named += [tuple(renamed(run, f"other-{n}") for run in pair) for n, pair in enumerate(documents[1:])]  # type: ignore[misc]
    base, head = (joined(runs) for runs in zip(*named))
    return base, head


def joined(runs: Sequence[RunDocument]) -> RunDocument:
    return changed(
        runs[0],
        workloads=list(chain.from_iterable(run.workloads for run in runs)),
        steps=list(chain.from_iterable(run.checklist.steps for run in runs)),
        counters=list(chain.from_iterable(run.checklist.counters for run in runs)),
        correctness=list(chain.from_iterable(run.checklist.correctness for run in runs)),
        replicates=list(chain.from_iterable(run.pairs.replicates for run in runs)),
    )


def test_look__samples_of_a_finished_workload__are_never_unpacked() -> None:
    """They are most of a document, so looks would take longer with every workload that was measured before."""
    measured, (base, head) = sides([1.05] * 16), sides([1.0] * 16)
    unreadable = PackedArray(count=1, width=4, data="no base64")
    base, head = (
        changed(
            run,
            replicates=[
                msgspec.structs.replace(
                    replicate,
                    shapes={
                        SHAPE: msgspec.structs.replace(
                            replicate.shapes[SHAPE],
                            times=msgspec.structs.replace(replicate.shapes[SHAPE].times, wall=unreadable),
                        )
                    },
                )
                for replicate in run.pairs.replicates
            ],
        )
        for run in (base, head)
    )
    look = Look(*together(measured, (base, head)), Policy(), workload=WORKLOAD)
    assert "latency.low" in look.regressed()


def test_look__workloads_measured_before__a_regression_must_survive_their_correction() -> None:
    """Ten of ten pairs have the chance 1/1024, which is enough for one workload and not for ten."""
    slower = sides([1.05] * 10)
    assert "latency.low" in Look(*slower, TEN_PAIRS, workload=WORKLOAD).regressed()
    documents = together(slower, *[sides([1.0] * 10)] * 9)
    assert "latency.low" not in Look(*documents, TEN_PAIRS, workload=WORKLOAD).regressed()


@pytest.mark.parametrize("seed", range(8))
def test_look__any_workloads_beside_it__what_it_shows_the_decision_shows_too(seed: int) -> None:
    generator = np.random.default_rng(seed)
    measured = [sides(np.exp(generator.normal(effect, 0.02, 16)).tolist()) for effect in (0.03, 0.0, 0.05)]
    documents = together(*measured)
    decision = decide(*documents, policy=Policy(), history=History())
    failing = {c.metric for c in decision.comparisons if (c.workload, c.outcome) == (WORKLOAD, "regressed")}
    assert set(Look(*documents, Policy(), workload=WORKLOAD).regressed()) <= failing


def test_look__other_jobs__share_the_error() -> None:
    others = [msgspec.structs.replace(job(), name=f"other {number}") for number in range(40)]
    base, head = runs_of_job(0.05, quads=16, per_start=1, noise=0.03)
    assert not Look(base, head, Policy(), workload=NAME).more_turns_would_help()
    assert Look(base, head, Policy(), workload=NAME, to_come=40).more_turns_would_help()
    base, head = (changed(run, records=[*run.jobs.records, *others]) for run in (base, head))
    assert Look(base, head, Policy(), workload=NAME).more_turns_would_help()
    assert [number.metric for number in of_workload(head, NAME).jobs.records[0].numbers if number.gating] == [TPOT]


def test_noise_floor__another_workload_has_more_pairs__is_of_the_own() -> None:
    """Its limit is judged by fewer pairs: by those of the other it seemed finer than it is."""
    wobbling = {"aa_ratios": [1.02, 1 / 1.02] * 4}
    few = sides([1.0] * 8, **wobbling)  # type: ignore[arg-type]
    alone = decide(*few, policy=Policy(), history=History())
    beside = decide(*together(few, sides([1.0] * 64)), policy=Policy(), history=History())
    assert alone.measured.noise_floors == [
        floor for floor in beside.measured.noise_floors if floor.workload == WORKLOAD
    ]


def test_subjects__workloads_with_pairs_and_jobs__each_once() -> None:
    _, head = together(sides([1.0] * 4), sides([1.0] * 4), sides([]))
    head = changed(head, records=[job()])
    assert len(RunIndex(head).subjects) == 3


@pytest.mark.parametrize(
    ("names", "strict", "settled"),
    [
        ([], True, False),
        (["counters.syncs"], False, True),
        (["counters.allocations"], True, True),
        # Calls that are no slower would excuse it.
        (["counters.allocations"], False, False),
        (["counters.syncs", "counters.allocations"], False, False),
    ],
)
def test_look__counters_regressed__settled_if_no_time_could_excuse_any_of_them(
    names: list[str], strict: bool, settled: bool
) -> None:
    base, head = sides([])
    counted = counters({"aten::add": 1})
    before, after = (
        msgspec.structs.replace(counted, values={**counted.values, **dict.fromkeys(names, value)}) for value in (1, 100)
    )
    documents = (changed(base, counters=[before]), changed(head, counters=[after]))
    assert Look(*documents, Policy(strict=strict), workload=WORKLOAD).is_settled_by_counters() is settled


def test_look__a_time_regressed_beside_counters__not_settled_by_these() -> None:
    base, head = sides([1.05] * 16)
    assert "latency.low" in Look(base, head, Policy(), workload=WORKLOAD).regressed()
    assert not Look(base, head, Policy(), workload=WORKLOAD).is_settled_by_counters()


@pytest.mark.parametrize(("pairs", "waits"), [(32, True), (64, False)])
def test_look__unchanged_but_leaning_slower__worth_64_pairs_and_no_more(pairs: int, waits: bool) -> None:
    noise = np.random.default_rng(3).normal(0.0, 0.003, pairs)
    leaning = sides((1.0035 * np.exp(noise)).tolist())
    look = Look(*leaning, Policy(), workload=WORKLOAD)
    outcomes = {c.metric: c.outcome for c in look.comparisons if c.gating}
    assert outcomes["latency.low"] == "unchanged"
    assert look.more_pairs_would_help() is waits
