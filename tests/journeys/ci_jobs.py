"""The jobs that a forge starts for a pull request or a merge request: their checkouts, variables and artifacts."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any, Protocol

from tests.fakes.forge import BOT, BOT_TOKEN, PERSON_TOKEN, FakeForge, StoredChange
from tests.fakes.forge_dialects import gitlab_account
from tests.journeys.installation import ROOT
from tests.journeys.shell import Shell

PAYLOADS = ROOT / "tests" / "data" / "forge"
MEASURING, COMMANDING = 50, 90
NUMBER = 7
# What the jobs keep of what was measured.
DOCUMENTS = ("decision.json", "comment.md", "report.html", "base/run.json", "head/run.json")


class Project:
    """The repository team/model on a forge, and its change request 7 as ``developer`` pushes it."""

    def __init__(self, forge: FakeForge, developer: Shell) -> None:
        self.forge, self.developer = forge, developer
        server = developer.home.parent / "server.git"
        developer.types(f"git init --quiet --bare --initial-branch main {server}")
        forge.repository = server
        address = forge.url.replace("http://", f"http://ada:{PERSON_TOKEN}@")
        developer.types(f"git remote add origin {address}/team/model.git && git push --quiet origin main")
        self.base = self._commit("main")
        self.head = self.merge = self.base

    def push_change(self, branch: str) -> None:
        """Push the branch on which the developer stands; the forge opens the change request, and merges it for its jobs."""
        self.developer.types(f"git push --quiet origin {branch}")
        self.head = self._commit(branch)
        self.developer.types(
            f"git checkout --quiet --detach main && git merge --quiet --no-ff --message Merge {branch}"
        )
        self.merge = self._commit("HEAD")
        self.developer.types(f"git push --quiet origin HEAD:refs/pull/{NUMBER}/merge && git checkout --quiet {branch}")
        change = StoredChange(NUMBER, "team", branch, self.head, self.merge, base_sha=self.base, author="ada")
        self.forge.changes.append(change)

    def check_out(self, job: str, commit: str, **variables: str) -> Shell:
        """Open the shell of a CI job, in a clone at a commit that keeps no token."""
        shell = self.developer.opens_another(self.developer.home.parent / job / "model", **variables)
        shell.transcript.append(f"# the job {job}")
        address = f"{self.forge.url}/team/model.git"
        signed = address.replace("http://", f"http://x:{BOT_TOKEN}@")
        shell.types(f"git clone --quiet {signed} . && git fetch --quiet origin {commit}")
        shell.types(f"git checkout --quiet {commit} && git remote set-url origin {address}")
        return shell

    def comments(self) -> list[str]:
        """What perfgate has written below the change request, the oldest first."""
        return [comment.body for comment in self.forge.comments.get(NUMBER, []) if comment.author == BOT]

    def _commit(self, name: str) -> str:
        return self.developer.types(f"git rev-parse {name}").text.strip()


class Jobs(Protocol):
    """What a forge does with the jobs of a change request."""

    project: Project

    def measure(self) -> Shell: ...

    def publish(self) -> Shell: ...

    def comment(self, author: str, body: str) -> Shell: ...


class GitHubJobs:
    """The jobs of .github/workflows/gate.yml and trusted.yml."""

    def __init__(self, project: Project) -> None:
        self.project = project
        project.forge.roles = {"ann": "maintain"}

    def measure(self) -> Shell:
        """Measure the forge's merge; the job has no token, and its documents are uploaded."""
        project = self.project
        shell = project.check_out("measure", project.merge, **self._variables(MEASURING, "pull_request"))
        shell.types("perfgate check --base 'HEAD^1' --steps 4 --directory . --out perfgate-out", ends=1)
        project.forge.upload(MEASURING, "perfgate-default-1", zipped(shell.folder / "perfgate-out"))
        return shell

    def publish(self) -> Shell:
        """Judge and post with the token, in a checkout of the base."""
        variables = {**self._variables(MEASURING, "pull_request"), "GITHUB_TOKEN": BOT_TOKEN}
        shell = self.project.check_out("publish", self.project.base, PERFGATE_MEASURED="failure", **variables)
        shell.types("perfgate publish --download --key default --directory . --fail-on undecided --outputs", ends=1)
        return shell

    def comment(self, author: str, body: str) -> Shell:
        """Write a comment as somebody, and run the job that it starts."""
        written = {"created_at": "2026-11-20T10:00:00Z", "updated_at": "2026-11-20T10:00:00Z"}
        user = {"login": author, "id": 9, "type": "User"}
        payload = {
            "action": "created",
            "issue": {
                "number": NUMBER,
                "pull_request": {"url": f"{self.project.forge.api_url}/repos/team/model/pulls/7"},
            },
            "comment": {"id": 71, "body": body, "user": user, **written},
        }
        variables = {**self._variables(COMMANDING, "issue_comment", payload), "GITHUB_TOKEN": BOT_TOKEN}
        shell = self.project.check_out("command", self.project.base, **variables)
        shell.types("perfgate command --key default --directory .")
        return shell

    def _variables(self, run: int, event: str, payload: dict[str, Any] | None = None) -> dict[str, str]:
        folder = self.project.developer.home.parent
        if payload is None:
            payload = json.loads((PAYLOADS / "github.pull_request.json").read_bytes())
            payload["pull_request"]["head"]["sha"] = self.project.head
            payload["pull_request"]["base"]["sha"] = self.project.base
        file = folder / f"event-{run}.json"
        file.write_text(json.dumps(payload))
        return {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(file),
            "GITHUB_REPOSITORY": "team/model",
            "GITHUB_SERVER_URL": self.project.forge.url,
            "GITHUB_API_URL": self.project.forge.api_url,
            "GITHUB_RUN_ID": str(run),
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_SHA": self.project.merge if event == "pull_request" else self.project.base,
            "GITHUB_OUTPUT": str(folder / f"outputs-{run}"),
            "GITHUB_STEP_SUMMARY": str(folder / f"summary-{run}.md"),
        }


