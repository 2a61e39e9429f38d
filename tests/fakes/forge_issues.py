"""The issues of the fake forge, in both dialects.

Modelled on docs.github.com (REST API, Issues: pull requests stand in the list too) and docs.gitlab.com (Issues API). The
official API descriptions judge every answer where they lie beside the repository.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.fakes.answers import filled

if TYPE_CHECKING:
    from tests.fakes.forge import Account, Call, FakeForge, Reply


@dataclass
class StoredIssue:
    number: int
    title: str
    body: str
    author: Account
    labels: tuple[str, ...] = ()
    open: bool = True
    is_change: bool = False


def github_issues(forge: FakeForge, call: Call, number: str, account: Account) -> Reply:
    """Answer a request to ``/issues`` or ``/issues/NUMBER``."""

    def show(issue: StoredIssue) -> dict[str, Any]:
        labels = [{"id": 1, "name": name, "color": "ededed", "default": False} for name in issue.labels]
        shown = {
            "number": issue.number,
            "title": issue.title,
            "body": issue.body,
            "state": "open" if issue.open else "closed",
            "labels": labels,
            "user": {"login": issue.author.login, "id": issue.author.id, "type": "Bot" if issue.author.bot else "User"},
            "url": f"{forge.api_url}/repos/team/model/issues/{issue.number}",
            "comments_url": f"{forge.api_url}/repos/team/model/issues/{issue.number}/comments",
        }
        if issue.is_change:
            shown["pull_request"] = dict.fromkeys(
                ("url", "html_url", "diff_url", "patch_url"), "https://forge.example/x"
            )
        return filled("issue", shown)

    if call.method == "GET" and not number:
        return _reply(200, items=[show(issue) for issue in _listed(forge, call, {"open": True, "closed": False})])
    body = call.json() if call.body else {}
    if call.method != "GET" and not forge.may(account, "issues"):
        return _reply(403, {"message": "Resource not accessible by integration"})
    if call.method == "POST" and not number:
        return _reply(201, show(_open(forge, body["title"], body["body"], tuple(body.get("labels", ())), account)))
    found = _find(forge, number)
    if found is not None and call.method == "GET":
        return _reply(200, show(found))
    if found is None or call.method != "PATCH":
        return _reply(404, {"message": "Not Found"})
    found.body = body.get("body", found.body)
    found.open = {"open": True, "closed": False}.get(body.get("state"), found.open)
    return _reply(200, show(found))


def gitlab_issues(forge: FakeForge, call: Call, number: str, account: Account, author: Any) -> Reply:
    """Answer a request to ``/issues`` or ``/issues/IID``; ``author`` shows an account."""

    def show(issue: StoredIssue) -> dict[str, Any]:
        times = {"created_at": "2026-11-02T09:22:45.000Z", "updated_at": "2026-11-02T10:22:45.000Z"}
        counts = {"user_notes_count": 0, "upvotes": 0, "downvotes": 0}
        return {
            "id": 1000 + issue.number,
            "iid": issue.number,
            "project_id": 5,
            "title": issue.title,
            "description": issue.body,
            "state": "opened" if issue.open else "closed",
            "labels": list(issue.labels),
            "milestone": None,
            "assignees": [],
            "author": author(issue.author),
            "due_date": None,
            "confidential": False,
            "web_url": f"https://gitlab.example.com/team/model/-/issues/{issue.number}",
            **times,
            **counts,
        }

    if call.method == "GET" and not number:
        return _reply(200, items=[show(issue) for issue in _listed(forge, call, {"opened": True, "closed": False})])
    body = call.json() if call.body else {}
    if call.method == "POST" and not number:
        labels = tuple(filter(None, body.get("labels", "").split(",")))
        return _reply(201, show(_open(forge, body["title"], body["description"], labels, account)))
    found = _find(forge, number)
    if found is not None and call.method == "GET":
        return _reply(200, show(found))
    if found is None or call.method != "PUT":
        return _reply(404, {"message": "Not Found"})
    found.body = body.get("description", found.body)
    found.open = {"reopen": True, "close": False}.get(body.get("state_event"), found.open)
    return _reply(200, show(found))


def _listed(forge: FakeForge, call: Call, states: dict[str, bool]) -> list[StoredIssue]:
    """Return the issues of a list, the newest first, as both forges do."""
    wanted = states.get(call.query.get("state", next(iter(states))))
    labels = set(filter(None, call.query.get("labels", "").split(",")))
    fitting = [i for i in forge.issues if labels <= set(i.labels) and (wanted is None or i.open == wanted)]
    return sorted(fitting, key=lambda issue: -issue.number)


def _open(forge: FakeForge, title: str, body: str, labels: tuple[str, ...], account: Account) -> StoredIssue:
    number = max([40, *(issue.number for issue in forge.issues)]) + 1
    forge.issues.append(StoredIssue(number, title, body, account, labels))
    return forge.issues[-1]


def _find(forge: FakeForge, number: str) -> StoredIssue | None:
    return next((issue for issue in forge.issues if str(issue.number) == number), None)


def _reply(status: int, value: Any = None, *, items: list[Any] | None = None) -> Reply:
    from tests.fakes.forge import Reply  # the fake imports this module

    return Reply(status, value, items=items)
