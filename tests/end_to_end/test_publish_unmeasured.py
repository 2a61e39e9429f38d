"""What becomes of a check that measured nothing, because no workload runs the changed code, where it is published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from perfgate.document.coverage import ChangedFunction, Coverage
from tests.end_to_end.publishing import CONFIG, Job

NOTHING: dict[str, Any] = {
    key: [] for key in ("workloads", "steps", "counters", "operators", "correctness", "replicates")
}
TITLE = "not measured: no workload runs the changed code"


def unmeasured(job: Job, *files: str) -> None:
    """Let the job's change be of ``files``, and its artifact that of a trial that looked at decoder.py alone."""
    job.fake.changes[0] = replace(job.fake.changes[0], files=files)
    job.measure()
    decode = ChangedFunction(line="decoder.py:2", function="decode", executed="no")
    coverage = Coverage(files=["decoder.py"], functions=[decode], calls=5000)
    job.change("base", **NOTHING)
    job.change("head", **NOTHING, coverage=msgspec.to_builtins(coverage))


def base_says(job: Job, setting: str) -> None:
    job.rebase(f'{CONFIG}[gate]\nunmeasured = "{setting}"\n')


@pytest.mark.parametrize(
    ("setting", "verdict", "code", "state"),
    [("skip", "SKIPPED", 0, "success"), ("warn", "WARN", 0, "success"), ("fail", "FAIL", 1, "failure")],
)
def test_publish__no_workload_runs_the_changed_code__as_the_bases_setting_says(
    github: Job, setting: str, verdict: str, code: int, state: str
) -> None:
    base_says(github, setting)
    unmeasured(github, "decoder.py")
    done = github.publish(record=True)
    assert done.returncode == code, github.comment()
    assert ("kept for `perfgate trend`" in done.stdout) == (verdict != "SKIPPED")
    assert f"perfgate: {verdict} – {TITLE}" in github.comment()
    assert "Not measured: `decode`" in github.comment()
    assert github.statuses()[-1] == (github.project.head, state)
    assert ("add a workload or a shape that runs the changed code" in github.comment()) == (verdict != "SKIPPED")


def test_publish__change_holds_a_file_that_no_trial_looked_at__inconclusive(github: Job) -> None:
    unmeasured(github, "decoder.py", "model.py")
    done = github.publish()
    assert done.returncode == 3, done.stderr
    assert "INCONCLUSIVE" in github.comment()
    assert TITLE not in github.comment()


def test_publish__artifact_skips_what_the_base_wants_measured__its_own_setting_does_not_count(github: Job) -> None:
    base_says(github, "fail")
    unmeasured(github, "decoder.py")
    decision = github.artifact / "decision.json"
    decision.write_text(decision.read_text().replace('"unmeasured":"fail"', '"unmeasured":"skip"'))
    assert github.publish().returncode == 1
