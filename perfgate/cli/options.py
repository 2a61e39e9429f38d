"""Options shared by several commands, and the conversion of a command's options into the record of its job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from perfgate.locale import LANGUAGES, sentence

F = TypeVar("F", bound=Callable[..., Any])
Record = TypeVar("Record")

PATH = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)

language_option = click.option(
    "--lang",
    "language",
    type=click.Choice(LANGUAGES),
    help="Language of the output; default: PERFGATE_LANG, [report] language in perfgate.toml, the locale.",
)
allow_token_option = click.option(
    "--allow-token-in-env",
    "allow_token",
    is_flag=True,
    help="Measure in CI even with a token in the environment; it is removed, and the report mentions it.",
)
json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the document as JSON; text for people goes to standard error.",
)
# Of a command that prints either text or JSON.
json_alone_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, for machines."
)


def not_empty(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    """The callback of an option with a name: an empty one, of a variable that is not
    set, must not mean the default.
    """
    if name is not None and not name.strip():
        raise click.BadParameter(sentence("the name is empty"))
    return name


project_option = click.option(
    "--project",
    metavar="NAME",
    callback=not_empty,
    help="The project; default: perfgate.toml's.",
)
all_projects_option = click.option(
    "--all-projects", is_flag=True, help="Of all projects in the store."
)
base_option = click.option(
    "--base",
    metavar="REV",
    help="Compare with this revision's merge base; default: the main branch.",
)
allow_dirty_option = click.option(
    "--allow-dirty",
    is_flag=True,
    help="Ignore uncommitted changes instead of refusing.",
)
workload_option = click.option(
    "--workload",
    "workloads",
    multiple=True,
    metavar="NAME",
    help="Only this workload (may be repeated).",
)
device_option = click.option(
    "--device", metavar="KIND", help="Measure on this device; overrides perfgate.toml."
)


def _both_sides_steps(
    _: click.Context, __: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    from perfgate.flows.shared.options import parse_steps

    if text is None:
        return None
    return parse_steps(text)


checklist_option = click.option(
    "--steps",
    metavar="LIST",
    callback=_both_sides_steps,
    help="Steps of the checklist on both sides, e.g. 1,3-5 or latency,batch; default: all.",
)
checklist_budget_option = click.option(
    "--checklist-budget",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Time for the alternating checklist, in addition to the pairs; default: `checklist_budget` in perfgate.toml.",
)
always_option = click.option(
    "--always",
    is_flag=True,
    help="Measure even if nothing relevant changed, by [paths] in perfgate.toml or by the code itself.",
)
key_option = click.option(
    "--key",
    metavar="NAME",
    default="default",
    help="Distinguishes several gates of one repository.",
)


def _project(_: click.Context, __: click.Parameter, folder: Path) -> Path:
    from perfgate.project import find_project

    return find_project(folder)


def directory_option(
    help: str = "The project's folder, or one inside it.",  # noqa: A002 - click's own name
    *,
    is_new: bool = False,
) -> Callable[[F], F]:
    """``-C``: a project that ``is_new`` starts in this folder; an existing one is found from any folder inside it."""
    folder = click.Path(path_type=Path, file_okay=False, exists=True)
    return click.option(
        "-C",
        "--directory",
        type=folder,
        default=".",
        callback=None if is_new else _project,
        help=help,
    )


def document_options(command: F) -> F:
    """The options of a command that returns a document of the project."""
    return json_option(language_option(directory_option()(command)))


def measuring_options(command: F) -> F:
    """The options of a command that measures the project."""
    return allow_token_option(document_options(command))


class Options:
    """The options of the running command that go into a record under their own names."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def record(self, kind: Callable[..., Record], **fields: object) -> Record:
        """A record of the options and ``fields``. Raises TypeError for an option that is not one of its fields."""
        return kind(**self._values, **fields)


class RecordCommand(click.Command):
    """Passes the options that the command's function names as parameters, and all others as ``options``."""

    def invoke(self, ctx: click.Context) -> Any:
        function = cast("Callable[..., Any]", self.callback)
        values = dict(ctx.params)
        own: dict[str, Any] = {}
        names = inspect.signature(function).parameters
        for name in names:
            if name in values:
                own[name] = values.pop(name)
        if "options" in names:
            values.pop("as_json", None)  # not of the record: ``DocumentCommand`` prints
            own["options"] = Options(values)
        return ctx.invoke(function, **own)


class DocumentCommand(RecordCommand):
    """A command whose function returns a document and the exit code.

    With ``--json`` the document is printed, and text for people goes to standard
    error. The language of a command with ``-C`` is the project's without ``--lang``.
    """

    def invoke(self, ctx: click.Context) -> None:
        from perfgate.cli.streams import people_on_stderr, print_json

        as_json = ctx.params["as_json"]
        if "directory" in ctx.params:
            from perfgate.config import report_language

            ctx.params["language"] = report_language(
                ctx.params["language"], ctx.params["directory"]
            )
        with people_on_stderr(as_json):
            document, code = super().invoke(ctx)
        if as_json:
            print_json(document)
        if code:
            raise SystemExit(code)
