"""``perfgate init``: write the files that a repository needs for its first verdict."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perfgate.conductor.workers.bench import open_bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.worker import Say
from perfgate.config import CONFIG_NAME, load_config
from perfgate.errors import RepositoryError, UsageError
from perfgate.flows.init.files import render_starter, written_files
from perfgate.flows.init.inputs import (
    Forge,
    InitOptions,
    inputs_of,
    needs_lock,
    python_of,
)
from perfgate.flows.init.installed import (
    Revision,
    address,
    installed_revision,
    named_revision,
    remedy,
)
from perfgate.flows.init.lock import HEADER, LOCK, Lock, lock_project, missing_in
from perfgate.flows.init.project import (
    Declared,
    NewProject,
    read_declared,
    read_project,
)
from perfgate.flows.init.uv import PYTHON_VERSION, find_uv
from perfgate.flows.shared.preflight import preflight
from perfgate.git.commands import run_git
from perfgate.git.repository import MAIN_NAMES, Repository, checked_out, readable
from perfgate.locale import Activity
from perfgate.measuring.devices.torch_backends import TORCH_BACKENDS
from perfgate.plugins import FORGES_PACKAGE

WORKLOAD = "perf/workload.py"
# The file to measure and its template, by kind of job.
_MEASURED = {
    None: (WORKLOAD, "workload.py.j2"),
    "command": ("perf/bench.py", "bench.py.j2"),
    "ranks": ("perf/train.py", "train.py.j2"),
    "server": ("perf/serve.py", "serve.py.j2"),
}
GITLAB_FILE = ".gitlab-ci.yml"
_CI_FILES: Mapping[Forge, Mapping[str, str]] = {
    "github": {
        ".github/workflows/perfgate.yml": "github-gate.yml.j2",
        ".github/workflows/perfgate-trusted.yml": "github-trusted.yml.j2",
    },
    "gitlab": {GITLAB_FILE: "gitlab-ci.yml.j2"},
}
# For forges without a CI file to write, the lines of the jobs are shown, with the
# package that adds the forge.
_PRINTED: Mapping[Forge, str] = dict.fromkeys(
    ("gitee", "gitcode", "gitea"), "other-forge.sh.j2"
)
_HOSTS: Mapping[str, Forge] = {
    "github": "github",
    "gitlab": "gitlab",
    "gitee": "gitee",
    "gitcode": "gitcode",
    "atomgit": "gitcode",
    "gitea": "gitea",
    "forgejo": "gitea",
    "codeberg": "gitea",
}
# For a repository that has no origin yet.
_USUAL_HOST: Mapping[Forge, str] = {
    "github": "github.com",
    "gitlab": "gitlab.com",
    "gitee": "gitee.com",
    "gitcode": "gitcode.com",
    "gitea": "codeberg.org",
}
CHOICES = "--github, --gitlab, --gitee, --gitcode or --gitea"


@dataclass(frozen=True)
class StarterVariables:
    """The variables of the templates of all files."""

    forge: Forge | None
    package: str
    forges_package: str
    project: str
    model_package: str
    python_path: Sequence[str]
    device: str
    job: str | None
    backend: str
    main_branch: str
    main_is_found: bool
    schema: str


@dataclass(frozen=True)
class CalledFiles:
    """The variables of CI files that call perfgate's own: a commit of it, and its
    address if it is on another server.
    """

    action: str
    commit: str
    remote: str | None = None


# Runs the workload in the new files; the distributions that it loaded files of, None if
# it could not be tried here.
ImportTrial = Callable[[], Collection[str] | None]


@dataclass(frozen=True)
class Started:
    """The files written, relative to the repository, and the lines to add by hand to
    the user's own files.

    ``root`` is the repository's folder; ``is_empty`` means that it has no commit yet to
    compare with. ``forge`` is None if no CI file is written; ``missing`` is the reason,
    if the repository has an origin. ``lock`` is the lock file that CI installs from,
    ``imported`` are the distributions that it has because the workload loaded them, and
    ``to_add`` are the files to add to git for a first change request.
    """

    forge: Forge | None
    root: Path
    is_empty: bool
    files: Sequence[str]
    to_add: Sequence[str] = ()
    lines: str = ""
    missing: str = ""
    lock: Lock | None = None
    imported: Collection[str] = ()


def start_project(
    folder: Path, options: InitOptions, trial: ImportTrial = lambda: None
) -> Started:
    """Write the files into the repository that ``folder`` lies in, all of them or none.

    Once they are there, ``trial`` runs the workload; if that fails, or CI cannot
    install what it loads, they are removed again. Raises UsageError if one of them
    exists, RepositoryError outside a git repository.
    """
    _refuse_odd_values(options)
    if options.local and (options.forge or options.ci_only):
        raise UsageError(
            "--local writes no CI files: leave it out, or leave out --ci-only and the forge"
        )
    repository = Repository(folder)
    origin = run_git(repository.root, ["remote", "get-url", "origin"], {}).output
    forge, missing = _wanted_forge(options, origin)
    below, project = repository.prefix(folder), read_project(folder)
    templates, added = _templates(repository.root, below, forge, options)
    lock_files: list[str] = []
    if forge in _CI_FILES and needs_lock(options):
        lock_files.append(str(Path(below) / LOCK))
    new_files = list(templates)
    if not _is_our_lock(
        folder / LOCK
    ):  # a lock file that an earlier `perfgate init` wrote is replaced
        new_files += lock_files
    _refuse_existing(repository.root, new_files, below)
    revision = None
    if forge:
        revision = _revision(forge, options, origin)
    name_in_origin = re.split(r"[/:]", origin.rstrip("/"))[-1].removesuffix(".git")
    name = (not below and name_in_origin) or project.name
    name = name or readable(folder.resolve().name)
    starter = _starter_variables(repository, forge, options, revision, project, name)
    values = vars(starter)
    if forge:
        inputs = inputs_of(repository, folder, forge, options, project)
        values = {**values, "inputs": {"package": starter.package, **inputs}}
    if revision and forge and forge in _CI_FILES:
        values |= vars(_called(forge, revision, origin))
    texts = {
        file: render_starter(template, values) for file, template in templates.items()
    }
    # Before anything is written or tried: uv is missing, or a dependency file cannot be
    # read.
    declared = None
    if lock_files:
        find_uv()
        declared = read_declared(folder)
    lock, imported = None, set[str]()
    with written_files(repository.root, texts):
        loaded = trial()
        if declared:
            lock, imported = _lock(declared, folder, options, project, loaded)
            _replace_lock(folder, lock)
    files = [*texts, *lock_files]
    lines = ""
    if added:
        lines = render_starter(added, values)
    return Started(
        forge,
        repository.root,
        is_empty=checked_out(repository.root) is None,
        files=files,
        to_add=_to_add(repository.root, files, below),
        lines=lines,
        missing=missing,
        lock=lock,
        imported=imported,
    )


def _to_add(root: Path, files: Sequence[str], below: str) -> list[str]:
    """The files, and untracked files next to them that an earlier `perfgate init` or
    its user wrote.
    """
    own = [str(Path(below) / name) for name in (CONFIG_NAME, "perf")]
    listed = run_git(
        root, ["status", "--porcelain", "-z", "--untracked-files=all", "--", *own], {}
    ).output
    changed = [
        entry[3:]
        for entry in listed.split("\0")
        if entry and not entry.endswith(".pyc")
    ]
    return list(dict.fromkeys([*files, *changed]))


def write_lock(
    folder: Path, options: InitOptions, trial: ImportTrial = lambda: None
) -> Started:
    """Rewrite only the lock file. Raises UsageError if the user has a file of that
    name.
    """
    repository = Repository(folder)
    find_uv()
    declared, project = read_declared(folder), read_project(folder)
    lock, imported = _lock(declared, folder, options, project, trial())
    _replace_lock(folder, lock)
    file = str(Path(repository.prefix(folder)) / LOCK)
    return Started(
        None,
        repository.root,
        is_empty=checked_out(repository.root) is None,
        files=[file],
        lock=lock,
        imported=imported,
    )


def _templates(
    root: Path, below: str, forge: Forge | None, options: InitOptions
) -> tuple[dict[str, str], str]:
    """The template of each file, and the template of the lines to show because they
    belong in the user's own file.
    """
    templates: dict[str, str] = {}
    if not options.ci_only:
        measured, template = _MEASURED[options.job]
        templates[str(Path(below) / CONFIG_NAME)] = "perfgate.toml.j2"
        templates[str(Path(below) / measured)] = template
    if forge is None:
        return templates, ""
    templates.update(_CI_FILES.get(forge, {}))
    if (root / GITLAB_FILE).exists() and templates.pop(GITLAB_FILE, ""):
        return templates, _CI_FILES["gitlab"][GITLAB_FILE]
    return templates, _PRINTED.get(forge, "")


def _lock(
    declared: Declared,
    folder: Path,
    options: InitOptions,
    project: NewProject,
    loaded: Collection[str] | None,
) -> tuple[Lock, set[str]]:
    """The lock file, and the distributions in it only because the workload has
    ``loaded`` them (None: it was not tried).

    Raises UsageError if uv finds no versions that CI could install.
    """
    python = python_of(options, project) or project.python
    lock = lock_project(declared, folder, python=python)
    imported = missing_in(lock, loaded or (), folder)
    if imported:
        lock = lock_project(declared, folder, python=python, imported=imported)
    return lock, imported


def _replace_lock(folder: Path, lock: Lock) -> None:
    """Write the lock file; replace only one written by `perfgate init`."""
    path = folder / LOCK
    if os.path.lexists(path) and not _is_our_lock(path):
        raise UsageError(
            "{path} is not a file that `perfgate init` has written, so it was left as it is; move it away",
            path=path,
        )
    path.parent.mkdir(exist_ok=True)
    path.write_text(lock.text, encoding="utf-8")


def _is_our_lock(path: Path) -> bool:
    return (
        path.is_file()
        and not path.is_symlink()
        and path.read_text(errors="replace").startswith(HEADER)
    )


def _refuse_odd_values(options: InitOptions) -> None:
    texts = {
        "--setup": options.setup,
        "--python": options.python,
        "--branch": options.branch,
        "--image": options.image,
        "--package": options.package,
    }
    for name, text in {**texts, "--runs-on": " ".join(options.labels or ())}.items():
        if text and not text.isprintable():
            raise UsageError(
                "{name} must be one line without control characters, found {text!r}",
                name=name,
                text=text,
            )
    python = options.python or ""
    if python[:1].isdigit() and not PYTHON_VERSION.fullmatch(python):
        raise UsageError(
            "--python must be a version such as 3.11, or the name or path of an interpreter, found {python!r}",
            python=python,
        )


def _wanted_forge(options: InitOptions, origin: str) -> tuple[Forge | None, str]:
    """The forge to write CI files for; if there is an origin but no such forge, the
    reason.
    """
    if options.local:
        return None, ""
    if options.forge or options.ci_only:
        return options.forge or _forge_of(origin), ""
    if not origin:
        return None, ""
    try:
        forge = _forge_of(origin)
        revision = _revision(forge, options, origin)
        if revision and forge and forge in _CI_FILES:
            _called(forge, revision, origin)
    except UsageError as error:
        return None, str(error)
    return forge, ""


def _forge_of(origin: str) -> Forge:
    if not origin:
        raise UsageError(
            "the repository has no remote `origin` with a known forge; name it with {choices}",
            choices=CHOICES,
        )
    host = _host(origin)
    for word, forge in _HOSTS.items():
        if word in host:
            return forge
    raise UsageError(
        "the forge of the remote `origin` ({host}) is unknown; name it with {choices}",
        host=host or "a path",
        choices=CHOICES,
    )


def _host(origin: str) -> str:
    host, _ = address(origin) or ("", "")
    return host


def _revision(forge: Forge, options: InitOptions, origin: str) -> Revision | None:
    """The commit of perfgate that CI runs; None if CI needs only a package and the user
    named one.
    """
    if options.action:
        return named_revision(options.action, _host(origin) or _USUAL_HOST[forge])
    if options.package and forge not in _CI_FILES:
        return None
    return installed_revision()


def _called(forge: Forge, revision: Revision, origin: str) -> CalledFiles:
    host = _host(origin) or _USUAL_HOST[forge]
    if revision.host == host:
        return CalledFiles(revision.path, revision.commit)
    if forge == "gitlab" and (
        template := revision.file_address("templates/perfgate.yml")
    ):
        return CalledFiles(revision.path, revision.commit, template)
    raise UsageError(
        "perfgate was installed from {host}, whose files {server} does not call, so {remedy}",
        host=revision.host,
        server=host,
        remedy=remedy(),
    )


def _starter_variables(
    repository: Repository,
    forge: Forge | None,
    options: InitOptions,
    revision: Revision | None,
    project: NewProject,
    name: str,
) -> StarterVariables:
    package, forges_package = options.package or "", FORGES_PACKAGE
    if revision:
        package = options.package or revision.package
        forges_package = revision.plugin(FORGES_PACKAGE)
    # The schema for editors, on the server of this perfgate; empty if none has it.
    schema = ""
    with suppress(UsageError):
        source = revision or installed_revision()
        schema = source.file_address("schemas/config.schema.json")
    main: str | None = None
    with suppress(RepositoryError):
        main = repository.main_branch().rpartition("origin/")[2]
    # Before the first commit the branch does not exist, but HEAD has its name.
    branch = (
        options.branch
        or main
        or run_git(repository.root, ["symbolic-ref", "--short", "HEAD"], {}).output
        or "main"
    )
    return StarterVariables(
        forge=forge,
        package=package,
        forges_package=forges_package,
        project=name,
        model_package=project.package or "mymodel",
        python_path=project.python_path,
        device=options.device,
        job=options.job,
        backend=TORCH_BACKENDS[options.device].collectives,
        main_branch=branch,
        main_is_found=branch == main or (main is None and branch in MAIN_NAMES),
        schema=schema,
    )


def try_workloads(folder: Path, say: Say) -> Collection[str]:
    """Load, call and check the workloads in the project's perfgate.toml, as every
    measurement does first.

    Returns the distributions that they loaded files from. Raises SetUpError if a
    workload fails, MeasuringError if this machine cannot measure.
    """
    config = load_config(folder)
    checkout = Checkout(folder.resolve(), harness=folder.resolve())
    with (
        tempfile.TemporaryDirectory(prefix="perfgate-init-") as logs,
        open_bench(config, logs=Path(logs), say=say) as bench,
    ):
        bench.testbed()
        return preflight(bench, checkout, config.references, packages=True)


def _refuse_existing(root: Path, files: Iterable[str], below: str) -> None:
    existing = [name for name in files if os.path.lexists(root / name)]
    if not existing:
        return
    remedy = Activity("move them away, or write them by hand")
    if str(Path(below) / CONFIG_NAME) in existing:
        remedy = Activity(
            "move them away, or write them by hand; --ci-only writes the CI files alone"
        )
    raise UsageError(
        "nothing was written, because {existing} would be overwritten; {remedy}",
        existing=", ".join(existing),
        remedy=remedy,
    )
