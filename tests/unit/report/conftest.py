"""One browser for all pages that the tests of a process open: to start it takes three seconds of CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import Page, browser_page


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser_page(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def browser(chromium: Page) -> Page:
    """A page as it is after the start of a browser; skips where there is none."""
    chromium.forget()
    return chromium
