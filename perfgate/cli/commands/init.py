"""``perfgate init``."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfgate.cli.options import Options, RecordCommand, directory_option
from perfgate.locale import sentence

_STORE = '[store]\npath = "branch://perfgate-data"'

if TYPE_CHECKING:
    from perfgate.flows.init.init import Started


@click.command("init", cls=RecordCommand)
@click.option(
    "--local",
    is_flag=True,
    help="Write only the files for `perfgate local`, no CI files.",
)
@click.option(
    "--github",
    "forge",
    flag_value="github",
    help="Write the workflows of GitHub, or of a GitHub Enterprise Server.",
)
@click.option(
    "--gitlab",
    "forge",
    flag_value="gitlab",
    help="Write .gitlab-ci.yml, or print the lines to add to it.",
)
@click.option(
    "--gitee",
    "forge",
    flag_value="gitee",
    help="Write no CI file, print the lines of the job.",
)
@click.option(
    "--gitcode", "forge", flag_value="gitcode", help="The same for GitCode and AtomGit."
)
@click.option(
    "--gitea", "forge", flag_value="gitea", help="The same for Gitea and Forgejo."
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda", "npu"]),
    default="cpu",
    show_default=True,
    help="The device to measure on.",
)
@click.option(
    "--runs-on",
    "labels",
    metavar="LABELS",
    help="Labels or tags of the measuring runner, e.g. self-hosted,npu.",
)
@click.option(
    "--publish-on",
    "publish_labels",
    metavar="LABELS",
    help="Labels of the runner that posts, never of the measuring runner.",
)
@click.option(
    "--python",
    metavar="PYTHON",
    help="The Python of the measuring runner that has torch.",
)
@click.option(
    "--setup",
    metavar="LINE",
    help='A shell line before measuring, e.g. "pip install -r requirements.txt".',
)
@click.option(
    "--branch", metavar="NAME", help="The main branch; default: the repository's."
)
@click.option(
    "--image",
    metavar="IMAGE",
    help="Measure in a container of this image, with the device in it.",
)
@click.option(
    "--action",
    metavar="OWNER/REPO@COMMIT",
    help="The commit of perfgate that CI runs; default: the installed one.",
)
@click.option(
    "--package",
    metavar="PACKAGE",
    help="The package for pip in CI; default: that commit.",
)
@click.option(
    "--job",
    type=click.Choice(["command", "ranks", "server"]),
    help="Gate a program, a script in several ranks or a server instead of a function.",
)
@click.option(
    "--ci-only", is_flag=True, help="Only the CI files: perfgate.toml is there already."
)
@click.option(
    "--lock",
    "lock_only",
    is_flag=True,
    help="Write only perf/requirements.txt, the packages for CI, anew.",
)
@directory_option("The project's folder.", is_new=True)
def COMMAND(
    options: Options,
    labels: str | None,
    publish_labels: str | None,
    job: str | None,
    lock_only: bool,
    directory: Path,
) -> None:
    """Write perfgate.toml, a workload that runs, and CI files. Nothing that exists is overwritten.

    Without --github, --gitlab … the remote `origin` determines the forge. Without such a remote no CI file is
    written.
    """
    from perfgate.config import CONFIG_NAME, load_config
    from perfgate.flows.init.init import start_project, write_lock
    from perfgate.flows.init.inputs import InitOptions

    init_options = options.record(
        InitOptions,
        labels=_names(labels),
        publish_labels=_names(publish_labels),
        job=job,
    )

    def trial() -> Collection[str] | None:
        if job or not (directory / CONFIG_NAME).exists():
            return None
        return _try(directory)

    write = write_lock if lock_only else start_project
    started = write(directory, init_options, trial)
    for name in started.files:
        click.echo(sentence("wrote {name}", name=name))
    _say_lock(started)
    has_config = (directory / CONFIG_NAME).exists()
    if started.forge and has_config and not load_config(directory).store.path:
        add = sentence("add to {file}, so that CI keeps main's runs:", file=CONFIG_NAME)
        click.echo("\n\n".join([add, _STORE]))
    if not lock_only:
        _say(started, directory, _EXAMPLES[job])


def _names(text: str | None) -> list[str] | None:
    if text:
        return [name.strip() for name in text.split(",") if name.strip()]
    return None


def _try(directory: Path) -> Collection[str] | None:
    """Check that the workload runs, and return the distributions that it loaded.

    A machine that cannot measure is not an error, because CI uses another one: None.
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.errors import MeasuringError
    from perfgate.flows.init.init import try_workloads

    try:
        with TerminalProgress() as progress:
            packages = try_workloads(directory, progress.status)
    except MeasuringError as error:
        click.echo(
            sentence(
                "not tested on this machine: {why}", why=error.shown.splitlines()[0]
            )
        )
        return None
    click.echo(sentence("tested: the workload loads, runs and passes its check here"))
    return packages


