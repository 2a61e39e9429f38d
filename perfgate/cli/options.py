"""Options that several commands have."""

from __future__ import annotations

import click

from perfgate.locale import LANGUAGES

language_option = click.option(
    "--lang",
    "language",
    type=click.Choice(LANGUAGES),
    help="Language of what people read; default: PERFGATE_LANG, [report] language in perfgate.toml, en.",
)
