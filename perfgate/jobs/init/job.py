"""``perfgate init``: what a repository needs for its first verdict, by what it and the command line say."""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined

from perfgate.conductor.workers.bench import Checkout, open_bench
from perfgate.conductor.workers.worker import Say
from perfgate.config import CONFIG_NAME, load_config
from perfgate.errors import RepositoryError, UsageError
from perfgate.git.commands import run_git
from perfgate.git.repository import MAIN_NAMES, Repository, checked_out
from perfgate.jobs.init.installed import REMEDY, Revision, address, installed_revision, named_revision
from perfgate.jobs.init.project import Project, pinned_installation, read_project
from perfgate.jobs.shared.preflight import preflight

Forge = Literal["github", "gitlab", "gitee", "gitcode", "gitea"]

WORKLOAD = "perf/workload.py"
# What is measured, by the kind of job: the file, and the template that it is made from.
_MEASURED = {
    None: (WORKLOAD, "workload.py.j2"),
    "command": ("perf/bench.py", "bench.py.j2"),
    "ranks": ("perf/train.py", "train.py.j2"),
    "server": ("perf/serve.py", "serve.py.j2"),
}
# What ranks talk to each other by.
_BACKENDS = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}
GITLAB_FILE = ".gitlab-ci.yml"
_CI_FILES: Mapping[Forge, Mapping[str, str]] = {
    "github": {
        ".github/workflows/perfgate.yml": "github-gate.yml.j2",
        ".github/workflows/perfgate-trusted.yml": "github-trusted.yml.j2",
    },
    "gitlab": {GITLAB_FILE: "gitlab-ci.yml.j2"},
}
# Where there is no CI file to write, the lines of the jobs are shown.
_PRINTED: Mapping[Forge, str] = dict.fromkeys(("gitee", "gitcode", "gitea"), "other-forge.sh.j2")
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
# Of a repository that has no origin yet.
_USUAL_HOST: Mapping[Forge, str] = {
    "github": "github.com",
    "gitlab": "gitlab.com",
    "gitee": "gitee.com",
    "gitcode": "gitcode.com",
    "gitea": "codeberg.org",
}
# The label of a runner with the device. A CPU is measured on one of the forge's own, so that no machine has to be
# registered for the first verdict.
_LABELS: Mapping[str, str] = {"npu": "npu", "cuda": "gpu"}
# What a container must see of the machine: the device files and the driver (docs/runner.md).
_CONTAINERS: Mapping[str, Mapping[str, object]] = {
    "cpu": {},
    "cuda": {"options": "--gpus all"},
    "npu": {
        "options": "--device /dev/davinci0 --device /dev/davinci_manager --device /dev/devmm_svm --device /dev/hisi_hdc",
        "volumes": [
            "/usr/local/dcmi:/usr/local/dcmi",
            "/usr/local/bin/npu-smi:/usr/local/bin/npu-smi",
            "/usr/local/Ascend/driver:/usr/local/Ascend/driver",
            "/etc/ascend_install.info:/etc/ascend_install.info",
        ],
    },
}
# What the reusable workflow or template is called with.
Inputs = dict[str, str | list[str]]
# What the templates may name.
Values = dict[str, str | bool | list[str] | Inputs | None]


@dataclass(frozen=True)
class InitOptions:
    """What ``perfgate init`` was asked for; None is what the repository says, or the default.

    ``action`` is the commit of perfgate that CI runs, as ``OWNER/REPO@COMMIT`` on the project's server, and ``package`` what
    pip installs there; without them it is what this perfgate was installed from. ``image`` is a container to measure in.
    ``job`` is what is gated instead of a function.
    """

    forge: Forge | None = None
    device: str = "cpu"
    labels: Sequence[str] | None = None
    python: str | None = None
    setup: str | None = None
    branch: str | None = None
    image: str | None = None
    action: str | None = None
    package: str | None = None
    job: Literal["command", "ranks", "server"] | None = None
    ci_only: bool = False


@dataclass(frozen=True)
class Started:
    """What was written, relative to the repository, and what is left to add by hand to files that are the user's.

    ``root`` is the repository's folder; ``is_empty`` says that it has no commit yet to compare with. ``forge`` is None in a
    repository without one, which gets no CI file.
    """

    forge: Forge | None
    root: Path
    is_empty: bool
    files: Sequence[str]
    lines: str


