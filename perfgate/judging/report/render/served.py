"""The first page of `perfgate serve`: every job with its ranks, every recording with its flame graph and timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from urllib.parse import quote

from perfgate.document.served import ServedEntry, ServedJob, ServedRecording
from perfgate.judging.report.text.templates import environment, inlined
from perfgate.judging.report.text.words import Words
from perfgate.locale import Language, speaking
from perfgate.version import __version__


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


def render_projects(projects: Mapping[str, str], language: Language, *, recordings: str = "") -> str:
    """The projects of a store, each with the address of its pages, and the address of the recordings if there are any."""
    with speaking(language):
        values = {
            **_frame(),
            "projects": [(name, Words(address)) for name, address in projects.items()],
            "recordings": Words(recordings),
        }
        return environment("html").get_template("served/projects.html.j2").render(values)


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
