"""Templates and the three media they are rendered for, each with its escaping as the default ``finalize``.

Every value in a template is escaped as outside text unless it is ``Words`` (ours) or went through one of the filters here;
forgetting a filter therefore makes text ugly, never dangerous. An undefined name is an error.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import CodeType
from typing import Any, Literal

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.bccache import Bucket
from jinja2.runtime import Context
from markupsafe import Markup, escape

from perfgate.document.comparison import Comparison, Paired
from perfgate.document.message import Message
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers, svg
from perfgate.judging.report.text.escape import MAX_PROSE, clean, code_span, fenced, prose
from perfgate.judging.report.text.kernels import with_short_kernel
from perfgate.judging.report.text.messages import SentencePieces, word
from perfgate.judging.report.text.names import evidence_of, first_line, part_of, place_of, title_of
from perfgate.judging.report.text.sparkline import sparkline
from perfgate.judging.report.text.suggestions import noticeable_gain, part_of_gain, times, unnamed_operator
from perfgate.judging.report.text.words import Linked, Words, say
from perfgate.locale import Language, current_language, gap_between, translate

_PLACE = re.compile(r"%\((\w+)\)s")
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
Medium = Literal["markdown", "plain", "html"]
# What a template shows, by the names that it uses.
Values = Mapping[str, Any]
# An address is linked only when it is plain http(s) without anything that ends a Markdown link or an attribute.
_URL_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&*+,;=%")


class ReadyHtml(Markup, Words):
    """HTML that a template of ours rendered."""

    __slots__ = ()


class _Ready(str):
    """Text that a filter has made safe for its medium."""

    __slots__ = ()


def render(template: str, medium: Medium, values: Mapping[str, object]) -> Words:
    """Render a template of ``templates/`` for a medium; the result counts as our own words in that medium."""
    return Words(environment(medium).get_template(template).render(values))


def render_with_summary(template: str, values: Mapping[str, object]) -> tuple[Words, Words]:
    """Render a template as Markdown; the second text is its ``summary``, empty if the template sets none."""
    module = environment("markdown").get_template(template).make_module(dict(values))
    return Words(module), Words(" ".join(str(getattr(module, "summary", "")).split()))


def line(template: str, medium: Medium, values: Mapping[str, object]) -> Words:
    """Render a template to one line, so that it can be laid out over several lines itself."""
    text = " ".join(environment(medium).get_template(template).render(values).split())
    return ReadyHtml(text) if medium == "html" else Words(text)


def environment(medium: Medium) -> Environment:
    return _environment(medium, current_language())


@cache
def _environment(medium: Medium, language: Language) -> Environment:
    jinja = Environment(
        loader=PackageLoader("perfgate.judging.report", "templates"),
        undefined=StrictUndefined,
        autoescape=medium == "html",
        finalize=_finalized(_FINALIZE[medium]),
        optimized=False,
        bytecode_cache=_COMPILED[medium == "html"],
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        extensions=["jinja2.ext.i18n"],
    )
    jinja.newstyle_gettext = True  # type: ignore[attr-defined]
    jinja.globals["gettext"] = partial(_sentence, medium, language)
    jinja.globals["absent"] = Words(translate("none", language))
    jinja.globals["language"] = Words(language)
    # After a colon: Chinese ones are as wide as a character, with their space.
    jinja.globals["gap"] = Words("" if language == "zh" else " ")
    jinja.filters.update(_FILTERS[medium])
    jinja.filters.update(_NUMBER_FILTERS)
    jinja.filters.update(_DOCUMENT_FILTERS)
    return jinja


class _CompiledTemplates(BytecodeCache):
    """The code of templates for environments that differ in medium and language alone.

    Jinja must compute nothing while it compiles: not ``optimized``, and ``finalize`` takes the context.
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


