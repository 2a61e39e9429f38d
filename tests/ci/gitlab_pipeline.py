"""A GitLab pipeline for real: gitlab-ci-local runs the jobs of a scratch repository, and the fake forge is its GitLab."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Optional

from tests.end_to_end.conftest import Clone
from tests.fakes.forge import BOT, BOT_TOKEN, PERSON, FakeForge, StoredChange

ROOT = Path(__file__).resolve().parents[2]
PIPELINE_SECONDS = 600
# GitLab gives one to every job.
JOB_TOKEN = "glcbt-64_0123456789abcdef"
# What gitlab-ci-local fills in from the clone, and would warn of when it is given.
PREDEFINED = [
    "CI_API_V4_URL", "CI_COMMIT_BRANCH", "CI_COMMIT_MESSAGE", "CI_COMMIT_REF_NAME", "CI_COMMIT_SHA", "CI_DEFAULT_BRANCH",
    "CI_JOB_TOKEN", "CI_PIPELINE_ID", "CI_PIPELINE_SOURCE", "CI_PIPELINE_URL", "CI_PROJECT_ID", "CI_PROJECT_PATH",
    "CI_REPOSITORY_URL", "CI_SERVER_URL", "GITLAB_CI",
]  # fmt: skip
IGNORED = ".gitlab-ci-local*\n__pycache__/\nperfgate-out/\nperfgate-trend/\n"


class Pipeline:
    """What gitlab-ci-local made of a pipeline: its log, and how every job ended."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.log = done.stdout + done.stderr
        ended = re.findall(r"^(\S+) +finished in .*?(?:FAIL (\d+) *)?$", self.log, flags=re.MULTILINE)
        self.jobs = {name: int(code or 0) for name, code in ended if name != "pipeline"}

    def of(self, job: str) -> str:
        """Return what one job said."""
        return "\n".join(line for line in self.log.splitlines() if line.startswith(job + " "))


