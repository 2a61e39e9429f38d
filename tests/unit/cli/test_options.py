"""The options that a command hands on as a record are fields of that record."""

from __future__ import annotations

import dataclasses
import importlib
import inspect

import pytest

from perfgate.cli.options import RecordCommand
from perfgate.jobs.init.job import InitOptions
from perfgate.jobs.publish.command import CommandRequest
from perfgate.jobs.publish.job import PublishRequest
from perfgate.jobs.report import ReportRequest
from perfgate.jobs.shared.options import CheckOptions
from perfgate.jobs.trend.job import TrendRequest


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("check", CheckOptions),
        ("command", CommandRequest),
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
    handed_on = {option.name for option in command.params if option.expose_value} - set(own)
    assert handed_on
    assert handed_on <= {field.name for field in dataclasses.fields(record)}
