"""``perfgate explain``."""

from __future__ import annotations

import re
from pathlib import Path

import click

from perfgate.catalogue.terms import DEVICE_KINDS, DeviceKind
from perfgate.cli.language import columns, wrapped
from perfgate.cli.options import directory_option, language_option
from perfgate.errors import UsageError

_MOST_COLUMNS = 100
# Labelled lines ("unit      seconds") get a hanging indent.
_LABEL = re.compile(r"\S+(?: \S+)? {2,}(?=\S)")


def _names(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The shell completions of a word."""
    from perfgate.judging.report.render.explain import entries

    return [entry.name for entry in entries() if entry.name.startswith(begun)]


@click.command("explain")
@click.argument(
    "words", metavar="STEP|METRIC|RULE|LIMIT|WORD", nargs=-1, shell_complete=_names
)
@click.option("--list", "listing", is_flag=True, help="List every name with its title.")
@click.option(
    "--device",
    type=click.Choice(DEVICE_KINDS),
    help="Explain for this kind of device; default: PERFGATE_DEVICE, perfgate.toml, cpu.",
)
@language_option
@directory_option("The project's folder, whose perfgate.toml may set limits.")
def COMMAND(
    words: tuple[str, ...],
    listing: bool,
    device: DeviceKind | None,
    language: str | None,
    directory: Path,
) -> None:
    """Explain a word of a report: a step, metric, rule or limit. A step is 4 or top_ops, a word a title, a pair, A/A, ..."""
    import shutil

    from perfgate.config import report_language
    from perfgate.judging.report.render.explain import explain, list_names

    if bool(words) == listing:
        raise UsageError("give one word to be explained, or --list for all of them")
    configured, limits = _configured(directory)
    spoken = report_language(language, directory)
    width = min(_MOST_COLUMNS, shutil.get_terminal_size().columns)
    if listing:
        text = list_names(spoken)
    else:
        text = explain(
            " ".join(words), device=device or configured, limits=limits, language=spoken
        )
    for line in text.splitlines():
        click.echo(wrapped_line(line, width))


def _configured(directory: Path) -> tuple[DeviceKind, dict[str, float]]:
    import os

    from perfgate.config import CONFIG_NAME, load_config

    device, limits = os.environ.get("PERFGATE_DEVICE", "cpu"), {}
    if (directory / CONFIG_NAME).is_file():
        config = load_config(directory)
        device, limits = config.device, config.limit_values
    kind = device.partition(":")[0]
    for name in DEVICE_KINDS:
        if name == kind:
            return name, limits
    return "cpu", limits


def wrapped_line(line: str, width: int) -> str:
    """A line wrapped to a width in columns, with a hanging indent below its label or its own indent."""
    text = line.lstrip(" ")
    lead = line.removesuffix(text)
    label = _LABEL.match(line)
    indent = 0
    if label:
        indent = columns(label.group())
    if lead:
        indent = 2
    return "\n".join(
        lead + row for row in wrapped(text, width - len(lead), indent=indent)
    )
