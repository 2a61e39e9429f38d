"""Orders in comments: what a first line asks for, who may ask, and of which change."""

from __future__ import annotations

from datetime import date
from typing import cast

import pytest

from perfgate.errors import ForgeError
from perfgate.judging.forge.forge import CiEvent, CiJob, Forge, ForgeHost, connect
from perfgate.judging.forge.orders import (
    AcceptOrder,
    BisectOrder,
    Order,
    OrderedChange,
    OrderError,
    RunOrder,
    accept_order,
    numbered_order,
    read_order,
    takes_orders,
)
from tests.each import each
from tests.fakes.forge import BOT_TOKEN, FakeForge, StoredChange
from tests.fakes.forge_dialects import GitHubDialect

HEAD = "a" * 40


@each(
    "line, order",
    [
        ("/perfgate run", RunOrder()),
        ("/perfgate run encoder", RunOrder(workload="encoder")),
        (f"/perfgate run {HEAD}", RunOrder(head=HEAD)),
        (f"/perfgate  run {HEAD}  encoder.v2-x ", RunOrder(head=HEAD, workload="encoder.v2-x")),
        ("/perfgate accept latency.low a larger vocabulary", AcceptOrder(("latency.low",), "a larger vocabulary")),
        (
            f"/perfgate accept {HEAD} latency.*@encoder why not",
            AcceptOrder(("latency.*@encoder",), "why not", head=HEAD),
        ),
        (
            "/perfgate accept latency.low,memory.*@encoder meant",
            AcceptOrder(("latency.low", "memory.*@encoder"), "meant"),
        ),
        ("/perfgate accept 1 needed", AcceptOrder((), "needed", blocks=(1,))),
        (f"/perfgate accept {HEAD} 2,1 needed", AcceptOrder((), "needed", head=HEAD, blocks=(2, 1))),
        ("/perfgate accept 1,latency.low why", AcceptOrder(("1", "latency.low"), "why")),
        ("/perfgate bisect", BisectOrder()),
        ("/perfgate bisect latency.*@encoder/long", BisectOrder(metric="latency.*@encoder/long")),
        (f"/perfgate bisect {HEAD} ops.count:aten::add", BisectOrder(HEAD, "ops.count:aten::add")),
        ("/perfgate bisect 0f1e2d3..4b5a697887", BisectOrder(between=("0f1e2d3", "4b5a697887"))),
        ("/perfgate bisect latency.low 0f1e2d3..4b5a697", BisectOrder(None, "latency.low", ("0f1e2d3", "4b5a697"))),
        (
            "/perfgate accept 1 until the fix lands until 2027-01-31",
            AcceptOrder((), "until the fix lands", blocks=(1,), until=date(2027, 1, 31)),
        ),
        (
            f"/perfgate accept {HEAD} latency.low needed Until 2028-02-29",
            AcceptOrder(("latency.low",), "needed", head=HEAD, until=date(2028, 2, 29)),
        ),
        (
            "/perfgate accept 1 not needed until then, said Li",
            AcceptOrder((), "not needed until then, said Li", blocks=(1,)),
        ),
        ("/perfgate run\r", RunOrder()),
        ("please look\n/perfgate run", None),
        (" /perfgate run", None),
        ("> /perfgate run", None),
        ("/perfgater run", None),
        ("", None),
    ],
)
def test_read_order__first_line__is_what_it_says(line: str, order: Order | None) -> None:
    assert read_order(line + "\nmore words") == order


@pytest.mark.parametrize(
    ("metrics", "line"),
    [
        (["latency.low"], f"/perfgate accept {HEAD} latency.low REASON"),
        (
            ["latency.low", "memory.peak@encoder/short"],
            f"/perfgate accept {HEAD} latency.low,memory.peak@encoder/short REASON",
        ),
        (["latency.low@encoder/1, 2"], None),
        (["latency.low@a b"], None),
        (["x" * 1000], None),
    ],
)
def test_accept_order__metrics__line_that_is_read_back_or_none(metrics: list[str], line: str | None) -> None:
    assert accept_order(HEAD, metrics) == line


