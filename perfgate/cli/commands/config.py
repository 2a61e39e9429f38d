"""``perfgate config``."""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfgate.cli.options import directory_option
from perfgate.cli.streams import print_json, say_line

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
        if table == "environment":
            click.echo(f"\n# {table}")
        elif table:
            click.echo(f"\n[{table}]")
        for setting in entries:
            for line in _lines(setting):
                say_line(line)


def _lines(setting: Setting) -> list[str]:
    """An assignment with its origin behind it, or above a long one."""
    from msgspec import UNSET

    comment = f"# {setting.origin}"
    if setting.line is not None:
        comment += f":{setting.line}"
    if setting.origin != "default" and setting.default is not UNSET:
        comment += f", default {_toml(setting.default)}"
    name = setting.name
    if not re.fullmatch(r"[\w-]+", name, re.ASCII):
        name = _toml(name)
    if setting.value is None or setting.table == "environment":
        text = setting.value or "unset"
        return [f"# {name}: {text} ({comment.removeprefix('# ')})"]
    value = _toml(setting.value)
    line = f"{f'{name} = {value}':<36}  {comment}"
    if len(line) <= WIDTH:
        return [line]
    if isinstance(setting.value, list) and len(name) + len(value) + 3 > WIDTH:
        entries = [f"  {_toml(entry)}," for entry in setting.value]
        return [comment, f"{name} = [", *entries, "]"]
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
