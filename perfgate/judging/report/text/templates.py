"""Templates, rendered for one of three media; an undefined name is an error."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache, partial
from types import CodeType
from typing import Literal, NamedTuple

from jinja2 import (
    BytecodeCache,
    Environment,
    PackageLoader,
    StrictUndefined,
    pass_context,
)
from jinja2.bccache import Bucket
from jinja2.runtime import Context

from perfgate.document.comparison import Comparison, Paired
from perfgate.document.trend import TrendSeries, place_of
from perfgate.judging.report.text import formats, names, numbers, svg
from perfgate.judging.report.text.media import (
    FILTERS,
    Html,
    Markdown,
    Plain,
    ReadyHtml,
    Terminal,
)
from perfgate.judging.report.text.messages import gain_words, unnamed_operator, word
from perfgate.judging.report.text.names import day, minute, short
from perfgate.judging.report.text.ranks import name_of
from perfgate.judging.report.text.words import EMPTY, Words, say
from perfgate.locale import Language, current_language, gap_between, translate
from perfgate.version import __version__

_PLACE = re.compile(r"%\((\w+)\)s")
Medium = Literal["markdown", "plain", "terminal", "html"]
_MEDIA: dict[Medium, type[Markdown | Plain | Html]] = {
    "markdown": Markdown,
    "plain": Plain,
    "terminal": Terminal,
    "html": Html,
}


class Inlined(NamedTuple):
    """A style or script of ``templates/`` for an HTML page, and the hash by which the
    page's policy allows it.
    """

    text: Words
    sha256: Words


def render(template: str, medium: Medium, **values: object) -> Words:
    """Render a template of ``templates/`` for a medium; the result counts as our own
    words in that medium.
    """
    return Words(environment(medium).get_template(template).render(values))


def render_page(template: str, **values: object) -> str:
    """Render a whole HTML page."""
    return environment("html").get_template(template).render(values)


def render_part(template: str, **values: object) -> ReadyHtml:
    """Render a part of an HTML page."""
    return ReadyHtml(render_page(template, **values))


def render_with_summary(
    template: str, medium: Medium, **values: object
) -> tuple[Words, Words]:
    """Render a template; the second text is its ``summary``, empty if the template sets
    none.
    """
    module = environment(medium).get_template(template).make_module(values)
    return Words(module), Words(" ".join(str(getattr(module, "summary", "")).split()))


def line(template: str, medium: Medium, **values: object) -> Words:
    """Render a template to one line, so that it can be laid out over several lines
    itself.
    """
    text = " ".join(environment(medium).get_template(template).render(values).split())
    if medium == "html":
        return ReadyHtml(text)
    return Words(text)


def inlined(*sources: str) -> Inlined:
    text = "".join(map(_source, sources))
    digest = hashlib.sha256(text.encode()).digest()
    return Inlined(Words(text), Words(base64.b64encode(digest).decode()))


def compile_pages(*folders: str) -> None:
    """Compile the HTML templates of some folders of ``templates/``, so that no reader
    of a service waits for it.
    """
    jinja = environment("html")
    for name in jinja.list_templates():
        if name.endswith(".html.j2") and name.partition("/")[0] in folders:
            jinja.get_template(name)


def script_sentences(source: str) -> dict[str, str]:
    """The sentences of a page's script, one a line, each with its translation: a script
    has no catalogue.
    """
    return {
        english: translate(english, current_language())
        for english in _source(source).splitlines()
    }


def _source(name: str) -> str:
    jinja = environment("html")
    assert jinja.loader is not None
    return jinja.loader.get_source(jinja, name)[0]


def environment(medium: Medium) -> Environment:
    return _environment(medium, current_language())


@cache
def _environment(medium: Medium, language: Language) -> Environment:
    media = _MEDIA[medium]
    jinja = Environment(
        loader=PackageLoader("perfgate.judging.report", "templates"),
        undefined=StrictUndefined,
        autoescape=media.autoescapes,
        finalize=_finalized(media.show),
        optimized=False,
        bytecode_cache=_COMPILED[media.autoescapes],
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        extensions=["jinja2.ext.i18n"],
    )
    jinja.newstyle_gettext = True  # type: ignore[attr-defined]
    jinja.globals["gettext"] = partial(_sentence, media, language)
    jinja.globals["absent"] = Words(translate("none", language))
    jinja.globals["language"] = Words(language)
    jinja.globals["version"] = Words(__version__)
    # After a colon: a Chinese colon is as wide as a character, with its space.
    jinja.globals["gap"] = Words({"en": " ", "zh": ""}[language])
    jinja.filters.update(
        {name: getattr(media, name) for name in FILTERS if hasattr(media, name)}
    )
    jinja.filters.update(_NUMBER_FILTERS)
    jinja.filters.update(_DOCUMENT_FILTERS)
    return jinja


class _CompiledTemplates(BytecodeCache):
    """The code of templates for environments that differ in medium and language alone.

    Jinja must not compute values while it compiles: not ``optimized``, and ``finalize``
    takes the context.
    """

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Find the code of a template."""
        bucket.code = self._code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the code of a template."""
        self._code[bucket.key, bucket.checksum] = bucket.code


# By whether the code escapes for HTML.
_COMPILED = {False: _CompiledTemplates(), True: _CompiledTemplates()}


def _finalized(finalize: Callable[[object], str]) -> Callable[..., str]:
    @pass_context
    def at_run_time(_: Context, value: object) -> str:
        return finalize(value)

    return at_run_time


def _sentence(
    medium: type[Markdown | Plain | Html],
    language: Language,
    english: str,
    /,
    **values: object,
) -> str:
    """The translation of a ``{% trans %}`` block; values are escaped as everywhere in a
    template.
    """
    # Before the values, which may hold backticks.
    words = str(medium.marked_up(translate(english, language)))
    escaped = {name: str(medium.show(value)) for name, value in values.items()}
    if language == "en":
        return medium.ready(words % escaped)
    sentence = ""
    for number, piece in enumerate(_PLACE.split(words)):
        text = piece % ()
        if number % 2:
            text = escaped[piece]
        sentence += gap_between(sentence, text) + text
    return medium.ready(sentence)


def _quantity(value: float | None, unit: str, metric: str = "") -> Words:
    return formats.quantity(value, formats.Measure(unit, metric))


def _newest(series: TrendSeries) -> Words:
    """The value of the newest version; a dash without any."""
    if series.points:
        return formats.quantity(series.points[-1].value, series)
    return numbers.DASH


def _history(series: TrendSeries, blocks: int = svg.SPARKS) -> Words:
    return svg.sparkline([point.value for point in series.points], blocks)


def _interval_bar(comparison: Comparison, scale: float) -> str:
    """A bar for the interval of a comparison; empty without one."""
    if (
        not isinstance(comparison, Paired)
        or comparison.interval is None
        or comparison.outcome == "not_comparable"
    ):
        return EMPTY
    words = formats.interval(comparison)
    return svg.interval_bar(
        comparison.interval,
        comparison.delta,
        comparison.tolerance,
        scale,
        comparison.outcome,
        words,
    )


def _needed(comparison: Comparison) -> Words | None:
    """The number of pairs, turns or quads that would decide a comparison; None if it is
    not known.
    """
    if not isinstance(comparison, Paired) or not comparison.pairs_needed:
        return None
    return numbers.counted(comparison.pairs_needed, names.evidence_of(comparison))


_NUMBER_FILTERS: dict[str, Callable[..., object]] = {
    "counted": numbers.counted,
    "quantity": _quantity,
    "percent": numbers.percent,
    "plus_minus": numbers.plus_minus,
    "setting": numbers.setting,
    "duration": numbers.duration,
    "whole": numbers.whole,
    "sentence": lambda message: str(word(message)),
    "words": Words,
    "say": say,
    "listed": names.listed,
    "rank_name": name_of,
    # A number and its unit stay together in narrow table columns.
    "whole_cell": lambda words: Words(words.replace(" ", "\u00a0")),
    "day": day,
    "minute": minute,
    "short": short,
}
# Filters that word the records of a document and their numbers.
_DOCUMENT_FILTERS: dict[str, Callable[..., object]] = {
    "place": names.place_of,
    "metric": names.title_of,
    "named": names.named,
    # The metric of a comparison in a table that has its place in another cell.
    "calls_or_metric": partial(names.named, placeless=True),
    "needed": _needed,
    "base": lambda comparison: formats.sides(comparison)[0],
    "head": lambda comparison: formats.sides(comparison)[1],
    "span": lambda comparison: numbers.span(*formats.sides(comparison)),
    "change": formats.change,
    "percent_change": formats.percent_change,
    "limit": formats.limit,
    "first_line": names.first_line,
    "time_of": formats.time_of,
    "newest": _newest,
    "history": _history,
    "unnamed_operator": unnamed_operator,
    "gain": gain_words,
    "interval_bar": _interval_bar,
    # How many steps of a run have findings worth a look.
    "attention": lambda run: list(run.steps.values()).count("attention"),
    # The workload and its shape, also a shape called "default".
    "whole_place": lambda entry: place_of(entry.workload, entry.shape, {}),
    "share_bar": svg.share_bar,
}
