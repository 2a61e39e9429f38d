"""Open the job of a check: both sides checked out, sealed and watched.

The settings are the head's, with the rules of the base that judge it and its way of
measuring. The code is sealed before any code of the change runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from perfgate.conductor.code.reads import watch_reads
from perfgate.conductor.sides.job_turns import NAMES
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.environment import in_ci, worker_environment
from perfgate.conductor.workers.load_log import LoadLog
from perfgate.conductor.workers.rooms import shared_caches
from perfgate.conductor.workers.sealed_code import compile_own_code, sealed_code
from perfgate.conductor.workers.seals import (
    MOST_ENTRIES,
    SealedCode,
    SealedFolder,
    Seals,
    sealed_files,
    sealed_tree,
)
from perfgate.conductor.workers.worker import Say
from perfgate.config import Config, load_config
from perfgate.document.run import Session, Side
from perfgate.errors import UsageError
from perfgate.flows.check.change import Change
from perfgate.flows.check.coverage import CodeWatch
from perfgate.flows.check.environments import choose_environments
from perfgate.flows.check.measured import Job
from perfgate.flows.shared.options import CheckOptions
from perfgate.git.repository import Repository
from perfgate.locale import sentence
from perfgate.system.stamps import stamps_below


@contextmanager
def open_job(
    options: CheckOptions, change: Change, session: Session, deadline: float, say: Say
) -> Iterator[Job]:
    """Check out both sides; their folders are removed at the end of the context."""
    say(sentence("checking out base and head"))
    repository, links = change.repository, change.links
    commits = {"base": change.sides.base.commit, "head": change.sides.head}
    if options.comparing == "code":
        # Base is measured with the head's workload files, from a checkout that the head
        # does not use.
        commits["harness"] = change.sides.head
    with repository.worktrees(commits, link=links) as trees, LoadLog() as loads:
        roots = {name: tree / change.prefix for name, tree in trees.items()}
        head_config = replace(
            load_config(roots["head"], device=options.device),
            project=change.config.project,
        )
        config = settings_of_check(change, head_config)
        change = change.with_lines(roots["base"], roots["head"])
        # Before the access times are watched, because it reads the changed files.
        changed = change.files_to_try(trees, config)
        # Watch before sealing: watching sets access times, which a seal would report as
        # a change.
        reading = {
            name: watch_reads(trees[name], repository.files(commit))
            for name, commit in commits.items()
        }
        results = [
            change.path_of(job.settings.file)
            for job in config.jobs
            if job.settings.file
        ]
        seals = seal_sides(repository, commits, trees, links, loads, results)
        environments = choose_environments(
            {"base": roots["base"], "head": roots["head"]},
            change.measure_settings,
            {"base": options.base_python, "head": options.head_python},
            seals=seals,
            code_of=lambda python: code_of(python, repository.root),
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
        checkouts: dict[Side, Checkout] = {}
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


# The side that reads each checkout: base is measured with the head's workload files,
# from a separate checkout.
_READS: dict[str, Side] = {"base": "base", "harness": "base", "head": "head"}


def seal_sides(
    repository: Repository,
    commits: Mapping[str, str],
    trees: Mapping[str, Path],
    links: Mapping[str, Sequence[str]],
    loads: LoadLog,
    results: Sequence[str],
) -> Seals:
    """Seal the checkouts, the paths linked into them, and the code that the running
    interpreter imports.

    ``links`` are the links of each side, ``results`` are patterns of the files that
    jobs write their numbers to.
    """
    # Bytecode written by this process next to its imports would look like a change to
    # them.
    compile_own_code()
    sys.dont_write_bytecode = True
    seals = Seals(loads=loads)
    for name, tree in trees.items():
        committed = frozenset({*repository.files(commits[name]), ".git"})
        stamp = partial(stamps_below, tree, most=MOST_ENTRIES)
        seals.add(
            [
                SealedFolder(
                    name,
                    stamp,
                    own=_READS[name],
                    committed=committed,
                    results=tuple(results),
                )
            ],
            _READS[name],
        )
        seals.texts += [tree / file for file in committed]
    linked = set().union(*links.values())
    seals.add(
        [
            sealed_tree(entry, (repository.root / entry).resolve())
            for entry in sorted(linked)
        ],
        "base",
        "head",
    )
    seals.add(
        [sealed_files(str(cache), cache) for cache in shared_caches(os.environ)],
        "base",
        "head",
    )
    seals.add_code(code_of(None, repository.root), "base", "head")
    return seals


def code_of(python: Path | None, clone: Path) -> SealedCode:
    """The code an interpreter imports; outside CI without the clone: an editable
    install may be edited while measuring.
    """
    environment = worker_environment(
        os.environ,
        device="cpu",
        scratch=Path("/"),
        threads=1,
        hash_seed=0,
        pass_env=[],
        reuse_caches=True,
    )
    spare = None if in_ci(os.environ) else clone.resolve()
    return sealed_code(python, environment, spare=spare)


def settings_of_check(change: Change, head: Config) -> Config:
    """The settings by which both sides are measured.

    They are the head's, with the rules of the base.

    The rules are the budgets, the expectations, the gating limits and how the gate
    decides. A change may ask for more time but not for less. What a side reads or
    installs is its own; the limits on its seconds and memory are the head's. The
    budgets of pairs and jobs are multiplied as the options say.
    """
    config, base = head, change.base_config.config
    if base is not None:
        is_chosen = change.options.device or os.environ.get("PERFGATE_DEVICE")
        gate = replace(
            base.gate,
            budget=max(base.gate.budget, head.gate.budget),
            checklist_budget=max(
                base.gate.checklist_budget, head.gate.checklist_budget
            ),
        )
        measure = replace(
            base.measure,
            pass_env=[
                name for name in base.measure.pass_env if name in head.measure.pass_env
            ],
            load_timeout=head.measure.load_timeout,
            step_timeout=head.measure.step_timeout,
            memory_limit=head.measure.memory_limit,
        )
        config = replace(
            head,
            device=head.device if is_chosen else base.device,
            budget=base.budget,
            expect=base.expect,
            limits={**head.limits, **base.gating_limits},
            gate=gate,
            measure=measure,
        )
    factor = change.options.budgets
    workloads = dict(config.workloads)
    for job in config.jobs:
        workloads[job.name] = replace(job.settings, budget=factor * job.settings.budget)
    gate = replace(config.gate, budget=factor * config.gate.budget)
    return replace(config, gate=gate, workloads=workloads)