def _sentence(medium: Medium, language: Language, english: str, /, **values: object) -> str:
    """The translation of a ``{% trans %}`` block; values are escaped as everywhere in a template."""
    escaped = {name: _FINALIZE[medium](value) for name, value in values.items()}
    sentence = translate(english, language)
    if medium == "html":
        sentence = _CODE.sub(r"<code>\1</code>", sentence)  # before the values, which may hold backticks
    if language == "en":
        sentence %= escaped
    else:
        literals_and_names, sentence = _PLACE.split(sentence), ""
        for number, piece in enumerate(literals_and_names):
            text = str(escaped[piece]) if number % 2 else piece % ()
            sentence += gap_between(sentence, text) + text
    return Markup(sentence) if medium == "html" else _Ready(sentence)


def _interval_bar(comparison: Comparison, scale: float) -> object:
    """A bar for the interval of a comparison; empty without one."""
    if not isinstance(comparison, Paired) or comparison.interval is None or comparison.outcome == "not_comparable":
        return Words("")
    words = formats.interval(comparison)
    return svg.interval_bar(
        comparison.interval, comparison.delta, comparison.tolerance, scale, comparison.outcome, words
    )


def _measured(comparison: Comparison) -> Words | None:
    """The number of pairs, turns or quads behind a comparison; None without any."""
    if not isinstance(comparison, Paired) or not comparison.pairs:
        return None
    return numbers.counted(comparison.pairs, evidence_of(comparison))


def _needed(comparison: Comparison) -> Words | None:
    """The number of pairs, turns or quads that would decide a comparison; None if it is not known."""
    if not isinstance(comparison, Paired) or not comparison.pairs_needed:
        return None
    return numbers.counted(comparison.pairs_needed, evidence_of(comparison))


def inlined(*sources: str, name: str = "style") -> dict[str, Words]:
    """A style or script of ``templates/`` as a value for an HTML page, and the hash by which the page's policy allows it."""
    jinja = environment("html")
    assert jinja.loader is not None
    text = "".join(jinja.loader.get_source(jinja, source)[0] for source in sources)
    digest = hashlib.sha256(text.encode()).digest()
    return {name: Words(text), f"{name}_hash": Words(base64.b64encode(digest).decode())}


def is_linkable(url: str | None) -> bool:
    """Whether an address may become a link."""
    return bool(url) and str(url).startswith(("https://", "http://")) and _URL_CHARACTERS.issuperset(str(url))


def _ours(value: object) -> str | None:
    """Text that needs no escaping: our words, filtered text and whole numbers; None for outside text."""
    if isinstance(value, (Words, _Ready)) or value == "":
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, str):
        return None
    raise TypeError(
        f"a template shows {value!r}; numbers are worded in report/format.py, absent values by the template"
    )


def _finalize_markdown(value: object) -> str:
    if isinstance(value, Linked):
        return _markdown_link(value.url, code_span(value))
    ours = _ours(value)
    return code_span(with_short_kernel(str(value))) if ours is None else ours


def _finalize_plain(value: object) -> str:
    ours = _ours(value)
    return clean(with_short_kernel(str(value))) if ours is None else ours


def _finalize_html(value: object) -> Markup:
    if isinstance(value, Markup):
        return value
    ours = _ours(value)
    return Markup("<code>{}</code>").format(clean(with_short_kernel(str(value)))) if ours is None else escape(ours)


def _by_piece(escaped: Callable[[str], str], within: Callable[[str], str], text: Message | str) -> str:
    """A translated sentence of a document; ``escaped`` escapes outside text at its start, ``within`` elsewhere."""
    sentence = text if isinstance(text, SentencePieces) else word(text)
    first, *rest = sentence.pieces if isinstance(sentence, SentencePieces) else (sentence,)
    return _piece(escaped, first) + "".join(_piece(within, piece) for piece in rest)


def _piece(escaped: Callable[[str], str], piece: str) -> str:
    return piece if isinstance(piece, Words) else escaped(piece)


def _markdown_link(url: str, text: str) -> _Ready:
    return _Ready(f"[{Words(text)}]({url})" if is_linkable(url) else text)


