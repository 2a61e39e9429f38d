"""The language of the command line: its detection, and click's help in it."""

from __future__ import annotations

import copy
import inspect
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click

from perfgate.locale import (
    LANGUAGES,
    Language,
    current_language,
    environment_language,
    translate,
)

# Click's own texts in a help page (click/core.py and decorators.py, 8.1 to 8.3), including the headings.
CLICK_WORDS = (
    "Usage: ",
    "Options",
    "Commands",
    "Show this message and exit.",
    "Show the version and exit.",
    "[default: {value}]",
    "[required]",
)
_VERBATIM = "\b\n"  # click's mark for a paragraph that is not wrapped


def command_line_language(
    arguments: Sequence[str], environ: Mapping[str, str]
) -> Language:
    """The language of help and progress: ``--lang``, PERFGATE_LANG, perfgate.toml, then the locale.

    It is needed before the command line is parsed, since ``--help`` ends parsing, and never fails: the command that needs
    the setting reports an invalid one.
    """
    folder = Path(_value(arguments, "-C") or _value(arguments, "--directory") or "")
    written = (
        _value(arguments, "--lang")
        or environ.get("PERFGATE_LANG")
        or _configured(folder)
    )
    for language in LANGUAGES:
        if written == language:
            return language
    return environment_language(environ)


def _value(arguments: Sequence[str], option: str) -> str | None:
    for argument, following in zip(arguments, [*arguments[1:], None]):
        if argument == option:
            return following
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return None


def _configured(folder: Path) -> object:
    path = folder / "perfgate.toml"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
    from perfgate.toml import tomllib  # many commands run without a perfgate.toml

    try:
        report = tomllib.loads(text).get("report")
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    if isinstance(report, dict):
        return report.get("language")
    return None


def localized(command: click.Command) -> click.Command:
    """A copy of a command with its help in the current language; in English the command itself."""
    if current_language() == "en":
        return command
    translated = copy.copy(command)
    translated.context_class = _Context
    translated.help = _translated(command.help)
    translated.epilog = _translated(command.epilog)
    translated.params = [copy.copy(parameter) for parameter in command.params]
    for parameter in translated.params:
        if isinstance(parameter, click.Option):
            parameter.help = _translated(parameter.help)
    return translated


def _translated(text: str | None) -> str | None:
    if not text:
        return text
    return "\n\n".join(map(translate, paragraphs(text)))


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a help text, each in one line, as in the catalogue."""
    parts = []
    for part in inspect.cleandoc(text).split("\n\n"):
        parts.append(part if part.startswith(_VERBATIM) else " ".join(part.split()))
    return parts


class _Formatter(click.HelpFormatter):
    """Wraps by terminal columns (a Chinese character takes two), and translates the texts of click itself."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        if prefix is None:
            prefix = translate("Usage: ")
        super().write_usage(prog, args, prefix)

    def write_heading(self, heading: str) -> None:
        heading = translate("{name}: ").format(name=translate(heading)).rstrip()
        self.write(f"{' ' * self.current_indent}{heading}\n")

    def write_text(self, text: str) -> None:
        indent = " " * self.current_indent
        blocks: list[str] = []
        for part in text.split("\n\n"):
            lines = wrapped(part, self.width - self.current_indent)
            if part.startswith(_VERBATIM):
                lines = part.removeprefix(_VERBATIM).splitlines()
            blocks.append("\n".join(f"{indent}{line}" for line in lines))
        self.write("\n\n".join(blocks) + "\n")

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        rows = list(rows)
        first = (
            min(max((len(name) for name, _ in rows), default=0), col_max) + col_spacing
        )
        indent = " " * self.current_indent
        for name, text in rows:
            words = translate(_in_our_words(text))
            lines = wrapped(
                words, max(self.width - first - self.current_indent, 10)
            ) or [""]
            label = name
            if len(name) > first - col_spacing:
                self.write(f"{indent}{name}\n")
                label = ""
            for line in lines:
                self.write(f"{indent}{label.ljust(first)}{line}".rstrip() + "\n")
                label = ""


def _in_our_words(text: str) -> str:
    """The help of an option with click's words translated: its default, and that it is required."""
    default = re.search(r"\[default: (.*)\]$", text)
    if default:
        text = text[: default.start()] + translate("[default: {value}]").format(
            value=default[1]
        )
    return text.replace("[required]", translate("[required]"))


class _Context(click.Context):
    formatter_class = _Formatter


def wrapped(text: str, width: int, *, indent: int = 0) -> list[str]:
    """Lines of at most ``width`` columns; Chinese breaks between characters, except before a closing mark.

    All lines after the first begin with ``indent`` spaces.
    """
    lines = []
    line = ""
    used = 0
    for piece in re.findall(
        r"[^\s\u2e80-\uffef]+\s*|[\u2e80-\uffef][，。；：、）」”？！]*\s*|\s+", text
    ):
        if line.strip() and used + columns(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line, used = " " * indent, indent
        line += piece if line.strip() else piece.lstrip()
        used += columns(piece)
    if line.strip():
        lines.append(line.rstrip())
    return lines


def columns(text: str) -> int:
    """The width of a text in terminal columns; a Chinese character takes two."""
    wide = [letter for letter in text if unicodedata.east_asian_width(letter) in "WF"]
    return len(text) + len(wide)
