"""Every medium that perfgate writes, made from documents whose free texts were renamed.

A new medium is one entry of ``MEDIA``; `test_media` fails if a module of `report/render` has none.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console

from perfgate.document.bisection import BisectionDocument, BisectionTrial, CommitChange, SearchedChanges
from perfgate.document.decision import DecisionDocument
from perfgate.document.doctor import FitnessCheck, PlantedResult
from perfgate.document.message import Message, quote
from perfgate.document.run import ErrorDetail, RunDocument
from perfgate.document.served import ServedJob, ServedRecording
from perfgate.document.site import SiteContent
from perfgate.document.trace import TopDocument, TopRow, TopTimeline
from perfgate.document.trend import TrendDocument
from perfgate.flows.shared.site.pages import SitePages, file_addresses
from perfgate.judging.forge.comment import marker
from perfgate.judging.forge.runner import annotation_command
from perfgate.judging.report.render.bisection import render_bisection, render_bisection_answer
from perfgate.judging.report.render.ci import annotate, no_verdict, run_markdown, status_line
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.render.doctor import render_fitness, render_planted
from perfgate.judging.report.render.flame import flame_text, render_flame
from perfgate.judging.report.render.html import render_html
from perfgate.judging.report.render.junit import junit, junit_of_run, junit_without_verdict
from perfgate.judging.report.render.number_formats import bencher_metrics, benchmark_entries, csv_table, openmetrics
from perfgate.judging.report.render.served import render_index, render_refusal, render_trouble
from perfgate.judging.report.render.site.page import SiteLinks
from perfgate.judging.report.render.terminal import early_lines, render_line, render_run, render_terminal
from perfgate.judging.report.render.testbeds import render_column, render_joint_comment, section_budget
from perfgate.judging.report.render.timeline import render_ranks_page, render_timeline
from perfgate.judging.report.render.trace import render_top
from perfgate.judging.report.render.trend import render_email, render_issue, render_news, render_trend
from perfgate.judging.report.render.trend_page import render_trend_page
from perfgate.judging.report.view.number_rows import rows_of_check, rows_of_run
from perfgate.locale import Language
from perfgate.trace.pages.timeline import drawn_timeline
from tests.fakes.documents import make_run
from tests.fakes.records import changed
from tests.fakes.sites import make_acceptance, make_gate, make_site
from tests.fakes.trends import make_change, make_confirmation, make_series, make_testbed, make_trend, make_triage
from tests.golden.test_comment_golden import decisions
from tests.hostile.poison import Rename, poisoned
from tests.unit.report.test_flame import make_tree
from tests.unit.report.test_ranks_page import drawn
from tests.unit.report.test_timeline import events

Dialect = Literal["markdown", "html", "terminal", "xml", "json", "csv", "openmetrics", "line"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
MARKER = marker("default")
# More than any of the texts has: none is shortened, so that their structure may be compared.
ROOM = 10_000_000


@dataclass(frozen=True)
class Medium:
    """Texts of one dialect that a module of `report/render` makes of documents with renamed texts."""

    module: str
    dialect: Dialect
    write: Callable[[Rename], list[str]]


def _decisions(rename: Rename) -> list[DecisionDocument]:
    return [poisoned(decision, rename) for decision in decisions().values()]


def _run(rename: Rename) -> RunDocument:
    run = make_run("head", pairs=2)
    error = ErrorDetail(
        kind="exception", message="no such layer", traceback="one\ntwo", signal="SIGKILL", log_tail="epoch"
    )
    failed = changed(run.checklist.steps[0], status="error", error=error)
    return poisoned(changed(run, steps=[*run.checklist.steps, failed], warnings=[quote("slow disk")]), rename)


def _trend(rename: Rename) -> TrendDocument:
    changes = [
        make_change(20),
        make_change(22, standing="accepted", accepted="Li Wei: intended"),
        make_change(24, standing="open", news=False),
        make_change(26, standing="resolved", resolved_by="0f1e2d3c"),
        make_change(28, direction="better", confirmation=make_confirmation()),
    ]
    trend = make_trend(
        make_series(*changes, labels={"op": "aten::add"}),
        make_series(metric="latency.p99"),
        expired=[make_acceptance(until="2026-05-05")],
        testbeds=[make_testbed("f" * 64), make_testbed("e" * 64)],
        gone=["decoder"],
        notes=["one run was not read"],
    )
    causes = [changed(cause, triage=make_triage(), suggests="new") for cause in trend.causes]
    return poisoned(changed(trend, causes=causes), rename)


def _site(rename: Rename) -> SiteContent:
    failed = make_gate(1, verdict="FAIL", link="https://forge.example/1", testbed="910b")
    return poisoned(make_site(gates=[failed, make_gate(2)]), rename)


def _bisection(rename: Rename) -> BisectionDocument:
    changes = [
        CommitChange(commit=f"{at:040}", before=f"{at - 1:040}", subject="Pool in a loop", author="Li") for at in (1, 2)
    ]
    trials = [
        BisectionTrial(changes=[0, 1], answer="impossible", reason="no wheel"),
        BisectionTrial(changes=[0], answer="fast", answered_by="gate", folder="trial-1"),
    ]
    searched = SearchedChanges(commit=changes[-1].commit, good="0" * 40, changes=list(changes), cumulative=True)
    document = BisectionDocument(
        outcome="found",
        searched=searched,
        perfgate_version="0.1.0",
        culprits=[[1]],
        suspects=[],
        followed=["latency.p50"],
        tried=trials,
        deciding=None,
        duration=372.0,
    )
    return poisoned(document, rename)


def _top(rename: Rename) -> TopDocument:
    row = TopRow(name="void at::native::add<float>(float)", kind="compute", count=162, total=0.0807, share=0.134)
    timeline = TopTimeline(path="rank0.json", rank=None, device=0, side="device", base=0.602, rows_in_all=1, rows=[row])
    return poisoned(
        TopDocument(format="kineto", by="name", timelines=[timeline], notes=[Message("quote", {"text": "cut"})]), rename
    )


def _terminal(write: Callable[[Console], object]) -> str:
    # A pipe, not a screen: whatever escape sequence comes out is one of the names.
    stream = io.StringIO()
    write(Console(file=stream, width=140))
    return stream.getvalue()


def _in_languages(write: Callable[[Language], str | None]) -> list[str]:
    return [text for language in LANGUAGES if (text := write(language)) is not None]


def _context(language: Language) -> CommentContext:
    return CommentContext(marker=MARKER, reproduce="perfgate local", language=language)


def _comments(rename: Rename) -> list[str]:
    return [
        render_comment(decision, _context(language), budget=ROOM)
        for decision in _decisions(rename)
        for language in LANGUAGES
    ]


def _joint_comments(rename: Rename) -> list[str]:
    of_testbeds = _decisions(rename)[:3]
    texts: list[str] = []
    for language in LANGUAGES:
        context = _context(language)
        room = section_budget(len(of_testbeds), ROOM)
        # Names of testbeds come from the configuration of base, which allows letters, digits, "_", "-" and ".".
        names = [f"testbed-{number}" for number in range(len(of_testbeds))]
        columns = [render_column(name, one, context, budget=room) for name, one in zip(names, of_testbeds)]
        texts.append(render_joint_comment(columns, "FAIL", context, budget=ROOM))
    return texts


def _site_pages(rename: Rename) -> list[str]:
    content = _site(rename)
    texts: list[str] = []
    for language in LANGUAGES:
        pages = SitePages(content, lambda _: _run(rename), language, SiteLinks())
        texts += [page for address in file_addresses(content, newest=2) if (page := pages.page(address)) is not None]
    return texts


def _flame_tree(rename: Rename) -> Any:
    nodes = ((-1, "thread", "thread 1", 0), (0, "python", "model.py: forward", 4), (1, "host_op", "aten::mm", 12))
    renamed = [(parent, kind, rename(name), own) for parent, kind, name, own in nodes]
    return make_tree(*renamed, label=rename("short"), requests=(rename("request-1"),))


def _timeline(rename: Rename) -> list[str]:
    host, stream = (rename("python"), rename("main")), (rename("device 0"), rename("stream 7"))
    table = events(
        (100, 3000, host, rename("aten::linear"), "host_op", -1), (700, 1000, stream, rename("gemm"), "compute", 1)
    )
    return _in_languages(lambda language: render_timeline([drawn_timeline(table, rename("rank 0"))], language))


def _served(rename: Rename) -> list[str]:
    recordings = [ServedRecording(name=rename("job/rank0.json"), kind="recording", size=123, modified=1.7e9)]
    jobs = [ServedJob(name=rename("job"), recordings=2, size=5, modified=1.7e9)]
    folder, contains = rename("job"), rename("rank")
    index = _in_languages(
        lambda language: render_index(recordings, jobs, language, folder=folder, contains=contains, home="/")
    )
    refusals = _in_languages(lambda language: render_refusal(rename("no such entry"), "/", language))
    return index + refusals + _in_languages(lambda language: render_trouble(rename("no such page"), language))


def _doctor(console: Console, rename: Rename) -> None:
    render_fitness(
        [FitnessCheck(name="git", status="unfit", seen=rename("none"), remedy=rename("install git"))], console
    )
    planted = PlantedResult(
        name="extra-copy", title="one copy more", expected="FAIL", metric="counters.copies", verdict="FAIL", exit_code=1,
        fired=[rename("counters.copies")], line=rename("scorer.py:29"), outcome="agrees", reason=rename("slow"), seconds=83.0,
    )  # fmt: skip
    render_planted([planted], console)


def _annotations(rename: Rename) -> list[str]:
    commands: list[str] = []
    for decision in _decisions(rename):
        for annotation in annotate(decision):
            place = (annotation.location.path, annotation.location.line) if annotation.location else None
            commands.append(annotation_command("error", annotation.title, annotation.message, place))
    return commands


def _of_decisions(write: Callable[[DecisionDocument, Language], str | None]) -> Callable[[Rename], list[str]]:
    def texts(rename: Rename) -> list[str]:
        of_each = [
            _in_languages(lambda language, one=decision: write(one, language)) for decision in _decisions(rename)
        ]
        return [text for texts in of_each for text in texts]

    return texts


def _numbers(write: Callable[[Any], str]) -> Callable[[Rename], list[str]]:
    def texts(rename: Rename) -> list[str]:
        run = _run(rename)
        of_checks = [write(rows_of_check(decision, run, run)) for decision in _decisions(rename)]
        return [write(rows_of_run(run)), *of_checks]

    return texts


def _page(decision: DecisionDocument, run: RunDocument, language: Language) -> str:
    return render_html(decision, run, run, language)


MEDIA: dict[str, Medium] = {
    "comment": Medium("comment", "markdown", _comments),
    "joint comment": Medium("testbeds", "markdown", _joint_comments),
    "issue": Medium(
        "trend",
        "markdown",
        lambda rename: _in_languages(lambda language: render_issue(_trend(rename), _context(language), budget=ROOM)),
    ),
    "news": Medium(
        "trend", "markdown", lambda rename: _in_languages(lambda language: render_news(_trend(rename), language))
    ),
    "email": Medium(
        "trend", "html", lambda rename: _in_languages(lambda language: render_email(_trend(rename), language))
    ),
    "answer about a bisection": Medium(
        "bisection",
        "markdown",
        lambda rename: _in_languages(lambda language: render_bisection_answer(_bisection(rename), None, language)),
    ),
    "summary of a run": Medium(
        "ci", "markdown", lambda rename: _in_languages(lambda language: run_markdown(_run(rename), language))
    ),
    "no verdict": Medium(
        "ci",
        "markdown",
        lambda rename: _in_languages(lambda language: no_verdict(rename("disk full"), 4, language, medium="markdown")),
    ),
    "page": Medium(
        "html", "html", _of_decisions(lambda decision, language: _page(decision, make_run("head", pairs=2), language))
    ),
    "page of a hostile run": Medium(
        "html", "html", lambda rename: [_page(decision, _run(rename), "en") for decision in _decisions(rename)[:4]]
    ),
    "trend page": Medium(
        "trend_page",
        "html",
        lambda rename: _in_languages(lambda language: render_trend_page(_trend(rename), language, kept_files=None)),
    ),
    "pages of main": Medium("site", "html", _site_pages),
    "served folder": Medium("served", "html", _served),
    "flame graph": Medium(
        "flame", "html", lambda rename: _in_languages(lambda language: render_flame([_flame_tree(rename)], language))
    ),
    "timeline": Medium("timeline", "html", _timeline),
    "ranks": Medium(
        "timeline",
        "html",
        lambda rename: _in_languages(
            lambda language: render_ranks_page(drawn(collective=rename("hcom_allReduce")), language)
        ),
    ),
    "speedscope": Medium(
        "flame", "json", lambda rename: [flame_text([_flame_tree(rename)], "speedscope", language="en")]
    ),
    "stacks": Medium(
        "flame", "line", lambda rename: flame_text([_flame_tree(rename)], "collapsed", language="en").splitlines()
    ),
    "terminal": Medium(
        "terminal",
        "terminal",
        _of_decisions(
            lambda decision, language: _terminal(lambda console: render_terminal(decision, console, language))
        ),
    ),
    "line in a terminal": Medium(
        "terminal",
        "terminal",
        _of_decisions(lambda decision, language: _terminal(lambda console: render_line(decision, console, language))),
    ),
    "run in a terminal": Medium(
        "terminal",
        "terminal",
        lambda rename: _in_languages(
            lambda language: _terminal(lambda console: render_run(_run(rename), console, language))
        ),
    ),
    "trend in a terminal": Medium(
        "trend",
        "terminal",
        lambda rename: _in_languages(
            lambda language: _terminal(lambda out: render_trend(_trend(rename), out, language))
        ),
    ),
    "bisection in a terminal": Medium(
        "bisection",
        "terminal",
        lambda rename: _in_languages(
            lambda language: _terminal(lambda console: render_bisection(_bisection(rename), console, language))
        ),
    ),
    "recording in a terminal": Medium(
        "trace", "terminal", lambda rename: [_terminal(lambda console: render_top(_top(rename), console))]
    ),
    "doctor": Medium("doctor", "terminal", lambda rename: [_terminal(lambda console: _doctor(console, rename))]),
    "early lines": Medium(
        "terminal",
        "terminal",
        _of_decisions(
            lambda decision, language: "\n".join(
                early_lines(decision, decision.project, certain=True, language=language, has_pairs=True)
            )
        ),
    ),
    "commit status": Medium("ci", "line", _of_decisions(status_line)),
    "annotations": Medium("ci", "line", _annotations),
    "junit": Medium("junit", "xml", _of_decisions(junit)),
    "junit of a run": Medium("junit", "xml", lambda rename: [junit_of_run(_run(rename), language="en")]),
    "junit without a verdict": Medium("junit", "xml", lambda rename: [junit_without_verdict(rename("disk full"))]),
    "csv": Medium("number_formats", "csv", _numbers(csv_table)),
    "bencher": Medium("number_formats", "json", _numbers(bencher_metrics)),
    "benchmark action": Medium("number_formats", "json", _numbers(lambda rows: benchmark_entries(rows, "lower"))),
    "openmetrics": Medium("number_formats", "openmetrics", lambda rename: [openmetrics(_run(rename), range(1, 20))]),
}