class Project:
    """A project on the fake GitLab: the small model on main, and the template included with its inputs.

    ``url`` is where its clients find the API; ``wheels`` is what the trusted jobs install from.
    """

    def __init__(self, folder: Path, forge: FakeForge, url: str, wheels: Path) -> None:
        self.folder, self.forge, self.url, self.wheels = folder, forge, url, wheels
        self.clone = Clone(folder / "clone")
        self.root = self.clone.root
        self._pipelines = 800

    def start(self, *, settings: str = "", default: Optional[dict[str, object]] = None, **inputs: object) -> None:
        """Commit main with the template, and push it to the forge's repository.

        ``settings`` are further ones of perfgate.toml, ``default`` is the project's own part of .gitlab-ci.yml.
        """
        self.clone.git("checkout", "-q", "main")
        shutil.copytree(ROOT / "templates", self.root / "templates")
        (self.root / ".gitignore").write_text(IGNORED)
        self.configure(default=default, **inputs)
        config = self.root / "perfgate.toml"
        config.write_text(config.read_text() + '[store]\npath = "branch://perfgate-data"\n' + settings)
        self.clone.commit("perfgate in the pipeline")
        server = self.folder / "server.git"
        self.clone.git("clone", "--quiet", "--bare", ".", str(server))
        for setting in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant", "http.receivepack"):
            self.clone.git("-C", str(server), "config", setting, "true")
        self.clone.git("remote", "add", "origin", str(server))
        self.clone.git("fetch", "-q", "origin")
        self.clone.git("remote", "set-head", "origin", "main")
        self.forge.repository = server
        # It clones; what it may not do is this fake's matter in the dialects, where nothing is written with it.
        self.forge.accounts[JOB_TOKEN] = PERSON

    def configure(self, *, default: Optional[dict[str, object]] = None, **inputs: object) -> None:
        """Write .gitlab-ci.yml."""
        given = {"tags": ["npu"], "publish-tags": ["docker"], "python": sys.executable, **inputs}
        include = {"local": "templates/perfgate.yml", "inputs": given}
        whole = {"include": [include], **({"default": default} if default else {})}
        (self.root / ".gitlab-ci.yml").write_text(json.dumps(whole))

    @property
    def base(self) -> str:
        """Return the commit of main."""
        return self.clone.git("rev-parse", "main")

    def change(self, message: str, **changes: tuple[str, str]) -> str:
        """Commit to a feature branch from main, as the new head of merge request 7."""
        self.clone.git("checkout", "-q", "-B", "feature", "main")
        head = self.clone.commit(message, **changes)
        self.clone.git("push", "-q", "--force", "origin", "feature")
        self.forge.changes[:] = [StoredChange(7, "team", "feature", head, base_sha=self.base)]
        return head

    def merge_request(self, head: str, **variables: str) -> Pipeline:
        """Run a pipeline of merge request 7 on the commit that is checked out, named as GitLab names it."""
        known = {
            "CI_PIPELINE_SOURCE": "merge_request_event",
            "CI_MERGE_REQUEST_EVENT_TYPE": "detached",
            "CI_MERGE_REQUEST_IID": "7",
            "CI_MERGE_REQUEST_ID": "377",
            "CI_MERGE_REQUEST_PROJECT_ID": "5",
            "CI_MERGE_REQUEST_PROJECT_PATH": "team/model",
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": self.base,
            "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": "",
            "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": "",
            "CI_COMMIT_SHA": head,
        }
        return self._run({**known, **variables})

    def default_branch(self, source: str) -> Pipeline:
        """Run a pipeline of main."""
        self.clone.git("checkout", "-q", "main")
        return self._run({"CI_PIPELINE_SOURCE": source, "CI_COMMIT_BRANCH": "main", "CI_COMMIT_SHA": self.base})

    def _run(self, variables: dict[str, str]) -> Pipeline:
        self._pipelines += 1
        server, number = self.forge.url, self._pipelines
        known = {
            "GITLAB_CI": "true",
            "CI_SERVER_URL": server,
            "CI_API_V4_URL": self.url,
            "CI_PROJECT_ID": "5",
            "CI_PROJECT_PATH": "team/model",
            "CI_DEFAULT_BRANCH": "main",
            "CI_JOB_TOKEN": JOB_TOKEN,
            "CI_REPOSITORY_URL": f"{server.replace('//', f'//gitlab-ci-token:{JOB_TOKEN}@')}/team/model.git",
            "CI_PIPELINE_ID": str(number),
            "CI_PIPELINE_URL": f"{server}/team/model/-/pipelines/{number}",
            **variables,
        }
        # As the template asks for it: one variable, and an environment scope for each of its values.
        scopes = {"perfgate-publish": BOT_TOKEN, "perfgate-main": BOT_TOKEN}
        (self.root / ".gitlab-ci-local-variables.yml").write_text(json.dumps({"PERFGATE_TOKEN": {"values": scopes}}))
        given = [part for name, value in known.items() for part in ("--variable", f"{name}={value}")]
        command = ["gitlab-ci-local", "--force-shell-executor", "--shell-isolation", "--no-color"]
        command += ["--ignore-predefined-vars", ",".join(PREDEFINED), *given]
        done = subprocess.run(
            command,
            cwd=self.root,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=PIPELINE_SECONDS,
            check=False,
        )
        (self.folder / f"pipeline-{number}.log").write_text(done.stdout + done.stderr)
        return Pipeline(done)

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.folder),
            "PERFGATE_LOCK": str(self.folder / "lock"),
            # The trusted jobs install the package of this checkout, without any index.
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_NO_COMPILE": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }

    def notes(self) -> list[str]:
        """Return what our account wrote on merge request 7."""
        return [comment.body for comment in self.forge.comments.get(7, []) if comment.author == BOT]

    def statuses(self) -> list[tuple[str, str]]:
        """Return the commits that were marked, and as what."""
        return [(status.sha, status.state) for status in self.forge.statuses]


def build_wheels(folder: Path) -> Path:
    """Build the package of this checkout, with all that it needs, into a folder."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder
