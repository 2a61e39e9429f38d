"""`perfgate publish` where the network and the forge fail: one comment in the end, or a clear error and exit 4."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from perfgate.judging.forge.comment import read_state
from tests.end_to_end.publishing import MARKER, Job
from tests.fakes.forge import BOT, OTHER_BOT, PERSON, Fault, Reply

BUSY = Reply(503, {"message": "Service Unavailable"})
SLOW_DOWN = Reply(429, {"message": "slow down"}, {"Retry-After": "17"})
SECONDARY = Reply(403, {"message": "You have exceeded a secondary rate limit. Please wait a few minutes."})
DROPPED: Reply | None = None

_LATER = {
    "500": Reply(500, {}),
    "502": Reply(502, {}),
    "503": BUSY,
    "429": SLOW_DOWN,
    "403 limit": SECONDARY,
    "drop": DROPPED,
}
_NEVER = {"401": 401, "403": 403, "404": 404, "410": 410, "422": 422}


def _comments(job: Job) -> str:
    return "/issues/7/comments" if job.host == "github" else "/merge_requests/7/notes"


def _change(job: Job) -> str:
    return "/pulls/7" if job.host == "github" else "/merge_requests/7"


@pytest.mark.parametrize("reply", _LATER.values(), ids=_LATER.keys())
def test_publish__reading_fails_once__asked_again_and_one_comment(job: Job, reply: Reply | None) -> None:
    job.measure(ops=64)
    job.fake.faults += [Fault("GET", _change(job), reply), Fault("GET", _comments(job), reply)]
    done = job.publish()
    assert done.returncode == 1, done.stderr
    assert len(job.comments()) == 1
    assert job.statuses() == job.marked("failure")
    assert job.fake.faults == []
    if reply is SLOW_DOWN:
        assert done.slept[:2] == [17.0, 17.0]
    if reply is SECONDARY:
        assert done.slept[:2] == [60.0, 60.0]


@pytest.mark.parametrize("status", _NEVER.values(), ids=_NEVER.keys())
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_publish__refused_for_good__exit_4_and_no_comment(github: Job, method: str, status: int) -> None:
    github.measure(ops=64)
    github.fake.faults.append(Fault(method, _comments(github), Reply(status, {"message": "no"})))
    done = github.publish()
    assert done.returncode == 4
    assert f"HTTP {status}" in done.stderr
    assert github.comments() == []
    # Nobody reads a comment that is not there: no green, and no red, stands for it.
    assert github.statuses() == []
    assert done.slept == []


@pytest.mark.parametrize("reply", [DROPPED, Reply(502, {}), Reply(504, {})], ids=["drop", "502", "504"])
@pytest.mark.parametrize("done_before", [True, False], ids=["written", "not written"])
def test_publish__no_word_of_the_comment__looked_for_and_written_once(
    job: Job, reply: Reply | None, done_before: bool
) -> None:
    job.measure(ops=64)
    job.fake.faults.append(Fault("POST", _comments(job), reply, done=done_before))
    done = job.publish()
    assert done.returncode == 1, done.stderr
    assert len(job.comments()) == 1
    assert job.fake.faults == []
    assert " perfgate: FAIL" in job.comment()


@pytest.mark.parametrize("reply", [SLOW_DOWN, SECONDARY], ids=["429", "403 limit"])
def test_publish__writing_is_limited__waits_and_writes_once(job: Job, reply: Reply) -> None:
    job.measure()
    job.fake.faults += [Fault("POST", _comments(job), reply)]
    done = job.publish()
    assert done.returncode == 0
    assert len(job.comments()) == 1
    assert job.fake.faults == []
    assert done.slept[0] in (17.0, 60.0)


@pytest.mark.parametrize("reply", [DROPPED, BUSY], ids=["drop", "503"])
@pytest.mark.parametrize("done_before", [True, False], ids=["edited", "not edited"])
def test_publish__no_word_of_the_edit__one_comment_with_the_new_text(
    job: Job, reply: Reply | None, done_before: bool
) -> None:
    job.fake.write(7, f"{MARKER}\nan earlier text", BOT)
    job.measure(ops=64)
    method = "PATCH" if job.host == "github" else "PUT"
    job.fake.faults.append(Fault(method, "s/", reply, done=done_before))
    assert job.publish().returncode == 1
    assert job.fake.faults == []
    assert " perfgate: FAIL" in job.comment()


@pytest.mark.parametrize("reply", [DROPPED, BUSY, SLOW_DOWN], ids=["drop", "503", "429"])
def test_publish__never_gets_through__exit_4_within_bounds(job: Job, reply: Reply | None) -> None:
    job.measure()
    job.fake.faults += [Fault("GET", _comments(job), reply)] * 20
    done = job.publish()
    assert done.returncode == 4
    assert "run the job again later" in done.stderr
    assert len([call for call in job.fake.calls if call.path.endswith(_comments(job))]) == 5
    assert sum(done.slept) < 900


def test_publish__told_to_wait_at_every_step__says_so_before_the_job_is_ended(job: Job) -> None:
    job.measure()
    wait = Reply(429, {"message": "slow down"}, {"Retry-After": "250"})
    job.fake.faults += [
        Fault("GET", _change(job), wait),
        Fault("GET", _comments(job), wait),
        Fault("POST", _comments(job), wait),
    ]
    done = job.publish()
    assert done.returncode == 4
    assert "slow down" in done.stderr
    assert sum(done.slept) == 500


def test_publish__status_not_answered__the_comment_and_the_verdict_stand(github: Job) -> None:
    job = github
    job.measure(ops=64)
    job.fake.faults += [Fault("POST", "/statuses/", BUSY)] * 9
    done = job.publish()
    assert done.returncode == 1
    assert "The commit status was not set" in done.stdout
    assert " perfgate: FAIL" in job.comment()
    assert "the forge refused the commit status `perfgate`" in job.comment()


def test_publish__second_attempt_and_its_status_is_refused__comment_says_that_the_green_one_is_old(github: Job) -> None:
    job = github
    job.measure()
    assert job.publish().returncode == 0
    assert job.statuses() == [(job.project.head, "success")]
    job.measure(ops=64)
    job.fake.faults += [Fault("POST", "/statuses/", Reply(500, {}))] * 9
    assert job.publish().returncode == 1
    assert "an existing one is from an earlier run" in job.comments()[0]


def test_publish__status_refused_and_no_change_request_to_say_it_in__exit_4(github: Job) -> None:
    github.fake.changes[:] = []
    github.workflow_run()
    github.measure(commit=github.project.head)
    github.fake.faults += [Fault("POST", "/statuses/", Reply(403, {"message": "no"}))]
    assert github.publish().returncode == 4


@pytest.mark.parametrize("reply", [DROPPED, BUSY, SLOW_DOWN], ids=["drop", "503", "429"])
def test_publish__download_fails_once__asked_again(job: Job, reply: Reply | None) -> None:
    job.measure(ops=64)
    artifact = job.fake.upload(50, "perfgate-default-1", job.zipped())
    listing = "/runs/50/artifacts" if job.host == "github" else "/pipelines/50/jobs"
    job.fake.faults += [Fault("GET", listing, reply), Fault("GET", f"/{artifact.id}/", reply)]
    assert job.download().returncode == 1
    assert job.fake.faults == []
    assert len(job.comments()) == 1


def test_publish__storage_never_answers__exit_4_and_the_earlier_verdict_does_not_stay(job: Job) -> None:
    job.measure()
    assert job.publish().returncode == 0
    job.fake.upload(50, "perfgate-default-1", b"x" * 100)
    job.fake.blobs.status = 503
    done = job.download()
    assert done.returncode == 4
    assert "HTTP 503" in done.stderr
    assert " perfgate: INCONCLUSIVE" in job.comments()[0]
    assert job.statuses()[-1:] == job.marked("error")


def test_publish__a_hundred_and_one_comments__ours_on_the_second_page_is_found(job: Job) -> None:
    for number in range(100):
        job.fake.write(7, f"chatter {number}", PERSON if number % 2 else OTHER_BOT)
    job.fake.write(7, f"{MARKER}\nours", BOT)
    job.measure(ops=64)
    assert job.publish().returncode == 1
    assert " perfgate: FAIL" in job.comment()
    assert len(job.fake.comments[7]) == 101


def test_publish__two_real_commands_at_once__one_comment_of_the_newer_run(github: Job) -> None:
    runs = []
    for run, ops in (("51", 64), ("50", 40)):
        github.measure(ops=ops, ci=msgspec.structs.replace(github.ci, run_id=run))
        github.fake.upload(int(run), "perfgate-default-1", github.zipped())
        runs.append(run)
    with ThreadPoolExecutor() as pool:
        ended = list(pool.map(lambda run: github.command("--download", GITHUB_RUN_ID=run), runs))
    assert [done.returncode for done in ended] == [1, 0], ended
    states = [state for body in github.comments() if (state := read_state(body))]
    assert [(state.run, state.verdict) for state in states] == [(51, "FAIL")]


def test_publish__no_server__exit_4(github: Job) -> None:
    github.measure()
    github.environ["GITHUB_API_URL"] = "http://127.0.0.1:9"
    begun = time.monotonic()
    done = github.publish()
    assert done.returncode == 4
    assert "no answer" in done.stderr
    assert time.monotonic() - begun < 20
