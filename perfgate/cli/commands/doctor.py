"""``perfgate doctor``."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.cli.isolation import drop_secrets
from perfgate.cli.options import FOLDER, allow_token_option


@click.command("doctor")
@click.option(
    "--fitness",
    "fitness_only",
    is_flag=True,
    help="Only examine the machine: seconds, nothing is gated.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Plant only this change (may be repeated).",
)
@click.option(
    "--list",
    "list_only",
    is_flag=True,
    help="List the planted changes and the expected verdict of each.",
)
@click.option(
    "--config",
    "config_folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Take the device and the [gate] table of the perfgate.toml in DIR instead of the defaults.",
)
@click.option(
    "--out",
    type=FOLDER,
    default=".perfgate/doctor",
    show_default=True,
    help="Folder for doctor.json and a folder for each gate.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the document instead of tables."
)
@allow_token_option
def COMMAND(
    fitness_only: bool,
    only: tuple[str, ...],
    list_only: bool,
    config_folder: Path | None,
    out: Path,
    as_json: bool,
    allow_token: bool,
) -> None:
    """Check that this machine is fit and the gate fires. It plants changes and reports the smallest detectable slowdown.

    Exit codes: 0 every planted change got the expected verdict · 1 one did not · 3 the machine is too busy to decide
    · 4 the machine is unfit.
    """
    import msgspec
    from rich.console import Console

    from perfgate.cli.progress import TerminalProgress
    from perfgate.document.doctor import DoctorDocument
    from perfgate.document.files import write_text_atomically
    from perfgate.flows.doctor import doctor
    from perfgate.flows.shared.session import prepare_out
    from perfgate.judging.report.render import doctor as report
    from perfgate.locale import sentence
    from perfgate.version import __version__

    console = Console(quiet=as_json)
    changes = doctor.choose_changes(only)
    if list_only:
        report.render_list(
            [
                (change.name, change.title, change.verdict, change.metric)
                for change in changes
            ],
            Console(),
        )
        return
    settings = doctor.read_gate(config_folder)
    device = doctor.read_device(config_folder)
    drop_secrets(allow_token=allow_token)
    out = prepare_out(out)
    with TerminalProgress() as progress:
        document = DoctorDocument(
            perfgate_version=__version__,
            fitness=doctor.examine_machine(progress, device),
        )
    report.render_fitness(document.fitness, console)
    if not fitness_only and not doctor.is_unfit(document):
        minutes = max(1, round(sum(change.seconds for change in changes) / 60))
        _say(
            sentence(
                "{count} gates, about {minutes} min; two to four times as long on a busy machine",
                count=len(changes),
                minutes=minutes,
            )
        )
        planted = doctor.plant_changes(changes, settings, out=out, say=_say)
        resolutions = doctor.resolutions_of(planted, out)
        document = msgspec.structs.replace(
            document, planted=planted, resolutions=resolutions
        )
        report.render_planted(planted, console)
        report.render_resolutions(resolutions, console)
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    write_text_atomically(out / "doctor.json", text + "\n")
    if as_json:
        click.echo(text)
    else:
        click.echo(sentence("written to {folder}: doctor.json", folder=out))
    raise SystemExit(doctor.exit_code(document))


def _say(text: str) -> None:
    click.echo(text, err=True)
