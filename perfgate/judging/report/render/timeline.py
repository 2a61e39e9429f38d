"""The self-contained pages of spans over time.

timeline.html shows a recording; ranks.html adds the slow ranks and links of a job and
its heat maps.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perfgate.document.timeline import SPAN_KINDS, DrawnRanks, DrawnTimeline, HeatMap
from perfgate.document.trace import RankRow, RanksDocument
from perfgate.judging.report.render.trace import CAUSE_WORDS
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.ranks import rank_answers
from perfgate.judging.report.text.templates import (
    inlined,
    render_page,
    script_sentences,
)
from perfgate.judging.report.text.words import Words, phrase, phrases, say
from perfgate.locale import Language, speaking

_LONGEST_TEXT = 400
_KIND_WORDS = phrases(
    {
        "host_op": "operator",
        "compute": "kernel",
        "copy": "copy",
        "comm": "collective",
        "fused": "fused kernel",
        "annotation": "annotation",
        "device_annotation": "annotation",
        "runtime": "runtime call",
        "python": "Python function",
        "memory": "memory",
        "other": "other",
        "gap": "gap",
    }
)
_STYLES = ("flame/style.css", "timeline/style.css")
_SCRIPT = "timeline/script.js"


class PackedTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """A timeline as the page's script reads it; ``sizes`` are the bytes of its columns,
    two of each counter last.
    """

    label: str
    length: float
    texts: Sequence[str]
    tracks: Sequence[tuple[str, str, int]]
    counters: Sequence[tuple[str, str, int]]
    sizes: Sequence[int]


class PackedHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The header that the page's script reads before the columns."""

    kinds: Sequence[str]
    kind_words: Sequence[str]
    causes: Mapping[str, str]
    sentences: Mapping[str, str]
    timelines: Sequence[PackedTimeline]


def render_timeline(timelines: Sequence[DrawnTimeline], language: Language) -> str:
    """The page. Its policy header allows only the page's own script, and no network."""
    with speaking(language):
        title = numbers.counted(len(timelines), "timeline")
        if len(timelines) == 1:
            title = Words(clean(timelines[0].label))
        return render_page(
            "timeline/page.html.j2",
            style=inlined(*_STYLES),
            scripts=[inlined(_SCRIPT)],
            data=Words(packed_timelines(timelines)),
            timelines=timelines,
            title=title,
            sides={
                "host": say("host"),
                "device": say("device"),
                "gaps": say("gaps"),
                "counter": say("counter"),
            },
        )


def packed_timelines(timelines: Sequence[DrawnTimeline]) -> str:
    """The length of the compressed JSON, the JSON, and the columns, in base 64."""
    packed = []
    columns = []
    for timeline in timelines:
        of_timeline = [
            timeline.start,
            timeline.duration,
            timeline.name,
            timeline.kind,
            timeline.shape,
            timeline.launch,
        ]
        for counter in timeline.counters:
            of_timeline += [counter.time, counter.value]
        packed.append(_packed_timeline(timeline, of_timeline))
        columns += of_timeline
    header = PackedHeader(
        kinds=SPAN_KINDS,
        kind_words=[str(say(_KIND_WORDS[kind])) for kind in SPAN_KINDS],
        causes={cause: str(say(words)) for cause, words in CAUSE_WORDS.items()},
        sentences=script_sentences("timeline/sentences.txt"),
        timelines=packed,
    )
    text = gzip.compress(msgspec.json.encode(header), compresslevel=6, mtime=0)
    content = b"".join([len(text).to_bytes(4, "little"), text, *columns])
    return base64.b64encode(content).decode()


def _packed_timeline(
    timeline: DrawnTimeline, columns: Iterable[bytes]
) -> PackedTimeline:
    return PackedTimeline(
        label=_plain(timeline.label),
        length=timeline.length,
        texts=list(map(_plain, timeline.texts)),
        tracks=[
            (_plain(track.name), track.side, track.spans) for track in timeline.tracks
        ],
        counters=[
            (_plain(counter.name), _plain(counter.unit), counter.readings)
            for counter in timeline.counters
        ],
        sizes=list(map(len, columns)),
    )


def _plain(text: str) -> str:
    return clean(text, limit=_LONGEST_TEXT)


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


def render_ranks_page(job: DrawnRanks, language: Language) -> str:
    """The page. Its policy header allows only the page's own scripts, and no network."""
    with speaking(language):
        maps = DrawnMaps(
            labels=list(map(clean, job.labels)), maps=list(map(_drawn_map, job.maps))
        )
        timelines = [job.timeline] if job.timeline else []
        return render_page(
            "ranks/page.html.j2",
            style=inlined(*_STYLES, "ranks/style.css"),
            scripts=[inlined(_SCRIPT), inlined("ranks/script.js")],
            data=Words(packed_timelines(timelines)),
            # Escaped, so that no text in the JSON ends its script element.
            maps=Words(msgspec.json.encode(maps).decode().replace("<", "\\u003c")),
            answers=rank_answers(job.document, shown=_LISTED),
            ranks=_slowest(job.document),
            more_ranks=numbers.beyond(job.document.ranks, _TABLED),
            job=job,
        )


def _slowest(document: RanksDocument) -> list[RankRow]:
    """The rows of the table: all, or those that delay the others or take longest on
    their own.
    """
    if len(document.ranks) <= _TABLED:
        return document.ranks
    delays = {(row.rank, row.device): row.total for row in document.delays}

    def slowness(row: RankRow) -> tuple[float, float]:
        return delays.get((row.rank, row.device), 0.0), row.own or 0.0

    return sorted(document.ranks, key=slowness, reverse=True)[:_TABLED]


def _drawn_map(heat_map: HeatMap) -> DrawnMap:
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