def start_project(folder: Path, options: InitOptions) -> Started:
    """Write the files into the repository that ``folder`` lies in, all of them or none.

    Raises UsageError where one of them exists, RepositoryError outside a git repository.
    """
    _refuse_odd_values(options)
    repository = Repository(folder)
    origin = run_git(repository.root, ["remote", "get-url", "origin"], {}).output
    forge = options.forge or (_forge_of(origin) if origin or options.ci_only else None)
    below = repository.prefix(folder)
    measured, template = _MEASURED[options.job]
    project_files = {} if options.ci_only else {CONFIG_NAME: "perfgate.toml.j2", measured: template}
    templates = {str(Path(below) / name): template for name, template in project_files.items()}
    added = ""
    if forge:
        templates.update(_CI_FILES.get(forge, {}))
        # A pipeline of the user's own is theirs to change.
        added = templates.pop(GITLAB_FILE, "") if (repository.root / GITLAB_FILE).exists() else _PRINTED.get(forge, "")
    _refuse_existing(repository.root, templates, below)
    revision = _revision(forge, options, origin) if forge else None
    name_in_origin = re.split(r"[/:]", origin.rstrip("/"))[-1].removesuffix(".git")
    project = read_project(folder)
    values = _values(repository, folder, forge, options, revision, project)
    values["project"] = (not below and name_in_origin) or project.name or folder.resolve().name
    if forge and forge in _CI_FILES:
        values.update(_called(forge, revision, origin))
    lines = render_starter(added, values) if added else ""
    write_files(repository.root, {file: render_starter(template, values) for file, template in templates.items()})
    return Started(forge, repository.root, checked_out(repository.root) is None, list(templates), lines)


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
            raise UsageError(f"{name} must be one line without control characters, found {text!r}")


def _forge_of(origin: str) -> Forge:
    choices = "--github, --gitlab, --gitee, --gitcode or --gitea"
    if not origin:
        raise UsageError(f"the repository has no remote `origin` that names its forge; say which it is with {choices}")
    host = _host(origin)
    for word, forge in _HOSTS.items():
        if word in host:
            return forge
    raise UsageError(
        f"the remote `origin` ({host or 'a path'}) does not name its forge; say which it is with {choices}"
    )


def _host(origin: str) -> str:
    place = address(origin)
    return place[0] if place else ""


def _revision(forge: Forge, options: InitOptions, origin: str) -> Revision | None:
    """The commit of perfgate that CI runs; None where only a package is needed, and it is named."""
    if options.action:
        return named_revision(options.action, _host(origin) or _USUAL_HOST[forge])
    if options.package and forge not in _CI_FILES:
        return None
    return installed_revision()


def _called(forge: Forge, revision: Revision | None, origin: str) -> Values:
    if revision is None:
        return {}
    host = _host(origin) or _USUAL_HOST[forge]
    called: Values = {"action": revision.path, "commit": revision.commit, "remote": None}
    if revision.host == host:
        return called
    below = f"{revision.commit}/templates/perfgate.yml"
    if forge == "gitlab" and revision.host == "github.com":
        return {**called, "remote": f"https://raw.githubusercontent.com/{revision.path}/{below}"}
    if forge == "gitlab" and "gitlab" in revision.host:
        return {**called, "remote": f"https://{revision.host}/{revision.path}/-/raw/{below}"}
    raise UsageError(f"perfgate was installed from {revision.host}, whose files {host} does not call, so {REMEDY}")


def _values(
    repository: Repository,
    folder: Path,
    forge: Forge | None,
    options: InitOptions,
    revision: Revision | None,
    project: Project,
) -> Values:
    """What the templates may name. ``inputs`` are those of the reusable workflow or template that differ."""
    branch, is_found = _main_branch(repository, options.branch)
    package = options.package or (revision.package if revision else "")
    return {
        "forge": forge,
        "package": package,
        "project": project.name,
        "model_package": project.package or "mymodel",
        "python_path": list(project.python_path),
        "device": options.device,
        "job": options.job,
        "backend": _BACKENDS[options.device],
        "main_branch": branch,
        "main_is_found": is_found,
        "inputs": {**_inputs(repository.prefix(folder), folder, forge, options, project), "package": package}
        if forge
        else {},
    }


