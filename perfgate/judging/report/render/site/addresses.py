"""The addresses of the pages of main's history, relative to their root, and the pages that a site has.

An address holds nothing from outside but letters, digits and hyphens.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from perfgate.document.trend import TrendSeries
from perfgate.judging.report.text.words import Words

OVERVIEW, OPEN, FLEET, GATES = "index.html", "open.html", "fleet.html", "gates.html"
# Where the form of a service is sent to; no page.
TRIAGE = "triage"
ALL_SERIES, ALL_RUNS, COMPARE = "series/index.html", "runs/index.html", "compare/index.html"
# Digits of a run's id in an address; the store finds a run by its first digits.
ID_DIGITS = 12
_RUN = re.compile(r"runs/([0-9a-f]{4,64})\.html")
_RUNS = re.compile(r"runs/page-([1-9][0-9]{0,6})\.html")
_COMPARE = re.compile(r"compare/([0-9a-f]{4,64})-([0-9a-f]{4,64})\.html")
_ANY = re.compile(r"(?:index|open|fleet|gates)\.html|(?:series|runs|compare)/[a-z0-9-]{1,150}\.html")
_NOT_PLAIN = re.compile(r"[^a-z0-9]+")
_MOST_CHARACTERS = 60


def series_address(series: TrendSeries, branch: str = "") -> str:
    """The page of a series: a readable name, which may be cut, and the key, which is unique."""
    place = f"{series.workload} {series.shape} {series.metric}"
    name = _NOT_PLAIN.sub("-", place.lower()).strip("-")[:_MOST_CHARACTERS].strip("-")
    of_branch = f"-b{hashlib.sha256(branch.encode()).hexdigest()[:8]}" if branch else ""
    return f"series/{name}-{series.key}{of_branch}.html" if name else f"series/{series.key}{of_branch}.html"


def run_address(run_id: str) -> str:
    return f"runs/{run_id[:ID_DIGITS]}.html"


def runs_address(page: int) -> str:
    """A page of the list of runs, counted from 1."""
    return ALL_RUNS if page == 1 else f"runs/page-{page}.html"


def compare_address(earlier: str, later: str) -> str:
    return f"compare/{earlier[:ID_DIGITS]}-{later[:ID_DIGITS]}.html"


def run_of(address: str) -> str | None:
    """The first digits of the id of the run that an address is the page of."""
    found = _RUN.fullmatch(address)
    return found.group(1) if found else None


def runs_page_of(address: str) -> int | None:
    found = _RUNS.fullmatch(address)
    return 1 if address == ALL_RUNS else int(found.group(1)) if found else None


def compared_of(address: str) -> tuple[str, str] | None:
    found = _COMPARE.fullmatch(address)
    return (found.group(1), found.group(2)) if found else None


def commit_anchor(commit: str) -> Words:
    """The place of a regression on its page, by its first bad commit."""
    return Words("commit-" + "".join(letter for letter in commit[:ID_DIGITS] if letter.isascii() and letter.isalnum()))


def is_address(text: str) -> bool:
    """Whether a text has the form of an address of a page, so that it leads out of no folder."""
    return _ANY.fullmatch(text) is not None


@dataclass(frozen=True)
class SiteLinks:
    """The links of a site's pages: relative ones, to pages that it has.

    ``written`` are the addresses of a site in files, None if every run and every two runs have a page. ``forms`` is whether
    something answers forms, which no file does, and ``triage`` whether regressions can be given a state by one. ``form_key``
    takes the place of a token in the forms of a reader with write access. ``audit`` is the address of the store's audit log.
    """

    written: frozenset[str] | None = None
    forms: bool = False
    triage: bool = False
    form_key: str = ""
    audit: str = ""

    def root(self, address: str) -> Words:
        """The path from a page to the root."""
        return Words("../" * address.count("/"))

    def to(self, address: str) -> Words:
        """An address, empty if the site has no such page."""
        is_there = is_address(address) if self.written is None else address in self.written
        return Words(address if is_there else "")

    def run(self, run_id: str) -> Words:
        return self.to(run_address(run_id))

    def compare(self, earlier: str, later: str) -> Words:
        return self.to(compare_address(earlier, later))

    def series(self, series: TrendSeries, branch: str = "") -> Words:
        return self.to(series_address(series, branch))
