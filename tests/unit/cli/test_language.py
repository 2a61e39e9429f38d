"""The command line in Chinese: which setting chooses it, and that help and tables are complete."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from rich.console import Console

from perfgate.cli.groups import CommandGroup
from perfgate.cli.language import command_line_language, localized, wrapped
from perfgate.cli.main import cli
from perfgate.document.doctor import FitnessCheck
from perfgate.document.trace import GapDocument, GapTimeline
from perfgate.judging.report.render.doctor import render_fitness
from perfgate.judging.report.render.trace import render_gaps
from perfgate.locale import Activity, environment_language, shown, speaking
from tests.each import each

HAN = re.compile("[\u4e00-\u9fff]")


@each(
    "environ, language",
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zha_CN"}, "en"),  # Zhuang
        ({"LC_MESSAGES": "zh_CN.UTF-8", "LANG": "en_US.UTF-8"}, "zh"),
        ({"LC_ALL": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANGUAGE": "zh_CN:en", "LANG": "en_US.UTF-8"}, "zh"),
        ({"LANGUAGE": "en:zh_CN", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LANGUAGE": "de", "LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANGUAGE": "zh_CN", "LC_ALL": "C"}, "en"),
        ({"LANGUAGE": "zh_CN", "LC_ALL": "C.UTF-8"}, "zh"),
        ({"LANGUAGE": "zh_CN"}, "en"),
    ],
)
def test_environment_language__variables__as_gettext_reads_them(environ: dict[str, str], language: str) -> None:
    assert environment_language(environ) == language


@pytest.mark.parametrize(
    ("arguments", "variable", "written", "language"),
    [
        (["check", "--lang", "en"], "zh", "zh", "en"),
        (["check", "--lang=en", "-C", "FOLDER"], "zh", "zh", "en"),
        (["check", "-C", "FOLDER"], "en", "zh", "en"),
        (["check", "-C", "FOLDER", "--help"], "", "en", "en"),
        (["check", "--directory=FOLDER"], "", "en", "en"),
        (["check", "-C", "FOLDER"], "", "klingon", "zh"),
        (["check", "-C", "FOLDER", "--lang"], "", "[", "zh"),
        (["--help"], "", "en", "zh"),
    ],
)
def test_command_line_language__settings__before_the_locale(
    tmp_path: Path, arguments: list[str], variable: str, written: str, language: str
) -> None:
    (tmp_path / "perfgate.toml").write_text(f'[report]\nlanguage = "{written}"\n'.replace('"["', "["), encoding="utf-8")
    given = [argument.replace("FOLDER", str(tmp_path)) for argument in arguments]
    assert command_line_language(given, {"PERFGATE_LANG": variable, "LANG": "zh_CN.UTF-8"}) == language


def pages(command: click.Command, above: click.Context | None = None) -> Iterator[tuple[str, str]]:
    context = command.make_context("perfgate", [], parent=above, resilient_parsing=True)
    yield str(command.name), command.get_help(context)
    if isinstance(command, CommandGroup):
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from pages(member, context)


def test_help__chinese__no_command_or_option_is_left_in_english() -> None:
    with speaking("zh"):
        help_pages = dict(pages(localized(cli)))
    assert len(help_pages) > 30
    for name, page in help_pages.items():
        assert page.startswith("用法：perfgate"), name
        rows = re.findall(r"(?m)^  (?:-\S+|[a-z]+(?=  )).*(?:\n {8,}\S.*)*", page)
        assert rows, name
        assert [row for row in rows if not HAN.search(row)] == [], name


def test_help__english__is_that_of_click() -> None:
    assert localized(cli) is cli


def test_wrapped__chinese__by_columns_and_no_line_begins_with_a_closing_mark() -> None:
    assert wrapped("只测此 workload（可多次给出）。", 16) == ["只测此 workload", "（可多次给出）。"]
    assert wrapped("一二三四，五", 8) == ["一二三", "四，五"]
    assert wrapped("", 8) == []


def test_tables__chinese__titles_and_causes() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=100)
    gap = GapDocument(
        format="kineto",
        timelines=[
            GapTimeline(path="", rank=0, device=0, origin_ns=0, window=1.0, busy=0.5, gaps_in_all=0, causes=[], gaps=[])
        ],
    )
    with speaking("zh"):
        render_gaps(gap, console)
        render_fitness([FitnessCheck(name="clock", status="unavailable", seen="tsc")], console)
    text = screen.getvalue()
    assert "rank 0, device 0：1.00 s 中忙碌 50.0 %" in text
    assert "不可用" in text
    assert "检查结果" in text


def test_activity__chinese__shown_in_it_and_english_in_documents() -> None:
    with speaking("zh"):
        doing = Activity("loading workload {name}", name="net")
        assert shown(doing) == "加载 workload net"
        assert f"{doing}: timed out" == "loading workload net: timed out"
        assert shown("warming up") == "warming up"
