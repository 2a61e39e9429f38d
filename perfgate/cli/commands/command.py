"""``perfgate command``: take the order in a comment."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.cli.options import FOLDER, directory_option, key_option, language_option
from perfgate.cli.streams import doors_of_process


@click.command("command")
@key_option
@click.option(
    "--answer",
    type=FOLDER,
    help="Post the bisection in this folder, as the measuring job left it, as the answer to its order.",
)
@language_option
@directory_option()
def COMMAND(
    key: str, answer: Path | None, language: str | None, directory: Path
) -> None:
    """Execute the comment that started this job. It measures a pull request again, bisects it, or accepts a regression.

    Runs in a job of GitHub or Gitea on `issue_comment`, in a GitLab pipeline that a webhook of comment events triggers,
    or elsewhere with the comment's number in PERFGATE_COMMENT. The first line of the comment is `/perfgate run
    [WORKLOAD]` (GitHub), `/perfgate bisect [METRIC]` (GitHub, GitLab) or `/perfgate accept NUMBER REASON [until DATE]`,
    with the number of a cause in perfgate's comment, or a metric; on an issue of GitHub it is `/perfgate bisect
    [METRIC] GOOD..BAD`, with two commits of main. On a pull request from a fork the commit comes first: `/perfgate run
    COMMIT`. The commenter must have push access and must not be the author of a pull request
    from a fork. The request is written to GITHUB_OUTPUT: action, number, head_sha, base_sha, workload, metric, fork.
    Always exits 0, except for an --answer that is not a bisection of this change (2).
    """
    from perfgate.config import report_language
    from perfgate.flows.publish.command import answer_bisection, run_command

    spoken = report_language(language, directory)
    doors = doors_of_process()
    if answer is None:
        run_command(directory, doors, key=key, language=spoken)
    else:
        answer_bisection(answer, spoken, doors)
