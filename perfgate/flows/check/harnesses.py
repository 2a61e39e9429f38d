"""The code and settings that measure a workload or job, where base and head differ in them."""

from __future__ import annotations

import msgspec

from perfgate.conductor.code.harness import read_harnesses, unknown_harnesses
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.config import Config
from perfgate.document.run import Harness
from perfgate.flows.check.measured import Job
from perfgate.flows.shared.options import CheckOptions

# The others limit seconds and memory, or ask for further steps.
_MEASURING = (
    *("threads", "python_path", "preload", "pass_env", "link"),
    *("requirements", "setup", "inherit_packages", "reuse_caches", "seed"),
)


def harnesses_of(
    bench: Bench, base: Checkout, head: Checkout, job: Job, options: CheckOptions
) -> tuple[list[Harness], list[Harness]]:
    after = {reference.name: reference for reference in job.config.selected(options.workloads)}
    if job.base_config.unreadable:
        unknown = unknown_harnesses(list(after), job.base_config.unreadable)
        return unknown, read_harnesses(bench, base, head, ({}, after))[1]
    own = job.base_config.config.references if job.base_config.config else ()
    before = {
        reference.name: reference for reference in own if not options.workloads or reference.name in options.workloads
    }
    of_base, of_head = read_harnesses(bench, base, head, (before, after))
    jobs_before = {
        one.name: one for one in (job.base_config.config.selected_jobs(()) if job.base_config.config else ())
    }
    jobs_after = {one.name: one for one in job.config.selected_jobs(options.workloads)}
    for name in dict.fromkeys([*jobs_before, *jobs_after]):
        old, new = jobs_before.get(name), jobs_after.get(name)
        if (old and old.sha256) == (new and new.sha256) or (options.workloads and name not in options.workloads):
            continue
        of_base += [Harness(workload=name, reference=old.settings.line, settings=old.written)] if old else []
        added = [] if old else [name]
        of_head += (
            [Harness(workload=name, reference=new.settings.line, settings=new.written, added=added)] if new else []
        )
    return _with_settings(of_base, of_head, job, options)


def _with_settings(
    of_base: list[Harness], of_head: list[Harness], job: Job, options: CheckOptions
) -> tuple[list[Harness], list[Harness]]:
    """Both sides' harnesses with the settings of measuring that differ: each side has its own, or both have the base's."""
    if job.base_config.config is None or job.head_config is None:
        return of_base, of_head
    before, after = _settings_of(job.base_config.config), _settings_of(job.head_config)
    differing = [name for name in before if before[name] != after[name]]
    if not differing:
        return of_base, of_head
    references = {one.name: one.text for one in job.config.selected(options.workloads)}
    references |= {one.name: one.settings.line for one in job.config.selected_jobs(options.workloads)}
    on_one_side = {one.workload for one in of_base} ^ {one.workload for one in of_head}
    there = {name: text for name, text in references.items() if name not in on_one_side}
    return (
        _adding({name: before[name] for name in differing}, there, of_base),
        _adding({name: after[name] for name in differing}, there, of_head),
    )


def _settings_of(config: Config) -> dict[str, str]:
    """The settings that may change what is measured, as they stand in perfgate.toml."""
    values: dict[str, object] = {f"[measure] {name}": getattr(config.measure, name) for name in _MEASURING}
    return {name: msgspec.json.encode(value).decode() for name, value in {"device": config.device, **values}.items()}


def _adding(settings: dict[str, str], references: dict[str, str], harnesses: list[Harness]) -> list[Harness]:
    known = {harness.workload: harness for harness in harnesses}
    for name, text in references.items():
        harness = known.get(name, Harness(workload=name, reference=text))
        known[name] = msgspec.structs.replace(harness, settings={**harness.settings, **settings})
    return list(known.values())
