"""The rules that judge a change, none of which it can edit: the base's perfgate.toml
and the project's own store.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from perfgate.config import CONFIG_NAME, Config
from perfgate.document.decision import Policy
from perfgate.document.message import Message, MessageValue
from perfgate.document.run import RunDocument
from perfgate.errors import DocumentError, ForgeGoneError, StoreError
from perfgate.flows.shared.reads import files_read_on_main, not_known_as_unread
from perfgate.flows.shared.store import open_project_store
from perfgate.flows.trust.commits import config_at, same_code_between
from perfgate.flows.trust.provenance import common_ancestor
from perfgate.git.repository import files_between, prefix_of
from perfgate.job_settings import JobReference
from perfgate.judging.forge.forge import ChangeRequest, Forge
from perfgate.judging.gate.evidence.trusted import Required, RequiredJob
from perfgate.judging.gate.paths import (
    always_relevant,
    files_of_environment,
    skipped_because,
)
from perfgate.judging.store.runs import stored_run, stored_runs
from perfgate.judging.store.store import GitAccess, Page, Store

# Files that configure the CI of the forges.
CI_FILES = (
    ".github/workflows/*",
    ".github/actions/*",
    ".gitlab-ci.yml",
    "*.gitlab-ci.yml",
    ".gitlab/*",
    ".gitea/workflows/*",
    ".forgejo/workflows/*",
    ".workflow/*",
    ".gitcode/workflows/*",
    "Jenkinsfile",
)
_NAMED = 5


@dataclass(frozen=True)
class Grounds:
    """The base's configuration, if it has one; notes for the decision; and the reason
    if measuring was unnecessary.

    ``changed`` are the files of the change, None if they are unknown.
    """

    config: Config | None = None
    notes: tuple[Message, ...] = ()
    skipped: Message | None = None
    changed: frozenset[str] | None = None

    @property
    def policy(self) -> Policy:
        """The base's policy, or perfgate's default if the base has none; never the
        change's.
        """
        if self.config:
            return self.config.policy()
        return Policy()


def grounds_of_base(
    root: Path,
    change: ChangeRequest,
    base: str,
    forge: Forge | None,
    access: GitAccess,
    *,
    environ: Mapping[str, str],
    measured: bool,
) -> Grounds:
    """The grounds from the commit ``base``, which the forge names, with notes on
    judging files that the change edits.

    The changed files come from ``forge``, or without one from the clone. If the change
    was ``measured``, it is judged even if it could have been skipped; ``environ``
    locates the store of main's runs. Raises RepositoryError if that commit cannot be
    read.
    """
    base_config = config_at(root, base, access)
    notes: list[Message] = []
    if base_config.unreadable is not None:
        notes.append(
            Message("publish.policy-unreadable", {"error": base_config.unreadable})
        )
    elif base_config.config is None:
        notes.append(Message("publish.policy-absent"))
    changed = _changed_files(root, change, base, forge)
    if changed is None:
        return Grounds(base_config.config, (*notes, Message("publish.edits-unknown")))
    prefix = prefix_of(root)
    rules = base_config.config
    always = (
        always_relevant(rules, prefix.rstrip("/")) if rules else {prefix + CONFIG_NAME}
    )
    of_ci: set[str] = set()
    for pattern in CI_FILES:
        of_ci.update(fnmatch.filter(changed, pattern))
    edited = [file for file in changed if file in always or file in of_ci]
    if edited:
        listed: MessageValue = edited
        more = len(edited) - _NAMED
        if more > 0:
            listed = Message(
                "publish.files-and-more", {"files": edited[:_NAMED], "more": more}
            )
        notes.append(Message("publish.judge-edited", {"files": listed}))
    if rules is None or measured:
        return Grounds(rules, tuple(notes), changed=frozenset(changed))
    skipped = skipped_because(
        changed,
        rules.paths,
        always=always | files_of_environment(list(changed), rules, prefix.rstrip("/")),
        read=lambda files: not_known_as_unread(
            files, files_read_on_main(rules, environ)
        ),
        same_code=lambda files: _same_code(root, change, base, files, forge, access),
    )
    return Grounds(rules, tuple(notes), skipped, frozenset(changed))


def _same_code(
    root: Path,
    change: ChangeRequest,
    base: str,
    files: Sequence[str],
    forge: Forge | None,
    access: GitAccess,
) -> bool:
    # A merge queue, which has no forge, builds on this exact commit.
    fork: str | None = base
    if forge:
        try:
            fork = common_ancestor(forge, root, base, change.head_sha)
        except DocumentError:
            return False
    return fork is not None and same_code_between(
        root, fork, change.head_sha, files, access
    )


def _changed_files(
    root: Path, change: ChangeRequest, base: str, forge: Forge | None
) -> list[str] | None:
    """The paths that a change touches, from the forge or else the clone; None if
    neither knows.
    """
    changed = None
    if forge:
        with suppress(ForgeGoneError):  # GitLab before 15.7 has no such list
            changed = forge.changed_files(change.number)
    if changed is None:
        return files_between(root, base, change.head_sha)
    return changed


# Main is measured every few commits; a run more than this many runs back is too old to
# compare with the base.
_NEWEST = 50


def required_of(
    config: Config | None,
    base: RunDocument,
    environ: Mapping[str, str],
    *,
    only: Collection[str],
    changed: frozenset[str] | None = None,
) -> Required:
    """The evidence required by the base's configuration and main's stored runs; without
    a configuration only intact seals.

    ``only`` are the ordered workloads, if not all were, and ``changed`` the files of
    the change, if they are known. An unreadable store adds no requirement here; reading
    main's history reports it.
    """
    if config is None:
        return Required(sealed=True, changed=changed)
    names = tuple(
        entry.name for entry in config.references if not only or entry.name in only
    )
    jobs = [entry for entry in config.jobs if not only or entry.name in only]
    stored: tuple[RunDocument, ...] = ()
    stored_jobs: dict[str, RunDocument] = {}
    with suppress(StoreError):
        store = open_project_store(config, environ)
        stored = _stored_runs(store, config.project, base, names)
        stored_jobs = _stored_jobs(store, config.project, base, jobs)
    required_jobs: dict[str, RequiredJob] = {}
    for entry in jobs:
        required_jobs[entry.name] = _required_job(
            entry,
            stored_jobs.get(entry.name),
            on_device=not config.device.startswith("cpu"),
        )
    return Required(
        workloads=names,
        jobs=required_jobs,
        aa_pairs=config.gate.aa_pairs,
        stored=stored,
        sealed=True,
        stretches=True,
        changed=changed,
    )


def _required_job(
    reference: JobReference, stored: RunDocument | None, *, on_device: bool
) -> RequiredJob:
    """The evidence required of a job by perfgate.toml, and by main's newest run of it
    if that had the same settings.
    """
    required = RequiredJob(reference, on_device=on_device)
    if stored is None:
        return required
    records = {job.name: job for job in stored.jobs.records}
    record = records.get(reference.name)
    if record is None or record.sha256 != reference.sha256:
        return required
    work = [
        frozenset(turn.work)
        for turn in stored.jobs.turns
        if turn.workload == reference.name
    ]
    return replace(
        required,
        numbers={number.metric: number for number in record.numbers},
        work=frozenset.intersection(*work) if work else frozenset(),
    )


def _stored_jobs(
    store: Store, project: str, base: RunDocument, jobs: Sequence[JobReference]
) -> dict[str, RunDocument]:
    """The newest run of each command job without ``numbers`` in perfgate.toml: of the
    base's testbed, else of its kind of device.

    A program may report other numbers on another device.
    """
    names = {
        job.name for job in jobs if job.settings.command and not job.settings.numbers
    }
    if not names:
        return {}
    of_testbed: dict[str, str] = {}
    of_kind: dict[str, str] = {}
    for run in stored_runs(store, project, Page(limit=_NEWEST)):
        if run.dirty or run.device_kind != base.testbed.device_kind:
            continue
        for name in names.intersection(run.workloads):
            of_kind.setdefault(name, run.id)
            if run.fingerprint == base.testbed.fingerprint:
                of_testbed.setdefault(name, run.id)
    documents: dict[str, RunDocument] = {}
    for name, run_id in {**of_kind, **of_testbed}.items():
        documents[name] = stored_run(store, project, run_id)
    return documents


def _stored_runs(
    store: Store, project: str, base: RunDocument, names: tuple[str, ...]
) -> tuple[RunDocument, ...]:
    workloads = {
        workload.name: workload for workload in base.workloads if workload.name in names
    }
    if not workloads:
        return ()
    documents: dict[str, RunDocument] = {}
    for run in stored_runs(store, project, Page(limit=_NEWEST)):
        lacking = [
            name
            for name in workloads
            if name not in documents and name in run.workloads
        ]
        if lacking and run.fingerprint == base.testbed.fingerprint and not run.dirty:
            document = stored_run(store, project, run.id)
            documents.update(dict.fromkeys(lacking, document))
    # A run that measured the workload by another file, or could not, adds no
    # requirement for it.
    same: dict[str, RunDocument] = {}
    for name, document in documents.items():
        for record in document.workloads:
            if (record.name, record.sha256, record.error) == (
                name,
                workloads[name].sha256,
                None,
            ):
                same[document.session.id] = document
    return tuple(same.values())
