"""The options that a command hands on as a record are fields of that record."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterator

import click
import pytest

from perfgate.cli.main import cli
from perfgate.cli.options import RecordCommand
from perfgate.flows.init.inputs import InitOptions
from perfgate.flows.publish.trusted import PublishRequest
from perfgate.flows.report import ReportRequest
from perfgate.flows.shared.options import CheckOptions
from perfgate.flows.trend.trend import TrendRequest
from tests.each import each


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("check", CheckOptions),
        ("init", InitOptions),
        ("local", CheckOptions),
        ("publish", PublishRequest),
        ("report", ReportRequest),
        ("trend", TrendRequest),
        ("upgrade", CheckOptions),
    ],
)
def test_record_command__options_it_does_not_use_itself__are_fields_of_its_record(name: str, record: type) -> None:
    command = importlib.import_module(f"perfgate.cli.commands.{name}").COMMAND
    assert isinstance(command, RecordCommand)
    own = inspect.signature(command.callback).parameters
    handed_on = {option.name for option in command.params if option.expose_value} - {*own, "as_json"}
    assert handed_on
    assert handed_on <= {field.name for field in dataclasses.fields(record)}


def commands_in(command: click.Command) -> Iterator[click.Command]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from commands_in(member)
    else:
        yield command


@each("command", lambda: commands_in(cli))
def test_command__options__are_what_its_function_takes(command: click.Command) -> None:
    assert command.callback is not None
    parameters = inspect.signature(command.callback).parameters.values()
    own = {parameter.name for parameter in parameters if parameter.kind != inspect.Parameter.VAR_KEYWORD}
    options = {option.name for option in command.params if option.expose_value}
    assert own - options <= {"options"}
    # The arguments of a question are those of its schema, whatever they are.
    takes_any = len(own) < len(parameters)
    assert options <= own or takes_any or isinstance(command, RecordCommand)
