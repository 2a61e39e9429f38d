"""The trusted side's requirements for a job, and how the measured job differs from them.

Kind, settings, work and output that both sides must prove to have in common, and every number with its unit, its direction and
whether it gates: none of this is taken from an artifact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import NUMBER, RANKS_MEMORY
from perfgate.document.job import JobNumber, JobRecord, Turn
from perfgate.document.run import RunDocument
from perfgate.job_settings import UNITS, JobReference, is_gating
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.load_settings import LoadSettings

# Every command has this beside the numbers that it reports.
_COMMAND_CPU = "command.cpu"
# The counts of work that every turn of a kind has.
_WORK = {
    "server": ("requests", "input_tokens", "output_tokens", "without_text"),
    "ranks": ("steps", "ranks", "samples"),
    "command": (),
}


@dataclass(frozen=True)
class RequiredJob:
    """A job of the base's configuration, with the numbers and counts of work of main's newest stored run of it.

    ``on_device`` is whether the configuration names an accelerator.
    """

    reference: JobReference
    numbers: Mapping[str, JobNumber] = field(default_factory=dict)
    work: frozenset[str] = frozenset()
    on_device: bool = False

    def measured_by(self, base: RunDocument, head: RunDocument) -> JobReference | None:
        """The settings that the job was measured by, None if nothing trusted or reported accounts for them.

        They are the base's own. If head changed the table, they are head's, which the documents report as a change.
        """
        name, own = self.reference.name, self.reference
        hashes = {job.sha256 for job in (*base.jobs, *head.jobs) if job.name == name}
        if hashes == {own.sha256}:
            return own
        before = next((harness for harness in base.harness if harness.workload == name), None)
        after = next((harness for harness in head.harness if harness.workload == name), None)
        if before is None or after is None or before.settings != own.written:
            return None
        changed = JobReference.from_written(name, after.settings, judged_by=own.settings)
        return changed if changed is not None and hashes == {changed.sha256} else None


@dataclass(frozen=True)
class TrustedNumbers:
    """The numbers of a job as they are judged: with the unit, the direction and the gating of the trusted side.

    For those in ``undirected`` only the documents state which direction is better.
    """

    numbers: list[JobNumber]
    undirected: frozenset[str] = frozenset()


def trusted_numbers(
    required: RequiredJob, settings: JobReference, record: JobRecord, *, on_device: bool
) -> TrustedNumbers:
    """``settings`` are those used to measure the job."""
    must_gate = {*settings.must_gate, *([RANKS_MEMORY] if settings.kind == "ranks" and on_device else [])}
    reported = {*required.numbers, *(number.metric for number in record.numbers)}
    if settings.kind == "command" and not any(metric.startswith(NUMBER) for metric in reported):
        must_gate.add(_COMMAND_CPU)
    numbers, undirected = [], set()
    for number in record.numbers:
        metric, plain = number.metric, number.metric.removeprefix(NUMBER)
        unit, better, gating = number.unit, number.better, metric in must_gate
        if metric in METRICS:
            unit, better = METRICS[metric].unit, "higher" if METRICS[metric].better == "higher" else "lower"
        elif declared := settings.settings.numbers.get(plain):
            unit, better = UNITS[declared.unit][0], declared.better
        elif not metric.startswith(NUMBER):
            gating = number.gating  # a number of a newer perfgate is unknown here and decides nothing
        else:
            # A number named by the program: perfgate.toml decides at most whether it gates.
            gating = not settings.settings.numbers and is_gating(plain, settings.settings.gates)
            if stored := required.numbers.get(metric):
                unit, better = stored.unit, stored.better
            else:
                undirected.add(metric)
        numbers.append(JobNumber(metric=metric, unit=unit, better=better, gating=gating))
    return TrustedNumbers(numbers, frozenset(undirected))


def numbers_of_jobs(evidence: Evidence, jobs: Mapping[str, RequiredJob]) -> dict[str, TrustedNumbers]:
    """The numbers of every job that the trusted side knows, by its name.

    A job that was measured by unknown settings is missing evidence; it is compared by the base's settings all the same.
    """
    return {
        record.name: trusted_numbers(
            required,
            required.measured_by(*evidence.runs) or required.reference,
            record,
            on_device=is_on_device(required, *evidence.runs),
        )
        for record in evidence.head.run.jobs
        if (required := jobs.get(record.name)) is not None
    }


def is_on_device(required: RequiredJob, base: RunDocument, head: RunDocument) -> bool:
    """Whether the ranks' memory is that of an accelerator's allocator, by the configuration or else by a testbed."""
    return required.on_device or any(run.testbed.device_kind != "cpu" for run in (base, head))


def quads_of_other_work(required: RequiredJob, settings: JobReference, turns: Sequence[Turn]) -> dict[str, list[int]]:
    """The quads with turns that lack a required count of work, or have another than was asked for, by its name.

    A turn of ``alternate`` is a visit, with the work of several turns.
    """
    own = settings.settings
    asked: dict[str, int | None] = dict.fromkeys(_WORK[settings.kind] or sorted(required.work))
    if settings.kind == "ranks":
        asked |= {"steps": own.steps, "ranks": own.ranks}
    if settings.kind == "server":
        asked["requests"] = (own.load or LoadSettings(concurrency=1)).requests
        # A streamed answer has at least one token.
        asked["output_tokens"] = 1 if own.streams_tokens else None
    other: dict[str, list[int]] = {}
    for name, times in asked.items():
        quads = [turn.quad for turn in turns if not _has_done(turn.work.get(name), times)]
        if quads:
            other[name] = quads
    return other


def _has_done(count: int | None, times: int | None) -> bool:
    return count is not None and (times is None or (count > 0 and count % times == 0))


def turns_without_output(settings: JobReference, turns: Sequence[Turn]) -> Iterator[int]:
    """Yield the quads of turns that lack the output that the settings let both sides compare.

    A program that checks a server's answers looks at those of the first turn of a start alone, and if the share of equal
    answers is compared, a start has them once.
    """
    own = settings.settings
    if own.compares_share:
        answers = own.probe_loads * (own.load or LoadSettings(concurrency=1)).requests
        whole = {turn.start for turn in turns if len(turn.texts) == answers}
        yield from (turn.quad for turn in turns if turn.start not in whole)
        return
    if settings.kind == "command" or not (settings.settings.same_output or settings.settings.check):
        return
    checked = {turn.start for turn in turns if turn.output} if settings.settings.check else set()
    yield from (turn.quad for turn in turns if not turn.output and turn.start not in checked)
