"""Our GitLab template runs: measure, artifact, publish, one note; the fake GitLab remembers, prism judges every request."""

from __future__ import annotations

import json
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from perfgate.judging.forge.comment import marker, read_state
from tests.ci.gitlab_pipeline import JobArtifacts, Project
from tests.ci.packages import ROOT, Packages, software_npu
from tests.ci.prism import prism_proxy
from tests.fakes.forge import BOT, BOT_TOKEN, FakeForge
from tests.fakes.forge_dialects import GitLabDialect
from tests.fakes.forge_files import basic_token
from tests.fakes.remote import git

pytestmark = [
    pytest.mark.skipif(shutil.which("gitlab-ci-local") is None, reason="make test-ci installs gitlab-ci-local"),
]
SLOWER = ("y = self.layer(x)\n", "y = self.layer(x)\n        y = y + 0\n        y = y + 0\n")
MARKER = marker("default")
# What the author of a change chooses.
HOSTILE = ("MERGE_REQUEST_TITLE", "MERGE_REQUEST_SOURCE_BRANCH_NAME", "COMMIT_REF_NAME", "COMMIT_MESSAGE")

# A pipeline of somebody's own: the runner hands publish nothing.
DOWNLOADING: dict[str, object] = {
    "perfgate-publish": {
        "needs": [{"job": "perfgate-measure", "artifacts": False}],
        "script": [
            'git -C "$project" checkout --quiet "$CI_MERGE_REQUEST_DIFF_BASE_SHA" -- perfgate.toml',
            'test ! -e "$here/perfgate-out"',
            'gate publish --download --key "$GATE_KEY"',
        ],
    }
}


@pytest.fixture
def project(tmp_path: Path, packages: Packages) -> Iterator[Project]:
    with FakeForge(GitLabDialect()) as forge, prism_proxy(forge, tmp_path / "prism") as prism:
        yield Project(tmp_path, forge, prism.api_url, packages)
        assert (forge.violations, prism.violations()) == ([], [])


def test_merge_request__slower_then_repaired__one_note_edited_in_place_and_a_reply(project: Project) -> None:
    # The project's own defaults belong to its jobs: of ours, only to those without a token.
    project.start(own={"default": {"before_script": ["echo of-the-project"]}}, setup=['test -z "$PERFGATE_TOKEN"'])
    project.forge.artifacts = JobArtifacts(project)
    slower = project.change("slower", model=SLOWER)
    done = project.merge_request(slower)
    assert done.jobs == {"perfgate-measure": 1, "perfgate-publish": 1}, done.log
    assert "removed from the environment before anything is measured: CI_JOB_TOKEN" in done.of("perfgate-measure")
    assert "of-the-project" in done.of("perfgate-measure")
    assert "of-the-project" not in done.of("perfgate-publish")
    (note,) = project.notes()
    assert note.splitlines()[0] == MARKER
    assert " perfgate: FAIL" in note
    assert "1 more `aten::add` at `model.py:13`\n" in note
    assert "(2 in all, also at `:14`): `y = y + 0`\n" in note
    assert project.statuses() == []
    files = project.linked(note)
    assert files.keys() == {"comment.md", "decision.json", "report.html"}
    assert json.loads(files["decision.json"])["verdict"] == "FAIL"
    opened = project.opened(note)
    assert {"report.html", "head/flame.html"} < opened.keys()
    assert opened["report.html"] == files["report.html"]
    assert opened["head/flame.html"].startswith(b"<!doctype html>")
    assert all(trace.startswith(b"\x1f\x8b") for path, trace in opened.items() if path.endswith(".json.gz"))
    _check_reports(project.root / "perfgate-out")

    repaired = project.change("repaired")
    done = project.merge_request(repaired)
    assert done.jobs == {"perfgate-measure": 0, "perfgate-publish": 0}, done.log
    note, reply = project.notes()
    assert " perfgate: PASS" in note
    assert "FAIL → PASS" in reply
    assert project.statuses() == []


