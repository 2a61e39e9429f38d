"""The dialects of Gitee, GitCode and Gitea. There is no API description of theirs here to judge them by.

Gitee after its makers' command line client (oschina/gitee-cli, pkg/gitee); GitCode after the SDK gitcode-api of PyPI, which
talks to this fake in test_gitcode_client.py; Gitea after its /api/swagger (issueGetComments has no pages).
"""

from __future__ import annotations

import re
from typing import Any

from tests.fakes.forge import (
    Account,
    Call,
    FakeForge,
    Reply,
    StoredChange,
    StoredComment,
    StoredStatus,
)


class SimilarDialect:
    """Repository team/model; ``talk`` is where the comments are."""

    name = ""
    repository = project = "team/model"
    root, slice_file, default_page = "/api/v5", None, 20
    undescribed = ""
    scheme, accepted, links, talk = "Bearer", (), False, "pulls"
    page_size: str | None = "per_page"
    states: dict[str, str] = {}  # noqa: RUF012 - none: there are no commit statuses
    # https://gitee.com/ascend/pytorch/blob/<sha>/setup.py#L10, https://gitcode.com/Ascend/pytorch/blob/<sha>/setup.py#L10
    pages = "blob"
    # Permissions of members by their roles, as the forge words them.
    permissions: dict[str, str] = {  # noqa: RUF012
        "maintainer": "admin",
        "developer": "write",
        "reporter": "read",
    }
    # Accounts have a type, as on GitHub.
    typed = True

    def answer(
        self, forge: FakeForge, call: Call, path: str, account: Account
    ) -> Reply:
        if path == "/user" and call.method == "GET":
            return Reply(
                200, {"id": account.id, "login": account.login, "name": account.login}
            )
        if match := re.fullmatch(
            rf"/repos/team/model/{self.talk}/(\d+)/comments", path
        ):
            return self._comments(forge, call, int(match[1]), account)
        if match := re.fullmatch(
            rf"/repos/team/model/{self.talk}/comments/(\d+)", path
        ):
            return self._comment(forge, call, int(match[1]), account)
        if (
            match := re.fullmatch(r"/repos/team/model/pulls/(\d+)", path)
        ) and call.method == "GET":
            found = [
                change for change in forge.changes if change.number == int(match[1])
            ]
            return Reply(200, _pull(found[0])) if found else _refuse(404)
        if match := re.fullmatch(
            r"/repos/team/model/collaborators/([^/]+)/permission", path
        ):
            role = forge.roles.get(match[1])
            return (
                Reply(200, {"permission": self.permissions[role], "login": match[1]})
                if role
                else _refuse(404)
            )
        if path == "/repos/team/model/pulls" and call.method == "GET":
            found = [
                change
                for change in forge.changes
                if change.open or call.query.get("state") != "open"
            ]
            return Reply(200, items=[_pull(change) for change in found])
        if (
            match := re.fullmatch(r"/repos/team/model/statuses/([0-9a-f]+)", path)
        ) and call.method == "POST":
            return self._status(forge, call.json(), match[1])
        return _refuse(404)

    def _comments(
        self, forge: FakeForge, call: Call, number: int, account: Account
    ) -> Reply:
        if not forge.is_talk(number):
            return _refuse(404)
        if call.method == "GET":
            return Reply(
                200,
                items=[
                    self._show(comment) for comment in forge.comments.get(number, [])
                ],
            )
        if call.method != "POST":
            return _refuse(405)
        if not call.json()["body"].strip():
            return _refuse(422)
        return Reply(
            201, self._created(forge.write(number, call.json()["body"], account))
        )

    def _comment(
        self, forge: FakeForge, call: Call, comment_id: int, account: Account
    ) -> Reply:
        comment = next(
            (
                one
                for all_ in forge.comments.values()
                for one in all_
                if one.id == comment_id
            ),
            None,
        )
        if comment is None:
            return _refuse(404)
        if call.method == "GET":
            return Reply(200, self._show(comment))
        if comment.author != account:
            return _refuse(403)
        if call.method == "DELETE":
            forge.remove(comment_id)
            return Reply(204, b"")
        comment.body = call.json()["body"]
        return Reply(200, self._show(comment))

    def _show(self, comment: StoredComment) -> dict[str, Any]:
        user = {
            "id": comment.author.id,
            "login": comment.author.login,
            "name": comment.author.login,
        }
        typed = {"type": "Bot" if comment.author.bot else "User"} if self.typed else {}
        hour = 10 if comment.edited else 9
        times = {
            "created_at": "2026-11-02T09:22:45+08:00",
            "updated_at": f"2026-11-02T{hour:02}:22:45+08:00",
        }
        return {
            "id": comment.id,
            "body": comment.body,
            "user": {**user, **typed},
            **times,
        }

    def _created(self, comment: StoredComment) -> dict[str, Any]:
        return self._show(comment)

    def _status(self, forge: FakeForge, body: dict[str, Any], sha: str) -> Reply:
        return _refuse(404)


class GiteeDialect(SimilarDialect):
    name = "gitee"


class GitCodeDialect(SimilarDialect):
    """Answers to a new comment name a discussion, as the SDK's "number or text" allows: nobody may rely on a number."""

    name = "gitcode"
    permissions = {**SimilarDialect.permissions, "developer": "push"}  # noqa: RUF012

    def _created(self, comment: StoredComment) -> dict[str, Any]:
        return {**self._show(comment), "id": f"{comment.id:040x}"}


class GiteaDialect(SimilarDialect):
    """Comments come whole; descriptions of statuses may be long; ``token X`` as its documentation writes it."""

    name, root, scheme, talk = "gitea", "/api/v1", "token", "issues"
    page_size, typed = None, False
    pages = "src/commit"  # https://codeberg.org/forgejo/forgejo/src/commit/<sha>/main.go#L10
    states = {  # noqa: RUF012
        "success": "success",
        "failure": "failure",
        "error": "error",
        "pending": "pending",
    }

    def _status(self, forge: FakeForge, body: dict[str, Any], sha: str) -> Reply:
        if body["state"] not in self.states:
            return _refuse(422)
        if not forge.knows(sha):
            return _refuse(404)
        forge.statuses.append(
            StoredStatus(
                sha,
                body["state"],
                body["context"],
                body["description"],
                body.get("target_url"),
            )
        )
        return Reply(
            201, {"id": 1, "status": body["state"], "context": body["context"]}
        )


def _pull(change: StoredChange) -> dict[str, Any]:
    source = {"full_name": f"{change.owner}/model"}
    head = {
        "sha": change.head_sha,
        "ref": change.branch,
        "label": change.branch,
        "repo": source,
    }
    base = {"sha": change.base_sha, "ref": change.target, "label": change.target}
    state = "open" if change.open else "merged"
    author = {"login": change.author or change.owner}
    sides = {"state": state, "head": head, "base": base}
    return {"id": 900 + change.number, "number": change.number, "user": author, **sides}


def _refuse(status: int) -> Reply:
    return Reply(status, {"message": f"{status} refused"})
