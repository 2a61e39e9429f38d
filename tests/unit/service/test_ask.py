"""The questions through every door: the same answers over REST, MCP and the command line, for those alone who may read them."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import anyio
import httpx2
import pytest
from click.testing import CliRunner
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from perfgate.cli.commands.ask import COMMAND
from perfgate.document.history import GateRecord
from perfgate.flows.ask.questions import QUESTIONS
from perfgate.judging.store.runs import record_run, record_runs
from tests.command import run_perfgate
from tests.fakes.history import commit_of, main_runs, stepped
from tests.fakes.service import SERVER_TOKEN, Listening, Service, serve_folder
from tests.unit.cli.test_serve import write_trace
from tests.unit.document.minimal import minimal_run

SLOWER = 14
Result = TypeVar("Result")


class Asked(NamedTuple):
    """A service, its store and its recordings; project ``demo`` has an open regression, with a run on each side of it."""

    service: Service
    store: Path
    folder: Path
    before: str
    after: str


@pytest.fixture(scope="module")
def asked(address: Listening, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    folder, recordings = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("recordings")
    write_trace(recordings / "first.pt.trace.json", "a", "b")
    service = serve_folder(address, folder, recordings=recordings)
    runs = main_runs(24, time=stepped(SLOWER, 1.1), operators=stepped(SLOWER, 1.5), shapes=("long",))
    ids = record_runs(service.store, runs, allow_dirty=False, now=None)
    record_run(service.store, minimal_run(project="bank"))
    gate = GateRecord(gate="default", commit="a1", verdict="FAIL", judged_at="2026-11-01T10:00:00+00:00")
    service.store.append("demo", [gate])
    return Asked(service, folder / "store.db", recordings, ids[SLOWER - 1], ids[SLOWER])


def in_session(
    service: Service, token: str | None, use: Callable[[ClientSession], Awaitable[Result]], **headers: str
) -> Result:
    """What the official client gets, in a session of its own."""

    async def talk() -> Result:
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            httpx2.AsyncClient(headers={**authorization, **headers}, timeout=60) as client,
            streamable_http_client(f"{service.url}/mcp", http_client=client) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            return await use(session)

    return anyio.run(talk)


def ask(service: Service, token: str | None, name: str, **arguments: object) -> CallToolResult:
    return in_session(service, token, lambda session: session.call_tool(name, arguments))


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert content.type == "text"
    return content.text


def without_time(answer: Any) -> Any:
    """An answer without the moment at which it was worked out."""
    if isinstance(answer, dict):
        return {name: without_time(value) for name, value in answer.items() if name != "made_at"}
    return [without_time(value) for value in answer] if isinstance(answer, list) else answer


def arguments_of(name: str, asked: Asked) -> dict[str, str]:
    given = {
        "explain": {"commit": commit_of(SLOWER)},
        "compare": {"earlier": asked.before[:8], "later": asked.after[:8], "limit": "3"},
        "top": {"recording": "first.pt.trace.json", "host": "true"},
    }
    of_demo = {"project": "demo"} if name not in ("projects", "top") else {}
    return {**given.get(name, {}), **of_demo}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions__through_every_door__the_same_answer(asked: Asked, name: str) -> None:
    arguments = arguments_of(name, asked)
    over_http = asked.service.client(SERVER_TOKEN).get(f"/api/v1/ask/{name}", params=arguments)
    assert over_http.status_code == 200, over_http.text
    typed = {key: {"limit": int, "host": bool}.get(key, str)(value) for key, value in arguments.items()}
    as_tool = ask(asked.service, SERVER_TOKEN, name, **typed)
    assert without_time(as_tool.structured_content) == without_time(over_http.json())
    assert json.loads(text_of(as_tool)) == as_tool.structured_content

    options = ["--store", str(asked.store)] if QUESTIONS[name].of_store else []
    for key, value in arguments.items():
        place = str(asked.folder / value) if key == "recording" else value
        options += [f"--{key}"] if key == "host" else [f"--{key}", place]
    here = CliRunner().invoke(COMMAND, [name, *options, "-C", str(asked.folder)], catch_exceptions=False)
    assert without_time(json.loads(here.stdout.replace(f"{asked.folder}/", ""))) == without_time(over_http.json())


def test_regressions__open_one__its_changes_with_the_points_beside_them_alone(asked: Asked) -> None:
    found = ask(asked.service, SERVER_TOKEN, "regressions", project="demo").structured_content
    assert found is not None
    (cause,) = found["causes"]
    assert (cause["direction"], cause["standing"], cause["first_bad"]) == ("worse", "new", commit_of(SLOWER))
    for place in cause["changes"]:
        series = found["series"][place["series"]]
        change = series["changes"][place["change"]]
        assert series["points"][change["at"]]["commit"] == commit_of(SLOWER)
        assert series["points"][change["at"] - 1]["commit"] == commit_of(SLOWER - 1)
        assert len(series["points"]) <= 3
    assert ask(asked.service, SERVER_TOKEN, "regressions", project="bank").structured_content["causes"] == []  # type: ignore[index]


def test_explain__first_bad_commit__all_that_moved_and_the_commands_that_follow(asked: Asked) -> None:
    found = ask(asked.service, SERVER_TOKEN, "explain", project="demo", commit=commit_of(SLOWER)[:6]).structured_content
    assert found is not None
    metrics = {series["metric"] for series in found["trend"]["series"]}
    assert {"latency.p50", "counters.framework_ops"} <= metrics
    assert any(command.startswith("perfgate baseline accept") for command in found["next"])
    unknown = ask(asked.service, SERVER_TOKEN, "explain", project="demo", commit="ffffff")
    assert (unknown.is_error, "no change of main begins at commit" in text_of(unknown)) == (True, True)


def test_compare__runs_on_both_sides__values_beside_the_level_and_no_difference(asked: Asked) -> None:
    found = ask(
        asked.service, SERVER_TOKEN, "compare", project="demo", earlier=asked.before[:6], later=asked.after[:6]
    ).structured_content
    assert found is not None
    assert (found["earlier"]["commit"], found["later"]["commit"]) == (commit_of(SLOWER - 1), commit_of(SLOWER))
    assert (
        found["decide"]
        == f"git checkout {commit_of(SLOWER)[:10]} && perfgate check --base {commit_of(SLOWER - 1)[:10]}"
    )
    assert found["numbers"][0]["position"] in ("above", "below", "differs")
    assert not any("delta" in number for number in found["numbers"])
    assert all(number["series"]["points"] == [] for number in found["numbers"])


def test_tools__of_a_session__described_as_reading_with_their_arguments(asked: Asked) -> None:
    tools = {tool.name: tool for tool in in_session(asked.service, SERVER_TOKEN, ClientSession.list_tools).tools}
    assert set(tools) == set(QUESTIONS)
    assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools.values())
    schema = tools["compare"].input_schema
    assert (schema["type"], sorted(schema["required"])) == ("object", ["earlier", "later"])
    assert all(about["description"] for tool in tools.values() for about in tool.input_schema["properties"].values())


def test_project_token__asks_about_another_project__refused_by_every_question(asked: Asked) -> None:
    token = asked.service.token("bank", "read")
    client = asked.service.client(token)
    for name, question in QUESTIONS.items():
        if "project" not in question.schema()["properties"]:
            continue
        arguments = arguments_of(name, asked)
        answer = client.get(f"/api/v1/ask/{name}", params=arguments)
        assert (answer.status_code, answer.json()) == (403, {"error": "this token is for another project"}), name
        typed = {key: int(value) if key == "limit" else value for key, value in arguments.items()}
        as_tool = ask(asked.service, token, name, **typed)
        assert (as_tool.is_error, text_of(as_tool)) == (True, "this token is for another project"), name


def test_project_token__names_no_project__hears_of_its_own_alone(asked: Asked) -> None:
    token = asked.service.token("bank", "read")
    found = ask(asked.service, token, "projects").structured_content
    assert found is not None
    assert [project["project"] for project in found["projects"]] == ["bank"]
    suggested = ask(asked.service, token, "suggest").structured_content
    assert suggested is not None
    assert suggested["run"]["project"] == "bank"
    for name, arguments in (
        ("suggest", {"run": asked.after}),
        ("compare", {"earlier": asked.before, "later": asked.after}),
    ):
        foreign = ask(asked.service, token, name, **arguments)
        unknown = ask(asked.service, token, name, **dict.fromkeys(arguments, "f" * 64))
        assert foreign.is_error
        assert text_of(foreign).replace(asked.after, "").replace(asked.before, "") == text_of(unknown).replace(
            "f" * 64, ""
        )


def test_project_token__recordings__neither_answered_nor_offered(asked: Asked) -> None:
    token = asked.service.token("bank")
    answer = asked.service.client(token).get("/api/v1/ask/top", params={"recording": "first.pt.trace.json"})
    assert (answer.status_code, "reads its runs alone" in answer.json()["error"]) == (403, True)
    assert "top" not in {tool.name for tool in in_session(asked.service, token, ClientSession.list_tools).tools}
    assert ask(asked.service, token, "top", recording="first.pt.trace.json").is_error


@pytest.mark.parametrize("name", ["../store.db", "/etc/passwd", "..", "first.pt.trace.json/../../store.db", "\x00"])
def test_top__what_is_no_recording__unknown_without_a_place_of_this_machine(asked: Asked, name: str) -> None:
    refused = ask(asked.service, SERVER_TOKEN, "top", recording=name)
    assert refused.is_error
    assert str(asked.folder) not in text_of(refused)


def test_top__recording__named_without_the_folder(asked: Asked) -> None:
    found = ask(asked.service, SERVER_TOKEN, "top", recording="first.pt.trace.json", host=True)
    assert str(asked.folder) not in text_of(found)
    assert found.structured_content is not None
    assert found.structured_content["timelines"][0]["path"] == "first.pt.trace.json"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("regressions", {"limit": 0}, "limit"),
        ("regressions", {"limit": "many"}, "limit"),
        ("regressions", {"colour": "red"}, "colour"),
        ("explain", {}, "commit"),
        ("explain", {"commit": "a; rm -rf"}, "commit"),
        ("top", {"recording": "x", "by": "weight"}, "by"),
        ("suggest", {}, "name the project"),
    ],
)
def test_wrong_arguments__named__and_no_failure(
    asked: Asked, name: str, arguments: dict[str, object], said: str
) -> None:
    answer = asked.service.client(SERVER_TOKEN).get(f"/api/v1/ask/{name}", params=arguments)  # type: ignore[arg-type]
    assert (answer.status_code, said in answer.json()["error"]) == (400, True), answer.text
    refused = ask(asked.service, SERVER_TOKEN, name, **arguments)
    assert (refused.is_error, said in text_of(refused)) == (True, True), text_of(refused)


def test_gates__project_of_which_nothing_is_stored__refused_as_by_the_other_questions(asked: Asked) -> None:
    for name in ("gates", "suggest", "regressions"):
        answer = asked.service.client(SERVER_TOKEN).get(f"/api/v1/ask/{name}", params={"project": "demmo"})
        assert answer.status_code == 404
        assert answer.json()["error"].startswith("no run of project 'demmo' is stored")


def test_unknown_tool__answered_with_those_that_there_are(asked: Asked) -> None:
    refused = ask(asked.service, SERVER_TOKEN, "delete_everything")
    assert (refused.is_error, "regressions" in text_of(refused)) == (True, True)


def test_mcp__without_a_valid_token_or_from_a_foreign_page__refused(asked: Asked) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    kinds = {"Accept": "application/json, text/event-stream"}
    made = asked.service.ledger.create_token("assistant", "demo", "read")
    asked.service.ledger.revoke(made.token.id)
    for token in (None, "perfgate_guessed", made.secret):
        assert asked.service.client(token).post("/mcp", json=message, headers=kinds).status_code == 401
    client = asked.service.client(SERVER_TOKEN)
    assert client.post("/mcp", json=message, headers=kinds).status_code == 200
    foreign = client.post("/mcp", json=message, headers={**kinds, "Origin": "https://evil.example"})
    assert foreign.status_code == 403
    assert client.get("/mcp", headers=kinds).status_code == 405
    assert client.post("/mcp", data=b"{", headers={**kinds, "Content-Type": "application/json"}).status_code == 400


def test_ask_mcp__over_standard_input__answers_the_official_client(asked: Asked, tmp_path: Path) -> None:
    arguments = ["-m", "perfgate", "ask", "--mcp", "--store", str(asked.store), "-C", str(tmp_path)]

    async def talk() -> Any:
        async with (
            stdio_client(StdioServerParameters(command=sys.executable, args=arguments)) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            return await session.call_tool("projects", {})

    found = anyio.run(talk)
    assert [project["project"] for project in found.structured_content["projects"]] == ["bank", "demo"]


@pytest.mark.parametrize("option", [["--store", "store.db"], ["-C", "."], ["--mcp"]])
def test_ask__option_before_the_question__refused_as_it_has_no_effect(asked: Asked, option: list[str]) -> None:
    done = run_perfgate("ask", *option, "projects", "--store", str(asked.store), cwd=asked.store.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert "before the question has no effect; write it after the question" in done.stderr
