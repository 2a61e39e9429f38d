"""A link in a report leads to a web page or is no link: an address may come from a job that the change can write."""

from __future__ import annotations

import pytest

from perfgate.judging.report.text.templates import environment
from tests.each import each

PAGE = "https://forge.example/jobs/7"


def linked(medium: str, url: str) -> str:
    return environment(medium).from_string("{{ url|link('the job') }}").render(url=url)  # type: ignore[arg-type]


@pytest.mark.parametrize("medium", ["html", "markdown", "plain"])
@each(
    "url",
    [
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        " javascript:alert(1)",
        "data:text/html,<script>",
        "file:///etc/passwd",
    ],
)
def test_link__no_web_page__words_alone(medium: str, url: str) -> None:
    assert linked(medium, url) == "the job"


@pytest.mark.parametrize(
    ("medium", "expected"),
    [
        ("html", f'<a href="{PAGE}">the job</a>'),
        ("markdown", f"[the job]({PAGE})"),
        ("plain", f"the job ({PAGE})"),
    ],
)
def test_link__web_page__a_link(medium: str, expected: str) -> None:
    assert linked(medium, PAGE) == expected


def test_link__address_that_ends_its_attribute__escaped() -> None:
    assert (
        '"' not in linked("html", 'https://forge.example/"onmouseover="x').removeprefix('<a href="').partition('">')[0]
    )
