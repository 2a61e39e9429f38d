"""Measure the jobs of a check: base and head of a server, ranks or a command take turns
until they decide.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import msgspec

from perfgate.conductor.engine import FEWEST_STARTS, Reach, TimeBudget
from perfgate.conductor.sides.job_turns import (
    OVERRUN,
    JobTurns,
    MeasuredJob,
    SwappingTurns,
)
from perfgate.conductor.sides.kinds import (
    cpus_of,
    cpus_of_half,
    keep_off,
    make_layouts,
    make_side,
    plan_of,
    record_of,
    with_numbers,
)
from perfgate.conductor.sides.program import SideError
from perfgate.conductor.sides.server.highest_rate import at_highest_rate
from perfgate.conductor.sides.side import SidePlan
from perfgate.document.job import Fits
from perfgate.document.run import FailedPair, Side
from perfgate.flows.check.measured import CheckContext, documents_of
from perfgate.job_settings import JobReference
from perfgate.judging.gate.compare.jobs import foreseen, smallest_tolerance
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.quads import looks_of
from perfgate.judging.gate.look import Look
from perfgate.locale import sentence

MINUTE = 60.0


@dataclass(frozen=True)
class JobMeasurement:
    """Measures a job of a check; its turns are added to ``measured``."""

    check: CheckContext
    reference: JobReference
    measured: MeasuredJob

    def measure(self) -> None:
        """Take the turns according to ``fits``; ``auto`` falls back to whole processes
        if a side only starts alone.
        """
        if any(self.measured.before):
            self._add_turns()
            return
        try:
            self.check.job.seals.begin("base")
            reference = at_highest_rate(
                self.check.bench,
                self.reference,
                self.check.checkouts["base"],
                "base",
                self.check.progress.note,
            )
        except SideError as error:
            failed = FailedPair(
                pair=0,
                arm="ab",
                workload=self.reference.name,
                error=error.detail,
                side="base",
            )
            self.measured.failed.append(failed)
            return
        self.measured.record = record_of(reference)
        fits = reference.settings.fits
        unstarted = self._take(reference, "resident" if fits == "auto" else fits)
        if fits == "auto" and unstarted and self._starts_alone(unstarted):
            self.check.progress.note(
                sentence(
                    "{name}: {unstarted} starts alone but not together with the other side, so whole processes take "
                    'turns (fits = "alternate")',
                    name=reference.name,
                    unstarted=unstarted,
                )
            )
            self.measured.failed.clear()
            self._take(reference, "alternate")

    def _add_turns(self) -> None:
        """Add turns to an earlier check, with the same load and ``fits``, up to the
        last planned look.
        """
        record, before = self.measured.record, self.measured.before
        if before.quads < looks_of(self.reference.kind, record.fits)[-1]:
            self._take(replace(self.reference, rate=record.rate), record.fits)
        else:
            self.check.progress.note(
                sentence(
                    "{name}: {quads} quads were all that was planned; longer turns or a quieter machine would resolve more",
                    name=record.name,
                    quads=before.quads,
                )
            )

    def _take(self, reference: JobReference, fits: Fits) -> Side | None:
        """Take the turns; return the side that failed to start, if that was before any
        turn.
        """
        check = self.check
        job = self.check.job
        measured = self.measured
        plan = plan_of(reference, fits)
        looks = tuple(
            look
            for look in looks_of(reference.kind, fits)
            if look > measured.before.quads
        )
        cpus = self._cpus(fits)
        layouts = make_layouts(check.bench, reference, check.checkouts, cpus, fits)
        measured.record = msgspec.structs.replace(measured.record, fits=fits)
        began = time.monotonic()
        budget = min(reference.settings.budget, job.deadline - began)

        def announce() -> None:
            measured.record = with_numbers(measured.record, layouts[0]["base"])
            reach = taker.reach()
            visible = None
            if reach.quads:
                evidence = Evidence(*documents_of(job, check.measured))
                measured_job = evidence.jobs[reference.name]
                visible = foreseen(
                    measured_job, job.policy, quads=reach.quads, starts=reach.starts
                )
            check.progress.note(
                _outlook(reference.name, reach, visible, fewest=looks[0], budget=budget)
            )

        def look() -> Look:
            measured.record = with_numbers(measured.record, layouts[0]["base"])
            return check.look_at(reference.name)

        kind_of_turns = JobTurns
        if len(layouts) > 1:
            kind_of_turns = SwappingTurns
        taker = kind_of_turns(
            layouts,
            plan,
            measured,
            looks,
            is_decided=lambda: not look().more_turns_would_help(),
            say=check.bench.say,
            announce=announce,
            seed=check.bench.config.measure.seed,
            budget=TimeBudget(
                began + budget,
                latest=min(began + (1 + OVERRUN) * budget, job.deadline),
                needed=lambda: look().quads_needed(),
            ),
            begin=lambda sides: job.seals.begin(*sides),
            needs_causes=lambda: look().names_would_help(),
        )
        tolerated = smallest_tolerance(
            job.policy,
            reference.name,
            reference.must_gate(on_device=check.bench.is_accelerated),
        )
        check.progress.note(_plan(reference, plan, looks, budget, fits, tolerated))
        with keep_off(cpus):
            taker.take()
        measured.record = with_numbers(measured.record, layouts[0]["base"])
        return None if measured.base else taker.unstarted

    def _cpus(self, fits: Fits) -> list[int]:
        """The CPUs reserved for the sides; this process avoids them."""
        if fits == "swap" and self.check.bench.config.device.startswith("cpu"):
            halves = self.reference.settings.halves
            cpus = (cpus_of_half(self.reference.name, half) for half in halves)
            return sorted(set().union(*cpus))
        return cpus_of(self.reference.kind, self.check.bench)

    def _starts_alone(self, name: Side) -> bool:
        """Whether the side that failed to start next to the other side starts alone."""
        cpus = self._cpus("resident")
        side = make_side(
            self.check.bench, self.reference, self.check.checkouts[name], name, cpus
        )
        self.check.job.seals.begin(name)
        try:
            with keep_off(cpus):
                side.start()
                side.warm_up()
        except SideError:
            return False
        finally:
            side.stop()
        return True


def _plan(
    reference: JobReference,
    plan: SidePlan,
    looks: tuple[int, ...],
    budget: float,
    fits: Fits,
    tolerated: float | None,
) -> str:
    counts = {
        "least": looks[0],
        "most": looks[-1],
        "name": reference.name,
        "budget": _minutes(budget),
    }
    if plan.most:
        planned = sentence(
            "{name}: {least} to {most} quads of turns, {starts} starts of both sides at least, at most {budget}",
            **counts,
            starts=FEWEST_STARTS,
        )
    else:
        planned = sentence(
            "{name}: {least} to {most} runs of each side, at most {budget}", **counts
        )
    parts = [planned]
    if fits == "sleep":
        parts.append(sentence("one side sleeps while the other has its turn"))
    elif fits == "swap":
        parts.append(
            sentence("each has one half of the devices, and then the other half")
        )
    elif fits == "alternate" and not reference.settings.command:
        parts.append(sentence("each run starts the side, and it has the devices alone"))
    if tolerated is not None:
        parts.append(
            sentence("a slowdown of {tolerated:.1%} is tolerated", tolerated=tolerated)
        )
    parts.append(sentence("the resolution is known after the first four"))
    return sentence("; ").join(parts)


def _outlook(
    job: str, reach: Reach, visible: float | None, *, fewest: int, budget: float
) -> str:
    """The outlook after the first quads: how many fit the time, and the slowdown that
    they can detect.
    """
    if reach.quads < fewest:
        return sentence(
            "{job}: {budget} are enough for {quads} quads, and {fewest} are the fewest that decide: set `budget` of the "
            "workload",
            job=job,
            budget=_minutes(budget),
            quads=reach.quads,
            fewest=fewest,
        )
    values = {"job": job, "quads": reach.quads, "minutes": _minutes(reach.seconds)}
    if reach.starts == reach.quads:
        reached = sentence(
            "{job}: at most {quads} runs of each side in {minutes}", **values
        )
    else:
        reached = sentence(
            "{job}: at most {quads} quads of {starts} starts in {minutes}",
            **values,
            starts=reach.starts,
        )
    if visible is None:
        return reached
    return sentence("; ").join(
        [reached, sentence("a slowdown of {visible:.1%} would show", visible=visible)]
    )


def _minutes(seconds: float) -> str:
    return sentence("{minutes:.1f} min", minutes=seconds / MINUTE)
