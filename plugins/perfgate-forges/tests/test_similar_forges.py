"""The contract of forges over those of this package, and the events that perfgate detects with them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_dialects import GitCodeDialect, GiteaDialect, GiteeDialect

from perfgate.errors import UsageError
from perfgate.judging.forge.detect import detect
from perfgate.judging.forge.forge import CiEvent, CiJob, ForgeHost, token_variables
from perfgate.plugins import PACKAGED_FORGES
from tests.contract.forge_suite import *  # noqa: F403 - the tests themselves
from tests.contract.forge_suite import HEAD, Stage, on_stage

ROOT = Path(__file__).parents[3]
DIALECTS: dict[str, Callable[[], Any]] = {
    "gitcode": GitCodeDialect,
    "gitea": GiteaDialect,
    "gitee": GiteeDialect,
}
GIVEN = {
    "PERFGATE_FORGE": "gitcode",
    "PERFGATE_REPOSITORY": "team/model",
    "PERFGATE_HEAD_SHA": HEAD,
    "PERFGATE_RUN_ID": "123",
}
ACTIONS = {
    "GITEA_ACTIONS": "true",
    "GITHUB_ACTIONS": "true",
    "GITHUB_EVENT_NAME": "pull_request",
    "GITHUB_REPOSITORY": "team/model",
    "GITHUB_SERVER_URL": "https://git.example",
    "GITHUB_API_URL": "https://git.example/api/v1",
    "GITHUB_RUN_ID": "9876543210",
    "GITHUB_SHA": "c" * 40,
}


@pytest.fixture(params=PACKAGED_FORGES)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with on_stage(DIALECTS[request.param]()) as stage:
        yield stage


def test_detect__event_given__addresses_everybody_uses() -> None:
    more = {
        "PERFGATE_CHANGE_REQUEST": "7",
        "PERFGATE_JOB_URL": "https://ci.example/job/perf/123/",
    }
    assert detect({**GIVEN, **more}) == CiEvent(
        forge="gitcode",
        host=ForgeHost("https://api.gitcode.com/api/v5", "https://gitcode.com"),
        repository="team/model",
        project="team/model",
        job=CiJob(
            "123",
            1,
            job_url="https://ci.example/job/perf/123/",
            artifact_url="https://ci.example/job/perf/123/",
        ),
        head_sha=HEAD,
        change_request=7,
    )


def test_detect__forge_without_a_common_address__must_be_given_one() -> None:
    event = {**GIVEN, "PERFGATE_FORGE": "gitea"}
    with pytest.raises(
        UsageError, match="every gitea server has its own address; set PERFGATE_API_URL"
    ):
        detect(event)
    read = detect({**event, "PERFGATE_API_URL": "https://git.example:3000/api/v1"})
    assert read is not None
    assert (read.host.api_url, read.host.server_url) == (
        "https://git.example:3000/api/v1",
        "https://git.example:3000",
    )


def test_detect__gitea_actions__speaks_in_githubs_words(tmp_path: Path) -> None:
    payload = {"pull_request": {"number": 7, "head": {"sha": HEAD}}}
    event = _actions(tmp_path, payload, GITHUB_RUN_NUMBER="41", GITHUB_RUN_ATTEMPT="2")
    assert (event.forge, event.host.api_url, event.change_request) == (
        "gitea",
        "https://git.example/api/v1",
        7,
    )
    assert (event.job.run_id, event.job.run_attempt, event.head_sha) == (
        "9876543210",
        2,
        HEAD,
    )
    assert (
        event.job.job_url
        == event.job.artifact_url
        == "https://git.example/team/model/actions/runs/41"
    )


def test_detect__gitea_without_attempts__is_the_first(tmp_path: Path) -> None:
    event = _actions(tmp_path, {})
    assert (event.job.run_attempt, event.job.job_url, event.job.artifact_url) == (
        1,
        None,
        None,
    )


def _actions(folder: Path, payload: object, **more: str) -> CiEvent:
    path = folder / "event.json"
    path.write_text(json.dumps(payload))
    event = detect({**ACTIONS, "GITHUB_EVENT_PATH": str(path), **more})
    assert event is not None
    return event


def test_forges_page__its_table__names_the_tokens_that_are_looked_for() -> None:
    page = (ROOT / "docs" / "forges.md").read_text(encoding="utf-8")
    rows = dict(
        re.findall(
            r"^\| `(\w+)`(?: \(.*?\))? \|.*\| (.*PERFGATE_TOKEN.*) \|$",
            page,
            flags=re.MULTILINE,
        )
    )
    documented = {
        forge: tuple(re.findall(r"`(\w+)`", names)) for forge, names in rows.items()
    }
    assert documented == {forge: token_variables(forge) for forge in PACKAGED_FORGES}
