"""The two dialects of the fake forge: which paths, which names, which refusals.

Modelled on docs.github.com (REST API) and docs.gitlab.com (Notes, Commits and Merge requests API). The official API
descriptions judge every answer where they lie beside the repository.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from tests.fakes.answers import filled
from tests.fakes.forge import (
    Account,
    Call,
    FakeForge,
    Reply,
    StoredChange,
    StoredComment,
    StoredPipeline,
    StoredStatus,
)
from tests.fakes.forge_files import StoredArtifact, git
from tests.fakes.forge_issues import github_issues, gitlab_issues

# Members API, "Roles".
_LEVELS = {"guest": 10, "reporter": 20, "developer": 30, "maintainer": 40, "owner": 50}
SAME = 'Cannot transition status via :{verb} from :{state} (Reason(s): Status cannot transition via "{verb}")'


class GitHubDialect:
    """Repository team/model."""

    name, repository, project = "github", "team/model", "team/model"
    root, slice_file, default_page = "", "github/openapi.github-rest.slice.json", 30
    undescribed = ""
    scheme, accepted, page_size, links = "Bearer", ("token",), "per_page", True
    longest_comment = 65_536
    pages = "blob"  # https://github.com/pytorch/pytorch/blob/<sha>/setup.py#L10
    states = {"success": "success", "failure": "failure", "error": "error", "pending": "pending"}  # noqa: RUF012

    def answer(self, forge: FakeForge, call: Call, path: str, account: Account) -> Reply:
        if path == "/user":
            return _refuse(403) if account.bot else Reply(200, self._me(forge, account))
        routes: dict[str, Callable[..., Reply]] = {
            "": lambda: Reply(200, self._repository(forge, "team")),
            r"/issues/(\d+)/comments": lambda number: self._comments(forge, call, int(number), account),
            r"/issues/comments/(\d+)": lambda comment: self._comment(forge, call, int(comment), account),
            r"/issues/?(\d*)": lambda number: github_issues(forge, call, number, account),
            r"/pulls/?(\d*)": lambda number: self._pulls(forge, call, number),
            r"/pulls/(\d+)/files": lambda number: self._files(forge, int(number)),
            r"/compare/([^/]+)\.\.\.([^/]+)": lambda base, head: self._compare(forge, unquote(base), unquote(head)),
            r"/collaborators/([^/]+)/permission": lambda login: self._permission(forge, unquote(login)),
            r"/git/commits/([0-9a-f]+)": lambda sha: self._parents(forge, sha),
            r"/actions/runs/(\d+)/artifacts": lambda run: self._artifacts(forge, call, int(run)),
            r"/actions/artifacts/(\d+)/zip": lambda artifact: self._download(forge, int(artifact)),
            r"/statuses/([0-9a-f]+)": lambda sha: self._status(forge, call, sha, account),
            r"/commits/([0-9a-f]+)/statuses": lambda sha: self._statuses(forge, sha),
        }
        for pattern, answer in routes.items():
            if match := re.fullmatch("/repos/team/model" + pattern, path):
                return answer(*match.groups())
        return _refuse(404)

    def _me(self, forge: FakeForge, account: Account) -> dict[str, Any]:
        return filled("public-user", _user(account))

    def _comments(self, forge: FakeForge, call: Call, number: int, account: Account) -> Reply:
        if not forge.is_talk(number):
            return _refuse(404)
        if call.method == "GET":
            return Reply(200, items=[self._show(forge, comment) for comment in forge.comments.get(number, [])])
        if not forge.may(account, "comments"):
            return _refuse(403)
        body = call.json()["body"]
        return self._refused_body(body) or Reply(201, self._show(forge, forge.write(number, body, account)))

    def _comment(self, forge: FakeForge, call: Call, comment_id: int, account: Account) -> Reply:
        comment = _find(forge, comment_id)
        if comment is not None and call.method == "GET":
            return Reply(200, self._show(forge, comment))
        if not forge.may(account, "comments"):
            return _refuse(403)
        if comment is not None and call.method == "DELETE":
            forge.remove(comment_id)
            return Reply(204, b"")
        if comment is None or call.method != "PATCH":
            return _refuse(404)
        refusal = self._refused_body(call.json()["body"])
        if refusal is None:
            comment.body = call.json()["body"]
        return refusal or Reply(200, self._show(forge, comment))

    def _refused_body(self, body: str) -> Reply | None:
        if body.strip() and len(body) <= self.longest_comment:
            return None
        words = "Body is too long" if body.strip() else "Body cannot be blank"
        return self._invalid({"resource": "IssueComment", "code": "unprocessable", "field": "data", "message": words})

    def _invalid(self, error: dict[str, str]) -> Reply:
        return Reply(422, {"message": "Validation Failed", "errors": [error], "documentation_url": "https://x.example"})

    def _pulls(self, forge: FakeForge, call: Call, number: str) -> Reply:
        if number:
            found = [change for change in forge.changes if change.number == int(number)]
            return Reply(200, self._pull(forge, "pull-request", found[0])) if found else _refuse(404)
        head, state = call.query.get("head", ""), call.query.get("state", "open")
        found = [change for change in forge.changes if head in ("", f"{change.owner}:{change.branch}")]
        found = [change for change in found if state == "all" or change.open == (state == "open")]
        return Reply(200, items=[self._pull(forge, "pull-request-simple", change) for change in found])

    def _files(self, forge: FakeForge, number: int) -> Reply:
        found = [change for change in forge.changes if change.number == number]
        if not found:
            return _refuse(404)
        listed = found[0].files[: found[0].listed]
        files = [{"filename": name, "status": "modified", "sha": "0" * 40} for name in listed]
        return Reply(200, items=[filled("diff-entry", file) for file in files])

    def _compare(self, forge: FakeForge, base: str, head: str) -> Reply:
        """Answer with what git says of two commits, less the list of commits and files, which nobody here reads."""
        repository = forge.repository
        found = git(repository, "merge-base", base, head) if repository else None
        if repository is None or found is None:
            return _refuse(404)
        ahead, behind = (
            int(git(repository, "rev-list", "--count", range_) or 0)
            for range_ in (f"{found}..{head}", f"{found}..{base}")
        )
        status = ("identical", "ahead", "behind", "diverged")[(ahead > 0) + 2 * (behind > 0)]
        counts = {"status": status, "ahead_by": ahead, "behind_by": behind, "total_commits": ahead}
        commits = {name: {"sha": found} for name in ("base_commit", "merge_base_commit")}
        return Reply(200, filled("commit-comparison", {**commits, **counts, "commits": []}))

    def _parents(self, forge: FakeForge, sha: str) -> Reply:
        found = git(forge.repository, "rev-parse", f"{sha}^@") if forge.repository else None
        if found is None:
            return _refuse(404)
        return Reply(200, {"sha": sha, "message": "x", "parents": [{"sha": parent} for parent in found.split()]})

    def _permission(self, forge: FakeForge, login: str) -> Reply:
        role = forge.roles.get(login)
        if role is None:
            return _refuse(404)
        permission = {"maintain": "write", "triage": "read"}.get(role, role)
        return Reply(200, {"permission": permission, "role_name": role, "user": {"login": login}})

    def _artifacts(self, forge: FakeForge, call: Call, run: int) -> Reply:
        name = call.query.get("name")
        found = [one for one in forge.artifacts if one.run == run and name in (None, one.name)]
        shown = [
            {"id": one.id, "name": one.name, "size_in_bytes": len(one.data), "expired": one.expired} for one in found
        ]
        return Reply(200, items=[filled("artifact", one) for one in shown], envelope="artifacts")

    def _download(self, forge: FakeForge, artifact_id: int) -> Reply:
        found = next((one for one in forge.artifacts if one.id == artifact_id), None)
        if found is None:
            return _refuse(404)
        if found.expired:
            return _refuse(410)
        place = forge.blobs.put(f"artifact/{found.id}?sig=secret", found.data)
        return Reply(302, b"", {"Location": place, "Content-Type": "text/html;charset=utf-8"})

    def _repository(self, forge: FakeForge, owner: str) -> dict[str, Any]:
        name = {"full_name": f"{owner}/model", "owner": {"login": owner}, "url": f"{forge.api_url}/repos/{owner}/model"}
        return filled("repository", name)

    def _pull(self, forge: FakeForge, schema: str, change: StoredChange) -> dict[str, Any]:
        head = {"sha": change.head_sha, "ref": change.branch, "label": f"{change.owner}:{change.branch}"}
        # The whole record has a hundred fields that a fork does not need to be told by.
        head["repo"] = self._repository(forge, change.owner)
        base = {"sha": change.base_sha, "ref": change.target, "label": f"team:{change.target}"}
        pull = {"number": change.number, "state": "open" if change.open else "closed", "head": head, "base": base}
        pull["merge_commit_sha"] = change.merge_sha
        pull["user"] = {"login": change.author or change.owner}
        here = f"{forge.api_url}/repos/team/model"
        pull["url"], pull["issue_url"] = f"{here}/pulls/{change.number}", f"{here}/issues/{change.number}"
        pull["comments_url"] = f"{here}/issues/{change.number}/comments"
        return filled(schema, pull)

    def _statuses(self, forge: FakeForge, sha: str) -> Reply:
        if not forge.knows(sha):
            return _refuse(404)
        found = [status for status in reversed(forge.statuses) if status.sha == sha]
        return Reply(200, items=[self._marked(forge, status) for status in found])

    def _status(self, forge: FakeForge, call: Call, sha: str, account: Account) -> Reply:
        if call.method != "POST":
            return _refuse(404)
        if not forge.may(account, "statuses"):
            return _refuse(403)
        if not forge.knows(sha):
            return Reply(422, {"message": f"No commit found for SHA: {sha}", "documentation_url": "https://x.example"})
        body = call.json()
        if len(body.get("description") or "") > 140:
            return _refuse(422)
        status = StoredStatus(sha, body["state"], body["context"], body["description"], body.get("target_url"))
        forge.statuses.append(status)
        return Reply(201, self._marked(forge, status))

    def _marked(self, forge: FakeForge, status: StoredStatus) -> dict[str, Any]:
        shown = {"state": status.state, "context": status.name, "description": status.description}
        return filled("status", {**shown, "target_url": status.url})

    def _show(self, forge: FakeForge, comment: StoredComment) -> dict[str, Any]:
        url = f"{forge.api_url}/repos/team/model/issues/comments/{comment.id}"
        shown = {"id": comment.id, "body": comment.body, "user": _user(comment.author), "url": url}
        return filled("issue-comment", shown)


class GitHubEnterpriseDialect(GitHubDialect):
    """The same on a server of one's own: its API lies below a path (docs.github.com, REST API of GitHub Enterprise Server)."""

    root = undescribed = "/api/v3"


