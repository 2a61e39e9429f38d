from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.kept import WRITE, compare


def test_compare__text_is_written__the_test_fails_until_it_is_run_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WRITE, "1")
    with pytest.raises(pytest.fail.Exception, match="is written anew"):
        compare("new", tmp_path / "kept.md")
    monkeypatch.delenv(WRITE)
    compare("new", tmp_path / "kept.md")
    with pytest.raises(AssertionError):
        compare("newer", tmp_path / "kept.md")