def _say_lock(started: Started) -> None:
    if started.lock is None:
        return
    if started.imported:
        click.echo(
            sentence(
                "added to the packages installed in CI, because the workload imports them: {names}",
                names=", ".join(sorted(started.imported)),
            )
        )
    if started.lock.left_out:
        click.echo(
            sentence(
                "CI does not install these conda packages, which are not Python packages here: {names}; "
                "if the workload needs one, give its install command with --setup",
                names=", ".join(sorted(started.lock.left_out)),
            )
        )
    if started.lock.brings_cuda:
        click.echo(
            sentence(
                "torch is a CUDA build here, so CI would download gigabytes for a runner without a GPU; run `pip "
                "install torch --index-url https://download.pytorch.org/whl/cpu`, then `perfgate init --lock` to "
                "pin the CPU build"
            )
        )
    if started.lock.unhashed:
        click.echo(
            sentence(
                "the packages installed in CI are pinned by version but not by hash, because {name} has none: pip needs "
                "the hash of every package or of none",
                name=started.lock.unhashed,
            )
        )


def _say(started: Started, directory: Path, example: str) -> None:
    if started.lines and started.forge:
        to_add = sentence("Add to the job that builds a pull request:")
        if started.forge == "gitlab":
            to_add = sentence(".gitlab-ci.yml exists and was not changed. Add to it:")
        click.echo(f"\n{to_add}\n\n{started.lines.rstrip()}")
    if not started.files:
        return
    there, git = "", "git"
    if directory.resolve() != Path.cwd():
        there = f" -C {shlex.quote(str(directory))}"
    if started.root != Path.cwd():
        git = f"git -C {shlex.quote(str(started.root))}"
    measuring = [
        f"  perfgate local{there}",
        _below(
            sentence(
                "the first verdict: this work tree against the main branch, in one or two minutes"
            )
        ),
        f"  perfgate run --quick{there}",
        _below(sentence("the checklist on this machine")),
    ]
    beginning = [
        f"  {git} add . && {git} commit",
        _below(
            sentence("a verdict compares commits, but this repository has none yet")
        ),
    ]
    proposing = [
        f"  {git} add {shlex.join(started.to_add)}",
        _below(
            sentence(
                "commit and push them as a change request to get the first comment"
            )
        ),
    ]
    if started.forge is None:
        proposing = [
            f"  perfgate init{there} --ci-only --github",
            _below(
                sentence(
                    "later, for comments on change requests: the CI files, or those of --gitlab …"
                )
            ),
        ]
    if started.missing:
        click.echo(sentence("no CI files were written: {why}", why=started.missing))
    lines = ["", sentence("Next:"), *measuring, *proposing]
    if started.is_empty:
        lines = ["", sentence("Next:"), *beginning, *measuring]
    if any(name.endswith(example) for name in started.files):
        lines.append(
            sentence(
                "{file} still measures the example; replace it with your model.",
                file=example,
            )
        )
    click.echo("\n".join(lines))


def _below(words: str) -> str:
    """The description of a command, on the line below it."""
    return f"{' ' * 27}{words}"


_EXAMPLES = {
    None: "perf/workload.py",
    "command": "perf/bench.py",
    "ranks": "perf/train.py",
    "server": "perf/serve.py",
}
