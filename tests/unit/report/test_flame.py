"""The flame graph page: what stands in it, what cannot break out of it, and what its script does in a browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path

import msgspec
import pytest

from perfgate.document.flame import (
    FLAME_KINDS,
    FlameCosts,
    FlameMark,
    FlameOmissions,
    FlameResult,
    FlameTree,
    WhyCounts,
    side_by_side,
)
from perfgate.judging.report.render.flame import collapsed_stacks, render_flame, speedscope
from tests.browser import Page
from tests.fakes.documents import make_comparison
from tests.unit.report.sentences import TEMPLATES

HOSTILE = '</script><img src=x onerror="alert(1)">\u202e{{ 7 * 7 }}'
MS = 1_000_000


def make_tree(*nodes: tuple[int, str, str, int], label: str = "short", requests: tuple[str, ...] = ()) -> FlameTree:
    """Make a tree of nodes, each its parent, kind, name and own milliseconds over two calls; requests in turn."""
    texts = [*dict.fromkeys(name for _, _, name, _ in nodes), "model.py:5", "[[8, 8]]"]
    return FlameTree(
        label=label,
        unit="call",
        texts=texts,
        requests=list(requests),
        parent=[parent for parent, *_ in nodes],
        kind=[FLAME_KINDS.index(kind) for _, kind, _, _ in nodes],
        name=[texts.index(name) for _, _, name, _ in nodes],
        place=[-1 if kind in ("thread", "stream") else len(texts) - 2 for _, kind, _, _ in nodes],
        shape=[len(texts) - 1 if kind == "host_op" else -1 for _, kind, _, _ in nodes],
        more_shapes=[0] * len(nodes),
        head=FlameCosts(
            units=2,
            node=list(range(len(nodes))),
            request=[at % len(requests) if requests else -1 for at in range(len(nodes))],
            own=[own * MS for *_, own in nodes],
            count=[0 if kind in ("thread", "stream") else 2 for _, kind, _, _ in nodes],
        ),
    )


BASE = make_tree((-1, "thread", "thread 1", 0), (0, "python", "forward", 4), (1, "host_op", "aten::mm", 12),
                 (1, "host_op", "aten::relu", 4))  # fmt: skip
HEAD = make_tree((-1, "thread", "thread 1", 0), (0, "python", "forward", 4), (1, "host_op", "aten::mm", 12),
                 (1, "host_op", "aten::relu", 4), (1, "host_op", "aten::clone", 20))  # fmt: skip
DEVICE = make_tree((-1, "thread", "thread 1", 0), (0, "host_op", "aten::mm", 2), (-1, "stream", "stream 7", 0),
                   (2, "host_op", "aten::mm", 0), (3, "compute", "sgemm", 30), label="gpu")  # fmt: skip


def embedded(page: str) -> dict:
    (data,) = re.findall(r'<script type="application/octet-stream" id="data">([A-Za-z0-9+/=]*)</script>', page)
    return json.loads(gzip.decompress(base64.b64decode(data)))


def test_render_flame__page__its_policy_allows_nothing_but_its_own_style_and_script() -> None:
    page = render_flame([HEAD], language="en")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    hashes = [
        base64.b64encode(hashlib.sha256(re.findall(pattern, page, re.DOTALL)[0].encode()).digest()).decode()
        for pattern in (r"<style>(.*?)</style>", r"<script>(.*?)</script>")
    ]
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"(src|href)=|https?://", page)


def test_render_flame__same_tree__same_bytes() -> None:
    assert render_flame([side_by_side(BASE, HEAD)], language="en") == render_flame(
        [side_by_side(BASE, HEAD)], language="en"
    )


CALL = make_comparison(
    "latency.low", outcome="regressed", base=0.005, head=0.00561, delta=0.122, interval=(0.1, 0.14), pairs=16
)


def test_render_flame__sides_of_a_check__says_what_the_pairs_say_of_the_call() -> None:
    page = render_flame(
        [msgspec.structs.replace(side_by_side(BASE, HEAD), result=FlameResult(call=CALL))], language="en"
    )
    assert (
        "fast-path latency of <code>encoder/long</code> 5.00 → 5.61 ms: 12.2 % slower (10.0 to 14.0 %) over 16 pairs"
        in page
    )
    assert embedded(page)["paired"] == [True]
    assert embedded(page)["trees"][0]["result"]["by_counts"] is None
    assert "coloured by how often" not in page


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("sign", "The profiled calls point the other way than the pairs."),
        ("outside", "The profile is too noisy to colour frames by time."),
        ("unpaired", "The pairs did not time this call."),
    ],
)
def test_render_flame__traces_that_contradict_the_pairs__why_and_counts_and_no_difference_of_times(
    why: WhyCounts, said: str
) -> None:
    call = None if why == "unpaired" else CALL
    page = render_flame(
        [msgspec.structs.replace(side_by_side(BASE, HEAD), result=FlameResult(call=call, by_counts=why))], language="en"
    )
    assert f"{said} So the frames are coloured by how often they ran, and no difference of times is shown." in page


def test_collapsed_stacks__one_and_two_sides__stack_and_nanoseconds_of_a_call() -> None:
    assert list(collapsed_stacks(BASE)) == [
        "thread 1;forward 2000000", "thread 1;forward;aten::mm 6000000", "thread 1;forward;aten::relu 2000000"
    ]  # fmt: skip
    assert list(collapsed_stacks(side_by_side(BASE, HEAD)))[-1] == "thread 1;forward;aten::clone 0 10000000"


def test_collapsed_stacks__separator_in_a_name__does_not_split_it() -> None:
    tree = make_tree((-1, "thread", "t", 0), (0, "host_op", "a;b\nc 7", 2))
    assert len(list(collapsed_stacks(tree))) == 1
    assert next(collapsed_stacks(tree)).count(";") == 1


def test_speedscope__device__a_profile_for_each_thread_and_stream() -> None:
    document = json.loads(speedscope([DEVICE]))
    host, stream = document["profiles"]
    assert (host["name"], host["samples"], host["weights"]) == ("gpu · thread 1", [[0]], [MS])
    assert (stream["name"], stream["samples"], stream["endValue"]) == ("gpu · stream 7", [[0, 1]], 15 * MS)
    assert document["shared"]["frames"][1] == {"name": "sgemm", "file": "model.py", "line": 5}


def test_render_flame__chinese__every_sentence_of_page_and_script_is() -> None:
    page = render_flame([side_by_side(BASE, HEAD)], "zh")
    content = embedded(page)
    assert '<html lang="zh">' in page
    assert [english for english, words in content["sentences"].items() if words == english] == []
    assert set(content["kind_words"]) >= {"线程", "Python 函数", "拷贝"}
    script = (TEMPLATES / "flame" / "script.js").read_text(encoding="utf-8")
    assert set(re.findall(r'word\("([^"]+)"', script)) <= content["sentences"].keys()


def said(browser: Page, where: str = "said") -> str:
    return browser.ask(f"document.getElementById('{where}').textContent")


def choose(browser: Page, select: str, value: str) -> None:
    browser.ask(f"(() => {{ const one = document.getElementById('{select}'); one.value = '{value}'; "
                "one.dispatchEvent(new Event('change')); one.dispatchEvent(new Event('input')); })()")  # fmt: skip


def opened(browser: Page, folder: Path, *trees: FlameTree) -> Page:
    file = folder / "flame.html"
    file.write_text(render_flame(trees, language="en"))
    browser.errors.clear()
    browser.requests.clear()
    browser.open(file)
    return browser


def test_page__keyboard__moves_zooms_and_says_both_sides(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path, side_by_side(BASE, HEAD))
    browser.ask("document.getElementById('canvas').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        browser.key(key)

    assert said(browser, "crumbs") == "allthread 1forwardaten::clone"
    assert said(browser).startswith(
        "aten::clone; model.py:5; total base 0 s (0.00 % of the total), head 10 ms (50.0 % of the total), "
        "difference +10 ms; self base 0 s"
    )
    browser.key("Backspace")
    assert said(browser, "crumbs") == "allthread 1forward"
    browser.key("Escape")
    assert said(browser, "crumbs") == "all"
    assert browser.errors == []
    assert len(browser.requests) == 1


def test_page__chinese__script_speaks_it(browser: Page, tmp_path: Path) -> None:
    file = tmp_path / "flame.html"
    file.write_text(render_flame([side_by_side(BASE, HEAD)], "zh"), encoding="utf-8")
    browser.errors.clear()
    browser.open(file)
    choose(browser, "search", "CLONE")
    assert said(browser, "matched") == "1 个栈帧匹配：base 0 s，占总量的 0.00 %; head 10 ms，占总量的 50.0 %; +10 ms"
    assert said(browser, "legend").startswith("红色：head 耗时更长。蓝色：head 耗时更短。")
    browser.ask("document.getElementById('differs').click()")
    assert said(browser, "legend").startswith("一次调用的耗时；每种类型一种颜色")
    assert browser.errors == []


def test_page__mouse__click_zooms_and_reset_returns(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path, side_by_side(BASE, HEAD))
    left, top, width = browser.ask("(() => { const box = document.getElementById('canvas').getBoundingClientRect(); "
                                   "return [box.left, box.top, box.width]; })()")  # fmt: skip
    browser.click(left + width * 0.2, top + 3 * 18 + 9)
    assert said(browser, "crumbs") == "allthread 1forwardaten::mm"
    assert said(browser, "tip").startswith("aten::mmoperatormodel.py:5[[8, 8]]basehead")
    browser.ask("document.getElementById('reset').click()")
    assert said(browser, "crumbs") == "all"


@pytest.mark.parametrize(
    ("wanted", "pattern", "expected"),
    [
        ("CLONE", False, "1 frames match: base 0 s, 0.00 % of the total; head 10 ms, 50.0 % of the total; +10 ms"),
        (
            "aten::(mm|relu)$",
            True,
            "2 frames match: base 8 ms, 80.0 % of the total; head 8 ms, 40.0 % of the total; 0 s",
        ),
        (
            "model.py",
            False,
            "4 frames match: base 10 ms, 100.0 % of the total; head 20 ms, 100.0 % of the total; +10 ms",
        ),
        ("[8, 8]", False, "3 frames match: base 8 ms, 80.0 % of the total; head 18 ms, 90.0 % of the total; +10 ms"),
        ("(", True, "This is not a regular expression."),
    ],
)
def test_page__search__share_of_the_time_on_both_sides(
    browser: Page, tmp_path: Path, wanted: str, pattern: bool, expected: str
) -> None:
    opened(browser, tmp_path, side_by_side(BASE, HEAD))
    browser.ask(f"document.getElementById('pattern').checked = {str(pattern).lower()}")
    choose(browser, "search", wanted)
    assert said(browser, "matched") == expected


def test_page__tracks_requests_and_recordings__chosen(browser: Page, tmp_path: Path) -> None:
    served = make_tree((-1, "thread", "thread 1", 0), (0, "host_op", "aten::mm", 6), (0, "host_op", "aten::relu", 2),
                       label="served", requests=("17", "18"))  # fmt: skip
    opened(browser, tmp_path, DEVICE, served)
    choose(browser, "tracks", "streams")
    choose(browser, "search", "sgemm")
    assert said(browser, "matched") == "1 frames match: 15 ms, 100.0 % of the total"
    choose(browser, "search", "")
    choose(browser, "trees", "1")
    choose(browser, "requests", "1")
    choose(browser, "search", "aten")
    assert said(browser, "matched") == "2 frames match: 3 ms, 100.0 % of the total"
    assert browser.errors == []


def test_page__frames_that_differ_by_counts__no_difference_of_times_is_said(browser: Page, tmp_path: Path) -> None:
    tree = msgspec.structs.replace(side_by_side(BASE, HEAD), result=FlameResult(call=CALL, by_counts="sign"))
    opened(browser, tmp_path, tree)
    assert said(browser, "legend").startswith("Red: head runs it more often.")
    browser.ask("document.getElementById('canvas').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        browser.key(key)

    assert said(browser).startswith(
        "aten::clone; model.py:5; total base 0 s (0.00 % of the total), head 10 ms (50.0 % of the total); "
        "self base 0 s, head 10 ms; runs base 0, head 1"
    )
    choose(browser, "search", "clone")
    assert said(browser, "matched").endswith("head 10 ms, 50.0 % of the total")
    assert browser.errors == []


def test_page__operator_that_the_pairs_decided_while_counts_colour__is_coloured_by_its_time_and_named(
    browser: Page, tmp_path: Path
) -> None:
    tree = side_by_side(BASE, HEAD)
    marks = [FlameMark(name=tree.texts.index("aten::relu"), named=True, seconds=0.00206)]
    result = FlameResult(call=CALL, by_counts="outside", marks=marks)
    opened(browser, tmp_path, msgspec.structs.replace(tree, result=result))
    assert said(browser, "legend").endswith(
        "Operators with times decided by the pairs are coloured by these, and so are their numbers. "
        "A dashed outline marks an operator that the decision names as a cause."
    )
    choose(browser, "search", "relu")
    choose(browser, "search", "")
    browser.ask("document.getElementById('canvas').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        browser.key(key)

    assert "all aten::relu together +2.06 ms a call, decided by the pairs; named as a cause by the decision" in said(
        browser
    )
    page = (tmp_path / "flame.html").read_text()
    assert "coloured by how often they ran, except operators whose own times the pairs decided." in page
    assert browser.errors == []


def test_page__hostile_names__are_text(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path, make_tree((-1, "thread", HOSTILE, 0), (0, "host_op", HOSTILE, 3), requests=(HOSTILE,)))
    browser.ask("document.getElementById('canvas').focus()")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        browser.key(key)
    assert "<img src=x" in said(browser, "crumbs")
    assert browser.ask("document.querySelectorAll('img').length") == 0
    assert browser.errors == []


NESTED = make_tree(
    (-1, "thread", "thread 1", 0),
    (0, "python", "layers/attention.py: forward", 1),
    (0, "python", "model.py: forward", 1),
    (1, "host_op", "aten::mm", 6),
    (2, "host_op", "aten::mm", 2),
    label="one",
)


def focus(browser: Page, *keys: str) -> None:
    browser.ask("document.getElementById('canvas').focus()")
    for key in keys:
        browser.key(key)


def test_page__name_of_a_python_function__stands_before_its_file(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path, NESTED)
    focus(browser, "ArrowDown", "ArrowDown")
    assert said(browser).startswith("forward (layers/attention.py);")


def test_page__inverted__own_time_first_and_its_callers_below(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path, NESTED)
    choose(browser, "views", "inverted")
    focus(browser, "ArrowDown", "ArrowDown")
    assert said(browser).startswith("aten::mm; model.py:5; total 4 ms (80.0 % of the total); self 0 s; runs 2")
    focus(browser, "ArrowDown")
    assert said(browser).startswith("forward (layers/attention.py); model.py:5; total 3 ms (60.0 % of the total)")
    choose(browser, "views", "all")
    focus(browser, "ArrowDown", "ArrowDown")
    assert said(browser).startswith("forward (layers/attention.py); model.py:5; total 3.5 ms")
    assert browser.errors == []


def test_page__callers_and_callees_of_a_frame__all_its_places_together(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path, NESTED)
    focus(browser, "ArrowDown", "ArrowDown", "ArrowDown")
    choose(browser, "views", "callers")
    assert said(browser, "crumbs") == "all"
    focus(browser, "ArrowDown")
    assert said(browser).startswith("callers of aten::mm; total 4 ms")
    focus(browser, "ArrowDown", "ArrowDown", "ArrowRight")
    assert said(browser).startswith("forward (model.py); model.py:5; total 1 ms (25.0 % of the total)")
    focus(browser, "Escape")
    choose(browser, "views", "callees")
    focus(browser, "ArrowDown", "ArrowDown")
    assert said(browser).startswith("aten::mm; model.py:5; total 4 ms (100.0 % of the total); self 4 ms; runs 2")
    assert browser.errors == []


def test_page__share_of_the_total__both_sides_are_made_alike(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path, side_by_side(BASE, HEAD))
    browser.ask("document.getElementById('shares').click()")
    focus(browser, "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight")
    assert "head 50 % of the total, difference +50 % of the total" in said(browser)
    assert browser.errors == []


def test_page__wheel_with_control__one_level_in_and_out(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path, NESTED)
    box = "document.getElementById('canvas').getBoundingClientRect()"
    left, top, width = browser.ask(f"[{box}.left, {box}.top, {box}.width]")

    def turn(delta: int, modifiers: int) -> None:
        browser.call(
            "Input.dispatchMouseEvent", type="mouseWheel", x=left + width * 0.2, y=top + 3 * 18 + 9, deltaX=0,
            deltaY=delta, modifiers=modifiers,
        )  # fmt: skip

    turn(-100, 0)
    assert said(browser, "crumbs") == "all"
    turn(-100, 2)
    turn(-100, 2)
    assert said(browser, "crumbs") == "allthread 1forward (layers/attention.py)"
    turn(100, 2)
    assert said(browser, "crumbs") == "allthread 1"


def test_page__its_address__shows_the_same_view_again(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path, NESTED)
    focus(browser, "ArrowDown", "ArrowDown", "ArrowDown")
    choose(browser, "views", "callers")
    choose(browser, "search", "model")
    focus(browser, "ArrowDown", "Enter")
    before = [said(browser, where) for where in ("said", "crumbs", "matched")]
    address = browser.ask("location.href")
    browser.ask("location.hash = ''")
    browser.ask("new Promise((done) => setTimeout(done, 50))")
    assert browser.ask("document.getElementById('views').value") == "all"
    opened(browser, tmp_path, NESTED)
    browser.ask(f"location.hash = {json.dumps(address.partition('#')[2])}")
    browser.ask("new Promise((done) => setTimeout(done, 50))")
    assert browser.ask("document.getElementById('views').value") == "callers"
    assert [said(browser, where) for where in ("said", "crumbs", "matched")] == before
    assert browser.errors == []


def test_page__frames_that_were_folded_or_cut__found_by_search_and_said(browser: Page, tmp_path: Path) -> None:
    omitted = FlameOmissions(folded=3, names=["aten::tiny", "tiny.py: run"], cut=7)
    opened(browser, tmp_path, msgspec.structs.replace(NESTED, omitted=omitted))
    choose(browser, "search", "tiny")
    assert said(browser, "matched").endswith("; and 2 names among the frames too small to keep")
    assert "7 frames lay deeper than 256 levels" in browser.ask("document.body.textContent")


def test_page__order__most_time_first_or_as_they_began(browser: Page, tmp_path: Path) -> None:
    late = make_tree(
        (-1, "thread", "thread 1", 0), (0, "host_op", "aten::first", 1), (0, "host_op", "aten::second", 6), label="o"
    )
    opened(browser, tmp_path, late)
    focus(browser, "ArrowDown", "ArrowDown")
    assert said(browser).startswith("aten::second")
    choose(browser, "orders", "began")
    focus(browser, "Escape", "ArrowDown", "ArrowDown")
    assert said(browser).startswith("aten::first")
