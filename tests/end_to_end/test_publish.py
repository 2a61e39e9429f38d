"""`perfgate publish` against a forge on this machine that the official API judges: what is posted, and what never is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from perfgate.document.files import read_decision, read_run, write_document
from perfgate.document.run import FROM_PROFILE
from perfgate.judging.forge.comment import read_state
from perfgate.judging.forge.detect import detect
from tests.end_to_end.publishing import MARKER, Job
from tests.fakes.forge import BOT, PERSON, Fault, Reply, StoredChange
from tests.unit.forge.test_runner import outputs_of

pytestmark = pytest.mark.official

STRANGER = "d" * 40


def test_publish__github_enterprise_server__all_of_it_below_the_servers_own_address(enterprise: Job) -> None:
    enterprise.measure(ops=64)
    enterprise.fake.upload(50, "perfgate-default-1", enterprise.zipped())
    done = enterprise.download()
    assert done.returncode == 1, done.stderr
    assert enterprise.comment().startswith(MARKER)
    assert enterprise.statuses() == [(enterprise.project.head, "failure")]
    assert {call.path[:8] for call in enterprise.fake.calls} == {"/api/v3/"}


def test_publish__regressed__posts_a_comment_and_fails(job: Job) -> None:
    job.measure(ops=64)
    done = job.publish()
    assert done.returncode == 1, done.stderr
    (body,) = job.comments()
    lines = body.splitlines()
    assert lines[0] == MARKER
    assert next(line for line in lines[2:] if line).startswith("## ❌ perfgate: FAIL")
    assert "64" in body
    state = read_state(body)
    assert state is not None
    assert (state.run, state.attempt, state.head, state.verdict) == (50, 1, job.project.head, "FAIL")
    assert job.statuses() == job.marked("failure")


def test_publish__unchanged_then_regressed__edits_and_replies(job: Job) -> None:
    job.measure()
    assert job.publish().returncode == 0
    job.measure(ops=64)
    assert job.publish().returncode == 1
    comment, reply = job.comments()
    assert " perfgate: FAIL" in comment
    assert "PASS → FAIL" in reply


def test_publish__newer_comment_there__leaves_it_and_the_status(job: Job) -> None:
    state = '{"run":51,"attempt":1,"head":"x","verdict":"PASS"}'
    newer = job.fake.write(7, f"{MARKER}\n<!-- perfgate:state {state} -->\nnewer", BOT)
    job.measure(ops=64)
    done = job.publish()
    assert done.returncode == 1
    assert newer.body.endswith("newer")
    assert job.statuses() == []
    assert "newer run" in done.stdout


def test_publish__artifact_says_pass_but_samples_say_fail__fails(github: Job) -> None:
    github.measure(ops=64)
    path = github.artifact / "decision.json"
    forged = {**json.loads(path.read_bytes()), "verdict": "PASS", "reasons": [], "comparisons": []}
    path.write_text(json.dumps(forged))
    assert github.publish().returncode == 1
    assert " perfgate: FAIL" in github.comments()[0]


def test_publish__artifact_recorded_a_lax_policy__the_bases_decides(github: Job) -> None:
    github.measure(ops=64, tolerances={"counters.syncs": 9.0, "ops.count:aten::linear": 9.0})
    assert github.publish().returncode == 1


def test_publish__no_artifact__says_so_and_is_inconclusive(job: Job) -> None:
    done = job.publish()
    assert done.returncode == 3, done.stderr
    (body,) = job.comments()
    assert "INCONCLUSIVE" in body
    assert "measuring job" in body
    assert str(job.folder) not in body
    assert job.statuses() == job.marked("error")


@pytest.mark.parametrize("damage", [b"", b'{"schema": ', b"[" * 100_000, b'{"schema": "perfgate/run", "x": NaN}'])
def test_publish__damaged_artifact__is_inconclusive(github: Job, damage: bytes) -> None:
    github.measure()
    (github.artifact / "head" / "run.json").write_bytes(damage)
    assert github.publish().returncode == 3
    assert "INCONCLUSIVE" in github.comments()[0]


_FOREIGN = [
    ({"repository": "mallory/model"}, "merge", "repository"),
    ({"run_id": "49"}, "merge", "run id"),
    ({"head_sha": STRANGER}, "merge", "head commit"),
    ({"run_attempt": 2}, "merge", "attempt 2"),
    ({"change_request": 8}, "merge", "change request 8"),
    ({}, "newer", "measured the commit"),
    ({}, "newer_merge", "measured the commit"),
]


@pytest.mark.parametrize(("changes", "commit", "words"), _FOREIGN)
def test_publish__artifact_of_another_run__is_refused(github: Job, changes: Any, commit: str, words: str) -> None:
    github.measure(ops=64, ci=msgspec.structs.replace(github.ci, **changes), commit=getattr(github.project, commit))
    assert github.publish().returncode == 3
    body = github.comment()
    assert "INCONCLUSIVE" in body
    assert "aten" not in body
    assert all(word in body for word in words.split())


def test_publish__measured_outside_ci__is_refused(github: Job) -> None:
    github.measure(ci=None)
    assert github.publish().returncode == 3


def test_publish__made_from_a_recording__is_refused(github: Job) -> None:
    github.measure()
    path = github.artifact / "head" / "run.json"
    head = read_run(path)
    recorded = msgspec.structs.replace(head.session, command=FROM_PROFILE)
    write_document(path, msgspec.structs.replace(head, session=recorded))
    assert github.publish().returncode == 3
    body = github.comment()
    assert "was made from a recording" in body


def test_publish__no_token__prints_and_posts_nothing(job: Job) -> None:
    job.measure(ops=64)
    done = job.publish(token=None)
    assert done.returncode == 1
    assert " perfgate: FAIL" in done.stdout
    assert "Nothing was posted: no token in PERFGATE_TOKEN" in done.stdout
    assert job.fake.calls == []
    if job.host == "github":
        assert " perfgate: FAIL" in job.summary.read_text()
        assert done.stdout.startswith("::stop-commands::")


def test_publish__dry_run__posts_nothing_although_there_is_a_token(github: Job) -> None:
    github.measure(ops=64)
    done = github.publish(dry_run=True)
    assert done.returncode == 1
    assert "dry run" in done.stdout
    assert github.fake.calls == []
    assert not github.summary.exists()


def test_publish__outside_ci__prints(github: Job) -> None:
    github.measure()
    github.environ = {}
    done = github.publish()
    assert done.returncode == 0
    assert "not a CI job" in done.stdout
    assert github.fake.calls == []


def test_publish__two_keys__two_comments(job: Job) -> None:
    job.measure()
    job.publish()
    job.publish(key="training")
    assert len(job.comments()) == 2
    names = [] if job.host == "gitlab" else ["perfgate", "perfgate/training"]
    assert sorted(status.name for status in job.fake.statuses) == names


def test_publish__one_workload_asked_for__leaves_comment_and_status_of_the_whole_check(job: Job) -> None:
    job.measure(ops=64)
    assert job.publish().returncode == 1
    (whole,) = job.comments()
    job.measure()
    assert job.publish(workload="encoder").returncode == 0
    assert job.comments()[0] == whole
    assert " perfgate: PASS" in job.comments()[1]
    names = {status.name: status.state for status in job.fake.statuses}
    assert names == ({} if job.host == "gitlab" else {"perfgate": "failure", "perfgate/default/encoder": "success"})


def test_publish__base_requires_two_workloads__the_measured_one_counts_if_it_was_asked_for_alone(github: Job) -> None:
    github.rebase(
        'project = "model"\n[workloads]\nencoder = "perf/workload.py:encoder"\ntagger = "perf/workload.py:tagger"\n'
    )
    github.measure()
    assert github.publish().returncode == 3
    assert "`tagger` was not measured" in github.comments()[0]
    assert github.publish(workload="encoder").returncode == 0


def test_publish__token_refused__exit_4_and_the_token_is_not_shown(job: Job) -> None:
    job.measure()
    done = job.publish(token="stolen-token-424242")
    assert done.returncode == 4
    assert "401" in done.stderr
    assert "stolen-token-424242" not in done.stdout + done.stderr


def test_publish__status_not_permitted__comment_stands(github: Job) -> None:
    github.measure()
    github.fake.script("POST", Reply(403, {"message": "Resource not accessible by integration"}))
    github.fake.write(7, f"{MARKER}\nours already, so that the first POST is the status", BOT)
    done = github.publish()
    assert done.returncode == 0
    assert "status was not set" in done.stdout
    assert " perfgate: PASS" in github.comments()[0]


def test_publish__workflow_run_of_a_fork__finds_the_pull_request_by_head(github: Job) -> None:
    github.fake.changes[:0] = [
        StoredChange(5, "mallory", "feature", STRANGER),
        StoredChange(6, "x", "feature", github.project.head),
    ]
    github.workflow_run()
    github.measure(ops=64)
    done = github.publish()
    assert done.returncode == 1, done.stderr
    assert len(github.comments()) == 1


def test_publish__workflow_run_and_head_moved_on__sets_the_status_only(github: Job) -> None:
    github.fake.changes[:] = [StoredChange(7, "mallory", "feature", STRANGER)]
    github.workflow_run()
    github.measure(ops=64, commit=github.project.head)
    done = github.publish()
    assert done.returncode == 1
    assert "No change request has the head" in done.stdout
    assert github.statuses() == [(github.project.head, "failure")]
    assert github.comments() == []


def test_publish__person_planted_our_marker__left_alone(github: Job) -> None:
    planted = github.fake.write(7, f"{MARKER}\nPASS", PERSON)
    github.measure(ops=64)
    github.publish()
    assert planted.body == f"{MARKER}\nPASS"
    assert len(github.comments()) == 1


def test_publish__head_moved_on__leaves_the_comment_to_the_newer_run(job: Job) -> None:
    job.fake.changes[0] = replace(job.fake.changes[0], head_sha=STRANGER)
    job.measure(ops=64)
    done = job.publish()
    assert done.returncode == 1
    assert "No change request has the head" in done.stdout
    assert job.comments() == []
    # Of the commit that was measured, which is no longer the head.
    assert job.statuses() == job.marked("failure")


def test_publish__merged_before_the_gate_was_done__says_so_there(job: Job) -> None:
    job.fake.changes[0] = replace(job.fake.changes[0], open=False)
    job.measure(ops=64)
    assert job.publish().returncode == 1
    assert " perfgate: FAIL" in job.comment()


def test_publish__fork_closed_its_pull_request__found_all_the_same(github: Job) -> None:
    github.fake.changes[0] = replace(github.fake.changes[0], open=False)
    github.workflow_run()
    github.measure(ops=64)
    assert github.publish().returncode == 1
    assert len(github.comments()) == 1


def test_publish__fork_was_deleted__found_by_its_head(github: Job) -> None:
    github.workflow_run(head_repository=None)
    github.measure(ops=64)
    assert github.publish().returncode == 1
    assert len(github.comments()) == 1


def test_publish__branch_has_another_name_by_now__found_by_its_head(github: Job) -> None:
    github.fake.changes[0] = replace(github.fake.changes[0], branch="renamed")
    github.workflow_run()
    github.measure(ops=64)
    assert github.publish().returncode == 1
    assert len(github.comments()) == 1


@pytest.mark.parametrize(("said", "number"), [(7, 7), (9, 9), (None, 9), (666, None)])
def test_publish__several_pull_requests_of_one_head__that_of_the_run(
    github: Job, said: int | None, number: int | None
) -> None:
    github.fake.changes += [
        replace(github.fake.changes[0], number=9),
        replace(github.fake.changes[0], number=11, open=False),
        replace(github.fake.changes[0], number=666, head_sha=STRANGER),
    ]
    github.workflow_run()
    github.measure(ops=64, ci=msgspec.structs.replace(github.ci, change_request=said))
    done = github.publish()
    # One that has another head is never taken, whoever names it; the artifact is then of no change we know.
    assert done.returncode == (3 if number is None else 1)
    assert github.comments(666) == []
    assert len(github.comments(number or 9)) == 1


def test_publish__older_attempt_after_a_newer_one__neither_comment_nor_status(job: Job) -> None:
    job.measure()
    assert job.publish().returncode == 0
    job.environ["GITHUB_RUN_ID" if job.host == "github" else "CI_PIPELINE_ID"] = "49"
    job.measure(ops=64, ci=msgspec.structs.replace(job.ci, run_id="49"))
    done = job.publish()
    assert done.returncode == 1
    assert " perfgate: PASS" in job.comment()
    assert job.statuses() == job.marked("success")


def test_publish__event_is_given__the_environment_is_not_asked(github: Job) -> None:
    event = detect(github.environ)
    assert event is not None
    github.measure(ops=64)
    github.environ = {"PERFGATE_STORE": github.environ["PERFGATE_STORE"]}
    assert github.publish(event=event).returncode == 1
    assert len(github.comments()) == 1


def test_publish__zip_given_by_path__judged_like_its_folder(job: Job) -> None:
    job.measure(ops=64)
    path = job.folder / "artifact.zip"
    path.write_bytes(job.zipped("perfgate-out/"))
    assert job.publish(artifact=path).returncode == 1
    assert "aten::linear" in job.comment()


def test_publish__real_command__posts_and_exits_with_the_verdict(github: Job) -> None:
    github.measure(ops=64)
    done = github.command()
    assert done.returncode == 1, done.stderr
    assert " perfgate: FAIL" in github.comment()
    assert done.stdout.splitlines() == [
        "The comment on change request 7 was created.",
        f"The commit status perfgate of {github.project.head[:12]} is failure.",
    ]


@pytest.mark.parametrize("ended", ["cancelled", "timed_out"])
def test_publish__measuring_job_was_cancelled__says_so_and_judges_no_earlier_attempt(github: Job, ended: str) -> None:
    github.measure(ops=40)
    github.fake.upload(50, "perfgate-default-1", github.zipped())
    github.environ |= {"GITHUB_RUN_ATTEMPT": "2", "PERFGATE_MEASURED": ended}
    done = github.download()
    assert done.returncode == 3, done.stderr
    assert " perfgate: INCONCLUSIVE" in github.comment()
    assert "the measuring job was cancelled or exceeded its time limit" in github.comment()
    assert github.statuses() == [(github.project.head, "error")]


def queue(job: Job, *, base: str, head: str) -> None:
    """Make the job one of GitHub's merge queue: the checkout is the commit that the change is put on."""
    job.event({"merge_group": {"head_sha": head, "base_sha": base, "head_ref": "refs/heads/gh-readonly-queue/main/x"}})
    job.environ |= {"GITHUB_EVENT_NAME": "merge_group", "GITHUB_SHA": head}


