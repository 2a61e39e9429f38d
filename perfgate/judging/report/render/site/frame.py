"""The frame that all pages of main's history have: style, policy, navigation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfgate.document.site import SiteContent
from perfgate.judging.report.render.site.addresses import ALL_RUNS, ALL_SERIES, FLEET, GATES, OPEN, OVERVIEW, SiteLinks
from perfgate.judging.report.text import templates
from perfgate.judging.report.text.dates import day
from perfgate.judging.report.text.templates import Inlined, TemplateView, inlined
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.version import __version__

_STYLES = ("page/style.css", "trend/style.css", "site/style.css")
_NAVIGATION = {
    OVERVIEW: phrase("Overview"),
    OPEN: phrase("Open"),
    ALL_SERIES: phrase("Series"),
    ALL_RUNS: phrase("Runs"),
    GATES: phrase("Gates"),
    FLEET: phrase("Machines"),
}
# The folders of an address, with the entry of the navigation that they belong to.
_FOLDERS = {"series": ALL_SERIES, "runs": ALL_RUNS, "compare": ALL_RUNS}


@dataclass(frozen=True)
class NavigationEntry:
    """A page that every page leads to."""

    address: Words
    name: Words
    is_current: bool


@dataclass(frozen=True)
class Frame(TemplateView):
    """What all pages show; ``root`` is the path from the page to the root of the site."""

    style: Inlined
    title: Words
    root: Words
    links: SiteLinks
    project: str
    navigation: Sequence[NavigationEntry]
    made_at: Words
    newest: Words
    version: str


def render_page(
    template: str, title: Words, address: str, content: SiteContent, links: SiteLinks, *views: TemplateView
) -> str:
    """Render a page for its address."""
    current = _FOLDERS.get(address.partition("/")[0], address)
    navigation = [NavigationEntry(Words(entry), say(name), entry == current) for entry, name in _NAVIGATION.items()]
    frame = Frame(
        style=inlined(*_STYLES),
        title=title,
        root=links.root(address),
        links=links,
        project=content.trend.project,
        navigation=navigation,
        made_at=day(content.trend.made_at),
        newest=day(content.trend.newest),
        version=__version__,
    )
    return templates.render_page(template, frame, *views)
