"""``perfgate init``: what a repository needs for its first verdict, by what it and the command line say."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Optional

from perfgate.conductor.repository import Repository
from perfgate.config import CONFIG_NAME
from perfgate.errors import RepositoryError, UsageError
from perfgate.flows.clone import checked_out
from perfgate.flows.pin import TAG, Pin, ask_for_pin, given_pin
from perfgate.flows.starter import render_starter, write_all
from perfgate.git import run_git
from perfgate.version import __version__

Forge = Literal["github", "gitlab", "gitee", "gitcode", "gitea"]

SOURCE = "https://github.com/perfgate/perfgate"
# Where one file of a commit can be read without an account; a mirror is included as a project of the same server.
RAW = "https://raw.githubusercontent.com/perfgate/perfgate"
WORKLOAD = "perf/workload.py"
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
    "github": "github", "gitlab": "gitlab", "gitee": "gitee", "gitcode": "gitcode", "atomgit": "gitcode", "gitea": "gitea",
    "forgejo": "gitea", "codeberg": "gitea",
}  # fmt: skip
# A URL with a scheme, or git's short form for ssh: `git@host:path`.
_ORIGIN = re.compile(r"(?:[a-z+]+://)?(?:[^@/]*@)?(?P<host>[^:/]+)")
# The label of a runner with the device. A CPU is measured on one of the forge's own, so that no machine has to be
# registered for the first verdict.
_LABELS: Mapping[str, str] = {"npu": "npu", "cuda": "gpu"}
# Where a project has no requirements. Some indexes hold a build with gigabytes of CUDA: a project that minds names another.
TORCH = "python -m pip install torch"


@dataclass(frozen=True)
class InitOptions:
    """What ``perfgate init`` was asked for; None is what the repository says, or the default.

    ``mirror`` is where perfgate's own repository lies on the user's server, as ``OWNER/REPO``; ``source`` is asked for the
    commit of the release, unless ``pin`` names it.
    """

    forge: Optional[Forge] = None
    device: str = "cpu"
    labels: Optional[Sequence[str]] = None
    python: Optional[str] = None
    setup: Optional[str] = None
    branch: Optional[str] = None
    mirror: Optional[str] = None
    source: Optional[str] = None
    pin: Optional[str] = None
    ci_only: bool = False


@dataclass(frozen=True)
class Started:
    """What was written, relative to the repository, and what is left to add by hand to files that are the user's.

    ``root`` is the repository's folder; ``is_empty`` says that it has no commit yet to compare with.
    """

    forge: Forge
    root: Path
    is_empty: bool
    files: Sequence[str]
    lines: str
    pin: Optional[Pin]


def start_project(folder: Path, options: InitOptions) -> Started:
    """Write the files into the repository that ``folder`` lies in, all of them or none.

    Raises UsageError where one of them exists, RepositoryError outside a git repository.
    """
    _refuse_strange(options)
    repository = Repository(folder)
    origin = _origin(repository.root)
    forge = options.forge or _forge_of(origin)
    below = repository.prefix(folder)
    templates = _templates(below, forge, options)
    # A pipeline of the user's own is theirs to change.
    added = templates.pop(GITLAB_FILE, "") if (repository.root / GITLAB_FILE).exists() else _PRINTED.get(forge, "")
    _refuse_existing(repository.root, templates, below)
    pin = _pin(options, origin, repository.root) if forge in _CI_FILES else None
    project = (not below and _name_in(origin)) or folder.resolve().name
    values = _values(repository, folder, forge, options, pin, project=project)
    lines = render_starter(added, values) if added else ""
    write_all(repository.root, {file: render_starter(template, values) for file, template in templates.items()})
    return Started(forge, repository.root, checked_out(repository.root) is None, list(templates), lines, pin)


def _templates(below: str, forge: Forge, options: InitOptions) -> dict[str, str]:
    """Return which template each file is made from; files are relative to the repository."""
    project = {} if options.ci_only else {CONFIG_NAME: "perfgate.toml.j2", WORKLOAD: "workload.py"}
    return {**{str(Path(below) / name): template for name, template in project.items()}, **_CI_FILES.get(forge, {})}


def _refuse_strange(options: InitOptions) -> None:
    if options.mirror and not re.fullmatch(r"[\w.-]+(/[\w.-]+)+", options.mirror):
        raise UsageError(f"--mirror must read OWNER/REPO, found {options.mirror!r}")
    texts = {"--setup": options.setup, "--python": options.python, "--branch": options.branch}
    for name, text in {**texts, "--runs-on": " ".join(options.labels or ())}.items():
        if text and not text.isprintable():
            raise UsageError(f"{name} must be one line without control characters, found {text!r}")


def _origin(root: Path) -> str:
    return run_git(root, ["remote", "get-url", "origin"], {}).output


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
    found = _ORIGIN.match(origin)
    return found["host"].lower() if found and not origin.startswith(("/", ".", "file:")) else ""


def _name_in(origin: str) -> str:
    return re.split(r"[/:]", origin.rstrip("/"))[-1].removesuffix(".git")


def _pin(options: InitOptions, origin: str, root: Path) -> Pin:
    if options.pin:
        return given_pin(options.pin)
    if options.source is None and options.mirror:
        host = _host(origin)
        if not host:
            return Pin(because="the remote `origin` does not name a server with the mirror; give its URL with --source")
        return ask_for_pin(f"https://{host}/{options.mirror}", root)
    return ask_for_pin(options.source or SOURCE, root)


def _values(
    repository: Repository, folder: Path, forge: Forge, options: InitOptions, pin: Optional[Pin], *, project: str
) -> dict[str, object]:
    """Return what the templates may name. ``inputs`` are those of the reusable workflow or template that differ."""
    branch, is_found = _main_branch(repository, options.branch)
    return {
        "forge": forge,
        "version": __version__,
        "project": project,
        "device": options.device,
        "main_branch": branch,
        "main_is_found": is_found,
        "mirror": options.mirror,
        "raw": RAW,
        "action": options.mirror or "perfgate/perfgate",
        "pin": pin,
        "tag": TAG,
        "inputs": _inputs(repository.prefix(folder), folder, forge, options),
    }


def _inputs(below: str, folder: Path, forge: Forge, options: InitOptions) -> dict[str, object]:
    """Return the inputs of the reusable workflow or template that differ from their defaults."""
    labels = list(options.labels or ())
    if not labels and options.device in _LABELS:
        labels = [*(["self-hosted"] if forge == "github" else []), _LABELS[options.device]]
    setup, python = options.setup or "", options.python or ""
    if not labels:
        # A runner of the forge's own is new in every job: it has no torch, and on GitHub a Python that takes no packages.
        setup = setup or _installation(below, folder)
        python = python or "3.11"
    version = python if re.fullmatch(r"3\.\d+", python) else ""
    inputs: dict[str, object] = {"directory": below}
    if forge == "gitlab":
        image = f"python:{version}" if version else ""
        inputs.update({"tags": labels, "image": image, "setup": [setup] if setup else []})
    else:
        inputs.update({"runs-on": json.dumps(labels or "ubuntu-latest"), "python-version": version, "setup": setup})
    inputs["python"] = "" if version else python
    return {name: value for name, value in inputs.items() if value}


def _installation(below: str, folder: Path) -> str:
    if (folder / "requirements.txt").is_file():
        return f"python -m pip install -r {shlex.quote(str(Path(below) / 'requirements.txt'))}"
    return TORCH


def _main_branch(repository: Repository, given: Optional[str]) -> tuple[str, bool]:
    """Return the main branch, and whether perfgate finds it without being told."""
    try:
        found: Optional[str] = repository.main_branch().rpartition("origin/")[2]
    except RepositoryError:
        found = None
    # Before the first commit there is no branch, but HEAD has its name.
    name = given or found or run_git(repository.root, ["symbolic-ref", "--short", "HEAD"], {}).output or "main"
    return name, name == found or (found is None and name in ("main", "master"))


def _refuse_existing(root: Path, files: Iterable[str], below: str) -> None:
    existing = [name for name in files if os.path.lexists(root / name)]
    if not existing:
        return
    remedy = "move them away, or write them by hand"
    if str(Path(below) / CONFIG_NAME) in existing:
        remedy += "; --ci-only writes the CI files alone"
    raise UsageError(f"nothing was written, because {', '.join(existing)} would be overwritten; {remedy}")
