"""The lines that a comment names lead to the change's head on the forge."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perfgate.document.run import CounterSet, CounterSite
from tests.end_to_end.publishing import Job

PAGES = {"github": "blob", "gitlab": "-/blob"}


def counted(job: Job, line: str) -> None:
    """Let the artifact say that ``line`` waits for the device, and what stands there."""
    job.measure(ops=64)
    for side, count in (("base", 40), ("head", 64)):
        site = CounterSite(metric="counters.syncs", name="aten::item", count=count, line=line, code="x = y.item()")
        values = {"counters.syncs": count}
        kept = CounterSet(workload="encoder", shape="short", repeats=3, ops=[], values=values, sites=[site])
        job.change(side, counters=[msgspec.to_builtins(kept)])


def test_comment__line_of_a_cause__leads_to_the_head_commit_and_never_to_the_merge(job: Job) -> None:
    counted(job, "model.py:8")
    job.publish()
    page = f"{job.fake.url}/team/model/{PAGES[job.host]}/{job.project.head}/model.py#L8"
    assert f"**1.** [`model.py:8`]({page}): `x = y.item()`\n" in job.comment()
    assert job.project.merge not in job.comment().partition("<details>")[0]


@pytest.mark.parametrize("line", ["../../../evil.py:8", "/etc/passwd:8", "model.py:0", "javascript:alert(1)"])
def test_comment__line_that_is_none_of_the_project__has_no_link(github: Job, line: str) -> None:
    counted(github, line)
    github.publish()
    assert f"`{line}`" in github.comment()
    assert f"[`{line}`]" not in github.comment()


def test_comment__project_in_a_folder__its_files_are_linked_there(github: Job, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    github.project.git("clone", "-q", str(github.root), str(clone))
    (clone / "models" / "ranker").mkdir(parents=True)
    (clone / "models" / "ranker" / "perfgate.toml").write_text((clone / "perfgate.toml").read_text())
    counted(github, "model.py:8")
    github.publish(root=clone / "models" / "ranker", token=None)
    shown = github.publish(root=clone / "models" / "ranker", dry_run=True).stdout
    assert f"/blob/{github.project.head}/models/ranker/model.py#L8" in shown
