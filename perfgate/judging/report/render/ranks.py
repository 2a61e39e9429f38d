"""ranks.html: one self-contained page of many ranks: slow ranks and links, heat maps, and timelines on one clock."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perfgate.document.timeline import DrawnRanks, HeatMap
from perfgate.document.trace import RankRow, RanksDocument
from perfgate.judging.report.render.timeline import SCRIPT, STYLES, packed_timelines
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.numbers import beyond
from perfgate.judging.report.text.ranks import rank_answers
from perfgate.judging.report.text.templates import inlined, render_page
from perfgate.judging.report.text.words import Words, phrase, phrases, say
from perfgate.locale import Language, speaking

_LISTED = 20  # slow ranks and links named one by one
_TABLED = 50
_DIGITS = 4  # of a number in a heat map
_TITLES = phrases(
    {
        "computing": "computing, of each step",
        "exposed": "exposed communication, of each step",
        "free": "free time, of each step",
        "bubble": "waiting for another stage of the pipeline, of each step",
        "late": "how late each rank comes to each collective",
        "bandwidth": "bandwidth of {link} from each rank to each other",
    }
)
_CELLS = phrases(
    {
        "late": "{row}, collective {column}: {value}",
        "bandwidth": "{row} to rank {column}: {value}",
    }
)
_OF_STEP = phrase("{row}, step {column}: {value}")
_LEFT_OUT = {"late": phrase("{count} collectives with a smaller skew are not drawn.")}
_UNITS = {"bandwidth": "B/s"}
_STEPS_LEFT_OUT = phrase("{count} earlier steps are not drawn.")


class DrawnMap(msgspec.Struct, frozen=True, kw_only=True):
    """A heat map as the page's script reads it."""

    title: str
    cell: str
    unit: str
    note: str
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]


class DrawnMaps(msgspec.Struct, frozen=True, kw_only=True):
    """All heat maps, and the names of their rows."""

    labels: Sequence[str]
    maps: Sequence[DrawnMap]


def render_ranks_page(job: DrawnRanks, language: Language = "en") -> str:
    """The page. Its policy header allows only the page's own scripts, and no network."""
    with speaking(language):
        maps = DrawnMaps(
            labels=list(map(clean, job.labels)), maps=list(map(_map, job.maps))
        )
        timelines = [job.timeline] if job.timeline else []
        return render_page(
            "ranks/page.html.j2",
            style=inlined(*STYLES, "ranks/style.css"),
            scripts=[inlined(SCRIPT), inlined("ranks/script.js")],
            data=Words(packed_timelines(timelines)),
            # Escaped, so that no text in the JSON ends its script element.
            maps=Words(msgspec.json.encode(maps).decode().replace("<", "\\u003c")),
            answers=rank_answers(job.document, shown=_LISTED),
            ranks=_slowest(job.document),
            more_ranks=beyond(job.document.ranks, _TABLED),
            job=job,
        )


def _slowest(document: RanksDocument) -> list[RankRow]:
    """The rows of the table: all, or those that delay the others or take longest on their own."""
    if len(document.ranks) <= _TABLED:
        return document.ranks
    delays = {(row.rank, row.device): row.total for row in document.delays}

    def slowness(row: RankRow) -> tuple[float, float]:
        return delays.get((row.rank, row.device), 0.0), row.own or 0.0

    return sorted(document.ranks, key=slowness, reverse=True)[:_TABLED]


def _map(heat_map: HeatMap) -> DrawnMap:
    note = ""
    if heat_map.left_out:
        note = str(
            say(_LEFT_OUT.get(heat_map.kind, _STEPS_LEFT_OUT), count=heat_map.left_out)
        )
    return DrawnMap(
        title=str(say(_TITLES[heat_map.kind], link=clean(heat_map.link))),
        cell=str(say(_CELLS.get(heat_map.kind, _OF_STEP))),
        unit=_UNITS.get(heat_map.kind, "s"),
        note=note,
        columns=list(map(clean, heat_map.columns)),
        values=[list(map(_rounded, row)) for row in heat_map.values],
    )


def _rounded(value: float | None) -> float | None:
    if value is None:
        return None
    return float(f"{value:.{_DIGITS}g}")