@pytest.mark.parametrize(("ops", "code", "state"), [(64, 1, "failure"), (40, 0, "success")])
def test_publish__merge_queue__marks_its_head_and_comments_nowhere(
    github: Job, ops: int, code: int, state: str
) -> None:
    queued = github.project.merge
    queue(github, base=github.project.base, head=queued)
    github.measure(ops=ops, ci=msgspec.structs.replace(github.ci, head_sha=queued))
    done = github.publish()
    assert done.returncode == code, done.stderr
    assert github.statuses() == [(queued, state)]
    assert github.comments() == []
    assert "A merge queue has no comments: only the commit status is set." in done.stdout


def test_publish__merge_queue_and_another_base_than_the_events__is_not_believed(github: Job) -> None:
    queued = github.project.merge
    queue(github, base=github.project.base, head=queued)
    github.measure(ci=msgspec.structs.replace(github.ci, head_sha=queued), base=github.project.unrelated)
    done = github.publish()
    assert done.returncode == 3, done.stderr
    assert github.statuses() == [(queued, "error")]


def test_publish__merge_queue_with_a_file_of_another_host_alone__is_skipped(github: Job) -> None:
    prose = github.project.commit(github.project.base, **{"azure-pipelines__yml": "words\n"})
    queue(github, base=github.project.base, head=prose)
    done = github.download()
    assert done.returncode == 0, done.stderr
    assert github.statuses() == [(prose, "success")]


