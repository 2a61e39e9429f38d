"""The pages of main's history over hand-made content: what they show, how they link, and hostile names in them."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import msgspec
import pytest

from perfgate.document.history import BiasedMachine
from perfgate.document.kept import KeptLink, KeptOfRun
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.document.site import SiteContent
from perfgate.errors import StoreError
from perfgate.flows.shared.site.pages import SitePages, file_addresses
from perfgate.judging.report.render.site.page import (
    SiteLinks,
    compare_address,
    is_address,
    run_address,
    series_address,
)
from perfgate.judging.trend.gates import accepted_commits, gate_history
from tests.fakes.documents import TESTBED, make_difference, make_run
from tests.fakes.history import commit_of, main_runs, stepped
from tests.fakes.records import changed
from tests.fakes.sites import make_acceptance, make_gate, make_site, make_stored
from tests.fakes.trends import make_change, make_gates, make_series, make_testbed, make_trend, make_triage

SERVED = SiteLinks()
TWO_RUNS = compare_address(make_stored(19).id, make_stored(20).id)
NO_CHANGE_WORDS = re.compile(r"\d %\s+(?:slower|faster|more|fewer|less|higher|lower)")


def run_of(content: SiteContent, **fields: object) -> RunDocument:
    """Return a run of main like those of the content, with a call of shape long that takes 38.6 ms."""
    (run,) = main_runs(1, time=stepped(0, 1.07), seed=3)
    return changed(run, project=content.trend.project, **fields)


def pages_of(content: SiteContent, links: SiteLinks = SERVED, language: str = "en") -> SitePages:
    return SitePages(content, lambda _: run_of(content), language, links)  # type: ignore[arg-type]


def every_page(content: SiteContent, language: str = "en", *, newest: int = 3) -> dict[str, str]:
    addresses = file_addresses(content, newest=newest)
    pages = pages_of(content, SiteLinks(written=frozenset(addresses)), language)
    written = {address: pages.page(address) for address in addresses}
    assert None not in written.values()
    return {address: page or "" for address, page in written.items()}


def shown(page: str | None) -> str:
    """Return the text of a page's main part as a reader sees it."""
    assert page is not None
    main = page[page.index("<main") : page.index("</main>")]
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", re.sub(r"<title>.*?</title>", "", main)).split()))


