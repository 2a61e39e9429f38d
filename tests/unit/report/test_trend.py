"""The weekly issue, its comment, the page and the text of `perfgate trend`."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import shlex
from typing import Any

import msgspec
import pytest
from rich.console import Console

from perfgate.document.explanation import OperatorDelta
from perfgate.document.history import Acceptance
from perfgate.document.kept import KeptLink
from perfgate.document.trend import CommitLabel, NotLookedAt
from perfgate.judging.report.render.trend import (
    MOST_BYTES,
    issue_title,
    render_email,
    render_issue,
    render_news,
    render_trend,
)
from perfgate.judging.report.render.trend_page import render_trend_page
from perfgate.judging.report.render.trend_svg import series_plot, small_plot
from perfgate.judging.report.text.svg import sparkline
from perfgate.judging.report.view.summary import CommentContext
from perfgate.judging.report.view.trend_rows import MovedSeries, change_words, check_command
from tests.fakes.documents import make_difference
from tests.fakes.history import commit_of
from tests.fakes.records import changed
from tests.fakes.trends import (
    BEGAN,
    make_change,
    make_confirmation,
    make_series,
    make_testbed,
    make_trend,
    make_triage,
    make_uplift,
)

CONTEXT = CommentContext()


def issue(*changes: Any, **fields: Any) -> str:
    return render_issue(make_trend(make_series(*changes), **fields), CONTEXT)


def test_render_issue__new_regression__what_by_how_much_since_when_and_how_sure() -> None:
    text = issue(make_change())
    assert text.splitlines()[0] == "## `demo` on main: 1 regression"
    block = next(
        line for line in text.splitlines() if line.startswith("**`Pool in a loop`** `0014c0ffee`, 2026-05-04: ")
    )
    assert "P50 latency · `encoder/long`, 7.0 % slower (5.5 to 8.5 %)" in block
    assert ", suspected `" in block
    assert re.search(r"`[▁▂▃▄▅▆▇█]{24}`<br>$", block)
    assert "more metric" not in text


def test_render_issue__commit_with_author_and_change_request__named_with_the_certain_counter_and_the_next_commands() -> (
    None
):
    commit = CommitLabel(
        commit="c0ffee" * 6 + "c0ff", subject="Cache masks (#412)", author="Li Wei", change_request="#412"
    )
    syncs = make_change(evidence="exact", interval=None, before=0.0, after=1.0, delta=None, commits=[commit])
    text = render_issue(
        make_trend(
            make_series(make_change(commits=[commit])),
            make_series(syncs, metric="counters.syncs", unit="1", kind="exact"),
        ),
        CONTEXT,
    )
    assert "**`Cache masks`** (#412, `Li Wei`) `c0ffeec0ff`" in text
    assert "Certain, by exact count: synchronisations per call · `encoder/long` 0 → 1" in text
    assert (
        "Next: `perfgate trend --confirm` · `perfgate bisect latency.p50@encoder/long --good 0013c0ffee --bad 0014c0ffee` · "
        "`perfgate baseline accept '*' --commit 0014c0ffee --reason TEXT` · "
        "`perfgate baseline triage 0014c0ffee acknowledged --reason TEXT`"
    ) in text


def test_render_issue__two_regressions__the_certain_one_first() -> None:
    counter = make_change(8, evidence="exact", interval=None, before=4.0, after=5.0, delta=0.25)
    text = render_issue(
        make_trend(
            make_series(make_change(20)),
            make_series(counter, workload="other", metric="counters.copies", unit="1", kind="exact"),
        ),
        CONTEXT,
    )
    assert text.index("`other/long`") < text.index("`encoder/long`")


def test_render_issue__no_new_value__chance_is_not_mentioned() -> None:
    assert "Searched 1 series with 30 values; none of them is new." in issue(new_values=0)


def test_render_issue__one_commit_moved_three_metrics__one_regression_with_the_rest_in_a_fold() -> None:
    counter = make_change(evidence="exact", interval=None, before=0.0, after=1.0, delta=None)
    document = make_trend(
        make_series(counter, metric="counters.syncs", unit="1", kind="exact"),
        make_series(make_change(), metric="latency.p99"),
        make_series(make_change()),
    )
    text = render_issue(document, CONTEXT)
    assert text.splitlines()[0] == "## `demo` on main: 1 regression"
    assert text.count("Pool in a loop") == 1
    (block,) = [line for line in text.splitlines() if line.startswith("**")]
    assert "P50 latency" in block
    fold = text.split("<summary>It moved 2 more metrics</summary>")[1].split("</details>")[0]
    assert [line.split(" | ")[0] for line in fold.splitlines() if line.startswith("| ") and "`encoder" in line] == [
        "| synchronisations per call",
        "| P99 latency",
    ]
    assert "- `Pool in a loop`: P50 latency" in (render_news(document, "en") or "")
    page = render_trend_page(document, language="en", kept_files=None)
    assert page.count('<svg class="plot history') == 1
    assert "<h3>Pool in a loop</h3>" in page
    assert "It moved 2 more metrics" in page
    written = io.StringIO()
    render_trend(document, Console(file=written, width=140), "en")
    assert written.getvalue().count("Pool in a loop") == 1
    assert "It moved 2 more metrics" in written.getvalue()


def test_render_issue__operator_runs_more_often__named_with_its_line() -> None:
    document = make_trend(make_series(make_change()))
    operator = OperatorDelta(
        workload="encoder", shape="long", op="aten::item", base_count=0, head_count=1, line="m.py:8"
    )
    document = msgspec.structs.replace(
        document, causes=[msgspec.structs.replace(document.causes[0], operators=[operator])]
    )
    assert "1 more `aten::item` at `m.py:8`" in render_issue(document, CONTEXT)
    assert "1 more <code>aten::item</code> at <code>m.py:8</code>" in render_trend_page(
        document, language="en", kept_files=None
    )


def test_render_issue__several_commits_between__one_of_them_and_the_list_in_a_fold() -> None:
    commits = [make_change(at).commits[0] for at in (22, 21, 20)]
    text = issue(make_change(commits=commits, commit_count=25))
    assert "**One of 25 commits** `0014c0ffee`, after `0013c0ffee`, 2026-05-04: " in text
    assert "after `0013c0ffee` up to `0014c0ffee`" in text
    assert "- 22 more commits" in text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"evidence": "confirmed", "confirmation": make_confirmation()},
            ", **confirmed**; side by side: 5.0 to 9.0 % `",
        ),
        ({"evidence": "confirmed", "confirmation": make_confirmation(low=None, high=None)}, ", **confirmed** `"),
        ({"evidence": "exact", "interval": None}, ", exact count `"),
        ({"confirmation": make_confirmation("inconclusive")}, ", suspected; side by side it was not decided `"),
    ],
)
def test_render_issue__how_sure__in_words(fields: Any, words: str) -> None:
    assert words in issue(make_change(**fields))


def test_render_issue__open_accepted_resolved_refuted__each_in_its_place() -> None:
    text = issue(
        make_change(10, standing="open", news=False),
        make_change(12, standing="accepted", accepted="mei: a larger model"),
        make_change(14, standing="resolved", resolved_by="d" * 40),
        make_change(16, standing="refuted", evidence="refuted", confirmation=make_confirmation(low=-0.002, high=0.003)),
        make_change(18, standing="resolved", news=False),
    )
    _, still_open, settled = re.split(r"### Still open|### Settled since the last report", text)
    assert "`000ac0ffee`" in still_open
    assert "accepted by mei: a larger model" in settled
    assert "the level is back since `dddddddddd`" in settled
    assert "side by side show 0.2 % faster to 0.3 % slower" in settled
    assert "0012c0ffee" not in text  # resolved long ago: no news


def test_render_issue__nothing_moved__says_so_in_one_line() -> None:
    text = issue()
    assert text.startswith("## `demo` on main: nothing moved\n")
    assert "No metric got worse on main." in text
    assert "| metric |" not in text


def test_render_issue__nothing_moved__how_many_were_searched_and_no_word_of_chance() -> None:
    text = render_issue(make_trend(*(make_series(workload=f"w{n}") for n in range(60)), new_values=300), CONTEXT)
    assert "Searched 60 series with 1,800 values, 300 of them new." in text


def test_render_issue__suspected_change__how_many_chance_may_cause() -> None:
    assert "300 of them new; noise alone may cause up to 0.6 suspected changes in these." in issue(
        make_change(), new_values=300
    )


def test_render_issue__too_few_runs__how_many_it_takes() -> None:
    text = render_issue(make_trend(count=3), CONTEXT)
    assert "a time needs 8 versions of main on one testbed, a counter two; main has 3 runs" in text
    assert "No metric is worse" not in text


def test_render_issue__new_testbed_failed_runs_left_out__in_the_folds() -> None:
    left_out = [NotLookedAt(reason="too_short", series=2, names=["latency.p99 · encoder/long"])]
    text = issue(testbeds=[make_testbed("a" * 64), make_testbed("b" * 64)], not_looked_at=left_out)
    assert "The testbed changed on 2026-05-04" in text
    assert "2 series have too few versions to distinguish a change from noise: `latency.p99 · encoder/long`" in text


@pytest.mark.parametrize(
    ("change", "series", "command"),
    [
        ({"commit_count": 20}, {}, "perfgate bisect latency.p50@encoder/long --good 0013c0ffee --bad 0014c0ffee"),
        (
            {},
            {"workload": "my model"},
            "perfgate bisect 'latency.p50@my model/long' --good 0013c0ffee --bad 0014c0ffee",
        ),
        ({}, {"labels": {"batch": "8"}}, "perfgate bisect --good 0013c0ffee --bad 0014c0ffee"),
        ({"standing": "open"}, {}, "perfgate bisect latency.p50@encoder/long --good 0013c0ffee --bad 0014c0ffee"),
        ({"direction": "better"}, {}, None),
        ({"standing": "resolved"}, {}, None),
        ({"last_good": None}, {}, None),
    ],
)
def test_trend__change_for_the_worse__issue_and_terminal_print_the_bisection_that_finds_its_commit(
    change: dict[str, Any], series: dict[str, Any], command: str | None
) -> None:
    document = make_trend(make_series(make_change(**change), **series))
    written = io.StringIO()
    render_trend(document, Console(file=written, width=80), "en")
    printed = [line.strip() for line in written.getvalue().splitlines() if "perfgate bisect" in line]
    assert printed == ([command] if command else [])
    assert re.findall(r"`(perfgate bisect [^`]*)`", render_issue(document, CONTEXT)) == ([command] if command else [])


def test_commands__commits_that_a_hostile_store_names__are_words_of_the_shell_and_no_commands() -> None:
    assert shlex.split(check_command("`id`", "$(reboot)")) == [
        "git", "checkout", "$(reboot)", "&&", "perfgate", "check", "--base", "`id`",
    ]  # fmt: skip
    assert "'$(reboot)'" in check_command("a1", "$(reboot)")


def test_render_issue__hundreds_of_changes__folds_go_first_then_rows_and_it_fits() -> None:
    series = [
        make_series(
            make_change(n, commits=[make_change().commits[0]] * 3, commit_count=20),
            count=n + 1,
            workload="w" * 40 + str(n),
        )
        for n in range(1, 71)
    ]
    names = [NotLookedAt(reason="metric", series=900, names=["n" * 90 + str(n) for n in range(900)])]
    assert len(render_issue(make_trend(*series, not_looked_at=names), CONTEXT)) <= 60_000
    whole = render_issue(make_trend(*series, not_looked_at=names), CONTEXT, budget=90_000)
    text = render_issue(make_trend(*series, not_looked_at=names), CONTEXT, budget=len(whole) - 1)
    assert "The numbers of the checklist" not in text
    assert "How the runs went" in text
    small = render_issue(make_trend(*series, not_looked_at=names), CONTEXT, budget=16_000)
    assert len(small) <= 16_000
    assert "50 more rows: see `trend.html`." in small
    with pytest.raises(ValueError, match="too small"):
        render_issue(make_trend(*series), CONTEXT, budget=300)


def test_render_issue__links__only_those_of_the_event() -> None:
    url = "https://forge.example/run/1#artifacts"
    text = render_issue(make_trend(make_series()), CommentContext(artifact_url=url))
    assert f"[artifact]({url})" in text
    assert "](" not in render_issue(make_trend(make_series()), CommentContext(artifact_url="javascript:alert(1)"))


def test_render_news__something_moved__a_few_lines() -> None:
    text = render_news(make_trend(make_series(make_change())), "en")
    assert text is not None
    assert text.splitlines()[0] == "perfgate: 1 regression"
    assert "P50 latency · `encoder/long`: 7.0 % slower (5.5 to 8.5 %) since `0014c0ffee` · suspected" in text


def test_render_news__nothing_new__none() -> None:
    assert render_news(make_trend(make_series(make_change(standing="open", news=False))), "en") is None


def test_render_news__very_many__the_first_and_how_many_more() -> None:
    text = render_news(make_trend(*(make_series(make_change(n), workload=f"w{n}") for n in range(1, 31))), "en")
    assert text is not None
    assert text.count("P50 latency") == 6
    assert "- 24 more changes" in text


def test_issue_title__key__stays_what_it_is() -> None:
    assert issue_title("", "en") == "perfgate: how main is doing"
    assert issue_title("decoder", "zh") == "perfgate：main 的性能走势 (decoder)"


def test_render_trend_page__its_policy_allows_nothing_but_its_own_style() -> None:
    page = render_trend_page(make_trend(make_series(make_change())), language="en", kept_files=None)
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)[1]  # type: ignore[index]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in page
    assert "http://" not in page.replace('xmlns="http://', "")
    assert "<script" not in page
    assert " style=" not in page


def test_render_trend_page__a_change__picture_with_levels_intervals_and_commit() -> None:
    page = render_trend_page(
        make_trend(make_series(make_change()), make_series(metric="latency.p99")), language="en", kept_files=None
    )
    assert page.count('<svg class="plot history') == 1
    assert page.count('<circle class="value"') == 30
    assert page.count('<line class="level"') == 2
    assert page.count('<line class="reach"') == 30
    assert '<text class="commit"' in page
    assert ">0014c0ffee</text>" in page
    assert page.count('<svg class="small"') == 2
    assert page.count('<rect class="step attention"') == 2  # one run, and the legend


@pytest.mark.parametrize(("at", "count"), [(100, 700), (461, 700), (20, 30), (1, 241)])
def test_small_plot__change_long_ago__the_line_begins_before_it_and_steps_up_there(at: int, count: int) -> None:
    series = make_series(make_change(at), count=count)
    drawn = small_plot(series, at)
    (line,) = re.findall(r'<polyline class="line" points="([^"]*)"', drawn)
    points = [tuple(map(float, pair.split(","))) for pair in line.split()]
    (change,) = map(float, re.findall(r'<line class="change worse" x1="([0-9.]+)"', drawn))
    assert len(points) <= 240
    assert points[-1][0] == float(re.findall(r'<circle class="last" cx="([0-9.]+)"', drawn)[0])
    before, after = ([y for x, y in points if (x > change) == is_after] for is_after in (False, True))
    assert min(before) > max(after)  # y grows downwards


def test_render_trend_page__kept_files_beside_a_change__linked_by_the_side_of_their_run() -> None:
    def kept(path: str, address: str) -> KeptLink:
        return KeptLink(path=path, kind="trace", bytes=10, address=address, place="s3://b/p")

    files = {
        "run19": [kept("trace-a.json.gz", "https://x.example/19/trace-a.json.gz")],
        "run20": [kept("flame.html", "https://x.example/20/flame.html"), kept("t.json.gz", "javascript:alert(1)")],
        "run21": [kept("other.json.gz", "https://x.example/21/other.json.gz")],
    }
    page = render_trend_page(make_trend(make_series(make_change(20))), kept_files=files, language="en")
    assert re.findall(r'<p>(\w+): <a href="(https://x[^"]+)">([^<]+)', page) == [
        ("before", "https://x.example/19/trace-a.json.gz", "trace-a.json.gz"),
        ("after", "https://x.example/20/flame.html", "flame.html"),
    ]
    assert "javascript" not in page
    assert "other.json.gz" not in page


def test_render_trend_page__two_testbeds__one_picture_with_a_border() -> None:
    old, new = make_series(make_change(), fingerprint="a" * 64), make_series(make_change())
    spans = [make_testbed("a" * 64), make_testbed("f" * 64)]
    page = render_trend_page(make_trend(new, old, testbeds=spans), language="en", kept_files=None)
    assert page.count('<svg class="plot history') == 1
    assert page.count('<line class="border"') == 1
    assert page.count('<circle class="value"') == 60


@pytest.mark.parametrize("count", [1, 2, 3])
def test_render_trend_page__equal_and_few_values__drawn(count: int) -> None:
    flat = make_series(count=count, metric="counters.copies", unit="1", kind="exact")
    points = [type(point)(run_id="r", commit=None, started_at=BEGAN, value=0.0) for point in flat.points]
    changed = make_change(count - 1 or 1, delta=None, interval=None, evidence="exact", before=0.0, after=0.0)
    page = render_trend_page(make_trend(make_series(changed, count=count, metric="counters.copies", unit="1", kind="exact",
                                                    points=points)), language="en", kept_files=None)  # fmt: skip
    assert "nan" not in page.lower()


def test_render_trend__regression__what_it_rests_on() -> None:
    written = io.StringIO()
    render_trend(make_trend(make_series(make_change())), Console(file=written, width=140), "en")
    text = written.getvalue()
    assert "demo on main: 1 regression" in text
    assert "7.0 % slower (5.5 to 8.5 %)" in text
    assert "Searched 1 series with 30 values" in text


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], ""), ([3.0], "▄"), ([2.0, 2.0, 2.0], "▄▄▄"), ([1.0, 2.0], "▁█"), ([1, 1, 1, 2, 2, 2], "▁▁▁███")],
)
def test_sparkline__values__blocks(values: Any, expected: str) -> None:
    assert sparkline(values) == expected


def test_sparkline__one_wild_value__the_rest_keeps_its_shape() -> None:
    assert sparkline([1, 2, 1, 2, 1, 2, 1, 2, 900, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2]) == "▁█▁█▁█▁██▁█▁█▁█▁█▁█▁█"


def test_change_words__from_nothing__how_many_more() -> None:
    counter = make_series(metric="counters.syncs", unit="1", kind="exact")
    change = make_change(before=0.0, after=2.0, delta=None, interval=None, evidence="exact")
    assert change_words(MovedSeries(counter, change)) == "2 more (exact)"


def test_render_trend_page__two_commits_moved_one_series__each_picture_shows_its_own_change_strongest() -> None:
    page = render_trend_page(make_trend(make_series(make_change(10), make_change(20))), language="en", kept_files=None)
    first, second = page.split('<div class="picture">')[1:3]
    for picture, own, other in ((first, "000ac0ffee", "0014c0ffee"), (second, "0014c0ffee", "000ac0ffee")):
        assert re.search(rf'<text class="commit" [^>]*>{own}<', picture)
        assert re.search(rf'<text class="commit other" [^>]*>{other}<', picture)


def test_render_issue__counters_moved_and_no_time__says_that_no_slowdown_is_shown() -> None:
    counter = make_change(evidence="exact", interval=None, before=0.0, after=1.0, delta=None)
    document = make_trend(
        make_series(counter, metric="counters.syncs", unit="1", kind="exact", noise=None), make_series()
    )
    words = "no slowdown shown: the P50 latency of one version differs from the next by ±1.2 % without any change"
    assert words in render_issue(document, CONTEXT)
    assert words in render_trend_page(document, language="en", kept_files=None)
    assert "no slowdown" not in issue(make_change())


def triaged(state: Any = "acknowledged", suggests: Any = None, **change: Any) -> Any:
    """A trend with one regression that somebody gave a state."""
    trend = make_trend(make_series(make_change(**change)))
    cause = msgspec.structs.replace(trend.causes[0], triage=make_triage(state=state), suggests=suggests)
    return msgspec.structs.replace(trend, causes=[cause])


@pytest.mark.parametrize(
    ("state", "suggests", "words"),
    [
        ("acknowledged", None, "acknowledged by mei on 2026-05-04: waits for the new kernel"),
        (
            "fixed",
            "new",
            "fixed by mei on 2026-05-04: waits for the new kernel; the runs since then are still on the slower level",
        ),
        ("new", None, None),
    ],
)
def test_reports__triaged_regression__state_author_date_and_reason(state: Any, suggests: Any, words: Any) -> None:
    trend = triaged(state, suggests)
    mail, page = (
        re.sub(r"<[^>]+>", "", text)
        for text in (render_email(trend, "en"), render_trend_page(trend, "en", kept_files=None))
    )
    for text in (render_issue(trend, CONTEXT), mail, page):
        assert (words in text) if words else ("mei" not in text)
        assert "acknowledged --reason TEXT" not in text
        assert ("perfgate baseline triage 0014c0ffee new --reason TEXT" in text) is (suggests == "new")


def test_render_trend__triaged_regression__its_state() -> None:
    written = io.StringIO()
    render_trend(triaged(), Console(file=written, width=140), "en")
    assert "acknowledged by mei" in written.getvalue()


def test_reports__acceptance_that_expired__named_with_its_day() -> None:
    ended = Acceptance(
        commit="c" * 40,
        metric="latency.*",
        reason="for the demo",
        accepted_by="mei",
        accepted_at=BEGAN,
        until="2026-05-05",
    )
    trend = make_trend(make_series(), expired=[ended])
    words = "latency.* of cccccccccc, accepted by mei until 2026-05-05: for the demo"
    assert words in render_issue(trend, CONTEXT).replace("`", "")
    for page in (render_email(trend, "en"), render_trend_page(trend, language="en", kept_files=None)):
        assert words in re.sub(r"<[^>]+>", "", page)


def test_render_email__a_regression__what_a_mail_program_shows() -> None:
    trend = make_trend(
        make_series(make_change()),
        make_series(metric="start.total", shape="", informing=True),
        make_series(metric="graph.compile_cold", shape="", informing=True),
    )
    text = render_email(trend, "en")
    assert not re.findall(r"<(?:script|style|svg|img|link|a|form|iframe)\b", text)
    assert not re.findall(r"<[^>]*\s(?:on\w+|href|src|class)=", text)
    shown = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))
    for words in (
        "1 regression",
        "Pool in a loop",
        "7.0 % slower (5.5 to 8.5 %)",
        "1 · Latency",
        "cold start",
        "9 · ",
        "cold compile time",
        "None of the last 1 run failed.",
        "7 stored; by week",
    ):
        assert words.replace("7 stored", "30 runs stored") in shown, words
    assert re.search("[▁▂▃▄▅▆▇█]{16}", shown)


def test_render_email__thousands_of_changes__small_enough_for_every_program() -> None:
    many = [make_series(make_change(), workload=f"workload-{index}" * 4, metric="latency.p50") for index in range(700)]
    causes = [make_change(at, first_bad=f"{at:040x}", commits=[], commit_count=0) for at in range(1, 30)]
    text = render_email(make_trend(*many, make_series(*causes)), "zh")
    assert 40_000 < len(text.encode()) <= MOST_BYTES
    assert "trend.html" in text


def test_reports__new_testbed__one_event_with_its_effect_or_the_command_that_shows_it() -> None:
    told = "torch 2.13.0 → 2.14.0, testbed eeeeeeeeee → ffffffffff since 2026-05-04."
    joined = make_trend(make_series(), uplifts=[make_uplift()])
    apart = make_trend(make_series(), uplifts=[make_uplift(commits=[], moved=[], unmoved=0)])
    for render in (
        lambda trend: render_issue(trend, CONTEXT),
        lambda trend: render_email(trend, "en"),
        lambda trend: render_trend_page(trend, "en", kept_files=None),
    ):
        text, without = (re.sub(r"<[^>]+>|`", "", render(trend)) for trend in (joined, apart))
        assert f"{told} 1 commit measured on both: 1 metric moved, 8 did not." in text
        assert "P50 latency · encoder/long: 11.0 % slower (7.0 to 15.0 %), 36.0 → 40.0 ms" in text
        assert f"{told} No commit was measured on both, so its effect is not known." in without
        assert "git checkout 0009c0ffee &amp;&amp; perfgate baseline record" in without.replace(" && ", " &amp;&amp; ")
    old = changed(joined, newest="2026-08-01T00:00:00+00:00")
    assert told not in render_issue(old, CONTEXT).replace("`", "")


def test_reports__packages_that_changed_with_a_regression__named_below_it() -> None:
    trend = make_trend(make_series(make_change()))
    changed = [
        make_difference("transformers", "4.44", "4.45"),
        make_difference("einops", None, "0.8"),
    ]
    trend = msgspec.structs.replace(trend, causes=[msgspec.structs.replace(trend.causes[0], differences=changed)])
    told = "Changed between the two runs: transformers 4.44 → 4.45, einops none → 0.8"
    for text in (
        render_issue(trend, CONTEXT),
        render_email(trend, "en"),
        render_trend_page(trend, language="en", kept_files=None),
    ):
        assert told in re.sub(r"<[^>]+>|`", "", text)


@pytest.mark.parametrize(
    ("own", "is_early"), [(commit_of(5), True), (commit_of(25), False), (None, False), (commit_of(7), False)]
)
def test_series_plot__change_in_its_left_half__a_narrow_screen_begins_there(own: str | None, is_early: bool) -> None:
    plot = series_plot([make_series(make_change(5), make_change(25))], own)
    assert ('class="plot history early"' in plot) == is_early
