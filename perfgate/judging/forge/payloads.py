"""Records that GitHub's API and the payloads of its events have in common
(docs.github.com, "REST API", "Webhook events").
"""

from __future__ import annotations

from typing import Any

import msgspec


class User(msgspec.Struct):
    """An account of the forge; ``type`` is User for a person's."""

    login: str
    type: str = ""


class ForgeRepository(msgspec.Struct):
    """A repository; ``full_name`` is OWNER/NAME."""

    full_name: str = ""
    owner: User | None = None
    default_branch: str | None = None


class Commit(msgspec.Struct):
    """A commit, or the tip of a branch."""

    sha: str


class PostedComment(msgspec.Struct):
    """A comment as the forge has it; ``user`` is None if the account is deleted."""

    id: int
    body: str | None = None
    user: User | None = None


class PostedIssue(msgspec.Struct):
    """An issue or a pull request, which alone has ``pull_request``."""

    number: int
    pull_request: dict[str, Any] | None = None