def _check_reports(out: Path) -> None:
    """Look at what GitLab's widgets show of the artifact."""
    cases = {case.attrib["name"]: case for case in ET.parse(out / "junit.xml").iter("testcase")}
    failure = cases["counters.framework_ops"].find("failure")
    assert failure is not None
    assert "at model.py:13" in (failure.text or "")
    families = {family.name: family for family in text_string_to_metric_families((out / "metrics.txt").read_text())}
    assert [sample.value for sample in families["perfgate_counters_framework_ops"].samples] == [4.0]
    assert "perfgate_latency_p50_seconds" in families


def test_merge_request__jobs_are_retried__the_pairs_of_both_attempts_decide(project: Project) -> None:
    project.start()
    slower = project.change("slower", model=SLOWER)
    first = project.merge_request(slower)
    assert first.jobs == {"perfgate-measure": 1, "perfgate-publish": 1}, first.log
    pairs, rounds = _amount(project)
    assert rounds == 1
    second = project.retry(slower)
    assert second.jobs == {"perfgate-measure": 1, "perfgate-publish": 1}, second.log
    assert _amount(project) > (pairs, 1)
    assert _amount(project)[1] == 2
    # Another pipeline of the same commit is no retry, and may have been started because something else has changed.
    project.merge_request(slower)
    assert _amount(project)[1] == 1


def _amount(project: Project) -> tuple[int, int]:
    """Return how many pairs the published decision rests on, and how many attempts measured them."""
    (note,) = project.notes()
    decision = json.loads(project.linked(note)["decision.json"])
    return decision["measured"]["pairs"], decision["measured"]["rounds"]


def test_merge_request__set_up_fails__the_note_says_that_nothing_was_measured(project: Project) -> None:
    project.start(setup=["false"])
    head = project.change("slower", model=SLOWER)
    done = project.merge_request(head)
    assert done.jobs == {"perfgate-measure": 1, "perfgate-publish": 3}, done.log
    (note,) = project.notes()
    assert " perfgate: INCONCLUSIVE" in note
    assert project.statuses() == []


def test_merge_request_of_a_fork__its_own_pipeline_posts_nothing_and_a_members_downloads_and_does(
    project: Project,
) -> None:
    project.start(settings='[report]\nlanguage = "zh"\n', own=DOWNLOADING)
    head = project.change("slower", model=SLOWER)
    project.forge.artifacts = JobArtifacts(project)
    hostile = {f"CI_{name}": 'x`touch pwn`$(touch${IFS}pwn)"; touch pwn #' for name in HOSTILE}
    source = {"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "99", "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "mallory/model"}

    # In the fork, which has number 99 and no variables of ours.
    tokens, project.tokens = project.tokens, {}
    fork = {"CI_PROJECT_ID": "99", "CI_PROJECT_PATH": "mallory/model"}
    done = project.merge_request(head, **fork, **source, **hostile)
    assert done.jobs == {"perfgate-measure": 1, "perfgate-publish": 2}, done.log
    assert [call.path for call in project.forge.calls if "/api/" in call.path] == []

    # In the project itself, started by a member.
    project.tokens = tokens
    done = project.merge_request(head, **source, **hostile)
    assert done.jobs == {"perfgate-measure": 1, "perfgate-publish": 1}, done.log
    assert [call.path[-len("/artifacts") :] for call in project.forge.calls].count("/artifacts") == 1
    (note,) = project.notes()
    assert " perfgate: FAIL" in note
    assert "`model.py:13`" in note
    assert "原因" in note
    assert project.statuses() == []
    assert list(project.folder.rglob("pwn")) == []
    assert "pwn" not in note


def test_plan__mistake_in_perfgate_toml__ends_the_pipeline_before_a_device_is_taken(project: Project) -> None:
    project.start(plan=True)
    project.clone.git("checkout", "-q", "-B", "feature", "main")
    config = project.root / "perfgate.toml"
    config.write_text(config.read_text().replace("looks = [8]", "looks = 8"))
    done = project.merge_request(project.change("a mistake"))
    # GitLab goes on to perfgate-publish, which runs always; gitlab-ci-local waits for the skipped job that it needs.
    assert done.jobs == {"perfgate-plan": 2}, done.log
    assert "looks" in done.of("perfgate-plan")


