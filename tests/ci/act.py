"""GitHub Actions for real: act runs our workflows in a scratch repository, and the fake forge is its GitHub."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.ci.packages import ROOT, Packages
from tests.end_to_end.conftest import make_clone
from tests.fakes.forge import BOT, BOT_TOKEN, FakeForge, StoredChange
from tests.fakes.forge_files import StoredArtifact
from tests.samples import recordings

WORKFLOWS = ROOT / ".github" / "workflows"
ACTIONS = Path(__file__).parent / "actions"
GATE, TRUSTED = "perfgate.yml", "perfgate-trusted.yml"
# Only a run that hangs takes as long.
RUN_SECONDS = 3600
LABELS = ("ubuntu-latest", "self-hosted", "npu")
IGNORED = "__pycache__/\nperfgate-out/\n"


class ArtifactFolder(list[StoredArtifact]):
    """What tests/ci/actions/upload-artifact kept, as the fake forge lists it: each look finds what is there by then.

    What the run ``unlisted`` has uploaded is there and not listed yet.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        folder.mkdir()
        self.folder = folder
        self.unlisted: int | None = None

    def __iter__(self) -> Iterator[StoredArtifact]:
        for number, path in enumerate(sorted(self.folder.iterdir(), key=lambda path: path.stat().st_mtime_ns), 1):
            run, _, name = path.stem.partition(".")
            if int(run) != self.unlisted:
                yield StoredArtifact(number, int(run), name, path.read_bytes())


class Run:
    """What act made of a run: its log, and how every job ended, named as in the workflow that was called."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.log = done.stdout + done.stderr
        ended = re.findall(r"^\[[^]]*/([\w-]+) *\].*🏁  Job (\w+)$", self.log, flags=re.MULTILINE)
        self.jobs = dict(ended)

    def of(self, job: str) -> str:
        """Return what the steps of one job printed."""
        prefix = re.compile(rf"^\[[^]]*/{job} *\]   \| ?")
        return "\n".join(prefix.sub("", line) for line in self.log.splitlines() if prefix.match(line))

    def outputs(self, job: str) -> dict[str, str]:
        """Return the verdict and the code that one job's steps put out."""
        said = re.findall(rf"^\[[^]]*/{job} *\] .*::set-output:: ([\w-]+)=(.*)$", self.log, flags=re.MULTILINE)
        return {name: value for name, value in said if name in ("verdict", "exit-code")}


