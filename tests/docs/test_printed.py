"""Every printed command is executed in a fresh clone, or at least understood by the command line, with the reason why."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from perfgate.cli.main import cli
from perfgate.judging.forge.orders import read_order
from perfgate.toml import tomllib
from tests.docs.blocks import ROOT
from tests.docs.desk import Checked
from tests.docs.printed import MEASURE, NOT_RUN, RUN, WHOLE, orders, printed
from tests.each import each

EVERY = {**RUN, **MEASURE, **dict.fromkeys(NOT_RUN), **WHOLE}


def test_commands__that_are_printed__each_has_its_way_to_be_tested() -> None:
    """A new one belongs into RUN or MEASURE, or with its reason into NOT_RUN; one that nothing prints any more goes."""
    found = printed()
    assert {command: places for command, places in found.items() if command not in EVERY} == {}
    assert set(EVERY) - set(found) == set()
    assert len(EVERY) == len(RUN) + len(MEASURE) + len(NOT_RUN)


@each("command", sorted(command for command in EVERY if command.startswith("perfgate")))
def test_commands__options_and_arguments__are_those_of_the_command_line(tmp_path: Path, command: str) -> None:
    (tmp_path / "folder").mkdir(exist_ok=True)
    words = Checked.words(tmp_path / "folder", "0" * 40, "0" * 40, tmp_path / "folder")
    _understood(shlex.split(_filled(EVERY[command] or command, words))[1:], command)


@pytest.mark.slow
def test_commands__of_a_failed_check__run_in_a_fresh_clone_of_the_branch(tmp_path: Path) -> None:
    _run(RUN, tmp_path, codes={0, 1, 3})


@pytest.mark.slow
def test_commands__of_a_real_comment_and_of_the_terminal__run_as_they_stand(tmp_path: Path) -> None:
    desk = Checked(tmp_path)
    comment = (desk.clone / "perfgate-out" / "comment.md").read_text()
    terminal = desk.run("perfgate gate perfgate-out || true", COLUMNS="400").stdout
    in_comment = re.findall(r"`(perfgate [a-z][^`]*)`", comment)
    in_terminal = re.findall(r"(?<![`/])\b(perfgate baseline accept .*?) *$", terminal, re.MULTILINE)
    # The comment of a check on this machine has the number of the cause, a decision judged anew its metrics.
    (by_number,) = (command for command in in_comment if "accept" in command)
    assert by_number.startswith("perfgate baseline accept 1 --from ")
    assert in_terminal
    for command in dict.fromkeys([*in_comment, *in_terminal]):
        done = desk.run(f"{command} || test $? -eq 1")
        assert done.returncode == 0, f"{command}:\n{done.stdout}"
    # What was accepted is the head of the branch, and nothing of it fails any more.
    judged = desk.run("perfgate check --steps 4 --out again")
    assert judged.returncode == 0, judged.stdout
    assert " perfgate: WARN" in (desk.clone / "again" / "comment.md").read_text()


@pytest.mark.slow
def test_commands__that_measure__run_in_a_fresh_clone_of_the_branch(tmp_path: Path) -> None:
    _run(MEASURE, tmp_path, codes={0, 1, 3})


def test_commands__of_git_for_clones_of_another_kind__run_there(tmp_path: Path) -> None:
    desk = Checked(tmp_path, measured=False)
    clone = f"git clone -q --no-local {shlex.quote(desk.origin)}"
    for prepared, command in (
        ("mkdir new", "git init"),
        (f"{clone} new --depth 1 --branch feature", "git fetch --unshallow"),
        (f"{clone} new --single-branch --branch feature", "git fetch origin MAIN:refs/remotes/origin/MAIN"),
    ):
        assert command in NOT_RUN
        done = desk.run(f"cd {tmp_path} && rm -rf new && {prepared} && cd new && {_filled(command, desk.known)}")
        assert done.returncode == 0, done.stdout


def test_extras__that_pip_is_told_to_install__exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = [extra for command in printed() for extra in re.findall(r"perfgate\[(\w+)\]", command)]
    assert set(named) <= set(extras)


def test_orders__that_are_printed__are_understood() -> None:
    """In one test, because a parameter for each would have every collection of tests parse all modules."""
    found = orders()
    assert found
    for order in found:
        written = order.replace("[WORKLOAD]", "encoder").replace("[filter]", "").replace("[,METRIC]", ",memory.peak")
        written = written.replace("[METRIC]", "latency.low").replace("GOOD..BAD", "0f1e2d3..4b5a697")
        written = re.sub(r"\{\{.*?\}\}|COMMIT", "0" * 40, written)
        whole = written if written.count(" ") > 1 or "accept" not in written else f"{written} METRIC REASON"
        assert read_order(whole) is not None, order


def _run(commands: dict[str, str | None], folder: Path, codes: set[int]) -> None:
    desk = Checked(folder)
    wrong = []
    for command, executed in commands.items():
        done = desk.run(_filled(executed or command, desk.known))
        if done.returncode not in codes:
            wrong.append(f"{command} ended with {done.returncode}:\n{done.stdout}")
    assert not wrong, "\n".join(wrong)


def _filled(command: str, words: dict[str, str]) -> str:
    return re.sub(r"\b[A-Z]{1,}\b", lambda match: words.get(match[0], match[0]), command)


def _understood(words: list[str], command: str) -> None:
    """Raises click's own error for an option or a value that the command does not take."""
    member: click.Command = cli
    context: click.Context | None = None
    name, rest = "perfgate", words
    while isinstance(member, click.Group):
        if not rest:
            return
        if rest[0].startswith("-"):  # an option of the group itself
            break
        context = click.Context(member, info_name=name, parent=context)
        found, subcommand, rest = member.resolve_command(context, rest)
        assert subcommand is not None, command
        name, member = found or "", subcommand
    try:
        member.make_context(name, rest, parent=context)
    except click.MissingParameter:
        # `perfgate gate` names a command that takes a folder; what is executed in its place has it.
        assert command in NOT_RUN, command
        assert not rest, command