def test_record__of_a_store_that_the_token_may_write__verdict_kept_for_the_trend(project: Project) -> None:
    # The project's own rules leave a change of prose out of the queue for the device.
    own: dict[str, object] = {"perfgate-measure": {"rules": [{"if": "$KIND != 'prose'"}]}}
    project.start(own=own, plan=True, record=True)
    done = project.merge_request(project.change("slower", model=SLOWER))
    assert done.jobs == {"perfgate-plan": 0, "perfgate-measure": 1, "perfgate-publish": 1}, done.log
    assert "The verdict was kept for `perfgate trend`." in done.of("perfgate-publish")
    assert project.forge.repository is not None
    assert "gates/" in git(project.forge.repository, "ls-tree", "-r", "--name-only", "perfgate-data")

    (project.root / "README.md").write_text("prose\n")
    head = project.change("prose")
    project.forge.changes[:] = [replace(project.forge.changes[0], files=("README.md",))]
    done = project.merge_request(head, KIND="prose")
    assert done.jobs == {"perfgate-plan": 0, "perfgate-publish": 0}, done.log
    (note, *_) = project.notes()
    assert " perfgate: SKIPPED" in note


@pytest.mark.parametrize("more", [[], software_npu(lambda setup: [setup])], ids=["cpu", "and-npu"])
def test_matrix__testbeds_and_one_that_has_no_runner__one_note_with_a_column_each(
    project: Project, more: list[dict[str, object]]
) -> None:
    two = {"name": "two-cpus", "setup": ["export OMP_NUM_THREADS=2"]}
    others = [{**one, "testbed": one["name"], "publish": "none", "weekly": False} for one in (two, *more)]
    names = ["one-cpu", *(str(one["name"]) for one in others)]
    kinds = {name: "npu" if "npu" in name else "cpu" for name in names} | {"absent": "npu"}
    settings = "[testbeds]\n" + "".join(f'{name} = "{kind}"\n' for name, kind in kinds.items())
    publisher = {"name": "perfgate", "testbed": "one-cpu", "publish": "all"}
    project.start(settings=settings, testbeds=[*others, publisher])
    done = project.merge_request(project.change("slower", model=SLOWER))
    measured = {f"{name}-measure": 1 for name in ("perfgate", *names[1:])}
    assert done.jobs == {**measured, "perfgate-publish": 1}, done.log
    (note,) = project.notes()
    assert f"perfgate: FAIL – on {len(names)} of {len(kinds)} testbeds: {', '.join(names)}" in note
    assert f"| | {' | '.join(kinds)} |" in note
    assert "- **absent**: INCONCLUSIVE – " in note


def test_bisect__ordered_in_a_note__the_branchs_pipeline_names_the_slower_commit(project: Project) -> None:
    project.forge.roles, project.forge.membership = {"ann": "developer"}, "developer"
    project.start(commands=True, setup=['test -z "$PERFGATE_TOKEN"'])
    before = project.change("harmless", model=("import torch\n", "import torch\n\nFIRST = 1\n"))
    slower = project.change("slower", after=before, model=SLOWER)
    project.change("also harmless", after=slower, model=("FIRST = 1\n", "SECOND = 2\n"))
    done = project.note("ann", "/perfgate bisect counters.framework_ops@small")
    assert done.jobs == {"perfgate-command": 0}, done.log
    (answer,) = project.notes()
    assert answer.startswith("perfgate is bisecting up to ")
    done = project.started()
    assert done.jobs == {"perfgate-bisect": 0, "perfgate-answer": 0}, done.log
    _, answer = project.notes()
    assert answer.startswith(f"**Slower since `{slower[:10]}`, by `someone`: `slower`**\n")
    assert f"/team/model/-/pipelines/{project.last})" in answer
    # It is an answer and no verdict.
    assert project.statuses() == []


def test_drafts__left_out__no_job(project: Project) -> None:
    project.start(**{"skip-drafts": True, "plan": True})
    head = project.change("slower", model=SLOWER)
    done = project.merge_request(head, CI_MERGE_REQUEST_DRAFT="true")
    assert done.jobs == {}, done.log


