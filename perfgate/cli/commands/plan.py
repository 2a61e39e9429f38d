"""``perfgate plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfgate.cli.options import (
    DocumentCommand,
    Options,
    base_option,
    device_option,
    document_options,
    key_option,
    workload_option,
)
from perfgate.cli.streams import doors_of_process
from perfgate.errors import EXIT_PASS

if TYPE_CHECKING:
    from perfgate.document.plan import MeasurementPlan


@click.command("plan", cls=DocumentCommand)
@base_option
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
@document_options
def COMMAND(options: Options, directory: Path) -> tuple[MeasurementPlan, int]:
    """Decide whether a change has to be measured at all.

    Runs before a machine with a device is taken, on an ordinary one in about a second, without torch and without
    running code of the change: reads perfgate.toml, the path filter of the base and the changed files. Exit code 0
    whatever the plan, 2 for a wrong configuration, 4 if the forge refuses the status.
    """
    from perfgate.flows.check.plan import PlanRequest, plan_check
    from perfgate.judging.report.render.ci import plan_line

    request = options.record(PlanRequest)
    plan = plan_check(directory, request, doors_of_process())
    click.echo(plan_line(plan, request.language))
    return plan, EXIT_PASS
