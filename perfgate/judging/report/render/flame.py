"""flame.html: one self-contained page with an interactive flame graph, and the same
tree for other tools.
"""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from perfgate.document.flame import (
    FLAME_KINDS,
    NONE,
    FlameResult,
    FlameTree,
    node_totals,
    omitted_from,
)
from perfgate.document.lines import split_line
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.templates import (
    inlined,
    render_page,
    script_sentences,
)
from perfgate.judging.report.text.words import EMPTY, Words, phrase, phrases, say
from perfgate.locale import Language, speaking
from perfgate.version import __version__

FlameFormat = Literal["html", "speedscope", "collapsed"]
_LONGEST_TEXT = 400
_PYTHON_NAME = re.compile(r"(\S+\.py): (.+)")
_KIND_WORDS = phrases(
    {
        "thread": "thread",
        "stream": "stream",
        "python": "Python function",
        "host_op": "operator",
        "annotation": "annotation",
        "runtime": "runtime call",
        "compute": "kernel",
        "copy": "copy",
        "comm": "collective",
        "fused": "fused kernel",
        "other": "other",
    }
)
_UNIT_WORDS = phrases(
    {
        "call": "one call",
        "profiler step": "one profiler step",
        "whole recording": "the whole recording",
    }
)


# Why frames are coloured by how often they ran instead of by their time.
_DOUBTS = phrases(
    {
        "unpaired": "The pairs did not time this call.",
        "sign": "The profiled calls point the other way than the pairs.",
    }
)
_EXCLUDED = phrase("The profile is too noisy to colour frames by time.")


class SpeedscopeFrame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A frame that stacks refer to by its number."""

    name: str
    file: str | None = None
    line: int | None = None


class SpeedscopeProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The stacks of a thread or stream, each with its own time in nanoseconds."""

    type: str = "sampled"
    name: str
    unit: str = "nanoseconds"
    start_value: int = 0
    end_value: int
    samples: list[list[int]]
    weights: list[int]


class SpeedscopeFile(
    msgspec.Struct, frozen=True, kw_only=True, rename={"schema": "$schema"}
):
    """A file of speedscope."""

    schema: str = "https://www.speedscope.app/file-format-schema.json"
    exporter: str = f"perfgate {__version__}"
    shared: dict[str, list[SpeedscopeFrame]]
    profiles: list[SpeedscopeProfile]