def test_publish__out_and_outputs__what_is_kept_and_said_is_judged_here(github: Job) -> None:
    github.measure(ops=64)
    # The measuring job's own word and pages: nothing of them is used.
    (github.artifact / "decision.json").write_text('{"verdict": "PASS"}')
    (github.artifact / "report.html").write_text("<h1>PASS</h1>")
    github.environ["GITHUB_OUTPUT"] = str(github.folder / "outputs")
    out = github.folder / "judged"

    assert github.publish(out=out, outputs=True).returncode == 1

    assert read_decision(out / "decision.json").verdict == "FAIL"
    assert "FAIL" in (out / "report.html").read_text()
    assert "synchronisations per call" in (out / "report.html").read_text()
    assert (out / "comment.md").read_text().splitlines()[2:] == github.comment().splitlines()[3:]
    assert outputs_of((github.folder / "outputs").read_text()) == {"verdict": "FAIL", "exit-code": "1"}


def test_publish__out_without_documents__says_so_and_writes_no_page(github: Job) -> None:
    out = github.folder / "judged"
    github.environ["GITHUB_OUTPUT"] = str(github.folder / "outputs")
    assert github.publish(out=out, outputs=True).returncode == 3
    assert outputs_of((github.folder / "outputs").read_text())["verdict"] == "INCONCLUSIVE"
    assert sorted(file.name for file in out.iterdir()) == ["comment.md", "decision.json"]