def _inputs(below: str, folder: Path, forge: Forge, options: InitOptions, project: Project) -> Inputs:
    labels = list(options.labels or ())
    if not labels and options.device in _LABELS:
        labels = [*(["self-hosted"] if forge == "github" else []), _LABELS[options.device]]
    setup, python = options.setup or "", options.python or ""
    if not labels:
        # A runner of the forge's own is new in every job: it has no torch, and on GitHub a Python that takes no packages.
        setup = setup or pinned_installation(folder, below, project)
        python = python or project.python
    version = python if re.fullmatch(r"3\.\d+", python) else ""
    inputs: Inputs = {"directory": below}
    if forge == "gitlab":
        image = options.image or (f"python:{version}" if version else "")
        inputs.update({"tags": labels, "image": image, "setup": [setup] if setup else []})
    else:
        more = _CONTAINERS[options.device]
        container = json.dumps({"image": options.image, **more} if more else options.image) if options.image else ""
        inputs.update({"runs-on": json.dumps(labels or "ubuntu-latest"), "container": container})
        inputs.update({"python-version": version, "setup": setup})
    inputs["python"] = "" if version else python
    inputs["fail-on"] = "never"
    return {name: value for name, value in inputs.items() if value}


def try_workloads(folder: Path, say: Say) -> None:
    """Load, call and check what the project's perfgate.toml names, as every measuring does first.

    Raises SetUpError where that fails, MeasuringError where this machine cannot measure.
    """
    config = load_config(folder)
    checkout = Checkout(folder.resolve(), harness=folder.resolve())
    with (
        tempfile.TemporaryDirectory(prefix="perfgate-init-") as logs,
        open_bench(config, logs=Path(logs), say=say) as bench,
    ):
        bench.testbed()
        preflight(bench, checkout, config.workloads)


def _main_branch(repository: Repository, branch: str | None) -> tuple[str, bool]:
    try:
        main: str | None = repository.main_branch().rpartition("origin/")[2]
    except RepositoryError:
        main = None
    # Before the first commit there is no branch, but HEAD has its name.
    name = branch or main or run_git(repository.root, ["symbolic-ref", "--short", "HEAD"], {}).output or "main"
    return name, name == main or (main is None and name in MAIN_NAMES)


def _refuse_existing(root: Path, files: Iterable[str], below: str) -> None:
    existing = [name for name in files if os.path.lexists(root / name)]
    if not existing:
        return
    remedy = "move them away, or write them by hand"
    if str(Path(below) / CONFIG_NAME) in existing:
        remedy += "; --ci-only writes the CI files alone"
    raise UsageError(f"nothing was written, because {', '.join(existing)} would be overwritten; {remedy}")


def render_starter(template: str, values: Mapping[str, object]) -> str:
    """The text of a file; the filters ``toml``, ``yaml`` and ``shell`` quote a value for where it stands."""
    environment = Environment(
        loader=PackageLoader("perfgate", "starter"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - TOML, YAML and shell; the filters below quote for each
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["shell"] = shlex.quote
    environment.filters["toml"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.filters["yaml"] = _yaml
    return environment.get_template(template).render(values)


def _yaml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_yaml(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_yaml(entry) for entry in value) + "]"
    return "'" + str(value).replace("'", "''") + "'"


def write_files(root: Path, files: Mapping[str, str]) -> None:
    """Write every file, or take away again what was written. Raises UsageError where one cannot be."""
    created: list[Path] = []
    try:
        for name, text in files.items():
            path = root / name
            missing = [folder for folder in path.parents if not folder.exists()]
            for folder in reversed(missing):
                folder.mkdir()
                created.append(folder)
            with path.open("x", encoding="utf-8") as file:  # never through a link, never over a file
                created.append(path)
                file.write(text)
    except BaseException as error:
        for path in reversed(created):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        if isinstance(error, OSError):
            raise UsageError(f"{error.filename} cannot be written ({error.strerror}); nothing was kept") from error
        raise
