"""A page of main's history: its address, its links, and the frame of all pages.

Of outside text an address contains only letters, digits and hyphens.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import NamedTuple

from perfgate.document.site import SiteContent
from perfgate.document.trend import TrendSeries
from perfgate.judging.report.text.templates import inlined, render_page
from perfgate.judging.report.text.words import EMPTY, Words, phrases, say

OVERVIEW, OPEN, FLEET, GATES = "index.html", "open.html", "fleet.html", "gates.html"
# The form of a service is sent to this address, which is not a page.
TRIAGE = "triage"
ALL_SERIES, ALL_RUNS, COMPARE = (
    "series/index.html",
    "runs/index.html",
    "compare/index.html",
)
# Digits of a run's id in an address; the store finds a run by its first digits.
ID_DIGITS = 12
_RUN = re.compile(r"runs/([0-9a-f]{4,64})\.html")
_RUNS = re.compile(r"runs/page-([1-9][0-9]{0,6})\.html")
_COMPARE = re.compile(r"compare/([0-9a-f]{4,64})-([0-9a-f]{4,64})\.html")
_ANY = re.compile(
    r"(?:index|open|fleet|gates)\.html|(?:series|runs|compare)/[a-z0-9-]{1,150}\.html"
)
_NOT_PLAIN = re.compile(r"[^a-z0-9]+")
_MOST_CHARACTERS = 60


def series_address(series: TrendSeries, branch: str) -> str:
    """The page of a series: a readable name, which may be cut, and the key, which is
    unique.
    """
    place = f"{series.workload} {series.shape} {series.metric}"
    name = _NOT_PLAIN.sub("-", place.lower()).strip("-")[:_MOST_CHARACTERS].strip("-")
    of_branch = f"-b{hashlib.sha256(branch.encode()).hexdigest()[:8]}" if branch else ""
    file = f"{series.key}{of_branch}.html"
    if name:
        file = f"{name}-{file}"
    return f"series/{file}"


def run_address(run_id: str) -> str:
    return f"runs/{run_id[:ID_DIGITS]}.html"


def runs_address(page: int) -> str:
    """A page of the list of runs, counted from 1."""
    if page == 1:
        return ALL_RUNS
    return f"runs/page-{page}.html"


def compare_address(earlier: str, later: str) -> str:
    return f"compare/{earlier[:ID_DIGITS]}-{later[:ID_DIGITS]}.html"


def run_of(address: str) -> str | None:
    """The first digits of the id of the run that an address is the page of."""
    match = _RUN.fullmatch(address)
    if match:
        return match[1]
    return None


def runs_page_of(address: str) -> int | None:
    if address == ALL_RUNS:
        return 1
    match = _RUNS.fullmatch(address)
    if match:
        return int(match[1])
    return None


def compared_of(address: str) -> tuple[str, str] | None:
    match = _COMPARE.fullmatch(address)
    if match:
        return (match[1], match[2])
    return None


def commit_anchor(commit: str) -> Words:
    """The place of a regression on its page, by its first bad commit."""
    return anchor("commit", commit[:ID_DIGITS])


def anchor(prefix: str, text: str) -> Words:
    """A place on a page, named by the plain letters and digits of a text."""
    letters = [letter for letter in text if letter.isascii() and letter.isalnum()]
    return Words(f"{prefix}-{''.join(letters)}")


def is_address(text: str) -> bool:
    """Whether a text has the form of a page's address, which cannot leave the folder of
    the site.
    """
    return _ANY.fullmatch(text) is not None


@dataclass(frozen=True)
class SiteLinks:
    """The link targets of a site.

    ``written`` are the addresses of a site in files, None if every run and every two
    runs have a page. ``forms`` is whether the site answers forms, which files do not,
    and ``triage`` whether a form can give regressions a state. ``form_key`` takes the
    place of a token in the forms of a reader with write access. ``audit`` is the
    address of the store's audit log.
    """

    written: frozenset[str] | None = None
    forms: bool = False
    triage: bool = False
    form_key: str = ""
    audit: str = ""

    def has(self, address: str) -> bool:
        if self.written is None:
            return is_address(address)
        return address in self.written


_STYLES = ("page/style.css", "trend/style.css", "site/style.css")
_NAVIGATION = phrases(
    {
        OVERVIEW: "Overview",
        OPEN: "Open",
        ALL_SERIES: "Series",
        ALL_RUNS: "Runs",
        GATES: "Gates",
        FLEET: "Machines",
    }
)
# The folders of an address, with the entry of the navigation that they belong to.
_FOLDERS = {"series": ALL_SERIES, "runs": ALL_RUNS, "compare": ALL_RUNS}


class TestbedLink(NamedTuple):
    """The short name of a testbed, its device, and its place on the page of machines."""

    short: str
    device: str
    address: Words
    anchor: Words


@dataclass(frozen=True)
class SitePage:
    """A page at an address.

    Its links are relative to it, and empty if the site has no such page.
    """

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
        place = anchor("testbed", fingerprint[:16])
        return TestbedLink(
            short=fingerprint[:10],
            device=self.content.devices.get(fingerprint, ""),
            address=Words(f"{self.root}{FLEET}#{place}"),
            anchor=place,
        )

    def render(self, template: str, title: Words, **values: object) -> str:
        current = _FOLDERS.get(self.address.partition("/")[0], self.address)
        trend = self.content.trend
        return render_page(
            f"site/{template}.html.j2",
            style=inlined(*_STYLES),
            title=title,
            site=self,
            forms=self.links.forms,
            trend=trend,
            navigation=[
                (Words(address), say(name), address == current)
                for address, name in _NAVIGATION.items()
            ],
            **values,
        )
