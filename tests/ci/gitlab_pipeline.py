"""A GitLab pipeline for real: gitlab-ci-local runs the jobs of a scratch repository, and the fake forge is its GitLab."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

from ruamel.yaml import YAML

from tests.ci.packages import ROOT, Packages
from tests.end_to_end.conftest import make_clone
from tests.fakes.forge import BOT, BOT_TOKEN, PERSON, FakeForge, StoredChange
from tests.fakes.forge_dialects import gitlab_account
from tests.fakes.forge_files import StoredArtifact

# Only a pipeline that hangs takes as long.
PIPELINE_SECONDS = 3600
# GitLab gives one to every job.
JOB_TOKEN = "glcbt-64_0123456789abcdef"
# What gitlab-ci-local fills in from the clone, and would warn of when it is given.
PREDEFINED = [
    "CI_API_V4_URL", "CI_COMMIT_BRANCH", "CI_COMMIT_MESSAGE", "CI_COMMIT_REF_NAME", "CI_COMMIT_SHA", "CI_DEFAULT_BRANCH",
    "CI_JOB_TOKEN", "CI_JOB_URL", "CI_PIPELINE_ID", "CI_PIPELINE_SOURCE", "CI_PIPELINE_URL", "CI_PROJECT_ID", "CI_PROJECT_PATH",
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


class JobArtifacts(list[StoredArtifact]):
    """What the jobs of the newest pipeline left, as the fake GitLab serves it: each look finds what is there by then.

    gitlab-ci-local keeps their files unpacked; GitLab zips them, with their paths, under the name that the job gives.
    """

    def __init__(self, project: Project) -> None:
        super().__init__()
        self._project = project
        jobs = YAML(typ="safe").load(project.preview())
        named = {name: job for name, job in jobs.items() if isinstance(job, dict) and not name.startswith(".")}
        self._names = {
            name: job["artifacts"].get("name", "artifacts") for name, job in named.items() if "artifacts" in job
        }

    def __iter__(self) -> Iterator[StoredArtifact]:
        for number, (job, name) in enumerate(self._names.items(), 1):
            folder = self._project.root / ".gitlab-ci-local" / "artifacts" / job
            if folder.is_dir():
                yield StoredArtifact(number, self._project.last, name, _zipped(folder))


def _zipped(folder: Path) -> bytes:
    data = BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return data.getvalue()


class Project:
    """A project on the fake GitLab: the small model on main, and the template included with its inputs.

    ``url`` is where its clients find the API; ``packages`` is what its jobs install from.
    """

    def __init__(self, folder: Path, forge: FakeForge, url: str, packages: Packages) -> None:
        self.folder, self.forge, self.url, self.packages = folder, forge, url, packages
        self.clone = make_clone(folder / "clone")
        self.root = self.clone.root
        # As the template asks for it: one variable, and an environment scope for each of its values.
        self.tokens = {"perfgate-publish": BOT_TOKEN, "perfgate-main": BOT_TOKEN}
        self._pipelines = 800

    def start(
        self,
        *,
        settings: str = "",
        own: dict[str, object] | None = None,
        testbeds: Sequence[dict[str, object]] = ({},),
        **inputs: object,
    ) -> None:
        """Commit main with the template, and push it to the forge's repository.

        ``settings`` are further ones of perfgate.toml, ``own`` is the project's own part of .gitlab-ci.yml. The template is
        included once for each of the ``testbeds``, with their inputs besides those of all.
        """
        self.clone.git("checkout", "-q", "main")
        shutil.copytree(ROOT / "templates", self.root / "templates")
        (self.root / ".gitignore").write_text(IGNORED)
        self.configure(own or {}, testbeds, **inputs)
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

    def configure(self, own: dict[str, object], testbeds: Sequence[dict[str, object]], **inputs: object) -> None:
        """Write .gitlab-ci.yml."""
        given = {
            "tags": ["npu"], "publish-tags": ["docker"], "python": sys.executable, "package": "perfgate", **inputs,
        }  # fmt: skip
        includes = [{"local": "templates/perfgate.yml", "inputs": {**given, **testbed}} for testbed in testbeds]
        (self.root / ".gitlab-ci.yml").write_text(json.dumps({"include": includes, **own}))

    def preview(self) -> str:
        """Return .gitlab-ci.yml with everything it includes."""
        command = ["gitlab-ci-local", "--preview"]
        done = subprocess.run(
            command, cwd=self.root, env=self._environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def last(self) -> int:
        """Return the number of the last pipeline."""
        return self._pipelines

    @property
    def base(self) -> str:
        """Return the commit of main."""
        return self.clone.git("rev-parse", "main")

    def change(self, message: str, *, after: str = "main", **changes: tuple[str, str]) -> str:
        """Commit to a feature branch from main, or after another commit, as the new head of merge request 7."""
        self.clone.git("checkout", "-q", "-B", "feature", after)
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

    def retry(self, head: str) -> Pipeline:
        """Run the last pipeline of merge request 7 once more, as a person who retries its jobs does."""
        self._pipelines -= 1
        return self.merge_request(head)

    def default_branch(self, source: str, **variables: str) -> Pipeline:
        """Run a pipeline of main."""
        self.clone.git("checkout", "-q", "main")
        known = {"CI_PIPELINE_SOURCE": source, "CI_COMMIT_BRANCH": "main", "CI_COMMIT_SHA": self.base}
        return self._run({**known, **variables})

    def note(self, author: str, body: str) -> Pipeline:
        """Write a note on merge request 7, and run the pipeline that its webhook triggers."""
        note = self.forge.write(7, body, gitlab_account(author))
        payload = {
            "object_kind": "note",
            "merge_request": {"iid": 7},
            "object_attributes": {"id": note.id, "note": body},
        }
        path = self.folder / "TRIGGER_PAYLOAD"
        path.write_text(json.dumps(payload))
        return self.default_branch("trigger", TRIGGER_PAYLOAD=str(path))

    def started(self) -> Pipeline:
        """Run the pipeline of the feature branch that was started last by the API."""
        pipeline = self.forge.pipelines[-1]
        self.clone.git("checkout", "-q", "feature")
        known = {"CI_PIPELINE_SOURCE": "api", "CI_COMMIT_BRANCH": "feature", "CI_COMMIT_SHA": pipeline.sha}
        return self._run({**known, **pipeline.variables})

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
            # As if a pipeline's jobs all had its number.
            "CI_JOB_URL": f"{server}/team/model/-/jobs/{number}",
            "CI_PIPELINE_ID": str(number),
            "CI_PIPELINE_URL": f"{server}/team/model/-/pipelines/{number}",
            **variables,
        }
        secrets = {"PERFGATE_TOKEN": {"values": self.tokens}} if self.tokens else {}
        (self.root / ".gitlab-ci-local-variables.yml").write_text(json.dumps(secrets))
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
        kept = {name: os.environ[name] for name in ("LANG", "LD_LIBRARY_PATH") if name in os.environ}
        return {
            **kept,
            **self.packages.environ(os.environ["PATH"]),
            "HOME": str(self.folder),
            "PERFGATE_LOCK": str(self.folder / "lock"),
        }

    def linked(self, note: str) -> dict[str, bytes]:
        """Return the files of the publishing job's folder that a note links."""
        page = f"{self.forge.url}/team/model/-/jobs/{self.last}/artifacts/browse/"
        (folder,) = re.findall(rf"\({re.escape(page)}([\w-]+)\)", note)
        kept = self.root / ".gitlab-ci-local" / "artifacts" / "perfgate-publish" / folder
        return {path.name: path.read_bytes() for path in kept.iterdir()}

    def opened(self, note: str) -> dict[str, bytes]:
        """Follow every link of a note to a file of a job: what stands there, by the link's text."""
        page = re.escape(f"{self.forge.url}/team/model/-/jobs/")
        kept = self.root / ".gitlab-ci-local" / "artifacts"
        found = {}
        for text, path in re.findall(rf"\[`([^]]+)`\]\({page}\d+/artifacts/file/([^)]+)\)", note):
            (file,) = kept.glob(f"*/{path}")
            found[text] = file.read_bytes()
        return found

    def notes(self) -> list[str]:
        """Return what our account wrote on merge request 7."""
        return [comment.body for comment in self.forge.comments.get(7, []) if comment.author == BOT]

    def statuses(self) -> list[tuple[str, str]]:
        """Return the commits that were marked, and as what."""
        return [(status.sha, status.state) for status in self.forge.statuses]
