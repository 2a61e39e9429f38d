"""What every forge must do, over every host of perfgate; those of a plug-in have a module like this beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perfgate.judging.forge import hosts
from perfgate.plugins import member_names
from tests.contract.forge_suite import *  # noqa: F403 - the tests themselves
from tests.contract.forge_suite import HEAD, Stage, on_stage
from tests.fakes.forge import BOT_TOKEN, Call, FakeForge
from tests.fakes.forge_dialects import GitHubDialect, GitLabDialect

pytestmark = pytest.mark.official

DIALECTS: dict[str, Callable[[], Any]] = {"github": GitHubDialect, "gitlab": GitLabDialect}


@pytest.fixture(params=member_names(hosts))
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with on_stage(DIALECTS[request.param]()) as stage:
        yield stage


@pytest.mark.recordings
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_fake__illegal_call_or_answer__is_noticed(dialect: Callable[[], Any]) -> None:
    with FakeForge(dialect()) as fake:
        if fake.slice is None:
            pytest.skip("no official API description of this forge is among the recordings")
        prefix = "/repos/team/model/statuses/" if fake.dialect.root == "" else "/api/v4/projects/5/statuses/"
        body = json.dumps({"state": "broken", "name": "x", "context": "x", "description": "x"}).encode()
        headers = {"authorization": f"Bearer {BOT_TOKEN}"}
        fake.membership = "developer"
        fake.commits.add(HEAD)
        fake.respond(Call("POST", prefix + HEAD, {}, body, headers))
        assert any("broken" in violation for violation in fake.violations)
        assert fake.slice.answer_errors("POST", prefix + HEAD, {}, body, 201, b'{"id": "one"}') != []
