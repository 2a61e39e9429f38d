"""The first page of `perfgate serve`: every job with its ranks, every recording with its flame graph and timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from urllib.parse import quote

from perfgate.document.served import ServedEntry, ServedJob, ServedRecording
from perfgate.judging.report.text.templates import Inlined, TemplateView, inlined, render_page
from perfgate.judging.report.text.words import Words, phrase, say
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


@dataclass(frozen=True)
class ServedPage(TemplateView):
    """What all these pages show."""

    style: Inlined = field(default_factory=lambda: inlined("flame/style.css"))
    version: str = __version__


@dataclass(frozen=True)
class ServedRow:
    """A job or recording with its name in an address."""

    entry: ServedEntry
    address: str

    @property
    def changed(self) -> Words:
        return Words(f"{datetime.fromtimestamp(self.entry.modified, timezone.utc):%Y-%m-%d %H:%M}")


@dataclass(frozen=True, kw_only=True)
class ServedIndex(ServedPage):
    """The recordings and jobs of a folder, by default of all, whose page lies at ``home``."""

    rows: Sequence[ServedRow]
    jobs: Sequence[ServedRow]
    folder: str
    folder_address: str
    contains: str
    home: Words


@dataclass(frozen=True, kw_only=True)
class Projects(ServedPage):
    """The projects of a store, and the addresses of recordings and audit log if there are any."""

    projects: Sequence[ProjectRow]
    recordings: Words
    audit: Words


@dataclass(frozen=True, kw_only=True)
class AuditLog(ServedPage):
    """The changes of a store, each with its action in words, and the address of the page with older ones."""

    rows: Sequence[tuple[AuditRow, Words]]
    older: Words


@dataclass(frozen=True, kw_only=True)
class RefusalPage(ServedPage):
    """Why a form was refused, and the address of the page that has it."""

    error: str
    back: Words


def render_index(
    recordings: Sequence[ServedRecording],
    jobs: Sequence[ServedJob],
    language: Language,
    *,
    folder: str = "",
    contains: str = "",
    home: str = "/",
) -> str:
    """The page of a folder. Its policy header lets the browser load nothing and run nothing."""
    with speaking(language):
        page = ServedIndex(
            rows=list(map(_row, recordings)),
            jobs=list(map(_row, jobs)),
            folder=folder,
            folder_address=quote(folder, safe=""),
            contains=contains,
            home=Words(home),
        )
        return render_page("served/index.html.j2", page)


def _row(entry: ServedEntry) -> ServedRow:
    return ServedRow(entry, quote(entry.name, safe=""))


def render_projects(
    projects: Sequence[ProjectRow], language: Language, *, recordings: str = "", audit: str = ""
) -> str:
    with speaking(language):
        page = Projects(projects=projects, recordings=Words(recordings), audit=Words(audit))
        return render_page("served/projects.html.j2", page)


def render_audit(rows: Sequence[AuditRow], language: Language, *, older: str = "") -> str:
    """The changes of a store, newest first."""
    with speaking(language):
        page = AuditLog(rows=[(row, say(ACTIONS[row.action])) for row in rows], older=Words(older))
        return render_page("served/audit.html.j2", page)


def render_refusal(error: str, back: str, language: Language) -> str:
    """The page in the place of a form that was refused."""
    with speaking(language):
        return render_page("served/refusal.html.j2", RefusalPage(error=error, back=Words(back)))
