"""The frame that all pages of main's history have: style, policy, navigation."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.document.site import SiteContent
from perfgate.judging.report.render.site.addresses import ALL_RUNS, ALL_SERIES, FLEET, GATES, OPEN, OVERVIEW, SiteLinks
from perfgate.judging.report.text.templates import environment, inlined
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.trend_rows import day
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


def render_page(
    template: str, address: str, content: SiteContent, links: SiteLinks, values: Mapping[str, object]
) -> str:
    """Render a page for its address; the values of every page have a ``title``."""
    current = _FOLDERS.get(address.partition("/")[0], address)
    frame = {
        **inlined(*_STYLES),
        "root": links.root(address),
        "forms": links.forms,
        "audit": Words(links.audit),
        "project": content.trend.project,
        "navigation": [(Words(entry), say(name), entry == current) for entry, name in _NAVIGATION.items()],
        "made_at": day(content.trend.made_at),
        "newest": day(content.trend.newest),
        "version": __version__,
    }
    return environment("html").get_template(template).render({**frame, **values})
