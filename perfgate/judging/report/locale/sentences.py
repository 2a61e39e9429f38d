"""The tag ``{% say %}…{% endsay %}`` of templates: a sentence that the reader's language may put in another order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from string import Formatter
from typing import cast

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

Translate = Callable[[str], str]


class Sentences(Extension):
    """Looks a sentence up in ``environment.translate``, which the environment is extended with, when a template is compiled.

    What is looked up has a ``{name}`` for every value: ``{{ row.place|prose }}`` is ``{place}``, a constant its own text, an
    included template its file's name. The translation is compiled from the same values, so that escaping is what it is in
    English.
    """

    tags = {"say"}  # noqa: RUF012 - declared so in jinja2

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Read the sentence up to its end tag."""
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endsay",), drop_needle=True)
        pieces = [piece for node in body for piece in (node.nodes if isinstance(node, nodes.Output) else [node])]
        if any(isinstance(piece, (nodes.If, nodes.For)) for piece in pieces):
            parser.fail("a sentence holds words and values; put conditions around it", lineno)
        values = [piece for piece in pieces if not isinstance(piece, nodes.TemplateData)]
        named = {_name(value): value for value in values}
        if len(named) != len(values):
            parser.fail("two values of a sentence have one name", lineno)
        english = "".join(map(_source, pieces))
        translate = cast(Translate, self.environment.translate)  # type: ignore[attr-defined]
        words = translate(english)
        return body if words == english else _put_together(words, named, lineno)


def _source(piece: nodes.Node) -> str:
    if isinstance(piece, nodes.TemplateData):
        return piece.data.replace("{", "{{").replace("}", "}}")
    return f"{{{_name(piece)}}}"


def _name(value: nodes.Node) -> str:
    """Return what a value is called: the last name in it."""
    if isinstance(value, nodes.Getattr):
        return value.attr
    if isinstance(value, nodes.Name):
        return value.name
    if isinstance(value, nodes.Const):
        return str(value.value)
    if isinstance(value, nodes.With):
        return _name(value.body[0])
    if isinstance(value, nodes.Include):
        return PurePosixPath(_name(value.template)).stem
    # Of a filter, an index or a sum: the name of what it works on.
    return _name(next(value.iter_child_nodes()))


def _put_together(words: str, named: dict[str, nodes.Node], lineno: int) -> list[nodes.Node]:
    """Return the nodes of a translated sentence."""
    found: list[nodes.Node] = []
    for literal, name, _, _ in Formatter().parse(words):
        if literal:
            found.append(nodes.Output([nodes.TemplateData(literal, lineno=lineno)], lineno=lineno))
        if name is not None:
            value = named[name]
            found.append(nodes.Output([value], lineno=lineno) if isinstance(value, nodes.Expr) else value)
    return found