class GitLabDialect:
    """Project 5, team/model."""

    name, repository, project = "gitlab", "team/model", "5"
    root, slice_file, default_page = "/api/v4", "gitlab/openapi.gitlab-rest.slice.json", 20
    undescribed = ""
    scheme, accepted, page_size, links = "Bearer", ("PRIVATE-TOKEN",), "per_page", True
    longest_comment = 1_000_000
    pages = "-/blob"  # https://gitlab.com/gitlab-org/gitlab/-/blob/<sha>/Gemfile#L10
    states = {"success": "success", "failure": "failed", "error": "failed", "pending": "pending"}  # noqa: RUF012
    _verbs = {"success": "succeed", "failed": "drop", "pending": "enqueue"}  # noqa: RUF012

    def answer(self, forge: FakeForge, call: Call, path: str, account: Account) -> Reply:
        if path in ("/user", "/users"):
            return self._accounts(forge, call, account)
        match = re.fullmatch(r"/projects/([^/]+)((?:/.*)?)", path)
        if match is None or unquote(match[1]) not in ("5", "team/model"):
            return _refuse(404)
        if note := re.fullmatch(r"/merge_requests/(\d+)/notes/?(\d*)", match[2]):
            return self._notes(forge, call, int(note[1]), note[2], account)
        if issue := re.fullmatch(r"/issues/?(\d*)", match[2]):
            return gitlab_issues(forge, call, issue[1], account, _author)
        if (note := re.fullmatch(r"/issues/(\d+)/notes", match[2])) and call.method == "POST":
            return self._notes(forge, call, int(note[1]), "", account)
        if request := re.fullmatch(r"/merge_requests/(\d+)", match[2]):
            found = [change for change in forge.changes if change.number == int(request[1])]
            return Reply(200, _merge_request(found[0])) if found else _refuse(404)
        if diffs := re.fullmatch(r"/merge_requests/(\d+)/diffs", match[2]):
            found = [change for change in forge.changes if change.number == int(diffs[1])]
            return (
                Reply(200, items=[_diff(name) for name in found[0].files[: found[0].listed]]) if found else _refuse(404)
            )
        if (sha := re.fullmatch(r"/statuses/([0-9a-f]+)", match[2])) and call.method == "POST":
            return self._status(forge, call.json(), sha[1], account)
        if match[2] == "/pipeline" and call.method == "POST":
            return self._pipeline(forge, call.json(), account)
        return self._kept(forge, call, match[2])

    def _pipeline(self, forge: FakeForge, body: dict[str, Any], account: Account) -> Reply:
        """Start a pipeline of a branch of this project, which the main branch is not: it is protected."""
        if not forge.is_at_least(account, "developer"):
            return Reply(403, {"message": "403 Forbidden"})
        if body["variables"] and not forge.is_at_least(account, forge.variables_role):
            return Reply(400, {"message": {"base": ["Insufficient permissions to set pipeline variables"]}})
        head = next((one.head_sha for one in forge.changes if (one.owner, one.branch) == ("team", body["ref"])), None)
        if head is None:
            return Reply(400, {"message": {"base": ["Reference not found"]}})
        variables = {one["key"]: one["value"] for one in body["variables"]}
        pipeline = StoredPipeline(9000 + len(forge.pipelines), head, variables=variables)
        forge.pipelines.append(pipeline)
        shown = {"id": pipeline.id, "iid": 1, "project_id": 5, "sha": head, "ref": body["ref"], "status": "created"}
        page = f"{forge.url}/team/model/-/pipelines/{pipeline.id}"
        return Reply(201, {**shown, "source": "api", "web_url": page})

    def _accounts(self, forge: FakeForge, call: Call, account: Account) -> Reply:
        """The account of the token, or those of a name."""
        if "username" not in call.query:
            return Reply(200, _author(account))
        return Reply(
            200, items=[_author(gitlab_account(name)) for name in forge.roles if name == call.query["username"]]
        )

    def _kept(self, forge: FakeForge, call: Call, path: str) -> Reply:
        """Answer what is asked about the project, its artifacts and commits."""
        if path == "":
            return Reply(200, {"id": 5, "path_with_namespace": "team/model", "name": "model"})
        if member := re.fullmatch(r"/members/all/(\d+)", path):
            levels = [_LEVELS[role] for name, role in forge.roles.items() if gitlab_account(name).id == int(member[1])]
            return Reply(200, {"id": int(member[1]), "access_level": levels[0]}) if levels else _refuse(404)
        if (sha := re.fullmatch(r"/repository/commits/([0-9a-f]+)/statuses", path)) and call.method == "GET":
            found = [_marked(status) for status in forge.statuses if status.sha == sha[1]]
            return Reply(200, items=found) if forge.knows(sha[1]) else _refuse(404)
        if jobs := re.fullmatch(r"/pipelines/(\d+)/jobs", path):
            return Reply(200, items=[_job(one) for one in forge.artifacts if one.run == int(jobs[1])])
        if job := re.fullmatch(r"/jobs/(\d+)/artifacts", path):
            artifact = next((one for one in forge.artifacts if one.id == int(job[1]) and not one.expired), None)
            if artifact is None:
                return _refuse(404)
            place = forge.blobs.put(f"job/{artifact.id}?X-Sig=secret", artifact.data)
            return Reply(302, b"", {"Location": place, "Content-Type": "text/html;charset=utf-8"})
        if commit := re.fullmatch(r"/repository/commits/([0-9a-f]+)", path):
            parents = git(forge.repository, "rev-parse", f"{commit[1]}^@") if forge.repository else None
            return _refuse(404) if parents is None else Reply(200, {"id": commit[1], "parent_ids": parents.split()})
        if path == "/repository/merge_base":
            return self._merge_base(forge, call.query.get("refs[]"))
        return _refuse(404)

    def _merge_base(self, forge: FakeForge, refs: Any) -> Reply:
        if not isinstance(refs, list) or forge.repository is None:
            return _refuse(400 if forge.repository else 404)
        found = git(forge.repository, "merge-base", *refs)
        return Reply(200, {"id": found, "short_id": found[:8], "title": "a commit"}) if found else _refuse(404)

    def _notes(self, forge: FakeForge, call: Call, number: int, note: str, account: Account) -> Reply:
        if not forge.is_talk(number):
            return Reply(404, {"message": "404 Not found"})
        if call.method == "GET" and not note:
            return Reply(200, items=[_note(comment, number) for comment in forge.comments.get(number, [])])
        comment = _find(forge, int(note)) if note else None
        if call.method == "GET" and comment is not None:
            return Reply(200, _note(comment, number))
        body = self._obeyed(forge, call.json()["body"], account) if call.body else ""
        if call.method in ("POST", "PUT") and not body.strip():
            return _refuse_empty(call.json()["body"])
        if call.method == "POST" and not note:
            return Reply(201, _note(forge.write(number, body, account), number))
        if comment is None or call.method not in ("PUT", "DELETE"):
            return _refuse(404)
        if comment.author != account:
            return _refuse(403)
        if call.method == "DELETE":
            forge.remove(comment.id)
            return Reply(204, b"")
        comment.body, comment.edited = body, True
        return Reply(200, _note(comment, number))

    def _obeyed(self, forge: FakeForge, body: str, account: Account) -> str:
        """Carry out the lines of a text that order something and return what is left (docs.gitlab.com, Quick actions)."""
        kept, fence = [], False
        for line in body.splitlines(keepends=True):
            fence ^= line.startswith("```")
            if not fence and re.match(r"/(approve|merge|close|reopen|label|assign|title)\b", line):
                forge.orders.append((account.login, line.strip()))
            else:
                kept.append(line)
        return "".join(kept)

    def _status(self, forge: FakeForge, body: dict[str, Any], sha: str, account: Account) -> Reply:
        if not forge.is_at_least(account, "developer"):
            return Reply(403, {"message": "403 Forbidden"})
        if not forge.knows(sha):
            return Reply(404, {"message": "404 Commit Not Found"})
        # It becomes a job of the newest pipeline of that commit, or of a new one that has nothing else.
        pipeline = next((one for one in reversed(forge.pipelines) if one.sha == sha), None)
        if pipeline is None:
            pipeline = StoredPipeline(9000 + len(forge.pipelines), sha)
            forge.pipelines.append(pipeline)
        pipeline.jobs[body["name"]] = body["state"]
        before = [status for status in forge.statuses if (status.sha, status.name) == (sha, body["name"])]
        if before and before[-1].state == body["state"]:
            state = body["state"]
            return Reply(400, {"message": SAME.format(verb=self._verbs[state], state=state)})
        url = body.get("target_url")
        status = StoredStatus(sha, body["state"], body["name"], body.get("description") or "", url)
        forge.statuses.append(status)
        return Reply(201, _marked(status))


