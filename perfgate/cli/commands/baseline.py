"""``perfgate baseline``."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfgate.cli.artifacts import say_kept, show_pushed
from perfgate.cli.groups import CommandGroup
from perfgate.cli.isolation import drop_secrets
from perfgate.cli.options import (
    FOLDER,
    PATH,
    Options,
    RecordCommand,
    all_projects_option,
    allow_token_option,
    directory_option,
    json_alone_option,
    project_option,
)
from perfgate.cli.streams import cleaned, doors_of_process, print_json, say_line
from perfgate.locale import sentence

if TYPE_CHECKING:
    from perfgate.config import Config
    from perfgate.document.history import StoredRun, TriageState
    from perfgate.document.run import RunDocument
    from perfgate.flows.baseline import BaselineRequest, RecordedRun
    from perfgate.judging.store.store import Store

NEWEST = 20


@click.group("baseline", cls=CommandGroup)
def COMMAND() -> None:
    """Store runs of main and show them. A check shows them next to its own times, and the trend is computed from them."""


@COMMAND.command("record", cls=RecordCommand)
@click.option(
    "--run",
    "run_file",
    metavar="FILE",
    type=PATH,
    help="Store this run document instead of measuring.",
)
@click.option(
    "--from",
    "artifact",
    metavar="DIR",
    type=PATH,
    help="In CI: store the run in this artifact of the measuring job, a folder or zip.",
)
@click.option(
    "--download", is_flag=True, help="In CI: download that artifact from the forge."
)
@click.option(
    "--key",
    metavar="NAME",
    default="default",
    show_default=True,
    help="With --download: which of several gates on one repository.",
)
@click.option(
    "--allow-dirty",
    is_flag=True,
    help="Store a run that was measured with uncommitted changes.",
)
@click.option(
    "--quick/--full",
    default=True,
    help="Short measurements, comparable with `perfgate check` (the default), or long measurements.",
)
@click.option(
    "--out",
    type=FOLDER,
    default="perfgate-out",
    show_default=True,
    help="Folder for the measurements.",
)
@allow_token_option
@json_alone_option
@directory_option()
def record(
    options: Options,
    run_file: Path | None,
    artifact: Path | None,
    download: bool,
    allow_dirty: bool,
    allow_token: bool,
    as_json: bool,
    directory: Path,
) -> None:
    """Measure main, or take a run document, and store it. One run per session; a run of a change is refused.

    In CI, --from or --download stores the run measured by another job of the same pipeline, if a push to the main
    branch or a schedule started it; never for a change request. Exit codes: 2 not such a job, 3 the artifact is
    missing or belongs to another job, 4 a part could not be measured, or forge or store refused. With [artifacts] path
    in perfgate.toml the traces are kept too; if that fails, the reason is printed and the run is stored all the same.
    """
    sources = sum((run_file is not None, artifact is not None, download))
    if sources > 1:
        raise click.UsageError(
            "--run, --from and --download exclude each other; give one"
        )
    if allow_dirty and (artifact is not None or download):
        raise click.UsageError(
            "--allow-dirty is for a run of this machine; in CI a run with uncommitted changes is never stored"
        )
    config = _config(directory)
    if not sources:
        drop_secrets(directory, allow_token=allow_token)
    from perfgate.flows.baseline import BaselineRequest
    from perfgate.flows.baseline import record as record_run

    request = options.record(
        BaselineRequest,
        run_file=run_file,
        artifact=artifact,
        download=download,
        allow_dirty=allow_dirty,
    )
    doors = doors_of_process()
    recorded = record_run(request, config, doors, lambda: _measure(request, config))
    if as_json:
        _print_recorded(recorded)
    else:
        _show_recorded(recorded)
    if recorded.not_kept is not None:
        why = sentence(
            "the run is stored, but its artifacts are not kept: {why}",
            why=recorded.not_kept.shown,
        )
        say_line(why, err=True)


def _measure(request: BaselineRequest, config: Config) -> RunDocument:
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows.run.run import COMPARED_STARTS, RunOptions, run_here

    with TerminalProgress() as progress:
        return run_here(
            config,
            RunOptions(out=request.out, quick=request.quick, starts=COMPARED_STARTS),
            progress,
        )


def _print_recorded(recorded: RecordedRun) -> None:
    answer: dict[str, object] = {
        "id": recorded.id,
        "store": recorded.store,
        "project": recorded.run.project,
        "suspected": recorded.suspected,
    }
    if recorded.pushed.sent:
        answer["pushed"] = recorded.pushed.sent
    if recorded.kept:
        answer["artifacts"] = recorded.kept.artifacts
    print_json(answer)


def _show_recorded(recorded: RecordedRun) -> None:
    show_pushed(recorded.pushed)
    click.echo(
        sentence(
            "kept run {id} of {project} in {store}",
            id=recorded.id[:12],
            project=recorded.run.project,
            store=recorded.store,
        )
    )
    if recorded.removed:
        click.echo(
            sentence(
                "removed the {removed} oldest, as set by [store] keep",
                removed=recorded.removed,
            )
        )
    for place in recorded.suspected:
        click.echo(
            sentence(
                "suspected slower than main's earlier runs: {place}. It is kept for the trend, but main's level for changes "
                "leaves it out until `perfgate baseline accept` accepts it",
                place=cleaned(place),
            )
        )
    if recorded.clocks:
        from perfgate.judging.report.text.messages import word

        for note in recorded.clocks:
            click.echo(str(word(note)), err=True)
    if recorded.kept is not None:
        say_kept(recorded.kept)


@COMMAND.command("list")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"At most N runs; default: {NEWEST}, and all of them with --json.",
)
@json_alone_option
@directory_option()
def list_runs(limit: int | None, as_json: bool, directory: Path) -> None:
    """List the stored runs of this project, newest first."""
    from perfgate.judging.store.runs import stored_runs
    from perfgate.judging.store.store import Page

    config, store = _open(directory)
    count = limit or NEWEST
    page = Page(limit=limit if as_json else count + 1)
    runs = stored_runs(store, config.project, page)
    damaged = store.damaged(config.project)
    for why in damaged:
        say_line(sentence("left out: {why}", why=why), err=True)
    if as_json:
        print_json(runs)
        return
    project = config.project
    if not runs and not damaged:
        click.echo(
            sentence(
                "no run of {project} is kept yet; `perfgate baseline record` keeps one",
                project=project,
            )
        )
    for run in runs[:count]:
        click.echo("\n".join(_run_lines(run)))
    if len(runs) > count:
        click.echo(
            "\n" + sentence("`perfgate baseline list --limit N` lists older ones too")
        )


def _run_lines(run: StoredRun) -> list[str]:
    """The fields that people copy, in columns that fit a narrow terminal; below them the long fields."""
    import shutil
    import textwrap

    commit = (run.commit or "no commit")[:12] + (" + changes" if run.dirty else "")
    started_at = run.started_at[:16].replace("T", " ")
    columns = (
        run.id[:12],
        started_at,
        f"{run.device_kind:4}",
        f"testbed {run.fingerprint[:12]}",
        commit,
    )
    words = cleaned(f"{', '.join(run.workloads)}: {run.subject or 'no subject'}")
    width = shutil.get_terminal_size().columns
    return [
        cleaned("  ".join(columns)),
        *textwrap.wrap(words, width, initial_indent="    ", subsequent_indent="    "),
    ]


@COMMAND.command("show")
@click.argument("run_id", metavar="ID")
@json_alone_option
@directory_option()
def show(run_id: str, as_json: bool, directory: Path) -> None:
    """Show the values of a stored run. ID is its id or a prefix of it."""
    from perfgate.document.job import typical_values
    from perfgate.judging.store.runs import stored_run

    config, store = _open(directory)
    run = stored_run(store, config.project, run_id)
    if as_json:
        print_json(run)
        return
    rows: list[list[str]] = []
    for step in run.checklist.steps:
        for value in step.values:
            labels = ", ".join(
                f"{name} {label}" for name, label in sorted(value.labels.items())
            )
            number = "none"
            if value.value is not None:
                number = f"{value.value:.6g}"
            rows.append([step.workload, value.metric, labels, number])
    for job in run.jobs.records:
        for metric, typical in typical_values(job, run.jobs.turns).items():
            rows.append([job.name, metric, "", f"{typical:.6g}"])
    click.echo(
        cleaned(
            sentence(
                "{project}, session {id}, started {started_at}",
                project=run.project,
                id=run.session.id,
                started_at=run.session.started_at,
            )
        )
    )
    _print_table(["workload", "metric", "of", "value (base unit)"], rows)


@COMMAND.command("accept")
@click.argument("metrics", metavar="METRIC...", nargs=-1, required=True)
@click.option(
    "--reason", required=True, metavar="TEXT", help="Why the regression is intended."
)
@click.option(
    "--commit",
    "revision",
    default="HEAD",
    show_default=True,
    metavar="REV",
    help="The commit to accept it for.",
)
@click.option(
    "--by",
    "accepted_by",
    metavar="NAME",
    help="Name of the person accepting it; default: git's user.name.",
)
@click.option(
    "--from",
    "folder",
    type=FOLDER,
    metavar="DIR",
    help="Folder of the check that numbers the causes; default: the newest of perfgate-out and .perfgate/local.",
)
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="The last day on which it counts (UTC), e.g. 2027-01-31; default: no end.",
)
@json_alone_option
@directory_option()
def accept(
    metrics: tuple[str, ...],
    reason: str,
    revision: str,
    accepted_by: str | None,
    folder: Path | None,
    until: datetime | None,
    as_json: bool,
    directory: Path,
) -> None:
    """Accept regressions of one commit: the gate then reports them as a warning and passes.

    METRIC is a metric or a pattern, e.g. latency.low or "latency.*"; METRIC@WORKLOAD/SHAPE accepts it for one
    workload and shape. Numbers refer to the causes in a check on this machine. A wrong output cannot be accepted.
    """
    from perfgate.flows.baseline import accept_regressions

    accepted = accept_regressions(
        _config(directory),
        os.environ,
        metrics=metrics,
        reason=reason,
        revision=revision,
        accepted_by=accepted_by,
        folder=folder,
        until=until.date() if until else None,
    )
    if as_json:
        print_json(accepted)
        return
    for entry in accepted:
        values = {
            "metric": entry.metric,
            "commit": entry.commit[:12],
            "author": entry.accepted_by,
        }
        text = sentence("accepted {metric} of {commit} by {author}", **values)
        if entry.until:
            text = sentence(
                "accepted {metric} of {commit} by {author} until {until}",
                **values,
                until=entry.until,
            )
        click.echo(cleaned(text))


@COMMAND.command("accepted")
@json_alone_option
@directory_option()
def list_accepted(as_json: bool, directory: Path) -> None:
    """List the accepted regressions, newest first."""
    from perfgate.document.history import Acceptance

    config, store = _open(directory)
    acceptances = store.entries(config.project, Acceptance)
    today = datetime.now(timezone.utc).date()
    rows: list[list[str]] = []
    for entry in acceptances:
        until = entry.until or ""
        if not entry.counts_on(today):
            until = f"{until}, expired"
        row = [entry.metric, entry.commit[:12], entry.accepted_by]
        rows.append([*row, entry.accepted_at[:16], until, entry.reason])
    if as_json:
        print_json(acceptances)
    elif rows:
        _print_table(["metric", "commit", "by", "when", "until", "reason"], rows)
    else:
        click.echo(
            sentence("nothing was accepted yet; `perfgate baseline accept` does")
        )


@COMMAND.command("triage")
@click.argument("revision", metavar="COMMIT")
@click.argument(
    "state", type=click.Choice(["new", "acknowledged", "fixed", "expected"])
)
@click.option(
    "--reason", default="", metavar="TEXT", help="The reason; optional for new."
)
@click.option(
    "--by",
    "author",
    metavar="NAME",
    help="Name of the person who changes it; default: git's user.name.",
)
@json_alone_option
@directory_option()
def triage(
    revision: str,
    state: TriageState,
    reason: str,
    author: str | None,
    as_json: bool,
    directory: Path,
) -> None:
    """Give the regressions of main that began with a commit a state, for reports and pages.

    COMMIT is the first bad commit as the weekly report prints it. acknowledged: known, and still open. fixed: repaired;
    the next runs show whether the level is back. expected: intended, main's level from then on. new: none of these.
    """
    from perfgate.flows.baseline import triage_regression

    triaged = triage_regression(
        _config(directory),
        os.environ,
        revision=revision,
        state=state,
        reason=reason,
        author=author,
    )
    if as_json:
        print_json(triaged)
        return
    click.echo(
        cleaned(
            sentence(
                "{commit} is {state}, by {author}",
                commit=triaged.commit[:12],
                state=triaged.state,
                author=triaged.author,
            )
        )
    )


@COMMAND.command("triaged")
@json_alone_option
@directory_option()
def list_triaged(as_json: bool, directory: Path) -> None:
    """List the states that people gave regressions of main, newest first."""
    from perfgate.document.history import Triage

    config, store = _open(directory)
    triages = store.entries(config.project, Triage)
    rows: list[list[str]] = []
    for entry in triages:
        row = [entry.commit[:12], entry.state, entry.author]
        rows.append([*row, entry.changed_at[:16], entry.reason])
    if as_json:
        print_json(triages)
    elif rows:
        _print_table(["commit", "state", "by", "when", "reason"], rows)
    else:
        click.echo(
            sentence(
                "no regression was given a state yet; `perfgate baseline triage` does"
            )
        )


_store = click.option(
    "--store", "location", metavar="LOCATION", help="A store other than the project's."
)


@COMMAND.command("log")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=NEWEST,
    show_default=True,
    metavar="N",
    help="Only the newest N.",
)
@all_projects_option
@project_option
@_store
@json_alone_option
@directory_option()
def log(
    limit: int,
    all_projects: bool,
    project: str | None,
    location: str | None,
    as_json: bool,
    directory: Path,
) -> None:
    """List who changed the store, newest first: runs, acceptances, and the tokens of `perfgate serve`."""
    from perfgate.flows.store import ledger_of

    store, place, chosen = _open_scope(location, project, all_projects, directory)
    entries = ledger_of(store, place).entries(project=chosen, limit=limit)
    if as_json:
        print_json(entries)
        return
    if not entries:
        click.echo(sentence("nothing was changed yet"))
    for entry in entries:
        where = ""
        if all_projects:
            where = f"{entry.project}: "
        subject = entry.subject
        if entry.action == "run recorded":
            subject = subject[:12]
        click.echo(
            cleaned(
                f"{entry.at[:19].replace('T', ' ')}  {entry.actor}  {where}{entry.action}  {subject}"
            )
        )


@COMMAND.command("prune")
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    required=True,
    metavar="N",
    help="Number of runs to keep per testbed.",
)
@all_projects_option
@project_option
@_store
@json_alone_option
@directory_option()
def prune(
    keep: int,
    all_projects: bool,
    project: str | None,
    location: str | None,
    as_json: bool,
    directory: Path,
) -> None:
    """Remove all but the newest N runs of each testbed of this project."""
    from perfgate.flows.store import prune_runs

    store, place, chosen = _open_scope(location, project, all_projects, directory)
    removed = prune_runs(store, place, chosen, os.environ, keep=keep)
    if as_json:
        print_json({"removed": removed})
    elif removed == 1:
        click.echo(sentence("removed 1 run"))
    else:
        click.echo(sentence("removed {count} runs", count=removed))


@COMMAND.command("remove")
@click.argument("run_id", metavar="ID")
@project_option
@_store
@json_alone_option
@directory_option()
def remove(
    run_id: str,
    project: str | None,
    location: str | None,
    as_json: bool,
    directory: Path,
) -> None:
    """Remove one run of this project. ID is its id or a prefix of it.

    The audit log of a database names the run. What its artifact store keeps stays.
    """
    from perfgate.flows.store import remove_run

    store, place, chosen = _open_scope(
        location, project, all_projects=False, directory=directory
    )
    removed = remove_run(store, place, chosen or "", run_id, os.environ)
    if as_json:
        print_json({"removed": removed})
    else:
        click.echo(sentence("removed run {run_id}", run_id=removed[:12]))


def _open_scope(
    location: str | None, project: str | None, all_projects: bool, directory: Path
) -> tuple[Store, str, str | None]:
    """The store, its location, and the project, None for all. On the machine of a service there is no perfgate.toml."""
    from perfgate.flows.shared.store import open_store_at, store_location_in
    from perfgate.flows.store import refuse_unknown_project

    if all_projects and project:
        raise click.UsageError(
            "--project and --all-projects exclude each other; give one"
        )
    chosen = None
    if not all_projects:
        chosen = project or _config(directory).project
    place = store_location_in(location, directory, os.environ)
    store = open_store_at(place, directory, os.environ)
    if project:
        refuse_unknown_project(store, place, project)
    return store, place, chosen


def _open(directory: Path) -> tuple[Config, Store]:
    from perfgate.flows.shared.store import open_project_store

    config = _config(directory)
    return config, open_project_store(config, os.environ)


def _config(directory: Path) -> Config:
    from perfgate.config import load_config

    return load_config(directory)


# People copy these into the next command, so a narrow terminal must not wrap them.
_WHOLE = ("commit", "metric")


def _print_table(titles: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE)
    for title in titles:
        table.add_column(title, no_wrap=title in _WHOLE)
    for row in rows:
        cells = [Text(cleaned(cell)) for cell in row]
        table.add_row(*cells)
    Console().print(table)