@pytest.mark.parametrize("commit", [None, HEAD])
def test_numbered_order__cause__line_that_is_read_back(commit: str | None) -> None:
    assert read_order(numbered_order(2, commit)) == AcceptOrder((), "REASON", commit, (2,))


@each(
    "line",
    [
        "/perfgate",
        "/perfgate accept 1",
        f"/perfgate accept {HEAD} 1",
        "/perfgate rnu",
        "/perfgate run one two",
        "/perfgate bisect latency.low now",
        "/perfgate bisect 0f1e2d3..4b5a697 latency.low",
        "/perfgate bisect latency.low 0f1e2d3..main",
        f"/perfgate bisect {HEAD} 0f1e2d3..4b5a697",
        "/perfgate bisect a b 0f1e2d3..4b5a697",
        "/perfgate bisect --out=x",
        "/perfgate bisect -x",
        "/perfgate bisect a;b",
        "/perfgate bisect $(id)",
        "/perfgate bisect ../x",
        "/perfgate run $(id)",
        "/perfgate run --config=x",
        "/perfgate run ../x",
        "/perfgate run 编码器",
        "/perfgate run a`b`",
        "/perfgate accept latency.low",
        f"/perfgate accept {HEAD} latency.low",
        "/perfgate accept , meant",
        "/perfgate accept 1 until 2027-01-31",
        "/perfgate accept 1 needed until Friday",
        "/perfgate accept 1 needed until 2027-02-31",
        "/perfgate accept 1 needed until 20270131",
        "/perfgate run \u202eencoder",
        "/perfgate accept latency.low \x1b[2J",
        "/perfgate accept latency.low " + "x" * 1000,
    ],
)
def test_read_order__call_that_asks_for_nothing__is_refused(line: str) -> None:
    with pytest.raises(OrderError):
        read_order(line)


def _forge(fake: FakeForge) -> Forge:
    event = CiEvent(
        forge=fake.dialect.name,  # type: ignore[attr-defined]
        host=ForgeHost(api_url=fake.api_url, server_url=fake.url),
        repository="team/model",
        project=fake.dialect.project,  # type: ignore[attr-defined]
        job=CiJob(run_id="1", run_attempt=1),
        head_sha=HEAD,
    )
    return connect(event, BOT_TOKEN, sleep=lambda _: None, clock=lambda: 0.0)


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("admin", True),
        ("maintain", True),
        ("write", True),
        ("triage", False),
        ("read", False),
        ("none", False),
        (None, False),
    ],
)
def test_may_push__role__is_the_forges_word(role: str | None, may: bool) -> None:
    with FakeForge(GitHubDialect()) as fake:
        fake.roles = {"ann": role} if role else {}
        assert takes_orders(_forge(fake)).may_push("ann") is may
        assert fake.violations == []


def test_may_push__login_with_a_path__asks_for_that_login() -> None:
    with FakeForge(GitHubDialect()) as fake:
        assert takes_orders(_forge(fake)).may_push("../../x?y") is False
        assert fake.calls[-1].path == "/repos/team/model/collaborators/..%2F..%2Fx%3Fy/permission"


@pytest.mark.parametrize(("owner", "from_fork"), [("team", False), ("Team", False), ("mallory", True)])
def test_ordered_change__owner_of_the_branch__tells_a_fork(owner: str, from_fork: bool) -> None:
    with FakeForge(GitHubDialect()) as fake:
        fake.changes.append(StoredChange(7, owner, "feature", HEAD, author="ann"))
        found = takes_orders(_forge(fake)).ordered_change(7)
        assert found == OrderedChange(7, HEAD, "b" * 40, is_open=True, from_fork=from_fork, author="ann")
        assert fake.violations == []


def test_takes_orders__other_forge__is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(ForgeError, match="perfgate baseline accept"):
        takes_orders(cast("Forge", object()))
