"""The options that tell of a CI event, and the variables that say the same."""

from __future__ import annotations

from collections.abc import Mapping

import click
import pytest
from click.testing import CliRunner

from perfgate.cli.options import EVENT_OPTIONS, event_environ, event_options
from perfgate.document.run import CiContext
from perfgate.flows.shared.session import ci_context
from perfgate.judging.forge.detect import GIVEN


def test_event_options__all__are_the_variables_that_detect_reads() -> None:
    assert {variable: option for option, variable, *_ in EVENT_OPTIONS} == GIVEN


def test_event_environ__options_given__stand_beside_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFGATE_FORGE", "gitlab")
    monkeypatch.setenv("PERFGATE_RUN_ID", "5")
    seen: list[Mapping[str, str]] = []

    @click.command()
    @event_options
    def command() -> None:
        seen.append(event_environ())

    done = CliRunner().invoke(command, ["--run", "6", "--change-request", "7"])
    assert done.exit_code == 0, done.output
    assert {name: value for name, value in seen[0].items() if name in GIVEN} == {
        "PERFGATE_FORGE": "gitlab",
        "PERFGATE_RUN_ID": "6",
        "PERFGATE_CHANGE_REQUEST": "7",
    }


def test_ci_context__event_given__the_measuring_job_keeps_what_publish_checks() -> None:
    told = {
        "PERFGATE_FORGE": "github",
        "PERFGATE_REPOSITORY": "team/model",
        "PERFGATE_CHANGE_REQUEST": "7",
        "PERFGATE_HEAD_SHA": "a" * 40,
        "PERFGATE_RUN_ID": "123",
        "PERFGATE_RUN_ATTEMPT": "2",
    }
    assert ci_context(told) == CiContext(
        forge="github", repository="team/model", run_id="123", run_attempt=2, head_sha="a" * 40, change_request=7
    )
