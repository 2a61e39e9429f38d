"""``perfgate report``: a check folder or a run folder in the formats that CI hosts display."""

from __future__ import annotations

import os
from pathlib import Path

import click

from perfgate.cli.options import (
    FILE,
    FOLDER,
    PATH,
    Options,
    RecordCommand,
    directory_option,
    language_option,
)


@click.command("report", cls=RecordCommand)
@click.argument("folder", metavar="DIR", default="perfgate-out", type=PATH)
@click.option(
    "--outputs",
    is_flag=True,
    help="Append verdict, exit-code and paths to GITHUB_OUTPUT.",
)
@click.option(
    "--summary", is_flag=True, help="Append the comment to GITHUB_STEP_SUMMARY."
)
@click.option(
    "--annotations",
    is_flag=True,
    help="Print at most ten workflow commands that annotate the lines of the causes.",
)
@click.option(
    "--junit",
    metavar="FILE",
    type=FILE,
    help="Write JUnit XML: a test case for each metric of each workload and shape.",
)
@click.option(
    "--openmetrics",
    metavar="FILE",
    type=FILE,
    help="Write the head's values as OpenMetrics text.",
)
@click.option(
    "--csv",
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Write every number as a CSV row in base units; `-` prints them. docs/commands.md lists the columns.",
)
@click.option(
    "--parquet",
    metavar="FILE",
    type=FILE,
    help="Write the same table as Parquet, for pandas, polars or DuckDB.",
)
@click.option(
    "--bencher",
    metavar="FILE",
    type=FILE,
    help="Write the head's values for `bencher run --adapter json`.",
)
@click.option(
    "--benchmark-action",
    metavar="DIR",
    type=FOLDER,
    help="Write the head's values for github-action-benchmark: a file for each of its custom tools.",
)
@click.option(
    "--exit-code",
    "measured",
    metavar="N",
    type=click.IntRange(0, 255),
    help="The exit code of the measuring command; documents with another one are rejected.",
)
@language_option
@directory_option("The project's folder, which contains the annotated files.")
def COMMAND(options: Options, language: str | None, directory: Path) -> None:
    """Print the comment of DIR, or write it in formats of CI systems.

    DIR is the output folder of `perfgate check --out DIR` or `perfgate run --out DIR`; default: perfgate-out. If it
    is empty or belongs to another job, the verdict is empty and a message explains why. This command judges nothing
    and exits 0 for every verdict.
    """
    from perfgate.flows.report import ReportRequest, report, spoken_language

    request = options.record(
        ReportRequest,
        directory=directory,
        language=spoken_language(language, directory),
    )
    report(request, os.environ, click.echo)