def test_merged_results__compared_with_what_it_was_merged_into(project: Project) -> None:
    project.start()
    head = project.change("slower", model=SLOWER)
    project.clone.git("checkout", "-q", "main")
    newer = project.clone.commit("main moved on", model=("def build", "def helper():\n    return 1\n\n\ndef build"))
    project.clone.git("push", "-q", "origin", "main")
    project.clone.git("checkout", "-q", "--detach", "main")
    project.clone.git("merge", "-q", "--no-ff", "-m", "merge", head)
    merge = project.clone.git("rev-parse", "HEAD")
    project.clone.git("push", "-q", "origin", f"{merge}:refs/merge-requests/7/merge")
    done = project.merge_request(
        merge,
        CI_MERGE_REQUEST_EVENT_TYPE="merged_result",
        CI_MERGE_REQUEST_SOURCE_BRANCH_SHA=head,
        CI_MERGE_REQUEST_TARGET_BRANCH_SHA=newer,
    )
    assert done.jobs == {"perfgate-measure": 1, "perfgate-publish": 1}, done.log
    (note,) = project.notes()
    assert f"base `{newer[:9]}`" in note
    state = read_state(note)
    assert state is not None
    assert (state.head, state.verdict) == (head, "FAIL")
    assert project.statuses() == []


def test_default_branch__run_is_kept_in_the_data_branch_and_the_scheduled_pipeline_posts_an_issue(
    project: Project,
) -> None:
    project.start()
    done = project.default_branch("push")
    assert done.jobs == {"perfgate-measure": 0, "perfgate-baseline": 0}, done.log
    assert f" of {project.base[:12]} " in _log_of(project, "perfgate-data")
    pushed = [call for call in project.forge.calls if call.path.endswith("/git-receive-pack") and call.method == "POST"]
    assert {basic_token(call.headers["authorization"]) for call in pushed} == {BOT_TOKEN}
    assert (project.notes(), project.statuses()) == ([], [])

    done = project.default_branch("schedule")
    assert done.jobs == {"perfgate-confirm": 0, "perfgate-weekly": 0}, done.log
    (issue,) = project.forge.issues
    assert issue.author == BOT
    assert "perfgate" in issue.title
    assert (project.root / "perfgate-trend" / "trend.html").is_file()


def _log_of(project: Project, branch: str) -> str:
    assert project.forge.repository is not None
    return git(project.forge.repository, "log", "--format=%s%n%b", branch)


def test_own_pipeline__expanded_by_gitlab_ci_local__measures_and_publishes_minilm(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "templates", tmp_path / "templates")
    shutil.copy(ROOT / ".gitlab-ci.yml", tmp_path)
    for arguments in (["init", "-q", "-b", "main"], ["add", "--all"], ["commit", "-qm", "our pipeline"]):
        git(tmp_path, *arguments)
    # Jobs without tags run anywhere; the editor's schema would rather have one.
    command = ["gitlab-ci-local", "--ignore-schema-paths", "#/definitions/tags/minItems"]
    command += [
        "--ignore-predefined-vars",
        "CI_PIPELINE_SOURCE",
        "--variable",
        "CI_PIPELINE_SOURCE=merge_request_event",
    ]
    done = subprocess.run([*command, "--list-csv"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = [line.partition(";")[0] for line in done.stdout.splitlines()[1:]]
    assert [name for name in listed if name.startswith("perfgate")] == ["perfgate-measure", "perfgate-publish"]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"fail-on": "nothing"}, "fail-on"),
        ({"device": "tpu"}, "device"),
        ({"name": "a b"}, "name"),
        ({"tags": "npu"}, "tags"),
    ],
)
def test_template__input_it_does_not_know__is_refused(
    tmp_path: Path, packages: Packages, inputs: dict[str, object], words: str
) -> None:
    with FakeForge(GitLabDialect()) as forge:
        project = Project(tmp_path, forge, forge.api_url, packages)
        project.start(**inputs)
        done = project.default_branch("push")
    assert done.jobs == {}
    assert words in done.log