def _marked(status: StoredStatus) -> dict[str, Any]:
    shown = {"id": 1, "sha": status.sha, "status": status.state, "name": status.name}
    return {**shown, "description": status.description, "target_url": status.url}


def _refuse_empty(sent: str) -> Reply:
    """GitLab writes no note of a text that only orders something, and says which orders it took (gitlab-foss issue 23625)."""
    if sent.strip():
        return Reply(202, {"commands_changes": {}, "summary": ["Commands applied"]})
    return Reply(400, {"message": '400 Bad request - Note {:note=>["can\'t be blank"]}'})


def _refuse(status: int) -> Reply:
    # PyGithub knows a 404 by GitHub's own words.
    words = {403: "Resource not accessible by integration", 404: "Not Found"}
    return Reply(status, {"message": words.get(status, f"{status} refused")})


def _find(forge: FakeForge, comment_id: int) -> StoredComment | None:
    return next((c for comments in forge.comments.values() for c in comments if c.id == comment_id), None)


def _user(account: Account) -> dict[str, Any]:
    return {"login": account.login, "id": account.id, "type": "Bot" if account.bot else "User"}


def gitlab_account(login: str) -> Account:
    """The account of a member of the project."""
    return Account(1_000 + zlib.crc32(login.encode()) % 1_000_000, login, bot=False)


