"""What the commands that keep runs and artifacts have in common.

These are ages and sizes as options, and the lines that they print.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from perfgate.cli.streams import cleaned, say_line
from perfgate.locale import sentence

if TYPE_CHECKING:
    from perfgate.cli.progress import TerminalProgress
    from perfgate.judging.store.artifacts import KeptArtifacts

_DAYS = {"d": 1, "w": 7, "y": 365}
_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_AGE = re.compile(r"([1-9][0-9]{0,4}) ?([dwy])")
_SIZE = re.compile(r"([1-9][0-9]{0,14}(?:\.[0-9]{1,3})?) ?([kmgt]?)b")


def age(_: click.Context, __: click.Parameter, text: str | None) -> timedelta | None:
    """The callback of an option with an age."""
    if text is None:
        return None
    match = _AGE.fullmatch(text.lower())
    if match is None:
        raise click.BadParameter(
            sentence(
                "{value} is not an age; write days, weeks or years, as in 90d, 12w or 1y",
                value=repr(text),
            )
        )
    return timedelta(days=int(match[1]) * _DAYS[match[2]])


def size(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """The callback of an option with a size, in bytes."""
    if text is None:
        return None
    match = _SIZE.fullmatch(text.lower())
    if match is None:
        raise click.BadParameter(
            sentence(
                "{value} is not a size; write e.g. 20GB, 500MB or 1.5TB",
                value=repr(text),
            )
        )
    return int(float(match[1]) * _BYTES[match[2]])


def bytes_text(count: int) -> str:
    from perfgate.judging.report.text.numbers import amount

    return str(amount(float(count), "B"))


def sending(progress: TerminalProgress) -> Callable[[str, int, int], None]:
    def show(path: str, number: int, files: int) -> None:
        progress.status(
            cleaned(
                sentence(
                    "sending {path}, file {number} of {files}",
                    path=path,
                    number=number,
                    files=files,
                ),
                whole=True,
            )
        )

    return show


def say_kept(kept_files: KeptArtifacts) -> None:
    """The lines about a folder with kept artifacts."""
    for why in kept_files.left_out:
        say_line(sentence("not kept: {why}", why=why), err=True)
    say_line(
        sentence(
            "artifacts sent to {place}: {sent} ({size}); already there: {there}",
            place=kept_files.place,
            sent=kept_files.sent,
            size=bytes_text(kept_files.sent_bytes),
            there=kept_files.there,
        )
    )


if TYPE_CHECKING:
    from perfgate.flows.shared.unsent import PushedRuns


def show_pushed(pushed: PushedRuns) -> None:
    if pushed.sent:
        ids = ", ".join(run_id[:12] for run_id in pushed.sent)
        click.echo(
            sentence("sent runs that had waited for the service: {ids}", ids=ids)
        )
    for path, why in pushed.refused:
        text = sentence(
            "a waiting run cannot be sent and stays in {path}: {why}",
            path=path,
            why=why,
        )
        say_line(text, err=True)
