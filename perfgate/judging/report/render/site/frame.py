"""A page of main's history: its links, and the frame that all pages have: style, policy, navigation."""

from __future__ import annotations

from dataclasses import dataclass

from perfgate.document.site import SiteContent
from perfgate.document.trend import TrendSeries
from perfgate.judging.report.render.site.addresses import (
    ALL_RUNS,
    ALL_SERIES,
    FLEET,
    GATES,
    OPEN,
    OVERVIEW,
    SiteLinks,
    anchor,
    compare_address,
    run_address,
    series_address,
)
from perfgate.judging.report.text.dates import day
from perfgate.judging.report.text.templates import inlined, render_page
from perfgate.judging.report.text.words import EMPTY, Words, phrase, say

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
class TestbedLink:
    """The short name of a testbed, its device, and its place on the page of machines."""

    short: str
    device: str
    address: Words


@dataclass(frozen=True)
class SitePage:
    """A page at an address. Its links are relative to it, and empty if the site has no such page."""

    address: str
    content: SiteContent
    links: SiteLinks

    @property
    def root(self) -> Words:
        """The path from the page to the root of the site."""
        return Words("../" * self.address.count("/"))

    def to(self, address: str) -> Words:
        if not self.links.has(address):
            return EMPTY
        return Words(f"{self.root}{address}")

    def to_run(self, run_id: str) -> Words:
        return self.to(run_address(run_id))

    def to_both(self, earlier: str, later: str) -> Words:
        """The page that shows two runs side by side."""
        return self.to(compare_address(earlier, later))

    def to_series(self, series: TrendSeries, branch: str = "") -> Words:
        return self.to(series_address(series, branch))

    def testbed(self, fingerprint: str) -> TestbedLink:
        address = Words(f"{self.root}{FLEET}#{testbed_anchor(fingerprint)}")
        return TestbedLink(
            fingerprint[:10], self.content.devices.get(fingerprint, ""), address
        )

    def render(self, template: str, title: Words, **values: object) -> str:
        current = _FOLDERS.get(self.address.partition("/")[0], self.address)
        trend = self.content.trend
        return render_page(
            f"site/{template}.html.j2",
            style=inlined(*_STYLES),
            title=title,
            root=self.root,
            links=self.links,
            forms=self.links.forms,
            project=trend.project,
            navigation=[
                (Words(address), say(name), address == current)
                for address, name in _NAVIGATION.items()
            ],
            made_at=day(trend.made_at),
            newest=day(trend.runs.newest),
            **values,
        )


def testbed_anchor(fingerprint: str) -> Words:
    return anchor("testbed", fingerprint[:16])
