"""Comment and report in the language that was asked for; the documents are the same in every one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from perfgate.cli.commands.gate import COMMAND as GATE
from perfgate.document.files import write_document
from tests.fakes.documents import make_run


@pytest.fixture
def check_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PERFGATE_LANG", raising=False)
    monkeypatch.chdir(tmp_path)
    for side, slowdown in (("base", 0.0), ("head", 0.07)):
        (tmp_path / "check" / side).mkdir(parents=True)
        write_document(tmp_path / "check" / side / "run.json", make_run(side, slowdown=slowdown))
    return tmp_path / "check"


def judged(folder: Path, out: str, *options: str) -> Path:
    written = folder.parent / out
    sides = ["--base", str(folder / "base"), "--head", str(folder / "head")]
    result = CliRunner().invoke(GATE, [*sides, "--out", str(written), *options])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return written


@pytest.mark.parametrize(
    ("options", "environment", "language"),
    [((), None, "en"), (("--lang", "zh"), None, "zh"), ((), "zh", "zh"), (("--lang", "en"), "zh", "en")],
)
def test_gate__language__comment_and_page_speak_it(
    check_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    environment: str | None,
    language: str,
) -> None:
    if environment:
        monkeypatch.setenv("PERFGATE_LANG", environment)
    out = judged(check_folder, "out", *options)
    assert ("检查清单：" in (out / "comment.md").read_text(encoding="utf-8")) == (language == "zh")
    assert f'<html lang="{language}">' in (out / "report.html").read_text(encoding="utf-8")


def test_gate__both_languages__the_same_decision_document(check_folder: Path) -> None:
    english, chinese = judged(check_folder, "en"), judged(check_folder, "zh", "--lang", "zh")
    assert (english / "decision.json").read_bytes() == (chinese / "decision.json").read_bytes()
