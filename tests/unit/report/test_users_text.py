"""What the user's code says is shown as it is, in every language: it is matched against no sentence of ours."""

from __future__ import annotations

import html

import pytest

from perfgate.document.message import quote
from perfgate.judging.report.render.html import render_html
from perfgate.judging.report.render.junit import junit
from tests.fakes.documents import make_decision, make_failed_check, make_run

SAID = "got 3 rows and expected 4 more"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_check__assertion_that_reads_like_a_sentence_of_ours__verbatim(language: str) -> None:
    wrong = make_failed_check(quote(SAID))
    decision = make_decision("FAIL", comparisons=[wrong])
    spoken = "zh" if language == "zh" else "en"

    assert SAID in html.unescape(junit(decision, spoken))
    assert SAID in html.unescape(render_html(decision, None, make_run("head"), spoken))