def _author(account: Account) -> dict[str, Any]:
    url = f"https://gitlab.example.com/{account.id}"
    name = {"name": account.login, "username": account.login}
    return {"id": account.id, **name, "state": "active", "avatar_url": url, "web_url": url}


def _note(comment: StoredComment, number: int) -> dict[str, Any]:
    hour = 10 if comment.edited else 9
    times = {"created_at": "2026-11-02T09:22:45.000Z", "updated_at": f"2026-11-02T{hour:02}:22:45.000Z"}
    place = {"noteable_id": 377, "noteable_type": "MergeRequest", "noteable_iid": number}
    return {
        "id": comment.id,
        "type": None,
        "body": comment.body,
        "attachment": None,
        "author": _author(comment.author),
        "system": comment.system,
        **times,
        **place,
    }


def _job(artifact: StoredArtifact) -> dict[str, Any]:
    """GitLab names an artifact only in the job that made it: ``artifacts:name`` is the archive's file name."""
    archive = {"filename": f"{artifact.name}.zip", "size": len(artifact.data)}
    return {"id": artifact.id, "name": "perfgate", "status": "success", "artifacts_file": archive}


def _diff(name: str) -> dict[str, Any]:
    return {"old_path": name, "new_path": name, "new_file": False, "renamed_file": False, "deleted_file": False}


def _merge_request(change: StoredChange) -> dict[str, Any]:
    branches = {"source_branch": change.branch, "target_branch": change.target}
    return {
        "id": 377,
        "iid": change.number,
        "project_id": 5,
        "title": "a change",
        "state": "opened" if change.open else "merged",
        "sha": change.head_sha,
        "diff_refs": {"base_sha": change.base_sha, "head_sha": change.head_sha, "start_sha": change.base_sha},
        "author": _author(gitlab_account(change.author or change.owner)),
        "source_project_id": 5 if change.owner == "team" else 99,
        "target_project_id": 5,
        "changes_count": str(len(change.files)) if change.listed is None else f"{change.listed}+",
        **branches,
    }
