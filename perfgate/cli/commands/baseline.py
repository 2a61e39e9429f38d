"""``perfgate baseline``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import click

if TYPE_CHECKING:
    from perfgate.config import Config

_directory = click.option(
    "-C",
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=".",
    help="The project's folder.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")


@click.group("baseline")
def COMMAND() -> None:  # noqa: N802 - what main looks for
    """Keep runs of main: they screen what is worth confirming, and draw the trend."""


@COMMAND.command("record")
@click.option("--run", "run_file", metavar="FILE", type=click.Path(path_type=Path),
              help="Keep this run document instead of measuring.")  # fmt: skip
@click.option("--allow-dirty", is_flag=True, help="Keep a run that was measured with uncommitted changes.")
@click.option(
    "--quick", is_flag=True, help="Shorter measurements, wider intervals: as `perfgate check` measures its head."
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default="perfgate-out", show_default=True,
              help="Folder for what is measured.")  # fmt: skip
@_json
@_directory
def record(run_file: Optional[Path], allow_dirty: bool, quick: bool, out: Path, as_json: bool, directory: Path) -> None:
    """Measure main, or take a run document, and keep it. One run a session; a run of a change is refused."""
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows.baseline import record_file, record_measured
    from perfgate.flows.run import RunOptions

    config = _config(directory)
    if run_file is not None:
        kept = record_file(config, os.environ, run_file, allow_dirty=allow_dirty)
    else:
        with TerminalProgress() as progress:
            kept = record_measured(
                config, os.environ, RunOptions(out=out, quick=quick), progress, allow_dirty=allow_dirty
            )
    if as_json:
        _print_json({"id": kept.id, "store": kept.store, "project": kept.run.project})
    else:
        click.echo(f"kept run {kept.id[:12]} of {kept.run.project} in {kept.store}")


@COMMAND.command("list")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@_json
@_directory
def list_runs(limit: Optional[int], as_json: bool, directory: Path) -> None:
    """List the kept runs of this project, newest first."""
    from perfgate.flows.baseline import list_baseline

    config = _config(directory)
    runs = list_baseline(config, os.environ, limit=limit)
    if as_json:
        _print_json(runs)
        return
    if not runs:
        click.echo(f"no run of {config.project} is kept yet; `perfgate baseline record` keeps one")
        return
    _print_table(
        ["id", "started", "commit", "subject", "device", "testbed", "workloads"],
        [
            [
                run.id[:12],
                run.started_at[:16].replace("T", " "),
                (run.commit or "none")[:12] + (" + changes" if run.dirty else ""),
                run.subject or "",
                run.device_kind,
                run.fingerprint[:12],
                ", ".join(run.workloads),
            ]
            for run in runs
        ],
    )


@COMMAND.command("show")
@click.argument("run_id", metavar="ID")
@_json
@_directory
def show(run_id: str, as_json: bool, directory: Path) -> None:
    """Show the values of a kept run. ID is its id, or the beginning of it."""
    from perfgate.flows.baseline import show_baseline

    run = show_baseline(_config(directory), os.environ, run_id)
    if as_json:
        _print_json(run)
        return
    rows = [
        [step.workload, value.metric, _labels(value.labels), "none" if value.value is None else f"{value.value:.6g}"]
        for step in run.steps
        for value in step.values
    ]
    click.echo(_clean(f"{run.project}, session {run.session.id}, started {run.session.started_at}"))
    _print_table(["workload", "metric", "of", "value (base unit)"], rows)


@COMMAND.command("accept")
@click.argument("metric", metavar="METRIC")
@click.option("--reason", required=True, metavar="TEXT", help="Why the regression is meant.")
@click.option(
    "--commit", "revision", default="HEAD", show_default=True, metavar="REV", help="The commit it is meant for."
)
@click.option("--by", "accepted_by", metavar="NAME", help="Who accepts it; else git's user.name.")
@_json
@_directory
def accept(metric: str, reason: str, revision: str, accepted_by: Optional[str], as_json: bool, directory: Path) -> None:
    """Accept a regression of one commit: the gate then shows it and lets it pass, with a warning.

    METRIC is a metric or a pattern, e.g. latency.low or "latency.*"; METRIC@WORKLOAD/SHAPE accepts it in one place only. A
    wrong output cannot be accepted.
    """
    from perfgate.flows.baseline import accept_regression

    accepted = accept_regression(
        _config(directory), os.environ, metric=metric, reason=reason, revision=revision, accepted_by=accepted_by
    )
    if as_json:
        _print_json(accepted)
    else:
        click.echo(_clean(f"accepted {accepted.metric} of {accepted.commit[:12]} by {accepted.accepted_by}"))


@COMMAND.command("accepted")
@_json
@_directory
def list_accepted(as_json: bool, directory: Path) -> None:
    """List the regressions that were accepted, newest first."""
    from perfgate.flows import baseline

    found = baseline.list_accepted(_config(directory), os.environ)
    if as_json:
        _print_json(found)
        return
    if not found:
        click.echo("nothing was accepted yet; `perfgate baseline accept` does")
        return
    _print_table(
        ["metric", "commit", "by", "when", "reason"],
        [[one.metric, one.commit[:12], one.accepted_by, one.accepted_at[:16], one.reason] for one in found],
    )


@COMMAND.command("prune")
@click.option("--keep", type=click.IntRange(min=0), required=True, metavar="N", help="How many to keep per testbed.")
@_json
@_directory
def prune(keep: int, as_json: bool, directory: Path) -> None:
    """Remove all but the newest N runs of each testbed of this project."""
    from perfgate.flows.baseline import prune_baseline

    removed = prune_baseline(_config(directory), os.environ, keep=keep)
    if as_json:
        _print_json({"removed": removed})
    else:
        click.echo(f"removed {removed} {'run' if removed == 1 else 'runs'}")


def _config(directory: Path) -> Config:
    from perfgate.config import load_config

    return load_config(directory)


def _print_json(value: object) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


# What people copy into the next command must not be broken by a narrow terminal.
_WHOLE = ("id", "started", "commit", "metric")


def _print_table(titles: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE)
    for title in titles:
        table.add_column(title, no_wrap=title in _WHOLE)
    for row in rows:
        table.add_row(*(Text(_clean(cell)) for cell in row))
    Console().print(table)


def _labels(labels: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(labels.items()))


def _clean(text: str) -> str:
    """Return a text from a document without what a terminal would obey."""
    from perfgate.judging.report.escape import clean

    return clean(text)