def test_publish__outputs_outside_github__wrong_use(github: Job) -> None:
    github.measure()
    done = github.publish(outputs=True)
    assert (done.returncode, github.comments()) == (2, [])
    assert "GITHUB_OUTPUT" in done.stderr


class _Failing(dict[str, str]):
    """An environment that fails, in a way that nobody thought of, when it is asked where the store is."""

    def get(self, name: str, default: Any = None) -> Any:
        if name == "PERFGATE_STORE":
            raise RuntimeError("nobody thought of this")
        return super().get(name, default)


def test_publish__something_fails_while_it_is_judged__the_earlier_pass_does_not_stay(job: Job) -> None:
    job.measure()
    assert job.publish().returncode == 0
    with pytest.raises(RuntimeError, match="nobody thought of this"):
        job.publish(out=job.folder / "out", environment=_Failing)
    assert " perfgate: INCONCLUSIVE" in job.comments()[0]
    assert "this could not be judged: RuntimeError;" in job.comments()[0]
    assert job.statuses()[-1:] == job.marked("error")
    assert read_decision(job.folder / "out" / "decision.json").verdict == "INCONCLUSIVE"


def test_publish__forge_fails_while_it_is_judged__posted_as_inconclusive_and_exit_4(github: Job) -> None:
    github.measure()
    assert github.publish().returncode == 0
    github.fake.faults += [Fault("GET", "/pulls/7/files", Reply(422, {"message": "no"}))]
    done = github.publish()
    assert (done.returncode, github.statuses()[-1][1], github.fake.faults) == (4, "error", [])


def test_publish__results_cannot_be_written__the_verdict_is_posted_all_the_same(github: Job) -> None:
    github.measure(ops=64)
    out = github.folder / "out"
    (out / "decision.json").mkdir(parents=True)
    done = github.publish(out=out)
    assert done.returncode == 2
    assert "not a regular file" in done.stderr
    assert " perfgate: FAIL" in github.comment()
