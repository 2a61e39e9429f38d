"""Our workflows on a GitHub Enterprise Server, as far as act goes: another host, an API below a path, its older artifacts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perfgate.judging.forge.comment import read_state
from tests.ci.act import Hub
from tests.ci.packages import Packages
from tests.ci.prism import prism_proxy
from tests.fakes.forge import FakeForge
from tests.fakes.forge_dialects import GitHubEnterpriseDialect

pytestmark = [
    pytest.mark.skipif(shutil.which("act") is None, reason="make test-ci installs act"),
]
SLOWER = ("y = self.layer(x)\n", "y = self.layer(x)\n        y = y + 0\n        y = y + 0\n")


def test_enterprise__pull_request_then_an_order__both_published_from_their_own_runs_artifact(
    tmp_path: Path, packages: Packages
) -> None:
    with FakeForge(GitHubEnterpriseDialect()) as forge, prism_proxy(forge, tmp_path / "prism") as prism:
        assert prism.api_url.endswith("/api/v3")
        hub = Hub(tmp_path, forge, prism.api_url, packages, enterprise=True)
        hub.start()
        hub.forge.roles = {"ann": "maintain"}
        slower = hub.change("slower", model=SLOWER)
        done = hub.pull_request("opened")
        assert done.jobs == {"measure": "failed", "publish": "failed"}, done.log
        (comment,) = hub.comments()
        assert " perfgate: FAIL" in comment
        # Version 3 does not say where an artifact is.
        assert "perfgate-default-judged-1" in [one.name for one in hub.artifacts]
        assert f"{forge.url}/team/model/actions/runs/{hub.last}#artifacts" in comment

        repaired = hub.change("repaired")
        done = hub.comment("ann", "/perfgate run")
        assert done.jobs == {"command": "succeeded", "measure": "succeeded", "publish": "succeeded"}, done.log
        comment, *replies = hub.comments()
        assert " perfgate: PASS" in comment
        assert f"{forge.url}/team/model/actions/runs/{hub.last}#artifacts" in comment
        assert hub.job_page(hub.last) in comment
        state = read_state(comment)
        assert state is not None
        assert (state.run, state.head) == (hub.last, repaired)
        assert any("FAIL → PASS" in reply for reply in replies)
        assert hub.statuses() == [(slower, "failure"), (repaired, "success")]
        assert (forge.violations, prism.violations()) == ([], [])
        assert prism.requests() > 10
        assert {call.path[:8] for call in forge.calls if not call.path.startswith("/team/")} == {"/api/v3/"}
