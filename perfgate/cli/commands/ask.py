"""``perfgate ask``: a command for each question, made from its arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from perfgate.cli.groups import CommandGroup
from perfgate.cli.options import directory_option
from perfgate.cli.streams import print_json
from perfgate.errors import UsageError
from perfgate.locale import sentence

if TYPE_CHECKING:
    from perfgate.flows.ask.questions import Question

_store = click.option(
    "--store",
    "location",
    metavar="LOCATION",
    help="The store with the runs of main; the default is the project's.",
)
_json = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: an answer has no other form."
)


class QuestionGroup(CommandGroup):
    """The questions as commands, made when one is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        from perfgate.flows.ask.questions import QUESTIONS

        return list(QUESTIONS)

    def member(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        from perfgate.flows.ask.questions import QUESTIONS

        if name in QUESTIONS:
            return _command(QUESTIONS[name])
        return None


@click.group("ask", cls=QuestionGroup, invoke_without_command=True)
@click.option(
    "--mcp",
    is_flag=True,
    help="Answer an assistant on standard input and output, by the Model Context Protocol.",
)
@_store
@directory_option()
@click.pass_context
def COMMAND(
    context: click.Context, mcp: bool, location: str | None, directory: Path
) -> None:
    """Answer a question about stored runs or a recording, as JSON.

    For assistants and scripts. `perfgate serve` answers the same questions over HTTP, at /api/v1/ask and, for
    assistants, at /mcp. With --mcp an assistant on this machine starts perfgate itself and asks on standard input.
    """
    if context.invoked_subcommand is not None:
        _refuse_misplaced(context)
        return
    if not mcp:
        click.echo(context.get_help())
        return
    from perfgate.flows.ask.sources import local_sources

    try:
        from perfgate.service.mcp_server import serve_stdio
    except ModuleNotFoundError as error:
        raise UsageError(
            "perfgate ask --mcp needs {module}, which is not installed; run pip install 'perfgate[serve]'",
            module=error.name,
        ) from error
    serve_stdio(local_sources(location, directory, os.environ))


def _refuse_misplaced(context: click.Context) -> None:
    """Raise click.UsageError for an option before the question, which would have no
    effect there.
    """
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if source is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                sentence(
                    "{option} before the question has no effect; write it after the question, --mcp without one",
                    option=option.opts[0],
                )
            )


def _command(question: Question[Any, Any]) -> click.Command:
    def answer(directory: Path, as_json: bool, **arguments: Any) -> None:  # noqa: ARG001
        from perfgate.flows.ask.sources import local_sources

        sources = local_sources(arguments.pop("location", None), directory, os.environ)
        print_json(
            question.ask(
                {name: value for name, value in arguments.items() if value is not None},
                sources,
            )
        )

    command = click.Command(question.name, callback=answer, help=question.about)
    schema = question.schema()
    for name, about in schema["properties"].items():
        command.params.append(_option(name, about, name in schema.get("required", [])))
    if question.of_store:
        command = _store(command)
    return directory_option()(_json(command))


def _option(name: str, about: Mapping[str, Any], is_needed: bool) -> click.Option:
    """The option of an argument, by its JSON schema."""
    default = about.get("default") or None
    kinds: dict[str, dict[str, Any]] = {
        "boolean": {"is_flag": True},
        "integer": {
            "type": click.IntRange(about.get("minimum"), about.get("maximum")),
            "metavar": "N",
        },
    }
    kind = kinds.get(about.get("type", ""), {"metavar": name.upper()})
    if "enum" in about:
        kind = {"type": click.Choice(about["enum"])}
    return click.Option(
        [f"--{name}", name],
        help=about["description"],
        required=is_needed,
        default=default,
        show_default=default is not None,
        **kind,
    )