def _html_prose(text: Message | str) -> Markup:
    """A sentence with its `code` marked up; backticks of outside text may end it early, but everything is escaped before."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(_by_piece(_clean_prose, _clean_prose, text)))))


def _clean_prose(text: str) -> str:
    return clean(text, limit=MAX_PROSE)


_FINALIZE: dict[str, Callable[[object], str]] = {
    "markdown": _finalize_markdown,
    "plain": _finalize_plain,
    "html": _finalize_html,
}
_FILTERS: dict[str, dict[str, Callable[..., object]]] = {
    "markdown": {
        "prose": lambda text: _Ready(_by_piece(prose, partial(prose, begins=False), text)),
        "command": lambda text: _Ready(code_span(text, limit=MAX_PROSE)),
        "block": lambda text, lines=12: _Ready(fenced(text, lines=lines)),
        "link": _markdown_link,
        "ready": _Ready,
        "strong": lambda text: _Ready(f"**{Words(text)}**"),
        "literal": lambda text: _Ready(code_span(text)),
    },
    "plain": {
        "prose": lambda text: _Ready(_by_piece(_clean_prose, _clean_prose, text)),
        "command": lambda text: _Ready(clean(text, limit=MAX_PROSE)),
        "block": lambda text, lines=12: _Ready("\n".join(clean(line) for line in text.rstrip().splitlines()[-lines:])),
        "link": lambda url, text: _Ready(f"{text} ({url})" if is_linkable(url) else text),
        "ready": _Ready,
        "strong": _Ready,
        "literal": lambda text: _Ready(clean(text)),
    },
    "html": {
        "prose": _html_prose,
        "command": lambda text: Markup("<code>{}</code>").format(clean(text, limit=MAX_PROSE)),
        "block": lambda text, lines=40: Markup("<pre>{}</pre>").format(
            "\n".join(clean(line, limit=240) for line in text.rstrip().splitlines()[-lines:])
        ),
        "link": lambda url, text: Markup('<a href="{}">{}</a>').format(url, text) if is_linkable(url) else escape(text),
        "ready": Markup,
        "strong": lambda text: Markup("<strong>{}</strong>").format(text),
        "literal": lambda text: Markup("<code>{}</code>").format(clean(text)),
        "plain": lambda text: escape(clean(text)),
        # Only for files of this package itself: the style sheet.
        "raw": lambda text: Markup(text) if isinstance(text, Words) else escape(text),
    },
}
_NUMBER_FILTERS: dict[str, Callable[..., object]] = {
    "counted": numbers.counted,
    "quantity": lambda value, unit, metric="": formats.quantity(value, unit, metric=metric),
    "percent": numbers.percent,
    "plus_minus": numbers.plus_minus,
    "setting": numbers.setting,
    "times": times,
    "duration": numbers.duration,
    "whole": numbers.whole,
    "sentence": lambda message: str(word(message)),
    "words": Words,
    "said": say,
    "sparkline": sparkline,
    # A number and its unit stay together in narrow table columns.
    "whole_cell": lambda words: Words(words.replace(" ", "\u00a0")),
}
# Filters that word the records of a document and their numbers.
_DOCUMENT_FILTERS: dict[str, Callable[..., object]] = {
    "place": place_of,
    "metric": title_of,
    "part": part_of,
    "measured": _measured,
    "needed": _needed,
    "base": lambda comparison: formats.sides(comparison)[0],
    "head": lambda comparison: formats.sides(comparison)[1],
    "is_leak": formats.is_leak,
    "span": lambda comparison: numbers.span(*formats.sides(comparison)),
    "change": formats.change,
    "percent_change": formats.percent_change,
    "interval": formats.interval,
    "limit": formats.limit,
    "first_line": first_line,
    "time_of": formats.time_of,
    "unnamed_operator": unnamed_operator,
    "noticeable_gain": noticeable_gain,
    "part_of_gain": part_of_gain,
    "seconds": lambda values: formats.quantities(list(values), "s"),
    "interval_bar": _interval_bar,
    "share_bar": svg.share_bar,
}
