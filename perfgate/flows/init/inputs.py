"""The inputs that the CI files pass to perfgate's reusable workflow or template,
without those equal to its defaults.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perfgate.flows.init.lock import LOCK
from perfgate.flows.init.project import NewProject
from perfgate.flows.init.uv import PYTHON_VERSION
from perfgate.git.commands import run_git
from perfgate.git.repository import Repository

Forge = Literal["github", "gitlab", "gitee", "gitcode", "gitea"]
# Inputs of the reusable workflow or template.
Inputs = dict[str, str | bool | list[str]]
# Label of a runner with the device. CPU workloads run on the forge's hosted runners, so
# that the first verdict needs no registered machine.
_LABELS: Mapping[str, str] = {"npu": "npu", "cuda": "gpu"}
# Device files and driver folders of the machine that a container needs
# (docs/runner.md).
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


@dataclass(frozen=True)
class InitOptions:
    """The options of ``perfgate init``; None means the repository's value, or the
    default.

    ``action`` is the commit of perfgate that CI runs, as ``OWNER/REPO@COMMIT`` on the
    project's server, and ``package`` is the requirement that pip installs there; both
    default to the source that this perfgate was installed from. ``labels`` select the
    measuring runner, ``publish_labels`` the posting one. ``image`` is a container to
    measure in. ``job`` is the kind of job to gate instead of a function. ``local``
    writes no CI files.
    """

    forge: Forge | None = None
    device: str = "cpu"
    labels: Sequence[str] | None = None
    publish_labels: Sequence[str] | None = None
    python: str | None = None
    setup: str | None = None
    branch: str | None = None
    image: str | None = None
    action: str | None = None
    package: str | None = None
    job: Literal["command", "ranks", "server"] | None = None
    ci_only: bool = False
    local: bool = False


def needs_lock(options: InitOptions) -> bool:
    """Whether CI has to install the project's dependencies.

    A hosted runner is fresh in every job: it has no torch, and on GitHub its system
    Python does not accept packages.
    """
    return not options.setup and not _labels(options)


def python_of(options: InitOptions, project: NewProject) -> str:
    """The version of Python that CI runs, or the path of an interpreter; empty if the
    machine provides its own.
    """
    return options.python or ("" if _labels(options) else project.python)


def inputs_of(
    repository: Repository,
    folder: Path,
    forge: Forge,
    options: InitOptions,
    project: NewProject,
) -> Inputs:
    """The inputs by name, without those equal to their defaults and without
    ``package``.
    """
    below, labels = repository.prefix(folder), _labels(options, forge)
    setup, python = options.setup or "", python_of(options, project)
    if not setup and needs_lock(options):
        # If one package of the lock file has hashes, pip requires them for all.
        setup = shlex.join(
            ["python", "-m", "pip", "install", "-r", str(Path(below) / LOCK)]
        )
    version = python if PYTHON_VERSION.fullmatch(python) else ""
    publishing = list(options.publish_labels or ())
    inputs: Inputs = {"directory": below}
    if forge == "gitlab":
        inputs["tags"] = labels
        inputs["publish-tags"] = publishing
        inputs["image"] = options.image or ""
        if version and not options.image:
            inputs["image"] = f"python:{version}"
        inputs["setup"] = list(filter(None, [setup]))
    else:
        search = [
            "grep",
            "--quiet",
            "--fixed-strings",
            "filter=lfs",
            "--",
            ":(glob)**/.gitattributes",
        ]
        inputs["runs-on"] = json.dumps(labels or "ubuntu-latest")
        inputs["container"] = ""
        if options.image:
            # The image alone, or with the devices of the machine.
            inputs["container"] = json.dumps(options.image)
            if devices := _CONTAINERS[options.device]:
                container = {"image": options.image, **devices}
                inputs["container"] = json.dumps(container)
        inputs["publish-on"] = publishing and json.dumps(publishing)
        inputs["python-version"] = version
        inputs["setup"] = setup
        inputs["lfs"] = run_git(repository.root, search, {}).code == 0
    inputs["submodules"] = (
        "recursive" if (repository.root / ".gitmodules").is_file() else ""
    )
    inputs["python"] = "" if version else python
    inputs["fail-on"] = "never"
    return {name: value for name, value in inputs.items() if value}


def _labels(options: InitOptions, forge: Forge | None = None) -> list[str]:
    if options.labels or options.device not in _LABELS:
        return list(options.labels or ())
    label = _LABELS[options.device]
    if forge == "github":
        return ["self-hosted", label]
    return [label]
