"""``perfgate plan``."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.cli.options import (
    Options,
    RecordCommand,
    device_option,
    directory_option,
    json_option,
    key_option,
    language_option,
    workload_option,
)


@click.command("plan", cls=RecordCommand)
@click.option(
    "--base",
    metavar="REV",
    help="Compare with this revision's merge base; default: the main branch.",
)
@workload_option
@device_option
@click.option(
    "--skip-drafts",
    is_flag=True,
    help="Do not measure a change request that is a draft.",
)
@click.option(
    "--outputs",
    is_flag=True,
    help="Write measure and accelerator, true or false, to GITHUB_OUTPUT.",
)
@click.option(
    "--pending",
    is_flag=True,
    help="Set the commit status to pending until `perfgate publish` sets the verdict.",
)
@key_option
@json_option
@language_option
@directory_option()
def COMMAND(
    options: Options, as_json: bool, language: str | None, directory: Path
) -> None:
    """Decide whether a change has to be measured at all.

    Runs before a machine with a device is taken, on an ordinary one in about a second, without torch and without
    running code of the change: reads perfgate.toml, the path filter of the base and the changed files. Exit code 0
    whatever the plan, 2 for a wrong configuration, 4 if the forge refuses the status.
    """
    from perfgate.cli.streams import people_on_stderr, print_json
    from perfgate.config import report_language
    from perfgate.flows.check.plan import PlanRequest, plan_check
    from perfgate.flows.shared.doors import Doors
    from perfgate.judging.report.render.ci import plan_line

    spoken = report_language(language, directory)
    request = options.record(PlanRequest, language=spoken)
    with people_on_stderr(as_json):
        doors = Doors.of_this_process(click.echo)
        plan = plan_check(directory, request, doors)
        click.echo(plan_line(plan, spoken))
    if as_json:
        print_json(plan)
