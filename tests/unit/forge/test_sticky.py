"""Publishers at once: real forge members and the real fake, in threads whose requests come in an order a seed decides.

Time is virtual. A request takes effect when its time has come, between 50 and 900 ms after the one before; a wait takes what
was asked for. So an edit comes less than SETTLE_SECONDS behind the look it was made from, which is what the promise of one
comment rests on.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from perfgate.errors import ForgeError
from perfgate.judging.forge.comment import (
    ROUNDS,
    SETTLE_SECONDS,
    CommentState,
    Posted,
    marker,
    post,
    read_state,
)
from perfgate.judging.forge.forge import CiEvent, CiJob, Forge, ForgeHost, connect
from tests.fakes.forge import BOT, BOT_TOKEN, PERSON, FakeForge, StoredChange
from tests.fakes.forge_dialects import GitHubDialect, GitLabDialect
from tests.fakes.meddled import Meddled

HEAD = "a" * 40
MARKER = marker("default")
DOUBLE = "the other one has the numbers"


class VirtualTime:
    """Lets the thread go on whose time is the earliest; the others wait."""

    def __init__(self, names: list[str]) -> None:
        self._at = dict.fromkeys(names, 0.0)
        self._turn = threading.Condition()

    def wait(self, name: str, seconds: float) -> None:
        """Let time pass for a thread, until no other is behind it."""
        with self._turn:
            self._at[name] += seconds
            self._turn.notify_all()
            assert self._turn.wait_for(lambda: min(self._at, key=lambda other: (self._at[other], other)) == name, 60)

    def end(self, name: str) -> None:
        """Let a thread leave."""
        with self._turn:
            del self._at[name]
            self._turn.notify_all()


@dataclass(frozen=True)
class Publisher:
    run: int
    verdict: Any
    attempt: int = 1
    starts: float = 0.0
    pace: float | None = None

    @property
    def name(self) -> str:
        return f"{self.run}.{self.attempt}"


@dataclass
class Room:
    fake: FakeForge
    event: CiEvent

    def forge(self) -> Forge:
        return connect(self.event, BOT_TOKEN, sleep=lambda seconds: None, clock=lambda: 0.0)

    def ours(self) -> list[CommentState]:
        bodies = [comment.body for comment in self.fake.comments.get(7, []) if comment.author == BOT]
        return [state for body in bodies if (state := read_state(body)) is not None]

    def replies(self) -> list[str]:
        return [one.body.splitlines()[1] for one in self.fake.comments.get(7, []) if " turned=" in one.body]

    def publish(self, one: Publisher, before: Callable[[str], None], sleep: Callable[[float], None]) -> Posted:
        decided = one.verdict if one.verdict in ("PASS", "FAIL") else None
        state = CommentState(run=one.run, attempt=one.attempt, head=HEAD, verdict=one.verdict, decided=decided)
        forge = Meddled(self.forge(), before)
        return post(forge, 7, f"text of {one.name}", state, MARKER, sleep=sleep, turned="{} → {}".format, double=DOUBLE)

    def at_once(self, publishers: list[Publisher], seed: int) -> dict[str, Posted]:
        """Let publishers run at once; a seed decides how long each request takes."""
        time, done, failed = VirtualTime([one.name for one in publishers]), {}, []

        def run(one: Publisher) -> None:
            took = random.Random(f"{seed} {one.name}")
            try:
                time.wait(one.name, one.starts)
                done[one.name] = self.publish(
                    one,
                    before=lambda call: time.wait(one.name, one.pace or took.uniform(0.05, 0.9)),
                    sleep=lambda seconds: time.wait(one.name, seconds),
                )
            except Exception as error:  # noqa: BLE001 - shown below, in the thread of the test
                failed.append(error)
            finally:
                time.end(one.name)

        threads = [threading.Thread(target=run, args=(one,)) for one in publishers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        return done


@pytest.fixture(params=[GitHubDialect, GitLabDialect])
def room(request: pytest.FixtureRequest) -> Iterator[Room]:
    dialect = request.param()
    with FakeForge(dialect) as fake:
        fake.changes.append(StoredChange(7, "team", "feature", HEAD))
        event = CiEvent(
            forge=dialect.name,
            host=ForgeHost(api_url=fake.api_url, server_url=fake.url),
            repository="team/model",
            project=dialect.project,
            job=CiJob(run_id="1", run_attempt=1),
            head_sha=HEAD,
            change_request=7,
        )
        yield Room(fake, event)
        assert fake.violations == []


@pytest.mark.parametrize("seed", range(20))
def test_post__several_at_once__one_comment_of_the_newest_run_and_one_reply(room: Room, seed: int) -> None:
    chance = random.Random(seed)
    first = chance.random() < 0.6
    if first:
        room.publish(Publisher(7, "PASS"), lambda call: None, lambda seconds: None)
    runs = chance.sample([8, 9, 10, 11, 101], chance.randint(2, 4))
    publishers = [Publisher(run, "FAIL", chance.randint(1, 3), chance.uniform(0, 4)) for run in runs]
    done = room.at_once(publishers, seed)
    newest = max(publishers, key=lambda one: one.run)
    (stands,) = room.ours()
    assert (stands.run, stands.attempt, stands.verdict) == (newest.run, newest.attempt, "FAIL")
    assert done[newest.name] != "kept"
    assert room.replies() == (["PASS → FAIL"] if first else [])
    assert len(room.fake.comments[7]) == 1 + first


def test_post__a_slow_older_run_edits_after_a_quick_newer_one_has_looked__is_repaired(room: Room) -> None:
    room.publish(Publisher(7, "PASS"), lambda call: None, lambda seconds: None)
    # The older run looks at 0.9 s and edits at 1.8 s; the newer one looks at 1.0 s, edits at 1.2 s, and would look at 1.4 s.
    slow, quick = Publisher(8, "PASS", pace=0.9), Publisher(9, "PASS", starts=0.8, pace=0.2)
    done = room.at_once([slow, quick], seed=0)
    assert [(state.run, state.verdict) for state in room.ours()] == [(9, "PASS")]
    assert done[slow.name] == "kept"


@pytest.mark.parametrize("seed", range(5))
def test_post__two_attempts_of_one_run_at_once__the_later_attempt_stands(room: Room, seed: int) -> None:
    room.at_once([Publisher(9, "FAIL", 1), Publisher(9, "PASS", 2)], seed)
    (stands,) = room.ours()
    assert (stands.attempt, stands.verdict) == (2, "PASS")


@pytest.mark.parametrize("seed", range(5))
def test_post__the_same_attempt_twice_at_once__one_comment(room: Room, seed: int) -> None:
    # GitLab says nothing of a job's attempts, and a person may start publish by hand.
    first, again = Publisher(9, "PASS"), Publisher(9, "PASS", starts=0.3)
    time = VirtualTime(["a", "b"])
    chance = random.Random(seed)

    def run(name: str, one: Publisher) -> None:
        time.wait(name, one.starts)
        room.publish(one, lambda call: time.wait(name, chance.uniform(0.05, 0.9)), lambda s: time.wait(name, s))
        time.end(name)

    threads = [threading.Thread(target=run, args=pair) for pair in (("a", first), ("b", again))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(room.ours()) == 1


def _between(room: Room, call: str, act: Callable[[], None], *, times: int = 1) -> Callable[[str], None]:
    """Return what acts just before the first ``times`` calls of a name."""
    left = [times]

    def before(name: str) -> None:
        if name == call and left[0]:
            left[0] -= 1
            act()

    return before


def test_post__an_older_run_writes_over_ours_while_we_wait__is_repaired(room: Room) -> None:
    room.publish(Publisher(1, "PASS"), lambda call: None, lambda seconds: None)
    waits: list[float] = []

    def older_run_edits(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            comment = room.fake.comments[7][0]
            comment.body = comment.body.replace('"run":3', '"run":2').replace("text of 3.1", "text of 2.1")

    assert room.publish(Publisher(3, "PASS"), lambda call: None, older_run_edits) == "updated"
    assert waits == [SETTLE_SECONDS, SETTLE_SECONDS]
    assert "text of 3.1" in room.fake.comments[7][0].body
    assert [state.run for state in room.ours()] == [3]


@pytest.mark.parametrize(("decided", "told"), [("FAIL", ["PASS → FAIL"]), ("PASS", [])])
def test_post__a_newer_run_writes_over_ours__is_left_and_the_turn_told_if_it_stands(
    room: Room, decided: str, told: list[str]
) -> None:
    room.publish(Publisher(1, "PASS"), lambda call: None, lambda seconds: None)

    def newer_run_edits(seconds: float) -> None:
        comment = room.fake.comments[7][0]
        comment.body = comment.body.replace('"run":3', '"run":4').replace('"decided":"FAIL"', f'"decided":"{decided}"')

    done = room.publish(Publisher(3, "FAIL"), lambda call: None, newer_run_edits)
    assert done == "kept"
    assert room.replies() == told


def test_post__always_written_over__ends_with_what_to_do(room: Room) -> None:
    room.publish(Publisher(1, "PASS"), lambda call: None, lambda seconds: None)

    def older_run_edits(seconds: float) -> None:
        comment = room.fake.comments[7][0]
        comment.body = comment.body.replace('"run":3', '"run":2')

    with pytest.raises(ForgeError, match=f"was changed {ROUNDS} times while this job was writing it; run it again"):
        room.publish(Publisher(3, "PASS"), lambda call: None, older_run_edits)


def test_post__deleted_at_once_by_a_person__is_not_written_twice(room: Room) -> None:
    deletes = _between(room, "comments", lambda: room.fake.comments.get(7, []).clear(), times=9)
    assert room.publish(Publisher(1, "PASS"), deletes, lambda seconds: None) == "created"
    assert [call.method for call in room.fake.calls].count("POST") == 1


def test_post__our_text_made_unreadable_by_a_person__stands_as_they_left_it_until_the_next_run(room: Room) -> None:
    room.publish(Publisher(1, "PASS"), lambda call: None, lambda seconds: None)

    def person_edits(seconds: float) -> None:
        room.fake.comments[7][0].body = f"{MARKER}\nmine now"

    assert room.publish(Publisher(2, "PASS"), lambda call: None, person_edits) == "updated"
    assert room.fake.comments[7][0].body == f"{MARKER}\nmine now"
    assert room.publish(Publisher(3, "PASS"), lambda call: None, lambda seconds: None) == "updated"
    assert [state.run for state in room.ours()] == [3]


@pytest.mark.parametrize("planted", ["{marker}", "{marker}\n<!-- perfgate:state {{}} -->", "> {marker}", " {marker}"])
def test_post__marker_of_others__neither_edited_nor_deleted(room: Room, planted: str) -> None:
    theirs = room.fake.write(7, planted.format(marker=MARKER), PERSON)
    room.publish(Publisher(1, "PASS"), lambda call: None, lambda seconds: None)
    room.publish(Publisher(2, "FAIL"), lambda call: None, lambda seconds: None)
    assert theirs in room.fake.comments[7]
    assert theirs.body == planted.format(marker=MARKER)
    assert len(room.fake.comments[7]) == 3


def test_post__two_workload_sets__two_comments(room: Room) -> None:
    state = CommentState(run=1, attempt=1, head=HEAD, verdict="PASS", decided="PASS")
    for key in ("default", "training", "default"):
        line: str | None = marker(key)
        post(
            room.forge(), 7, key, state, line or "", sleep=lambda seconds: None, turned="{} → {}".format, double=DOUBLE
        )
    assert [comment.body.splitlines()[-1] for comment in room.fake.comments[7]] == ["default", "training"]