class Hub:
    """A repository on the fake GitHub: the small model on main, and our workflows, called as our own files call them.

    ``url`` is where its clients find the API; ``packages`` is what its jobs install from. ``enterprise`` makes it one on a
    GitHub Enterprise Server, with the artifacts of version 3: the workflows are copies that name it, as docs/permissions.md
    says, and the API knows an artifact only when its run has ended (actions/upload-artifact, README, "v4 - What's new").
    """

    def __init__(
        self, folder: Path, forge: FakeForge, url: str, packages: Packages, *, enterprise: bool = False
    ) -> None:
        self.folder, self.forge, self.url, self.packages, self.enterprise = folder, forge, url, packages, enterprise
        self.clone = make_clone(folder / "clone")
        self.server = folder / "server.git"
        self.artifacts = ArtifactFolder(folder / "artifacts")
        self._runs = 100

    def start(self, *, own: str = "", **inputs: object) -> None:
        """Commit main with the workflows, ``own`` beside ours, and push it to the forge's repository."""
        self.clone.git("checkout", "-q", "main")
        target = self.clone.root / ".github" / "workflows"
        target.mkdir(parents=True, exist_ok=True)
        if own:
            (target / "own.yml").write_text(own)
        for name in ("gate.yml", "trusted.yml"):
            text = (WORKFLOWS / name).read_text()
            (target / name).write_text(_with_artifacts_of_version_3(text) if self.enterprise else text)
        for name in (GATE, TRUSTED):
            workflow = YAML(typ="safe").load(WORKFLOWS / name)
            (job,) = workflow["jobs"].values()
            job["with"] = {"python-version": "3.11", "package": "perfgate", **inputs}
            (target / name).write_text(json.dumps(workflow, indent=2))
        (self.clone.root / ".gitignore").write_text(IGNORED)
        config = self.clone.root / "perfgate.toml"
        config.write_text(config.read_text() + '[store]\npath = "branch://perfgate-data"\n')
        self.clone.commit("perfgate in the workflows")
        self.clone.git("clone", "--quiet", "--bare", ".", str(self.server))
        for setting in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant", "http.receivepack"):
            self.server_git("config", setting, "true")
        self.clone.git("remote", "add", "origin", str(self.server))
        self.forge.repository = self.server
        self.forge.artifacts = self.artifacts

    @property
    def main(self) -> str:
        """Return the commit of main."""
        return self.clone.git("rev-parse", "main")

    def server_git(self, *arguments: str) -> str:
        """Run git in the repository of the forge."""
        return self.clone.git("-C", str(self.server), *arguments)

    def change(
        self,
        message: str,
        *,
        owner: str = "team",
        branch: str = "changes",
        after: str = "main",
        **changes: tuple[str, str],
    ) -> str:
        """Commit after main or another commit, as the head of pull request 2, and let the forge merge it; return the head."""
        self.clone.git("checkout", "-q", "-B", "feature", after)
        head = self.clone.commit(message, **changes)
        self.clone.git("checkout", "-q", "--detach", "main")
        self.clone.git("merge", "-q", "--no-ff", "-m", f"Merge {head} into {self.main}", head)
        merge = self.clone.git("rev-parse", "HEAD")
        self.clone.git("push", "-q", "--force", "origin", f"{head}:refs/pull/2/head", f"{merge}:refs/pull/2/merge")
        self.forge.changes[:] = [StoredChange(2, owner, branch, head, merge, base_sha=self.main)]
        return head

    @property
    def merged(self) -> str:
        """Return the forge's merge of the pull request as it stands."""
        (change,) = self.forge.changes
        return str(change.merge_sha)

    def pull_request(self, name: str, workflow: str = GATE) -> Run:
        """Run what a recorded pull_request event starts, of the pull request as it stands."""
        (change,) = self.forge.changes
        payload = recorded(f"pull_request.{name}")
        pull = payload["pull_request"]
        pull["head"]["sha"], pull["base"]["sha"], pull["base"]["ref"] = change.head_sha, change.base_sha, "main"
        ref = f"refs/pull/{change.number}/merge"
        return self.run("pull_request", payload, workflow=workflow, commit=self.merged, GITHUB_REF=ref)

    def push(self) -> Run:
        """Run what a push to main starts."""
        payload = {**recorded("push"), "ref": "refs/heads/main", "after": self.main}
        return self.run("push", payload, commit=self.main, GITHUB_REF="refs/heads/main")

    def workflow_run(self, name: str, of: int, event: str, conclusion: str) -> Run:
        """Run what the end of the gate's run number ``of`` starts."""
        payload = recorded(f"workflow_run.{name}")
        change = self.forge.changes[0] if event == "pull_request" else None
        owner = change.owner if change else "team"
        payload["workflow_run"].update(
            id=of,
            run_attempt=1,
            name="perfgate",
            event=event,
            conclusion=conclusion,
            head_sha=change.head_sha if change else self.main,
            head_branch=change.branch if change else "main",
            head_repository={"full_name": f"{owner}/model", "owner": {"login": owner}},
        )
        for pull in payload["workflow_run"]["pull_requests"]:
            pull["head"]["sha"] = change.head_sha if change else ""
        return self.run("workflow_run", payload, workflow=TRUSTED)

    def comment(self, author: str, body: str) -> Run:
        """Run what a comment on the pull request starts."""
        payload = recorded("issue_comment.created")
        payload["issue"].update(number=2, pull_request={"url": "https://api.example/pulls/2"})
        payload["comment"].update(body=body, user={"login": author, "id": 9, "type": "User"})
        return self.run("issue_comment", payload, workflow=TRUSTED)

    def schedule(self) -> Run:
        """Run what the clock starts."""
        payload = {**recorded("schedule"), "repository": recorded("push")["repository"]}
        return self.run("schedule", payload, workflow=TRUSTED)

    @property
    def last(self) -> int:
        """Return the number of the last run."""
        return self._runs

    def run(
        self, event: str, payload: dict[str, Any], *, workflow: str = GATE, commit: str = "", **environ: str
    ) -> Run:
        """Run a workflow on an event, as it stands in the default branch or a commit."""
        self._runs += 1
        commit = commit or self.main
        self.clone.git("checkout", "-q", "--detach", commit)
        path = self.folder / f"event-{self._runs}.json"
        path.write_text(json.dumps(payload))
        known = {
            "GITHUB_API_URL": self.url,
            "GITHUB_SERVER_URL": self.forge.url,
            "GITHUB_REPOSITORY": "team/model",
            "GITHUB_RUN_ID": str(self._runs),
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_SHA": commit,
            **environ,
        }
        command = ["act", event, "-W", f".github/workflows/{workflow}", "-e", path, "-s", f"GITHUB_TOKEN={BOT_TOKEN}"]
        command += ["--no-skip-checkout", "--no-cache-server", "--concurrent-jobs", "1"]
        command += [part for label in LABELS for part in ("-P", f"{label}=-self-hosted")]
        command += [part for name, value in known.items() for part in ("--env", f"{name}={value}")]
        command += [part for used in self._used() for part in ("--local-repository", f"{used}={ACTIONS / _name(used)}")]
        self.artifacts.unlisted = self._runs if self.enterprise else None
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.clone.root,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        self.artifacts.unlisted = None
        (self.folder / f"run-{self._runs}.log").write_text(done.stdout + done.stderr)
        return Run(done)

    def _used(self) -> set[str]:
        """Return the actions of others that the workflows use, each with its version."""
        text = "".join(path.read_text() for path in (self.clone.root / ".github" / "workflows").glob("*.yml"))
        return set(re.findall(r"^ +(?:- )?uses: (actions/\S+)", text, flags=re.MULTILINE))

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("LANG", "LD_LIBRARY_PATH") if name in os.environ}
        return {
            **kept,
            **self.packages.environ(os.environ["PATH"]),
            # act keeps its work trees below it too.
            "HOME": str(self.folder),
            "PERFGATE_LOCK": str(self.folder / "lock"),
            "ACT_ORIGIN": str(self.server),
            "ACT_ARTIFACTS": str(self.artifacts.folder),
            "ACT_ENTERPRISE": "true" if self.enterprise else "",
        }

    def comments(self) -> list[str]:
        """Return what our account wrote on the pull request."""
        return [comment.body for comment in self.forge.comments.get(2, []) if comment.author == BOT]

    def linked(self, comment: str) -> dict[str, bytes]:
        """Return the files of the artifact that a comment links as such."""
        (files,) = [files for text, files in self.evidence(comment) if text == "the artifact"]
        return files

    def evidence(self, comment: str) -> list[tuple[str, dict[str, bytes]]]:
        """Follow every link of a comment to an artifact: its text, and the files that are there."""
        page = re.escape(f"{self.forge.url}/team/model/actions/runs/")
        found = []
        for text, run, number in re.findall(rf"\[([^]]+)\]\({page}(\d+)/artifacts/(\d+)\)", comment):
            (artifact,) = [one for one in self.artifacts if (one.id, one.run) == (int(number), int(run))]
            found.append((text.strip("`"), _files(artifact)))
        return found

    def job_page(self, run: int) -> str:
        """Return how a comment links the page of a run."""
        return f"[the job]({self.forge.url}/team/model/actions/runs/{run}/attempts/1)"

    def statuses(self) -> list[tuple[str, str]]:
        """Return the commits that were marked, and as what."""
        return [(status.sha, status.state) for status in self.forge.statuses]


def recorded(name: str) -> Any:
    """Return a recorded payload, of our repository instead of the one it was recorded in."""
    path = recordings() / "forge-samples" / "github" / f"event.{name}.json"
    if not path.exists():
        pytest.skip(f"no recordings: {path} is missing")
    text = path.read_text()
    for theirs, ours in (
        ("Codertocat/Hello-World", "team/model"),
        ("octo-org/octo-repo", "team/model"),
        ("mallory/Hello-World", "mallory/model"),
        ('"default_branch": "master"', '"default_branch": "main"'),
    ):
        text = text.replace(theirs, ours)
    return json.loads(text)


def _files(artifact: StoredArtifact) -> dict[str, bytes]:
    if not zipfile.is_zipfile(BytesIO(artifact.data)):
        return {artifact.name: artifact.data}
    with zipfile.ZipFile(BytesIO(artifact.data)) as archive:
        return {one: archive.read(one) for one in archive.namelist()}


def _with_artifacts_of_version_3(text: str) -> str:
    return re.sub(r"(actions/(?:up|down)load-artifact)@\S+ # v\S+", r"\1@v3", text)


def _name(used: str) -> str:
    return used.partition("/")[2].partition("@")[0]
