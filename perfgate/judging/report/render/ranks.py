"""ranks.html: one self-contained page of many ranks: slow ranks and links, heat maps, and timelines on one clock."""

from __future__ import annotations

from typing import Any

import msgspec

from perfgate.document.ranks import DrawnRanks, HeatMap
from perfgate.document.trace import RankRow, RanksDocument
from perfgate.judging.report.render.timeline import STYLES, graph_values
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.ranks import rank_answers, rank_name
from perfgate.judging.report.text.templates import environment, inlined
from perfgate.judging.report.text.words import Words, phrase
from perfgate.locale import Language, speaking, translate
from perfgate.version import __version__

_LISTED = 20  # slow ranks and links named one by one
_TABLED = 50
_DIGITS = 4  # of a number in a heat map
_TITLES = {
    "computing": phrase("computing, of each step"),
    "exposed": phrase("exposed communication, of each step"),
    "free": phrase("free time, of each step"),
    "bubble": phrase("waiting for another stage of the pipeline, of each step"),
    "late": phrase("how late each rank comes to each collective"),
    "bandwidth": phrase("bandwidth of {link} from each rank to each other"),
}
_CELLS = {"late": phrase("{row}, collective {column}: {value}"), "bandwidth": phrase("{row} to rank {column}: {value}")}
_OF_STEP = phrase("{row}, step {column}: {value}")
_LEFT_OUT = {"late": phrase("{count} collectives with a smaller skew are not drawn.")}
_STEPS_LEFT_OUT = phrase("{count} earlier steps are not drawn.")


def render_ranks_page(drawn: DrawnRanks, language: Language = "en") -> str:
    """The page. Its policy header lets the browser load nothing and run nothing but the page's own scripts."""
    with speaking(language):
        maps = {"labels": [clean(label) for label in drawn.labels], "maps": [_map(one) for one in drawn.maps]}
        values = {
            **graph_values([drawn.timeline] if drawn.timeline else []),
            **inlined(*STYLES, "ranks/style.css"),
            **inlined("ranks/script.js", name="map_script"),
            # Escaped, so that nothing in the JSON ends its script element.
            "maps": Words(msgspec.json.encode(maps).decode().replace("<", "\\u003c")),
            "has_maps": bool(drawn.maps),
            "answers": rank_answers(drawn.document, shown=_LISTED),
            "document": drawn.document,
            "ranks": _worst(drawn.document),
            "more_ranks": max(0, len(drawn.document.ranks) - _TABLED),
            "rank_name": rank_name,
            "drawn": drawn,
            "version": __version__,
        }
        return environment("html").get_template("ranks/page.html.j2").render(values)


def _worst(document: RanksDocument) -> list[RankRow]:
    """The rows of the table: all, or those that delay the others or take longest on their own."""
    if len(document.ranks) <= _TABLED:
        return document.ranks
    delays = {(row.rank, row.device): row.total for row in document.delays}
    worst = sorted(document.ranks, key=lambda row: (-delays.get((row.rank, row.device), 0.0), -(row.own or 0.0)))
    return worst[:_TABLED]


def _map(one: HeatMap) -> dict[str, Any]:
    left_out = translate(_LEFT_OUT.get(one.kind, _STEPS_LEFT_OUT)).replace("{count}", str(one.left_out))
    return {
        "title": translate(_TITLES[one.kind]).replace("{link}", clean(one.link)),
        "cell": translate(_CELLS.get(one.kind, _OF_STEP)),
        "unit": "B/s" if one.kind == "bandwidth" else "s",
        "note": left_out if one.left_out else "",
        "columns": [clean(column) for column in one.columns],
        "values": [[None if value is None else float(f"{value:.{_DIGITS}g}") for value in row] for row in one.values],
    }
