"""The code and settings that measure a workload or job, where base and head differ in them."""

from __future__ import annotations

from perfgate.conductor.sides.harness import read_harnesses, unknown_harnesses
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.document.run import Harness
from perfgate.flows.check.measured import Job
from perfgate.flows.shared.options import CheckOptions


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
    return of_base, of_head
