"""Orders in comments, run by our GitHub workflows: of a fork's pull request the job measures its head, without a token."""

from __future__ import annotations

import json
import shutil
import zipfile
from io import BytesIO

import pytest

from perfgate.judging.forge.comment import read_state
from tests.ci.act import Hub
from tests.fakes.forge import BOT_TOKEN

pytestmark = [
    pytest.mark.skipif(shutil.which("act") is None, reason="make test-ci installs act"),
]
SLOWER = ("y = self.layer(x)\n", "y = self.layer(x)\n        y = y + 0\n        y = y + 0\n")
# In two halves, so that only the token itself is found.
NO_TOKEN = f'half={BOT_TOKEN[5:]}; if env | grep -F "{BOT_TOKEN[:5]}$half"; then exit 9; fi; echo no token to be seen'


def test_fork__measured_when_a_maintainer_names_its_head_and_not_before(hub: Hub) -> None:
    hub.start(setup=NO_TOKEN)
    # A role in the repository does not make somebody a judge of what they propose.
    hub.forge.roles = {"ann": "maintain", "mallory": "write"}
    older = hub.change("harmless", owner="mallory")
    head = hub.change("slower", owner="mallory", model=SLOWER)
    assert _refused(hub, "mallory", f"/perfgate run {head}") == (
        "perfgate did nothing: for a pull request from a fork, someone other than its author has to ask\n"
    )
    answer = _refused(hub, "ann", f"/perfgate run {older}")
    assert older in answer
    assert head in answer

    done = hub.comment("ann", f"/perfgate run {head}")
    assert done.jobs == {"command": "succeeded", "measure": "failed", "publish": "failed"}, done.log
    assert "no token to be seen" in done.of("measure")
    assert _measured(hub) == {"base": hub.main, "head": head}
    (comment,) = [one for one in hub.comments() if read_state(one) is not None]
    assert " perfgate: FAIL" in comment
    assert "1 more `aten::add` at `model.py:13`\n" in comment
    assert "(2 in all, also at `:14`): `y = y + 0`\n" in comment
    assert hub.linked(comment).keys() == {"comment.md", "decision.json", "report.html"}
    assert hub.job_page(hub.last) in comment
    assert hub.statuses() == [(head, "failure")]


def test_bisect__commits_of_a_pull_request__the_slower_one_named_in_the_answer(hub: Hub) -> None:
    hub.start(setup=NO_TOKEN)
    hub.forge.roles = {"ann": "maintain"}
    before = hub.change("harmless", model=("import torch\n", "import torch\n\nFIRST = 1\n"))
    slower = hub.change("slower", after=before, model=SLOWER)
    hub.change("also harmless", after=slower, model=("FIRST = 1\n", "SECOND = 2\n"))
    done = hub.comment("ann", "/perfgate bisect counters.framework_ops@small")
    assert done.jobs == {"command": "succeeded", "measure": "succeeded", "answer": "succeeded"}, done.log
    assert "no token to be seen" in done.of("measure")
    started, answer = hub.comments()
    assert started.startswith("perfgate is bisecting up to ")
    assert answer.startswith(f"**Slower since `{slower[:10]}`, by `someone`: `slower`**\n")
    assert "decided by exact counts, so noise played no part" in answer
    assert hub.job_page(hub.last) in answer
    # It is an answer and no verdict.
    assert hub.statuses() == []


def _refused(hub: Hub, author: str, body: str) -> str:
    """Run what a comment starts that nobody obeys; return the answer."""
    before = hub.comments()
    done = hub.comment(author, body)
    assert done.jobs == {"command": "succeeded"}, done.log
    assert (list(hub.artifacts), hub.statuses()) == ([], [])
    (answer,) = hub.comments()[len(before) :]
    return answer


def _measured(hub: Hub) -> dict[str, str]:
    """Return the commits of both sides, as the newest artifact's documents have them."""
    artifact = [one for one in hub.artifacts if one.name == "perfgate-default-1"][-1]
    with zipfile.ZipFile(BytesIO(artifact.data)) as archive:
        runs = {side: json.loads(archive.read(f"{side}/run.json")) for side in ("base", "head")}
    return {side: run["source"]["commit"] for side, run in runs.items()}
