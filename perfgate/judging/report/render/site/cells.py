"""Cells that several pages show: changes with their links, open regressions as cards, testbeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from perfgate.document.history import StoredRun
from perfgate.document.kept import KeptLink
from perfgate.document.site import BesideLevel, Position, SiteContent
from perfgate.document.trend import TrendCause, TrendSeries, place_of
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.addresses import FLEET, SiteLinks
from perfgate.judging.report.render.trend_page import ChangeCells, change_cells, runs_beside
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.media import is_linkable
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.trend_rows import CauseRow, MovedSeries, cause_row, moved_by

_MAX_OTHERS = 200
_KINDS = {"trace": phrase("trace"), "flamegraph": phrase("flame graph"), "report": phrase("report")}
# A page of the service that shows it.
_OWN_ADDRESS = re.compile(r"/[A-Za-z0-9._/-]+")
_POSITIONS: Mapping[Position, str] = {
    "inside": phrase("inside"),
    "above": phrase("above"),
    "below": phrase("below"),
    "same": phrase("the same count"),
    "differs": phrase("another count"),
    "no_spread": phrase("no spread known yet"),
    "unknown": phrase("not known"),
}


@dataclass(frozen=True)
class CauseCard:
    """A regression or improvement: its leading change, the history of that, and everything else that it moved.

    ``subject`` is that of the first bad run's commit.
    """

    row: CauseRow
    change: ChangeCells
    subject: str
    plot: Markup
    others: Sequence[ChangeCells]
    count: int

    @property
    def direction(self) -> Words:
        return self.change.direction


@dataclass(frozen=True)
class KeptCells:
    """A kept file: a link to it, or, without an address that may become one, its place."""

    link: KeptLink
    kind: Words
    size: Words
    address: Words


@dataclass(frozen=True)
class TestbedLink:
    """The short name of a testbed, its device, and its place on the page of machines."""

    short: str
    device: str
    address: Words


@dataclass(frozen=True)
class RunCells:
    """A run as a row of a list; ``address`` is empty if it has no page."""

    run: StoredRun
    id: Words
    address: Words
    testbed: TestbedLink


@dataclass(frozen=True)
class LevelCells:
    """A number of one or two runs beside main's level, in one unit."""

    metric: str
    place: str
    before: Words
    value: Words
    typical: Words
    interval: Words
    position: Words
    position_words: Words
    plot: Markup
    address: Words


def is_regressed(series: TrendSeries) -> bool:
    """Whether a series has a regression that is open."""
    return any(change.direction == "worse" and change.standing in ("new", "open") for change in series.changes)


def under(root: Words, address: Words) -> Words:
    """An address relative to a page, empty if there is no such page."""
    return Words(f"{root}{address}") if address else Words("")


def moved_cells(moved: MovedSeries, links: SiteLinks, root: Words) -> ChangeCells:
    """A change as a row of a table, with links to its series and to the runs on both sides of it."""
    cells = change_cells(moved)
    # The pages compare with no earlier report, to which a change could be new.
    status = say("open") if moved.change.standing in ("new", "open") else cells.status
    return replace(
        cells,
        status=status,
        address=under(root, links.series(moved.series)),
        compare=under(root, links.compare(*runs_beside(moved))),
    )


def cause_card(cause: TrendCause, content: SiteContent, links: SiteLinks, root: Words) -> CauseCard:
    lead, *others = moved_by(cause, content.trend)
    return CauseCard(
        row=cause_row(cause, content.trend, most=0),
        change=moved_cells(lead, links, root),
        subject=_subject(cause, content),
        plot=trend_svg.small_plot(lead.series, lead.change.at),
        others=[moved_cells(moved, links, root) for moved in others[:_MAX_OTHERS]],
        count=len(others),
    )


def _subject(cause: TrendCause, content: SiteContent) -> str:
    """The subject of the first bad commit: a stored run has it, so no clone is needed."""
    for run in content.runs:
        if cause.first_bad and run.commit == cause.first_bad:
            return run.subject or ""
    return ""


def kept_cells(link: KeptLink) -> KeptCells:
    is_address = is_linkable(link.address) or _OWN_ADDRESS.fullmatch(link.address)
    return KeptCells(
        link=link,
        kind=say(_KINDS.get(link.kind, _KINDS["trace"])),
        size=formats.quantity(float(link.bytes), "B"),
        address=Words(link.address if is_address else ""),
    )


def run_cells(run: StoredRun, content: SiteContent, links: SiteLinks, root: Words) -> RunCells:
    address = under(root, links.run(run.id))
    return RunCells(run, Words(run.id[:12]), address, testbed_link(run.fingerprint, content, root))


def testbed_link(fingerprint: str, content: SiteContent, root: Words) -> TestbedLink:
    address = Words(f"{root}{FLEET}#{testbed_anchor(fingerprint)}")
    return TestbedLink(fingerprint[:10], content.devices.get(fingerprint, ""), address)


def testbed_anchor(fingerprint: str) -> Words:
    letters = [letter for letter in fingerprint[:16] if letter.isascii() and letter.isalnum()]
    return Words("testbed-" + "".join(letters))


def level_cells(placed: BesideLevel, links: SiteLinks, root: Words) -> LevelCells:
    series = placed.series
    ends = placed.interval or (None, None)
    values = [placed.before, placed.value, placed.typical, *ends]
    before, value, typical, low, high = formats.quantities(values, series.unit, metric=series.metric)
    is_too_short = placed.value is not None and placed.interval is None and placed.versions > 0
    position = say(_POSITIONS[placed.position])
    if is_too_short and placed.position == "unknown":
        position = say("too few versions")
    return LevelCells(
        metric=metric_name(series.metric),
        place=place_of(series.workload, series.shape, series.labels),
        before=before,
        value=value,
        typical=typical,
        interval=numbers.reach(low, high),
        position=Words(placed.position),
        position_words=position,
        plot=trend_svg.small_plot(series) if placed.is_apart else Markup(""),
        address=under(root, links.series(series)),
    )


def interval_count(rows: Sequence[BesideLevel]) -> int:
    return sum(row.interval is not None and row.series.kind == "noisy" for row in rows)
