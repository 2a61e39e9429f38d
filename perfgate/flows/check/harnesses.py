"""The code and settings that measure a workload or job, where base and head differ in
them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perfgate.conductor.code.harness import read_harnesses, unknown_harnesses
from perfgate.config import Config, WorkloadReference
from perfgate.document.run import Harness
from perfgate.flows.check.measured import CheckContext, Job
from perfgate.job_settings import JobReference

# The others limit seconds and memory, or ask for further steps.
_MEASURING = (
    *("threads", "python_path", "preload", "pass_env", "link"),
    *("requirements", "setup", "inherit_packages", "reuse_caches", "seed"),
)


def harnesses_of(check: CheckContext) -> tuple[list[Harness], list[Harness]]:
    """The harnesses of base and head."""
    job = check.job
    unreadable = job.change.base_config.unreadable
    config = job.change.base_config.config
    names = job.options.workloads
    before: dict[str, WorkloadReference] = {}
    jobs_before: dict[str, JobReference] = {}
    if config is not None:
        for reference in config.references:
            if not names or reference.name in names:
                before[reference.name] = reference
        jobs_before = {entry.name: entry for entry in config.selected_jobs(names)}
    after = {reference.name: reference for reference in job.workloads}
    base, head = job.checkouts["base"], job.checkouts["head"]
    of_base, of_head = read_harnesses(
        check.bench, base, head, (before, after), begins=check.begin_side
    )
    if unreadable:
        return unknown_harnesses(list(after), unreadable), of_head
    jobs_after = {entry.name: entry for entry in job.jobs}
    _add_jobs(jobs_before, jobs_after, of_base, of_head)
    if config is not None:
        return _with_settings(config, of_base, of_head, job)
    return of_base, of_head


def _add_jobs(
    before: Mapping[str, JobReference],
    after: Mapping[str, JobReference],
    of_base: list[Harness],
    of_head: list[Harness],
) -> None:
    """Add the settings of the jobs in which the sides differ."""
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old and new and old.sha256 == new.sha256:
            continue
        if old:
            of_base.append(
                Harness(
                    workload=name, reference=old.settings.line, settings=old.written
                )
            )
        if new:
            added = [] if old else [name]
            of_head.append(
                Harness(
                    workload=name,
                    reference=new.settings.line,
                    settings=new.written,
                    added=added,
                )
            )


def _with_settings(
    config: Config, of_base: list[Harness], of_head: list[Harness], job: Job
) -> tuple[list[Harness], list[Harness]]:
    """Both sides' harnesses with the settings of measuring that differ: each side has
    its own, or both have the base's.
    """
    before, after = _settings_of(config), _settings_of(job.head_config)
    changed = [name for name in before if before[name] != after[name]]
    if not changed:
        return of_base, of_head
    references = {reference.name: reference.text for reference in job.workloads}
    for entry in job.jobs:
        references[entry.name] = entry.settings.line
    # A workload that one side lacks differs anyway.
    in_base = {harness.workload for harness in of_base}
    in_head = {harness.workload for harness in of_head}
    for name in in_base ^ in_head:
        references.pop(name, None)
    changed_before = {name: before[name] for name in changed}
    changed_after = {name: after[name] for name in changed}
    return _adding(changed_before, references, of_base), _adding(
        changed_after, references, of_head
    )


def _settings_of(config: Config) -> dict[str, str]:
    """The settings that may change what is measured, as they stand in perfgate.toml."""
    settings = {"device": msgspec.json.encode(config.device).decode()}
    for name in _MEASURING:
        settings[f"[measure] {name}"] = msgspec.json.encode(
            getattr(config.measure, name)
        ).decode()
    return settings


def _adding(
    settings: dict[str, str], references: dict[str, str], harnesses: list[Harness]
) -> list[Harness]:
    by_workload = {harness.workload: harness for harness in harnesses}
    for name, text in references.items():
        harness = by_workload.get(name, Harness(workload=name, reference=text))
        by_workload[name] = msgspec.structs.replace(
            harness, settings={**harness.settings, **settings}
        )
    return list(by_workload.values())
