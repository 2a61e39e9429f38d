"""``perfgate config``."""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfgate.cli.options import directory_option
from perfgate.cli.streams import cleaned, print_json

if TYPE_CHECKING:
    from perfgate.flows.config import Setting

WIDTH = 80


@click.command("config")
@click.option(
    "--format",
    "as_format",
    type=click.Choice(["toml", "json"]),
    default="toml",
    show_default=True,
    help="toml: as a perfgate.toml with comments; json: a list, for machines.",
)
@directory_option()
def COMMAND(as_format: str, directory: Path) -> None:
    """Print every setting with its value, its default and its origin.

    The origin is a line of perfgate.toml, an environment variable, or the default. Token variables are not read.
    """
    import os

    from perfgate.flows.config import list_settings

    settings = list_settings(directory, os.environ)
    if as_format == "json":
        print_json(settings)
        return
    for table, entries in groupby(settings, key=lambda setting: setting.table):
        if table:
            click.echo(f"\n# {table}" if table == "environment" else f"\n[{table}]")
        for setting in entries:
            for line in _lines(setting):
                click.echo(cleaned(line, whole=True))


def _lines(setting: Setting) -> list[str]:
    """An assignment with its origin behind it, or above a long one."""
    from msgspec import UNSET

    default = "" if setting.default is UNSET else f", default {_toml(setting.default)}"
    origin = setting.origin if setting.line is None else f"{setting.origin}:{setting.line}"
    comment = f"# {origin}" + ("" if setting.origin == "default" else default)
    name = setting.name if re.fullmatch(r"[\w-]+", setting.name, re.ASCII) else _toml(setting.name)
    if setting.value is None or setting.table == "environment":
        text = setting.value or "unset"
        return [f"# {name}: {text} ({comment.removeprefix('# ')})"]
    value = _toml(setting.value)
    line = f"{f'{name} = {value}':<36}  {comment}"
    if len(line) <= WIDTH:
        return [line]
    if isinstance(setting.value, list) and len(name) + len(value) + 3 > WIDTH:
        return [comment, f"{name} = [", *(f"  {_toml(entry)}," for entry in setting.value), "]"]
    return [comment, f"{name} = {value}"]


def _toml(value: Any) -> str:
    if value is None:
        return "unset"
    if value == {}:
        return "{}"
    if isinstance(value, dict):
        entries = ", ".join(f"{name} = {_toml(entry)}" for name, entry in value.items())
        return f"{{ {entries} }}"
    return json.dumps(value, ensure_ascii=False)
