"""The English sentences that reports are made of; ``make locale`` brings ``perfgate/locale/zh.po`` up to date with them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import click
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from jinja2 import Environment, nodes
from jinja2.ext import extract_from_ast

from perfgate import errors, locale
from perfgate.catalogue.lookup import sentences, sources
from perfgate.cli.groups import CommandGroup
from perfgate.cli.language import CLICK_WORDS, paragraphs
from perfgate.cli.main import SECTIONS as COMMAND_SECTIONS
from perfgate.cli.main import cli as command_line
from perfgate.flows.doctor.planted import CHANGES
from perfgate.judging import report
from perfgate.judging.report.sections import SECTIONS
from tests.source import all_modules, calls

REPORT = Path(report.__file__).parent
TEMPLATES = REPORT / "templates"
ERRORS = {
    "__init__",
    *(name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.PerfgateError)),
}
# Functions whose first argument is said, and those of the report, where other functions have the same names.
_FIRST = {"sentence", "Activity", "doing", "refused"}
_FIRST_IN_REPORT = {"say", "phrase", "phrases"}
_SAYING = frozenset({*ERRORS, *_FIRST})
_SAYING_IN_REPORT = frozenset({*ERRORS, *_FIRST, *_FIRST_IN_REPORT, "counted", "print_rest", "Table", "_table"})
ZH_PO = Path(locale.__file__).parent / "zh.po"


def english_sentences() -> set[str]:
    """What templates, the code of the report and the catalogue say. A ``{name}`` or ``%(name)s`` is the place of a value."""
    texts = {*sentences()}
    texts |= {str(section.title) for section in SECTIONS} | {"none"}
    for template in sorted(TEMPLATES.rglob("*.j2")):
        texts |= set(of_template(template))
    for sentences_of_script in TEMPLATES.rglob("sentences.txt"):
        texts |= set(sentences_of_script.read_text(encoding="utf-8").splitlines())
    # What plug-ins of this repository say stands in perfgate's catalogue too.
    for module in all_modules():
        texts |= set(of_module(module))
    return (
        texts | set(of_command(command_line)) | {*CLICK_WORDS, *COMMAND_SECTIONS} | {change.title for change in CHANGES}
    )


def of_command(command: click.Command) -> Iterator[str]:
    """The help of a command, of its options and of its subcommands, paragraph by paragraph."""
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    for text in [command.help, command.epilog, *(option.help for option in options)]:
        yield from paragraphs(text) if text else []
    if isinstance(command, CommandGroup):
        context = click.Context(command)
        for name in command.list_commands(context):
            member = command.member(context, name)
            assert member is not None
            yield from of_command(member)


def of_template(path: Path) -> Iterator[str]:
    """What stands in ``trans`` tags and in ``_()``, and the nouns that are counted."""
    tree = template_environment().parse(path.read_text(encoding="utf-8"))
    for _, _, text in extract_from_ast(tree):
        yield text if isinstance(text, str) else text[0]  # type: ignore[index,misc]
    for filtered in tree.find_all(nodes.Filter):
        if filtered.name == "counted" and isinstance(filtered.args[0], nodes.Const):
            yield f"{{count}} {filtered.args[0].value}"


def of_module(path: Path) -> Iterator[str]:
    """The sentences of errors and of progress, and what the code of the report says."""
    in_report = REPORT in path.parents
    for name, call in calls(path, _SAYING_IN_REPORT if in_report else _SAYING):
        if name in ERRORS:
            yield from _of_error(call.args[0])
        elif name in _FIRST or (in_report and name in _FIRST_IN_REPORT):
            yield from _constants(call.args[0])
        elif name in ("Table", "_table"):  # the titles of its columns; what ends in > is a column of numbers
            yield from filter(None, (title.rstrip(">") for argument in call.args for title in _constants(argument)))
        elif len(call.args) > 1:
            yield from (f"{{count}} {noun}" for noun in _constants(call.args[1]))


def _of_error(text: ast.expr) -> Iterator[str]:
    """A text that is put together where it is raised is no sentence."""
    if isinstance(text, ast.Constant) and isinstance(text.value, str) and " " in text.value:
        yield text.value


def template_environment() -> Environment:
    environment = Environment(extensions=["jinja2.ext.i18n"], trim_blocks=True, lstrip_blocks=True)
    environment.newstyle_gettext = True  # type: ignore[attr-defined]
    return environment


class Chinese(Catalog):
    """A catalogue whose header holds neither dates nor versions: two branches that add sentences change no common line."""

    header_comment = ""
    mime_headers = (
        ("Language", "zh"),
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Transfer-Encoding", "8bit\n"),
    )


def read_chinese() -> Catalog:
    with ZH_PO.open("rb") as file:
        return read_po(file, locale="zh")


def updated(chinese: Catalog, english: set[str]) -> Catalog:
    """The catalogue with every sentence, the sources that have Chinese and nothing else, sorted.

    A sentence without Chinese has an empty one.
    """
    catalogue = Chinese(fuzzy=False)
    translated = {text for text in sources() if text in chinese and chinese[text].string}
    for text in sorted(english | translated):
        message = chinese.get(text)
        # Flags such as python-brace-format depend on the release of Babel; a test compares the places of values.
        catalogue.add(text, message.string if message else "").flags.clear()
    return catalogue


def as_po(catalogue: Catalog) -> bytes:
    file = BytesIO()
    write_po(file, catalogue, width=0, no_location=True)
    return file.getvalue()


def _constants(expression: ast.expr) -> Iterator[str]:
    """The texts of an expression; of a table only its values."""
    if isinstance(expression, ast.Dict):
        for value in expression.values:
            yield from _constants(value)
        return
    for node in ast.walk(expression):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


if __name__ == "__main__":
    chinese = updated(read_chinese(), english_sentences())
    ZH_PO.write_bytes(as_po(chinese))
    missing = [message.id for message in chinese if message.id and not message.string]
    sys.stdout.write("".join(f"no Chinese: {english}\n" for english in missing))
    sys.exit(1 if missing else 0)