class Links(HTMLParser):
    """The links of a page, and the places in it that links can lead to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "a" and named.get("href"):
            self.links.append(str(named["href"]))
        if named.get("id"):
            self.places.add(str(named["id"]))


def broken_links(pages: dict[str, str]) -> list[tuple[str, str]]:
    """Follow every link from every page; return those that lead nowhere."""
    read = {address: Links(page) for address, page in pages.items()}
    broken = []
    for address, page in read.items():
        folder = address.rpartition("/")[0]
        for link in page.links:
            path, _, place = link.partition("#")
            target = "/".join(_walked([*folder.split("/"), *path.split("/")])) if path else address
            if target not in read or (place and place not in read[target].places):
                broken.append((address, link))
    return broken


def _walked(parts: list[str]) -> list[str]:
    walked: list[str] = []
    for part in parts:
        if part == "..":
            walked.pop()
        elif part:
            walked.append(part)
    return walked


def points_at(content: SiteContent) -> SiteContent:
    """Return the content with the points of its series at the stored runs."""

    def moved(series):  # type: ignore[no-untyped-def]
        ids = {run.commit: run.id for run in content.runs}
        return msgspec.structs.replace(
            series, points=[msgspec.structs.replace(point, run_id=ids[point.commit]) for point in series.points]
        )

    trend = msgspec.structs.replace(content.trend, series=[moved(series) for series in content.trend.series])
    return msgspec.structs.replace(content, trend=trend)


# The pages that are opened in a browser: at every width, on a phone, by keyboard.
SHOWN = {
    "overview": "index.html",
    "open": "open.html",
    "series": series_address(make_series(), branch=""),
    "all-series": "series/index.html",
    "runs": "runs/index.html",
    "run": run_address(make_stored(20).id),
    "compare": TWO_RUNS,
    "compare-form": "compare/index.html",
    "gates": "gates.html",
    "fleet": "fleet.html",
}


def example_page(address: str, name: str = "encoder", language: str = "en") -> str:
    """Return a page of a served site of one workload, which has a regression, an improvement and two testbeds."""
    count = make_change(20, evidence="exact", interval=None, before=40.0, after=60.0, delta=0.5)
    series = [
        make_series(make_change(), workload=name),
        make_series(
            make_change(12, direction="better", delta=-0.05, interval=(-0.06, -0.04)),
            metric="latency.p99",
            workload=name,
        ),
        make_series(count, metric="counters.framework_ops", unit="1", kind="exact", workload=name),
        make_series(
            make_change(), metric="throughput.median", unit="items/s", better="higher", workload=name, shape="short"
        ),
    ]
    spans = [make_testbed("e" * 64, differences=[make_difference("torch", "2.13.0", "2.14.0")]), make_testbed("f" * 64)]
    verdicts = [make_gate(3), make_gate(2, change=1), make_gate(1, verdict="FAIL")]
    trend = make_trend(*series, testbeds=spans, gates=gate_history(verdicts, [], triages=()))
    content = points_at(make_site(trend, gates=verdicts))
    trace = KeptLink(
        path="trace.json.gz", kind="trace", bytes=123_456, address="/artifacts/a/trace.json.gz", place="s3://a"
    )
    # The page has the address of its series, which its names are a part of.
    places = {series_address(make_series(), branch=""): series_address(content.trend.series[0], branch="")}
    links = SiteLinks(forms=True, triage=True)
    pages = SitePages(content, lambda _: run_of(content), language, links, lambda _: KeptOfRun(links=[trace]))  # type: ignore[arg-type]
    return pages.page(places.get(address, address)) or ""


@pytest.fixture(scope="module")
def site() -> dict[str, str]:
    return every_page(points_at(make_site()))


def test_overview__open_regression__headline_card_and_leading_numbers(site: dict[str, str]) -> None:
    text = shown(site["index.html"])
    assert "1 regression open" in text
    assert "7.0 % slower (5.5 to 8.5 %)" in text
    assert "Pool in a loop" in text
    assert "P50 latency" in text
    assert "AMD EPYC 7B13" in text


def test_overview__nothing_open__says_so() -> None:
    assert "no regression is open" in shown(pages_of(make_site(make_trend(make_series()))).page("index.html"))


def test_overview__new_store__no_card_and_no_claim() -> None:
    content = make_site(make_trend(make_series(count=3), looked_at=0))
    text = shown(pages_of(content).page("index.html"))
    assert "too few runs to look at yet" in text
    assert "no regression is open" not in text


def test_open_page__regression__chart_next_command_acceptance_and_confirmation(site: dict[str, str]) -> None:
    text = shown(site["open.html"])
    assert "perfgate baseline accept" in text
    assert "the new layer costs this" in text
    assert "confirmed: worse" in text
    assert "5.0 to 9.0 %" in text
    assert site["open.html"].count('<svg class="plot history') == 1


def test_open_page__no_clone_beside_the_service__author_and_subject_of_the_first_bad_run() -> None:
    trend = make_trend(make_series(make_change(commits=[], commit_count=0)))
    content = make_site(trend)
    runs = [msgspec.structs.replace(run, author="Li Wei", subject="Pool in a loop") for run in content.runs]
    pages = pages_of(msgspec.structs.replace(content, runs=runs))
    for address in ("open.html", "index.html"):
        text = shown(pages.page(address))
        assert "Li Wei" in text
        assert "Pool in a loop" in text


def test_open_page__triage__state_form_failed_gate_and_expired_acceptance() -> None:
    trend = make_trend(
        make_series(make_change(commits=[], commit_count=0)), gates=make_gates(triage=make_triage(state="fixed"))
    )
    cause = msgspec.structs.replace(trend.causes[0], triage=make_triage())
    back = msgspec.structs.replace(cause, standing="resolved", triage=None, suggests="fixed", first_bad=commit_of(5))
    content = make_site(
        msgspec.structs.replace(trend, causes=[cause, back]),
        acceptances=[make_acceptance(until="2026-05-03"), make_acceptance(until="2999-01-01")],
    )
    pages = SitePages(content, lambda _: pytest.fail("no run is needed"), "en", SiteLinks(forms=True, triage=True))
    page = str(pages.page("open.html"))
    text = shown(page)
    for words in (
        "acknowledged by mei on 2026-05-04: waits for the new kernel",
        "the level is back, so it can be marked as fixed",
        "change 412): fixed by mei on 2026-05-04",
        "2026-05-03 expired",
        "2999-01-01",
    ):
        assert words in text, words
    assert text.count("expired") == 1
    for commit, selected in ((20, "acknowledged"), (5, "fixed"), (7, "acknowledged")):
        form = page.partition(f'name="commit" value="{commit_of(commit)}"')[2].partition("</form>")[0]
        assert f'<option value="{selected}" selected>' in form
        assert f'id="commit-{commit_of(commit)[:12]}"' in page
    assert page.count("<form ") == 3
    assert "acknowledged by mei" in shown(str(pages.page("index.html")))
    same = msgspec.structs.replace(content.trend, gates=make_gates(commit=commit_of(20)))
    again = SitePages(
        msgspec.structs.replace(content, trend=same),
        lambda _: pytest.fail("no run is needed"),
        "en",
        SiteLinks(triage=True),
    )
    assert str(again.page("open.html")).count(f'id="commit-{commit_of(20)[:12]}"') == 1
    signed_in = str(pages.page("open.html", form_key="5" * 64))
    assert (signed_in.count('type="password"'), page.count('type="password"')) == (0, 3)
    in_files = SitePages(content, lambda _: pytest.fail("no run is needed"), "en", SiteLinks()).page("open.html")
    assert "<form " not in str(in_files)


def test_series__page__points_lead_to_runs_and_the_change_to_both_runs(site: dict[str, str]) -> None:
    address = next(address for address in site if "latency-p50" in address)
    page = site[address]
    assert f'<a href="../{run_address(make_stored(20).id)}" tabindex="-1"' in page
    assert f'href="../{TWO_RUNS}"' in page
    assert "7.0 % slower" in shown(page)
    # From the chart and from the table, which a keyboard reaches.
    assert f'<a href="../{run_address(make_stored(29).id)}">2026-' in page


def test_series__filters__lead_to_the_series_that_differ_in_one_property() -> None:
    series = [
        make_series(make_change()),
        make_series(metric="latency.p99"),
        make_series(shape="short"),
        make_series(workload="decoder"),
        make_series(fingerprint="e" * 64, current=False),
    ]
    content = make_site(make_trend(*series, testbeds=[make_testbed("f" * 64), make_testbed("e" * 64)]))
    page = pages_of(content).page(series_address(series[0], branch=""))
    links = Links(page or "").links
    for other in series[1:]:
        assert f"../{series_address(other, branch='')}" in links
    filters = re.findall(r"<dt>(.*?)</dt>", page or "")
    assert filters == ["workload", "shape", "metric", "testbed"]


def test_series__several_branches__one_page_each() -> None:
    both, release = make_series(make_change()), make_series()
    content = make_site(make_trend(both), branches={"main": [both], "release/2.x": [release]})
    pages = pages_of(content)
    of_release = shown(pages.page(series_address(release, "release/2.x")))
    assert "release/2.x" in of_release
    assert "slower" not in of_release
    assert (
        f"../{series_address(release, 'release/2.x')}" in Links(pages.page(series_address(both, branch="")) or "").links
    )


def test_two_runs__same_testbed__values_level_and_interval_but_no_difference(site: dict[str, str]) -> None:
    text = shown(site[TWO_RUNS])
    assert "They were not measured side by side" in text
    assert f"git checkout {commit_of(20)[:10]} && perfgate check --base {commit_of(19)[:10]}" in text
    assert "39.5 ms 39.5 ms 36.2 ms 35.8 to 36.6 ms above" in text
    assert not NO_CHANGE_WORDS.search(text)
    assert "verdict" not in text.lower()


def test_two_runs__later_value_outside_the_level__named_above() -> None:
    content = points_at(make_site(make_trend(make_series(make_change()))))
    times = iter((1.0, 1.5))
    documents = {make_stored(number).id: main_runs(1, time=stepped(0, next(times)), seed=3)[0] for number in (19, 20)}
    page = SitePages(content, documents.__getitem__, "en", SiteLinks()).page(TWO_RUNS)
    text = shown(page)
    assert "1 number of the later run outside main's level" in text
    assert 'class="state above"' in (page or "")
    assert "of 1 number with an interval, about 0.1 fall outside by chance alone" in text


def test_two_runs__other_testbed__no_level_and_the_fields_that_differ() -> None:
    content = make_site(runs=[make_stored(20, fingerprint="e" * 64), make_stored(19)])
    old, new = make_run("head"), make_run("head")
    new = msgspec.structs.replace(
        new, testbed=msgspec.structs.replace(new.testbed, comparable={**TESTBED, "torch": "2.14.0+cpu"})
    )
    documents = {make_stored(19).id: old, make_stored(20).id: new}
    page = SitePages(content, documents.__getitem__, "en", SiteLinks()).page(TWO_RUNS)
    text = shown(page)
    assert "Two testbeds" in text
    assert "2.14.0+cpu" in text
    assert "inside" not in text


def test_run__page__checklist_device_conditions_and_neighbours(site: dict[str, str]) -> None:
    address = run_address(make_stored(28).id)
    text = shown(site[address])
    for words in (
        "Checklist",
        "highest temperature",
        "2.13.0+cpu",
        "perfgate run",
        "run before",
        "run after",
        "Exact counters",
    ):
        assert words in text, words
    assert f'href="../{compare_address(make_stored(27).id, make_stored(28).id)}"' in site[address]


def test_run__failed_step_and_warning__stand_at_the_top() -> None:
    content = make_site()
    (failed,) = main_runs(1, failing=[0])
    pages = SitePages(content, lambda _: failed, "en", SiteLinks())
    text = shown(pages.page(run_address(make_stored(3).id)))
    assert "the step took longer than 300 s" in text
    assert "the machine was busy: load 7.2 on 2 CPUs" in text
    assert text.index("longer than 300 s") < text.index("Checklist")


def test_gates__each_kind_of_failure__what_became_of_it_and_a_link_to_its_report() -> None:
    records = [
        make_gate(9, verdict="INCONCLUSIVE", testbed="a3"),
        make_gate(8, verdict="FAIL", link="javascript:alert(1)"),
        make_gate(7, verdict="FAIL"),
        make_gate(6, change=5),
        make_gate(5, verdict="FAIL", link="https://forge.example/team/model/actions/runs/5"),
    ]
    acceptances = [make_acceptance(commit=records[2].commit)]
    trend = make_trend(make_series(), gates=gate_history(records, acceptances, triages=()))
    content = make_site(
        trend, gates=records, acceptances=acceptances, accepted_commits=accepted_commits(acceptances, [])
    )
    page = pages_of(content).page("gates.html")
    text = shown(page)
    assert "5 gates: 3 would have failed, 2 of them withdrawn or accepted." in text
    assert f"8 {records[1].commit[:10]} FAIL neither accepted nor withdrawn" in text
    assert f"7 {records[2].commit[:10]} FAIL accepted" in text
    assert "FAIL withdrawn: a later commit of the change does not fail" in text
    assert "a3 INCONCLUSIVE" in text
    assert [link for link in Links(page or "").links if ":" in link] == [records[4].link]
    assert "3 would have failed" in shown(pages_of(content).page("index.html"))


def test_gates__no_verdict_kept__says_how_to_keep_one() -> None:
    pages = pages_of(make_site())
    assert "perfgate publish --record" in shown(pages.page("gates.html"))
    assert "would have failed" not in shown(pages.page("index.html"))


def test_fleet__testbed__last_run_temperature_and_noise_floor(site: dict[str, str]) -> None:
    text = shown(site["fleet.html"])
    for words in ("ffffffffff", "61.0 °C", "±0.9 %", "0 of the newest 1 run"):
        assert words in text, words


def test_fleet__machine_whose_gates_favour_one_side__named() -> None:
    biased = BiasedMachine(machine="runner-b", effect=0.005, interval=(0.004, 0.006), gates=100, sister_gates=200)
    content = make_site(make_trend(make_series(), gates=make_gates(biased=[biased])))
    assert "runner-b favours one side: base against base differs by +0.5 %" in shown(
        pages_of(content).page("fleet.html")
    )


def test_fleet__disturbed_run_and_wrong_clock__named() -> None:
    trend = make_trend(make_series())
    disturbed = changed(trend.runs.health[0], waited=0.2, clock=0.91, queued=754.0)
    ahead = make_stored(29, started_at="2026-05-04T05:00:00+00:00", recorded_at="2026-05-04T02:30:00+00:00")
    content = make_site(changed(trend, health=[disturbed]), runs=[ahead])
    text = shown(pages_of(content).page("fleet.html"))
    assert "a run began 2 h 30 m after it was stored" in text
    assert "before its commit was made" not in text
    assert "disturbed 1 of the newest 1 run" in text
    assert "waited in line 1 of the newest 1 run, 12 m 34 s at most" in text
    assert "91.0 %" in text


def test_fleet__clock_behind_the_commit__named_with_the_newest_run_that_shows_it() -> None:
    trend = make_trend(make_series())
    behind = [
        msgspec.structs.replace(trend.runs.health[0], warnings=[Message("notes.clock-behind", {"seconds": seconds})])
        for seconds in (7200.0, 3600.0)
    ]
    content = make_site(changed(trend, health=[*behind, trend.runs.health[0]]))
    text = shown(pages_of(content).page("fleet.html"))
    assert text.count("the run began 1 h 0 m before its commit was made") == 1


def test_pages__every_link__leads_to_a_page_and_a_place_of_it(site: dict[str, str]) -> None:
    assert broken_links(site) == []
    assert all(is_address(address) for address in site)


def test_pages__served__links_lead_to_runs_that_no_file_has() -> None:
    content = points_at(make_site())
    pages = pages_of(content, SiteLinks(forms=True))
    page = pages.page("runs/index.html") or ""
    assert f'href="../{run_address(make_stored(1).id)}"' in page
    assert pages.page(run_address(make_stored(1).id))
    asked = pages.page("compare/index.html", {"earlier": make_stored(19).id[:8], "later": make_stored(20).id})
    assert "They were not measured side by side" in shown(asked)
    assert "begins with" in shown(pages.page("compare/index.html", {"earlier": "dead", "later": make_stored(20).id}))
    assert "form-action 'self'" in page


@pytest.mark.parametrize("address", ["", "other.html", "runs/0123456789ab.html", "runs/page-9.html", "../index.html",
                                     "series/none-000000000000.html", "compare/dead-beef.html", "runs/%2e.html"])  # fmt: skip
def test_pages__unknown_address__no_page(address: str) -> None:
    assert pages_of(make_site()).page(address) is None


def test_pages__run_that_cannot_be_read__the_error_is_passed_on() -> None:
    def refuse(run_id: str) -> RunDocument:
        raise StoreError(f"run {run_id[:4]} is damaged")

    pages = SitePages(make_site(), refuse, "en", SiteLinks())
    with pytest.raises(StoreError, match="0003 is damaged"):
        pages.page(run_address(make_stored(3).id))
    assert "This run cannot be read" in shown(pages.unreadable(run_address(make_stored(3).id), "it is damaged"))


def test_pages__chinese__every_page_is_chinese() -> None:
    for address, page in every_page(points_at(make_site()), "zh", newest=1).items():
        assert '<html lang="zh">' in page
        assert re.search(r"[一-鿿]{2}", shown(page)), address


def test_pages__many_runs__bounded() -> None:
    runs = [make_stored(number) for number in reversed(range(5000))]
    content = make_site(runs=runs)
    addresses = file_addresses(content, newest=100)
    assert len(addresses) < 300
    assert "runs/page-25.html" in addresses
    assert "runs/page-26.html" not in addresses
    text = shown(pages_of(content, SiteLinks(written=frozenset(addresses))).page("runs/page-25.html"))
    assert "page 25 of 25" in text
