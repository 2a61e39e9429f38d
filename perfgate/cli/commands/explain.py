"""``perfgate explain``."""

from __future__ import annotations

import click


@click.command("explain")
@click.argument("name", metavar="METRIC|STEP")
def COMMAND(name: str) -> None:  # noqa: N802
    """Say what a number means: unit, better direction, exact or noisy, formula, limits. Takes a metric or a step."""
    import shutil
    import textwrap

    from perfgate.judging.report.explain import explain

    width = min(100, shutil.get_terminal_size().columns)
    for line in explain(name).splitlines():
        # Labelled lines ("unit     seconds") hang under their text.
        indent = " " * 9 if line[:9].rstrip().isalpha() and line[6:9] == "   " else ""
        click.echo(textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False) if line else "")
