"""Cells that several pages show: changes with their links, open regressions as cards, testbeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from perfgate.document.history import StoredRun
from perfgate.document.kept import KeptLink
from perfgate.document.site import BesideLevel, Position, SiteContent
from perfgate.document.trend import TrendCause, TrendSeries, place_of
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.addresses import FLEET, SiteLinks
from perfgate.judging.report.render.trend_page import change_cells
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.templates import is_linkable
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.trend_rows import MovedSeries, cause_row, minute, moved_by, short

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


def is_regressed(series: TrendSeries) -> bool:
    """Whether a series has a regression that is open."""
    return any(change.direction == "worse" and change.standing in ("new", "open") for change in series.changes)


def under(root: Words, address: Words) -> Words:
    """An address relative to a page, empty if there is no such page."""
    return Words(f"{root}{address}") if address else Words("")


def moved_cells(moved: MovedSeries, links: SiteLinks, root: Words) -> Mapping[str, object]:
    """A change as a row of a table, with links to its series and to the runs on both sides of it."""
    series, change = moved
    before, after = series.points[change.at - 1], series.points[change.at]
    cells = change_cells(moved)
    return {
        **cells,
        # The pages compare with no earlier report, to which a change could be new.
        "told": say("open") if change.standing in ("new", "open") else cells["told"],
        "address": under(root, links.series(series)),
        "compare": under(root, links.compare(before.run_id, after.run_id)),
    }


def cause_card(cause: TrendCause, content: SiteContent, links: SiteLinks, root: Words) -> Mapping[str, object]:
    """A regression or improvement: its leading change, the history of that, and everything else that it moved."""
    lead, *others = moved_by(cause, content.trend)
    # A stored run has the subject of its commit, so no clone is needed.
    subjects = (run.subject or "" for run in content.runs if cause.first_bad and run.commit == cause.first_bad)
    return {
        "row": cause_row(cause, content.trend, most=0),
        "direction": Words(cause.direction),
        "change": moved_cells(lead, links, root),
        "subject": next(subjects, ""),
        "plot": trend_svg.small_plot(lead.series, lead.change.at),
        "others": [moved_cells(moved, links, root) for moved in others[:_MAX_OTHERS]],
        "count": len(others),
    }


def kept_cells(link: KeptLink) -> Mapping[str, object]:
    """A kept file as a row: a link to it, or, without an address that may become one, its place."""
    return {
        "path": link.path,
        "kind": say(_KINDS.get(link.kind, _KINDS["trace"])),
        "size": formats.quantity(float(link.bytes), "B"),
        "address": Words(link.address if is_linkable(link.address) or _OWN_ADDRESS.fullmatch(link.address) else ""),
        "place": link.place,
    }


def run_cells(run: StoredRun, content: SiteContent, links: SiteLinks, root: Words) -> Mapping[str, object]:
    """A run as a row of a list."""
    return {
        "when": minute(run.started_at),
        "commit": short(run.commit),
        "subject": run.subject or "",
        "branch": run.branch or "",
        "dirty": run.dirty,
        "workloads": run.workloads,
        "id": Words(run.id[:12]),
        "address": under(root, links.run(run.id)),
        "testbed": testbed_link(run.fingerprint, content, root),
    }


def testbed_link(fingerprint: str, content: SiteContent, root: Words) -> Mapping[str, object]:
    """The short name of a testbed, its device, and its place on the page of machines."""
    return {
        "short": fingerprint[:10],
        "device": content.devices.get(fingerprint, ""),
        "address": Words(f"{root}{FLEET}#{testbed_anchor(fingerprint)}"),
    }


def testbed_anchor(fingerprint: str) -> Words:
    return Words("testbed-" + "".join(letter for letter in fingerprint[:16] if letter.isascii() and letter.isalnum()))


def level_cells(placed: BesideLevel, links: SiteLinks, root: Words) -> Mapping[str, object]:
    """A number of one or two runs beside main's level, in one unit."""
    series = placed.series
    values = [placed.before, placed.value, placed.typical, *(placed.interval or ())]
    before, value, typical, *ends = formats.quantities(values, series.unit, metric=series.metric)
    is_too_short = placed.value is not None and placed.interval is None and placed.versions > 0
    position = say(_POSITIONS[placed.position])
    if is_too_short and placed.position == "unknown":
        position = say("too few versions")
    return {
        "metric": metric_name(series.metric),
        "place": place_of(series.workload, series.shape, series.labels),
        "before": before,
        "value": value,
        "typical": typical,
        "interval": numbers.reach(*ends) if ends else numbers.DASH,
        "versions": placed.versions,
        "position": Words(placed.position),
        "position_words": position,
        "plot": trend_svg.small_plot(series) if placed.is_apart else Words(""),
        "address": under(root, links.series(series)),
    }


def interval_count(rows: Sequence[BesideLevel]) -> int:
    return sum(row.interval is not None and row.series.kind == "noisy" for row in rows)
