"""timeline.html: one self-contained page with the spans of a recording over time."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from typing import Literal

import msgspec

from perfgate.document.timeline import SPAN_KINDS, DrawnTimeline
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.gap_causes import CAUSE_WORDS
from perfgate.judging.report.text.templates import environment, inlined
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.locale import Language, speaking, translate
from perfgate.version import __version__

_LONGEST_TEXT = 400
_Column = Literal["start", "duration", "name", "kind", "shape", "launch"]
_COLUMNS: tuple[_Column, ...] = ("start", "duration", "name", "kind", "shape", "launch")
_KIND_WORDS = {
    "host_op": phrase("operator"),
    "compute": phrase("kernel"),
    "copy": phrase("copy"),
    "comm": phrase("collective"),
    "fused": phrase("fused kernel"),
    "annotation": phrase("annotation"),
    "device_annotation": phrase("annotation"),
    "runtime": phrase("runtime call"),
    "python": phrase("Python function"),
    "memory": phrase("memory"),
    "other": phrase("other"),
    "gap": phrase("gap"),
}
STYLES = ("flame/style.css", "timeline/style.css")
# Sentences for the page's script, which has no catalogue of its own.
_SCRIPT_SENTENCES = (
    phrase("gaps of the device"),
    phrase("host"),
    phrase("device"),
    phrase("{time} shown"),
    phrase("{time} selected"),
    phrase("{count} spans; the device was busy for {busy} of it"),
    phrase("{count} spans"),
    phrase("{count} spans match: {time}"),
    phrase("launched by {name}, {time} before"),
    phrase("starts at {start}, lasts {time}"),
    phrase("{count} more names"),
    phrase("the host then: {name}"),
    phrase("counter"),
    phrase("{value} from {start} on"),
    phrase("no reading yet at {start}"),
    phrase("{low} to {high} in all"),
    phrase("{value} throughout"),
    phrase("zero throughout: {names}"),
)


def render_timeline(timelines: Sequence[DrawnTimeline], language: Language = "en") -> str:
    """The page. Its policy header lets the browser load nothing and run nothing but the page's own script."""
    with speaking(language):
        values = {
            **graph_values(timelines),
            "timelines": timelines,
            "what": Words(clean(timelines[0].label))
            if len(timelines) == 1
            else Words(numbers.counted(len(timelines), "timeline")),
            "sides": {"host": say("host"), "device": say("device"), "gaps": say("gaps"), "counter": say("counter")},
            "version": __version__,
        }
        return environment("html").get_template("timeline/page.html.j2").render(values)


def graph_values(timelines: Sequence[DrawnTimeline]) -> dict[str, Words]:
    """The values that ``timeline/graph.html.j2`` needs in the page around it: style, script, their hashes, and the spans."""
    return {
        **inlined(*STYLES),
        **inlined("timeline/script.js", name="script"),
        "data": Words(_packed(timelines)),
    }


def _packed(timelines: Sequence[DrawnTimeline]) -> str:
    """A length, compressed JSON of that length, and the columns, encoded as text."""
    columns = [
        [
            *(getattr(timeline, name) for name in _COLUMNS),
            *(column for counter in timeline.counters for column in (counter.time, counter.value)),
        ]
        for timeline in timelines
    ]
    header = {
        "kinds": SPAN_KINDS,
        "kind_words": [translate(_KIND_WORDS[kind]) for kind in SPAN_KINDS],
        "causes": {cause: translate(words) for cause, words in CAUSE_WORDS.items()},
        "sentences": {english: translate(english) for english in _SCRIPT_SENTENCES},
        "timelines": [
            {
                "label": _plain(timeline.label),
                "length": timeline.length,
                "texts": [_plain(text) for text in timeline.texts],
                "tracks": [(_plain(track.name), track.side, track.spans) for track in timeline.tracks],
                "counters": [
                    (_plain(counter.name), _plain(counter.unit), counter.readings) for counter in timeline.counters
                ],
                # Of the columns in bytes, two of each counter last.
                "sizes": [len(column) for column in own],
            }
            for timeline, own in zip(timelines, columns)
        ],
    }
    text = gzip.compress(msgspec.json.encode(header), compresslevel=6, mtime=0)
    content = b"".join([len(text).to_bytes(4, "little"), text, *(column for own in columns for column in own)])
    return base64.b64encode(content).decode()


def _plain(text: str) -> str:
    return clean(text, limit=_LONGEST_TEXT)
