"""Open the job of a check: both sides checked out, sealed and watched, each with its environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from perfgate.conductor.code.reads import watch_reads
from perfgate.conductor.sides.job_turns import NAMES, SideName
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.load_log import LoadLog
from perfgate.conductor.workers.worker import Say
from perfgate.document.run import Session
from perfgate.errors import UsageError
from perfgate.flows.check.change import Change
from perfgate.flows.check.coverage import CodeWatch
from perfgate.flows.check.environments import choose_environments
from perfgate.flows.check.measured import Job
from perfgate.flows.check.sealing import code_of, seal_sides
from perfgate.flows.check.settings import settings_of_check, settings_of_head
from perfgate.flows.shared.options import CheckOptions
from perfgate.locale import sentence


@contextmanager
def open_job(
    options: CheckOptions, change: Change, session: Session, deadline: float, say: Say
) -> Iterator[Job]:
    """Check out both sides; their folders are removed at the end of the context."""
    say(sentence("checking out base and head"))
    repository, links = change.repository, change.links
    commits = {"base": change.sides.base.commit, "head": change.sides.head}
    if options.comparing == "code":
        # Base is measured with the head's workload files, from a checkout that the head does not use.
        commits["harness"] = change.sides.head
    with repository.worktrees(commits, link=links) as trees, LoadLog() as loads:
        roots = {name: tree / change.prefix for name, tree in trees.items()}
        head_config = settings_of_head(change, roots["head"])
        config = settings_of_check(change, head_config)
        change = change.with_lines(roots["base"], roots["head"])
        # Before the access times are watched, because it reads the changed files.
        changed = change.files_to_try(trees, config)
        # Watch before sealing: watching sets access times, which a seal would report as a change.
        reading = {
            name: watch_reads(trees[name], repository.files(commit))
            for name, commit in commits.items()
        }
        results = [
            change.path_of(job.settings.file)
            for job in config.jobs
            if job.settings.file
        ]
        seals = seal_sides(
            repository, commits, trees, links, os.environ, loads, results
        )
        environments = choose_environments(
            {"base": roots["base"], "head": roots["head"]},
            change.measure_settings,
            {"base": options.base_python, "head": options.head_python},
            seals=seals,
            code_of=lambda python: code_of(python, os.environ, repository.root),
            out=options.out,
            say=say,
        )
        if (
            options.comparing == "stack"
            and environments.base.python == environments.head.python
        ):
            raise UsageError(
                "both sides are the same interpreter; name the new stack's interpreter with --python"
            )
        harnesses = {"base": roots.get("harness", roots["base"]), "head": roots["head"]}
        checkouts: dict[SideName, Checkout] = {}
        for name in NAMES:
            checkouts[name] = Checkout(
                roots[name],
                harness=harnesses[name],
                python=environments.of_side(name).python,
                measure=change.measure_settings[name],
            )
        code = CodeWatch(
            changed,
            trees,
            reading,
            python_path=change.python_path,
            has_jobs=bool(config.selected_jobs(options.workloads)),
            is_measured_anyway=options.always,
        )
        yield Job(
            options,
            change,
            config,
            head_config,
            session,
            environments,
            checkouts,
            deadline,
            seals,
            code,
        )