class GitLabJobs:
    """The jobs of templates/perfgate.yml, with ``commands: true``; the documents of one job lie in the checkout of the next."""

    def __init__(self, project: Project) -> None:
        self.project = project
        project.forge.roles = {"ann": "developer"}

    def measure(self) -> Shell:
        """Measure the head against the merge request's base; the job has no token."""
        project = self.project
        shell = project.check_out("measure", project.head, **self._variables(MEASURING))
        shell.types(f"perfgate check --base {project.base} --steps 4 --directory . --out perfgate-out", ends=1)
        project.forge.upload(MEASURING, "perfgate-default-1", zipped(shell.folder / "perfgate-out", "perfgate-out/"))
        return shell

    def publish(self) -> Shell:
        """Judge and post with the token, by the base's perfgate.toml."""
        variables = {**self._variables(MEASURING), "PERFGATE_TOKEN": BOT_TOKEN, "PERFGATE_COMMANDS": "true"}
        shell = self.project.check_out("publish", self.project.base, **variables)
        documents = self.project.developer.home.parent / "measure" / "model" / "perfgate-out"
        shell.types(f"perfgate publish {documents} --key default --no-status --fail-on undecided", ends=1)
        return shell

    def comment(self, author: str, body: str) -> Shell:
        """Write a note as somebody, and run the job of the default branch that its webhook triggers."""
        note = self.project.forge.write(NUMBER, body, gitlab_account(author))
        payload = self.project.developer.home.parent / "TRIGGER_PAYLOAD"
        attributes = {"id": note.id, "action": "create"}
        request = {"iid": NUMBER}
        payload.write_text(
            json.dumps({"object_kind": "note", "object_attributes": attributes, "merge_request": request})
        )
        merge_request = self._variables(COMMANDING)
        variables = {name: value for name, value in merge_request.items() if not name.startswith("CI_MERGE_REQUEST")}
        variables |= {
            "CI_PIPELINE_SOURCE": "trigger",
            "CI_COMMIT_SHA": self.project.base,
            "TRIGGER_PAYLOAD": str(payload),
            "PERFGATE_TOKEN": BOT_TOKEN,
            "PERFGATE_COMMANDS": "true",
        }
        shell = self.project.check_out("command", self.project.base, **variables)
        shell.types("perfgate command --key default")
        return shell

    def _variables(self, pipeline: int) -> dict[str, str]:
        forge = self.project.forge
        return {
            **json.loads((PAYLOADS / "gitlab.merge_request.env.json").read_bytes()),
            "CI_SERVER_URL": forge.url,
            "CI_API_V4_URL": forge.api_url,
            "CI_PIPELINE_ID": str(pipeline),
            "CI_PIPELINE_URL": f"{forge.url}/team/model/-/pipelines/{pipeline}",
            "CI_COMMIT_SHA": self.project.head,
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": self.project.base,
        }


def zipped(folder: Path, prefix: str = "") -> bytes:
    """Return the documents of a folder as an artifact."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in DOCUMENTS:
            archive.write(folder / name, prefix + name)
    return data.getvalue()