class PackedTrees(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the page as its script reads it."""

    kinds: Sequence[str]
    trees: Sequence[FlameTree]
    paired: Sequence[bool]
    sentences: Mapping[str, str]
    kind_words: Sequence[str]
    unit_words: Mapping[str, str]


def flame_text(
    trees: Sequence[FlameTree], file_format: FlameFormat, language: Language
) -> str:
    """The graph as a page, or as a file of other tools."""
    if file_format == "html":
        return render_flame(trees, language)
    if file_format == "speedscope":
        return speedscope(trees).decode()
    text = ""
    for tree in trees:
        for line in collapsed_stacks(tree):
            text += f"{line}\n"
    return text


def render_flame(trees: Sequence[FlameTree], language: Language) -> str:
    """The page. Its policy header allows only the page's own script, and no network.

    Text from the recording is embedded as compressed data.
    """
    with speaking(language):
        subtitle = numbers.counted(len(trees), "recording")
        if len(trees) == 1:
            subtitle = Words(clean(trees[0].label))
        title = say("Flame graph")
        if any(tree.base is not None and tree.head is not None for tree in trees):
            title = say("Flame graph of base and head")
        calls = []
        for tree in trees:
            if tree.result is not None:
                calls.append((tree, _doubt(tree.result)))
        return render_page(
            "flame/page.html.j2",
            style=inlined("flame/style.css"),
            scripts=[inlined("flame/script.js")],
            data=Words(_packed(trees)),
            title=title,
            subtitle=subtitle,
            calls=calls,
            omitted=omitted_from(trees),
        )


def _doubt(result: FlameResult) -> Words:
    """Why the frames are coloured by counts; empty if they are coloured by time."""
    if not result.by_counts:
        return EMPTY
    reason = say(_DOUBTS.get(result.by_counts, _EXCLUDED))
    colours = say(
        "So the frames are coloured by how often they ran, and no difference of times is shown."
    )
    if any(mark.seconds for mark in result.marks):
        colours = say(
            "So frames are coloured by how often they ran, except operators whose own times the pairs decided."
        )
    return Words(f"{reason} {colours}")


def collapsed_stacks(tree: FlameTree) -> Iterator[str]:
    """Yield a line for each stack with self time: frames joined by ``;``, then
    nanoseconds in one unit.

    This is the input format of flamegraph.pl and, with two sides, base first, the
    output format of its difffolded.pl. A ``;`` in a name becomes a ``:``.
    """
    sides = [node_totals(tree, side) for side in tree.sides]
    paths: list[str] = []
    for node, parent in enumerate(tree.parent):
        name = _plain(tree.texts[tree.name[node]]).replace(";", ":")
        if parent != NONE:
            name = f"{paths[parent]};{name}"
        paths.append(name)
        spent = [round(totals[node].own * 1e9) for totals in sides]
        if any(spent):
            yield f"{name} {' '.join(map(str, spent))}"


def speedscope(trees: Sequence[FlameTree]) -> bytes:
    """The trees in the format of speedscope: a profile for each thread and stream of
    each side, frames shared.

    Source: the schema that the file names.
    """
    frames: dict[tuple[str, str], int] = {}
    profiles: list[SpeedscopeProfile] = []
    for tree in trees:
        profiles += _profiles(tree, frames)
    return msgspec.json.encode(
        SpeedscopeFile(
            shared={
                "frames": [_speedscope_frame(name, place) for name, place in frames]
            },
            profiles=profiles,
        )
    )


def _profiles(
    tree: FlameTree, frames: dict[tuple[str, str], int]
) -> Iterator[SpeedscopeProfile]:
    stacks, roots = _stacks(tree, frames)
    for side, costs in (("base", tree.base), ("head", tree.head)):
        if costs is None:
            continue
        totals = node_totals(tree, costs)
        for root in sorted(set(roots)):
            samples = []
            weights = []
            for node, stack in enumerate(stacks):
                if roots[node] == root and totals[node].own > 0:
                    samples.append(stack)
                    weights.append(round(totals[node].own * 1e9))
            words = [tree.label]
            if len(tree.sides) > 1:
                words.append(side)
            words.append(tree.texts[tree.name[root]])
            yield SpeedscopeProfile(
                name=" · ".join(_plain(word) for word in words if word),
                end_value=sum(weights),
                samples=samples,
                weights=weights,
            )


def _stacks(
    tree: FlameTree, frames: dict[tuple[str, str], int]
) -> tuple[list[list[int]], list[int]]:
    """The stack of each node as numbers of frames, and its root."""
    stacks: list[list[int]] = []
    roots = []
    for node, parent in enumerate(tree.parent):
        if parent == NONE:
            stacks.append([])
            roots.append(node)
            continue
        place = ""
        if tree.place[node] != NONE:
            place = tree.texts[tree.place[node]]
        key = tree.texts[tree.name[node]], place
        stacks.append([*stacks[parent], frames.setdefault(key, len(frames))])
        roots.append(roots[parent])
    return stacks, roots


def _speedscope_frame(name: str, place: str) -> SpeedscopeFrame:
    file, line = split_line(place)
    if not file or not line:
        return SpeedscopeFrame(name=_plain(name))
    return SpeedscopeFrame(name=_plain(name), file=_plain(file), line=line)


def _packed(trees: Sequence[FlameTree]) -> str:
    """The trees as JSON, gzipped, in base 64, so that no name can end an element of the
    page.
    """
    unit_words = {unit: str(say(words)) for unit, words in _UNIT_WORDS.items()}
    content = PackedTrees(
        kinds=FLAME_KINDS,
        trees=list(map(_printable, trees)),
        paired=[
            tree.result is not None and tree.result.call is not None for tree in trees
        ],
        sentences=script_sentences("flame/sentences.txt"),
        kind_words=[str(say(_KIND_WORDS[kind])) for kind in FLAME_KINDS],
        unit_words=unit_words,
    )
    encoded = msgspec.json.encode(content)
    packed = gzip.compress(encoded, compresslevel=9, mtime=0)
    return base64.b64encode(packed).decode()


def _printable(tree: FlameTree) -> FlameTree:
    """The tree as the page's script reads it: printable names, and ascending numbers as
    differences, which compress better.
    """
    replace = msgspec.structs.replace
    return replace(
        tree,
        parent=_steps(tree.parent),
        base=tree.base and replace(tree.base, node=_steps(tree.base.node)),
        head=tree.head and replace(tree.head, node=_steps(tree.head.node)),
        result=tree.result and replace(tree.result, call=None),
        omitted=replace(
            tree.omitted,
            names=[_plain(_name_first(name)) for name in tree.omitted.names],
        ),
        label=_plain(tree.label),
        texts=[_plain(_name_first(text)) for text in tree.texts],
        requests=list(map(_plain, tree.requests)),
    )


def _steps(nodes: Sequence[int]) -> list[int]:
    return [after - before for before, after in zip([0, *nodes], nodes)]


def _name_first(text: str) -> str:
    """The name of a function before its file, which a narrow frame truncates:
    ``forward (layers/attention.py)``.
    """
    function = _PYTHON_NAME.fullmatch(text)
    if function:
        return f"{function[2]} ({function[1]})"
    return text


def _plain(text: str) -> str:
    return clean(text, limit=_LONGEST_TEXT)
