"""The first page of `perfgate serve`: every job with its ranks, every recording with
its flame graph and timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import NamedTuple
from urllib.parse import quote

from perfgate.document.served import (
    ServedEntry,
    ServedJob,
    ServedRecording,
    ServedWebhook,
)
from perfgate.judging.report.text.templates import inlined, render_page
from perfgate.judging.report.text.words import Words, phrases, say
from perfgate.locale import Language, shown, speaking

# The changes of a store, by their names in its audit log.
ACTIONS = phrases(
    (
        "run recorded",
        "runs copied",
        "regression accepted",
        "regression triaged",
        "change confirmed",
        "verdict kept",
        "runs pruned",
        "artifacts pruned",
        "dead letters redelivered",
        "token created",
        "token copied",
        "token revoked",
    )
)


@dataclass(frozen=True)
class ProjectRow:
    """A project with the address of its pages and its newest run, which started at
    ``started_at`` (ISO 8601).

    The numbers of open regressions, and of parts of the newest run that failed, are
    None until its pages were made.
    """

    name: str
    address: str
    started_at: str
    commit: str
    subject: str
    open_regressions: int | None = None
    failed: int | None = None


class AuditRow(NamedTuple):
    """A change of the store as the page of the audit log shows it; ``at`` is ISO 8601,
    ``action`` one of ACTIONS.
    """

    at: str
    actor: str
    project: str
    action: str
    subject: str


class ServedRow(NamedTuple):
    """A job or recording with its name in an address."""

    entry: ServedEntry
    address: str

    @property
    def changed(self) -> Words:
        return Words(
            f"{datetime.fromtimestamp(self.entry.modified, timezone.utc):%Y-%m-%d %H:%M}"
        )


def render_index(
    recordings: Sequence[ServedRecording],
    jobs: Sequence[ServedJob],
    language: Language,
    *,
    folder: str,
    contains: str,
    home: str,
) -> str:
    """The page of a folder, by default of all recordings.

    Its policy header allows no script and no network.
    """
    with speaking(language):
        return _page(
            "index",
            rows=list(map(_row, recordings)),
            jobs=list(map(_row, jobs)),
            folder=folder,
            folder_address=_quoted(folder),
            contains=contains,
            home=home,
            forms=True,
        )


def _row(entry: ServedEntry) -> ServedRow:
    return ServedRow(entry, _quoted(entry.name))


def _quoted(name: str) -> str:
    return quote(name, safe="")


def render_projects(
    projects: Sequence[ProjectRow],
    language: Language,
    *,
    recordings: str,
    audit: str,
    webhooks: str,
) -> str:
    """The projects of a store, and the addresses of recordings, audit log and webhooks
    if there are any.
    """
    with speaking(language):
        return _page(
            "projects",
            projects=projects,
            recordings=recordings,
            audit=audit,
            webhooks=webhooks,
        )


def render_audit(rows: Sequence[AuditRow], language: Language, *, older: str) -> str:
    """The changes of a store, newest first, and the address of the page with older
    changes.
    """
    with speaking(language):
        return _page(
            "audit", rows=[(row, say(row.action)) for row in rows], older=older
        )


def render_webhooks(
    webhooks: Sequence[ServedWebhook], language: Language, *, form_key: str
) -> str:
    """The webhooks of a service with their dead letters, and the form that sends them
    again.
    """
    with speaking(language):
        return _page(
            "webhooks",
            webhooks=webhooks,
            form_key=form_key,
            has_dead_letters=any(webhook.dead_letters for webhook in webhooks),
        )


def render_refusal(error: str, back: str, language: Language) -> str:
    """The page in the place of a form that was refused."""
    with speaking(language):
        return _page("refusal", error=error, back=back)


def render_trouble(error: str, language: Language) -> str:
    """The page in the place of one that cannot be shown."""
    with speaking(language):
        return _page("trouble", error=shown(error))


def _page(name: str, **values: object) -> str:
    return render_page(
        f"served/{name}.html.j2", style=inlined("flame/style.css"), **values
    )
