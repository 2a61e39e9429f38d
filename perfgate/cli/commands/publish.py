"""``perfgate publish``: judge a check folder again and post it."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.cli.options import (
    FOLDER,
    PATH,
    Options,
    RecordCommand,
    key_option,
    language_option,
)
from perfgate.cli.streams import doors_of_process


@click.command("publish", cls=RecordCommand)
@click.argument("artifact", metavar="[DIR|ZIP]", required=False, type=PATH)
@click.option(
    "--download",
    is_flag=True,
    help="Fetch the artifact perfgate-KEY-ATTEMPT uploaded by this run.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=".",
    help="Folder with perfgate.toml, in a checkout of the base or the default branch.  [default: here]",
)
@click.option("--dry-run", is_flag=True, help="Print the comment and post nothing.")
@key_option
@click.option(
    "--workload",
    metavar="NAME",
    help="Only this workload was requested: it gets its own comment and status; those of the whole check stay.",
)
@click.option(
    "--testbed",
    "testbeds",
    metavar="NAME",
    multiple=True,
    help="A machine of a CI matrix, in addition to those in [testbeds] of perfgate.toml. Can be repeated.",
)
@click.option(
    "--status/--no-status",
    default=None,
    help="Whether the commit gets a status.  [default: yes, except in GitLab's pipelines, which are the check themselves]",
)
@click.option(
    "--fail-on",
    type=click.Choice(["undecided", "regression", "never"]),
    default="undecided",
    show_default=True,
    help="Verdicts that turn the commit status red; the exit code is the verdict's.",
)
@click.option(
    "--out",
    type=FOLDER,
    help="Write the new decision.json, comment.md and report.html to this folder, for the job to upload.",
)
@click.option(
    "--outputs",
    is_flag=True,
    help="Write verdict and exit code to the file in GITHUB_OUTPUT.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Keep the verdict in the store, from which `perfgate trend` judges the gate.",
)
@language_option
def COMMAND(
    options: Options,
    artifact: Path | None,
    download: bool,
    directory: Path,
    language: str | None,
) -> None:
    """Judge a check again, post its comment and set the commit status.

    Runs in a separate CI job that has the token and never runs code of the change. The check is the output of
    `perfgate check --out DIR`, as a folder or zip, or with --download the artifact uploaded by the measuring job.
    Only its samples are trusted: tolerances come from perfgate.toml of the base commit named by the forge, history
    and acceptances from the project's own store. Without a token the comment is printed. The exit code is the
    verdict's, 3 for a missing or foreign artifact, and 4 if the forge refuses.

    With [testbeds] in perfgate.toml, or with --testbed, the checks of several machines become one comment and one
    verdict. Each check is the folder DIR/NAME, or the artifact perfgate-KEY-NAME-ATTEMPT; a missing one is INCONCLUSIVE.

    GitHub, GitLab and Gitea Actions provide the change request. On other CI systems, such as Jenkins with Gitee or
    GitCode, set PERFGATE_FORGE, PERFGATE_REPOSITORY, PERFGATE_HEAD_SHA, PERFGATE_RUN_ID and PERFGATE_CHANGE_REQUEST,
    both here and for `perfgate check`.
    """
    from perfgate.config import report_language
    from perfgate.errors import UsageError
    from perfgate.flows.publish.publish import publish
    from perfgate.flows.publish.trusted import PublishRequest, read_trusted_inputs
    from perfgate.judging.forge.detect import detect

    if download == (artifact is not None):
        raise UsageError(
            "give the folder or zip of a check, or --download, and not both"
        )
    request = options.record(
        PublishRequest, language=report_language(language, directory)
    )
    doors = doors_of_process()
    # A trial with an artifact at hand does not use the forge.
    posts = download or not request.dry_run
    trusted = read_trusted_inputs(directory, detect(doors.environ), doors, posts=posts)
    raise SystemExit(publish(artifact, trusted, request, doors))
