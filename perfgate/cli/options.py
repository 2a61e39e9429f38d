"""Options shared by several commands, and the conversion of a command's options into the record of its job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from perfgate.locale import LANGUAGES

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
        for name in inspect.signature(function).parameters:
            if name in values:
                own[name] = values.pop(name)
        return ctx.invoke(function, Options(values), **own)
