"""The first page of `perfgate serve`: every job with its ranks, every recording with its flame graph and timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from urllib.parse import quote

from perfgate.document.served import ServedEntry, ServedJob, ServedRecording
from perfgate.judging.report.text.templates import environment, inlined
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.trend_rows import day
from perfgate.locale import Language, speaking
from perfgate.version import __version__

# The changes of a store, by their names in its audit log.
ACTIONS = {
    "run recorded": phrase("run recorded"),
    "runs copied": phrase("runs copied"),
    "regression accepted": phrase("regression accepted"),
    "regression triaged": phrase("regression triaged"),
    "change confirmed": phrase("change confirmed"),
    "verdict kept": phrase("verdict kept"),
    "runs pruned": phrase("runs pruned"),
    "artifacts pruned": phrase("artifacts pruned"),
    "token created": phrase("token created"),
    "token copied": phrase("token copied"),
    "token revoked": phrase("token revoked"),
}


@dataclass(frozen=True)
class ProjectRow:
    """A project with the address of its pages and its newest run, which started at ``started_at`` (ISO 8601)."""

    name: str
    address: str
    started_at: str
    commit: str
    subject: str


@dataclass(frozen=True)
class AuditRow:
    """A change of the store as the page of the audit log shows it; ``at`` is ISO 8601, ``action`` one of ACTIONS."""

    at: str
    actor: str
    project: str
    action: str
    subject: str


def render_index(
    recordings: Sequence[ServedRecording],
    jobs: Sequence[ServedJob],
    language: Language,
    *,
    folder: str = "",
    contains: str = "",
    home: str = "/",
) -> str:
    """The page of a folder, by default of all, which lies at ``home``.

    Its policy header lets the browser load nothing and run nothing.
    """
    with speaking(language):
        values = {
            **_frame(),
            "rows": [(one, quote(one.name, safe=""), _changed(one)) for one in recordings],
            "jobs": [(one, quote(one.name, safe=""), _changed(one)) for one in jobs],
            "folder": folder,
            "folder_address": quote(folder, safe=""),
            "contains": contains,
            "home": Words(home),
        }
        return environment("html").get_template("served/index.html.j2").render(values)


def render_projects(
    projects: Sequence[ProjectRow], language: Language, *, recordings: str = "", audit: str = ""
) -> str:
    """The projects of a store, and the addresses of recordings and audit log if there are any."""
    with speaking(language):
        values = {
            **_frame(),
            "projects": [(row, Words(row.address), day(row.started_at)) for row in projects],
            "recordings": Words(recordings),
            "audit": Words(audit),
        }
        return environment("html").get_template("served/projects.html.j2").render(values)


def render_audit(rows: Sequence[AuditRow], language: Language, *, older: str = "") -> str:
    """The changes of a store, newest first, and the address of the page with older ones if there are any."""
    with speaking(language):
        values = {
            **_frame(),
            "rows": [(row, Words(row.at[:19].replace("T", " ")), say(ACTIONS[row.action])) for row in rows],
            "older": Words(older),
        }
        return environment("html").get_template("served/audit.html.j2").render(values)


def render_refusal(error: str, back: str, language: Language) -> str:
    """The page in the place of a form that was refused, with the address of the page that has the form."""
    with speaking(language):
        values = {**_frame(), "error": error, "back": Words(back)}
        return environment("html").get_template("served/refusal.html.j2").render(values)


def _frame() -> dict[str, object]:
    """The values that both pages have."""
    return {**inlined("flame/style.css"), "version": __version__}


def _changed(one: ServedEntry) -> Words:
    return Words(f"{datetime.fromtimestamp(one.modified, timezone.utc):%Y-%m-%d %H:%M}")
