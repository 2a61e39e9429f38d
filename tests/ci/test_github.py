"""Our GitHub workflows run: measure, artifact, publish, one comment; the fake GitHub remembers, prism judges every request."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate.judging.forge.comment import marker, read_state
from tests.ci.act import Hub
from tests.ci.gitlab_pipeline import build_wheels
from tests.ci.prism import prism_proxy
from tests.fakes.forge import FakeForge
from tests.fakes.forge_dialects import GitHubDialect

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(shutil.which("act") is None, reason="make test-ci installs act"),
]
SLOWER = ("y = self.layer(x)\n", "y = self.layer(x)\n        y = y + 0\n        y = y + 0\n")
MARKER = marker("default")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture
def hub(tmp_path: Path, wheels: Path) -> Iterator[Hub]:
    with FakeForge(GitHubDialect()) as forge, prism_proxy(forge, tmp_path / "prism") as prism:
        yield Hub(tmp_path, forge, prism.api_url, wheels)
        assert (forge.violations, prism.violations()) == ([], [])


def test_pull_request__slower_then_repaired__one_comment_edited_in_place_and_a_reply(hub: Hub) -> None:
    hub.start(setup='test -z "$GITHUB_TOKEN"')
    slower = hub.change("slower", model=SLOWER)
    done = hub.pull_request("opened")
    assert done.jobs == {"measure": "failed", "publish": "failed"}, done.log
    (comment,) = hub.comments()
    assert comment.splitlines()[0] == MARKER
    assert "## perfgate: FAIL" in comment
    assert "2 more `aten::add` at `model.py:14`" in comment
    assert hub.statuses() == [(slower, "failure")]
    assert "::error file=model.py,line=14," in done.log

    repaired = hub.change("repaired")
    done = hub.pull_request("synchronize")
    assert done.jobs == {"measure": "succeeded", "publish": "succeeded"}, done.log
    comment, reply = hub.comments()
    assert "## perfgate: PASS" in comment
    assert "FAIL → PASS" in reply
    assert hub.statuses() == [(slower, "failure"), (repaired, "success")]
    state = read_state(comment)
    assert state is not None
    assert (state.run, state.head) == (hub.last, repaired)
