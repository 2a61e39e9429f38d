"""timeline.html: one self-contained page with the spans of a recording over time."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perfgate.document.timeline import SPAN_KINDS, DrawnTimeline
from perfgate.judging.report.render.trace import CAUSE_WORDS
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.templates import (
    inlined,
    render_page,
    script_sentences,
)
from perfgate.judging.report.text.words import Words, phrases, say
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
STYLES = ("flame/style.css", "timeline/style.css")
SCRIPT = "timeline/script.js"


class PackedTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """A timeline as the page's script reads it; ``sizes`` are the bytes of its columns, two of each counter last."""

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


def render_timeline(
    timelines: Sequence[DrawnTimeline], language: Language = "en"
) -> str:
    """The page. Its policy header allows only the page's own script, and no network."""
    with speaking(language):
        title = numbers.counted(len(timelines), "timeline")
        if len(timelines) == 1:
            title = Words(clean(timelines[0].label))
        return render_page(
            "timeline/page.html.j2",
            style=inlined(*STYLES),
            scripts=[inlined(SCRIPT)],
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
    packed: list[PackedTimeline] = []
    columns: list[bytes] = []
    for timeline in timelines:
        of_timeline = _columns(timeline)
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


def _columns(timeline: DrawnTimeline) -> list[bytes]:
    columns = [
        timeline.start,
        timeline.duration,
        timeline.name,
        timeline.kind,
        timeline.shape,
        timeline.launch,
    ]
    for counter in timeline.counters:
        columns += [counter.time, counter.value]
    return columns


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
