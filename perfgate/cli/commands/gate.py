"""``perfgate gate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfgate.cli.options import (
    FOLDER,
    PATH,
    DocumentCommand,
    json_option,
    language_option,
)
from perfgate.errors import UsageError

if TYPE_CHECKING:
    from perfgate.document.decision import DecisionDocument


@click.command("gate", cls=DocumentCommand)
@click.argument("folder", required=False, type=FOLDER)
@click.option(
    "--base", type=PATH, metavar="RUN", help="Judge this run.json (or its folder) …"
)
@click.option(
    "--head",
    type=PATH,
    metavar="RUN",
    help="… against this one; without --base it is held to the rules of perfgate.toml alone.",
)
@click.option("--out", type=FOLDER, help="Write the decision into this folder.")
@json_option
@language_option
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="Take the policy from this perfgate.toml (or its folder), not the policy recorded with the check.",
)
def COMMAND(
    folder: Path | None,
    base: Path | None,
    head: Path | None,
    out: Path | None,
    language: str | None,
    config: Path | None,
) -> tuple[DecisionDocument, int]:
    """Judge the documents of a check again, or two separate runs. A single run is checked against the rules that need
    no base.

    The same documents give the same decision.
    """
    from rich.console import Console

    from perfgate.config import report_language
    from perfgate.document.decision import Policy
    from perfgate.flows.gate import (
        judge_again,
        judge_alone,
        judge_documents,
        read_config,
    )
    from perfgate.judging.gate.verdict import exit_code
    from perfgate.judging.report.render.terminal import render_terminal

    policy, root = None, config or Path()
    if config:
        policy = read_config(config).policy()
    if root.is_file():
        root = root.parent
    spoken = report_language(language, root)
    if folder is not None and base is None and head is None:
        decision = judge_again(folder, policy=policy, out=out, language=spoken)
    elif folder is None and base is not None and head is not None:
        decision = judge_documents(
            base, head, policy=policy or Policy(), out=out, language=spoken
        )
    elif folder is None and base is None and head is not None:
        decision = judge_alone(head, config=config, out=out, language=spoken)
    else:
        raise UsageError(
            "give a check folder, or a run.json with --head and optionally another with --base"
        )
    render_terminal(decision, Console(), spoken)
    return decision, exit_code(decision)
