"""``perfgate run --from-profile``: a run document made from a profiler recording,
without measuring.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perfgate import trace
from perfgate.config import CONFIG_NAME, Config, load_config
from perfgate.document.files import write_document
from perfgate.document.message import Message, english, together
from perfgate.document.run import (
    FROM_PROFILE,
    Artifact,
    Checklist,
    RunDocument,
    Source,
    StepResult,
    Value,
    WorkloadRecord,
)
from perfgate.errors import DocumentError, UsageError
from perfgate.flows.run.advisors import advise_profile
from perfgate.flows.run.recording import (
    content_hash,
    cut_off_tables,
    keep,
    recorded_testbed,
    recording_files,
    unknown,
)
from perfgate.flows.shared.session import (
    ci_context,
    now,
    prepare_out,
    remove_results,
    start_session,
)
from perfgate.locale import Activity, sentence
from perfgate.measuring.checklist.recorded import recorded_checklist
from perfgate.measuring.checklist.step import RecordingContext
from perfgate.protocol import StepSettings
from perfgate.trace.analysis.summary import DeviceSummary, summarize
from perfgate.trace.model.communication import add_communication
from perfgate.trace.model.recording import SOME_KERNELS, Recording
from perfgate.trace.readers.contradictions import caveats_about, contradictions_of
from perfgate.version import __version__

if TYPE_CHECKING:
    from perfgate.conductor.workers.worker import Say

DEFAULT_WORKLOAD = "profile"
_SHOWN_REASONS = 3
# The checklist steps with times of training steps, kernels and collectives.
_OF_TIMES = frozenset({1, 2, 3, 4, 16})
_NAME = re.compile(r"\w[\w.-]{0,99}")


def run_from_profile(
    directory: Path,
    profile: Path,
    out: Path,
    say: Say,
    *,
    workload: str = DEFAULT_WORKLOAD,
    keep_files: bool,
) -> RunDocument:
    """Read the recording ``profile`` and write ``run.json`` into ``out``; with
    ``keep_files`` its files are copied there too.

    ``directory`` is the project's folder; its perfgate.toml, if any, gives name and
    limits. Raises DocumentError if the path is not a recording, or an empty one.
    """
    if not _NAME.fullmatch(workload):
        raise UsageError(
            "--workload {workload!r} must be letters, digits, '_', '-' or '.', a letter first",
            workload=workload,
        )
    if profile.is_dir() and profile.resolve() in (
        out.resolve(),
        *out.resolve().parents,
    ):
        raise UsageError(
            "--out {out} lies inside the recording {profile}; choose a folder outside it",
            out=out,
            profile=profile,
        )
    session = start_session(FROM_PROFILE, 0, ci_context(os.environ))
    config = _config(directory)
    say(sentence("reading {name}", name=profile.name))
    recording = trace.read(profile)
    summaries = summarize(recording.timelines)
    _refuse_silent(recording, summaries)
    files = recording_files(profile)
    if names := cut_off_tables(files):
        # A table of kernels ends in the middle of a line: its counts would be too low.
        raise DocumentError(
            "{profile}: {names} is cut off in its last line; copy the recording again, or have it analysed again",
            profile=profile,
            names=" and ".join(filter(None, [", ".join(names[:-1]), names[-1]])),
        )
    out = prepare_out(out)
    remove_results(out, ("run.json",))
    contradicted = contradictions_of(
        [(summary.shape, summary.timeline) for summary in summaries]
    )
    incomplete = [*recording.incomplete, *contradicted]
    testbed = recorded_testbed(recording, summaries)
    settings = StepSettings(
        expected_kernels=config.expect.kernels, graph_spans=config.graph.spans
    )
    context = RecordingContext(
        recording, summaries, workload, config.limit_values, settings
    )
    checklist = recorded_checklist(context)
    steps: list[StepResult] = []
    for recorded in checklist.steps:
        step = recorded
        if incomplete:
            step = _without_kernels(step, together(incomplete))
        if contradicted and step.number in _OF_TIMES:
            step = _without_values(step, together(contradicted))
        steps.append(step)
    counters, kernel_times = checklist.counters, checklist.kernel_times
    if incomplete:
        counters, kernel_times = [], []
    advised = advise_profile(profile, workload, say)
    artifacts: list[Artifact] = []
    if keep_files:
        artifacts = [keep(file, out, workload=workload) for file in files]
    run = RunDocument(
        perfgate_version=__version__,
        project=config.project,
        session=replace(session, finished_at=now()),
        source=Source(subject=f"recording {profile.resolve().name}"),
        testbed=testbed,
        workloads=[
            WorkloadRecord(
                name=workload,
                reference=profile.resolve().name,
                sha256=content_hash(files),
                batch=0,
                shapes=[summary.shape for summary in summaries],
            )
        ],
        checklist=Checklist(
            steps=steps,
            counters=counters,
            operators=[] if contradicted else checklist.operators,
            kernel_times=kernel_times,
            advisories=advised.found,
        ),
        artifacts=artifacts,
        warnings=[
            *_warnings(recording, summaries, unknown(testbed), incomplete),
            *advised.warnings,
        ],
    )
    write_document(out / "run.json", run)
    return run


def _config(directory: Path) -> Config:
    if not (directory / CONFIG_NAME).exists():
        return Config(root=directory, project=directory.resolve().name or "recording")
    config = load_config(directory, needs_workload=False)
    add_communication(config.trace.communication)
    return config


def _refuse_silent(recording: Recording, summaries: Sequence[DeviceSummary]) -> None:
    """Raise DocumentError for a recording with neither steps nor any work."""
    for summary in summaries:
        if summary.totals or summary.lengths() or any(summary.works):
            return
    reasons = ""
    for part, why in itertools.islice(recording.absent.items(), _SHOWN_REASONS):
        reasons += f"; {part}: {english(why)}"
    only = ""
    totals = [timeline.totals for timeline in recording.timelines]
    if any(of_device.types or of_device.operators for of_device in totals):
        only = Activity(" but totals by type, which perfgate trace top shows")
    analyse = ""
    if recording.format == "ascend-pytorch":
        analyse = Activity(
            ", or analyse it with torch_npu.profiler.profiler.analyse('{path}')",
            path=recording.path,
        )
    raise DocumentError(
        "{path}: the recording holds no step, kernel or operator{only}{reasons}; record it again{analyse}",
        path=recording.path,
        only=only,
        reasons=reasons,
        analyse=analyse,
    )


def _without_kernels(step: StepResult, reason: Message) -> StepResult:
    values = list(step.values)
    for position, value in enumerate(values):
        if value.metric == "ops.kernel_time":
            values[position] = replace(value, value=None, reason=reason)
    return replace(step, kernels=[], values=values)


def _without_values(step: StepResult, reason: Message) -> StepResult:
    values = list(step.values)
    for position, value in enumerate(values):
        if value.value is not None:
            values[position] = Value(
                metric=value.metric, value=None, labels=value.labels, reason=reason
            )
    if values == step.values:
        return step
    return replace(
        step, status="invalid", reason=reason, values=values, findings=[], kernels=[]
    )


def _warnings(
    recording: Recording,
    summaries: Sequence[DeviceSummary],
    not_said: Sequence[Message],
    incomplete: Sequence[Message],
) -> list[Message]:
    """The warnings on the origin of the numbers, on differences that a recording may
    hide, and on missing parts.
    """
    whole: list[str] = []
    shapes_of_one: dict[str, str] = {}
    for summary in summaries:
        if summary.unit == "whole recording":
            whole.append(summary.shape)
        elif summary.spans == 1:
            shapes_of_one[summary.shape] = summary.unit
    warnings = [Message("notes.from-recording")]
    if whole:
        warnings.append(Message("notes.counted-over-all", {"shapes": [*whole]}))
    if shapes_of_one:
        (unit, *_), shapes = shapes_of_one.values(), ", ".join(shapes_of_one)
        warnings.append(
            Message("notes.counted-in-one", {"unit": unit, "shapes": shapes})
        )
    if not_said:
        warnings.append(Message("notes.not-in-recording", {"what": list(not_said)}))
    if incomplete:
        warnings.append(Message("notes.nothing-counted", {"what": list(incomplete)}))
    warnings += caveats_about(
        [(summary.shape, summary.timeline) for summary in summaries]
    )
    for part, why in recording.absent.items():
        if not part.startswith(SOME_KERNELS):
            warnings.append(Message("notes.not-recorded", {"what": part, "why": why}))
    return warnings
