"""A change that the base's path filter finds nothing in is not measured, and that is a decision like any other."""

from __future__ import annotations

import json
from pathlib import Path

from tests.end_to_end.conftest import Clone, Perfgate
from tests.fakes.wording import worded


def test_check__only_prose_changed__skipped_with_the_rule_in_seconds_and_in_both_languages(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    (clone.root / "docs").mkdir()
    (clone.root / "docs" / "a.py").write_text("an example")
    head = clone.commit("words")
    out = tmp_path / "out"
    (out / "head").mkdir(parents=True)
    (out / "head" / "run.json").write_text("of an earlier job")
    done = perfgate("check", "--base", "main", "--out", str(out), cwd=clone.root)
    assert done.returncode == 0, done.stderr
    assert "SKIPPED – nothing relevant changed: 1 file, by the rule /docs/**" in done.stdout
    decision = json.loads((out / "decision.json").read_text())
    assert decision["verdict"] == "SKIPPED"
    assert list(map(worded, decision["reasons"])) == ["nothing relevant changed: 1 file, by the rule /docs/**"]
    assert decision["head"]["commit"] == head
    assert decision["base"]["commit"] == clone.git("rev-parse", "main")
    assert sorted(path.name for path in out.rglob("*") if path.is_file()) == ["comment.md", "decision.json"]
    comment = (out / "comment.md").read_text()
    assert "## perfgate: SKIPPED – nothing relevant changed: 1 file, by the rule `/docs/**`" in comment
    assert "testbed identical" not in comment

    again = perfgate("check", "--base", "main", "--out", str(out), "--lang", "zh", cwd=clone.root)
    assert again.returncode == 0
    assert "SKIPPED（已跳过） – 没有相关改动：1 个文件，依据规则 `/docs/**`" in (out / "comment.md").read_text()
    assert not (clone.root / ".git" / "perfgate-worktrees").exists()


def test_check__change_ignores_its_own_code__the_bases_filter_decides(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    config = clone.root / "perfgate.toml"
    config.write_text(config.read_text() + '\n[paths]\nignore = ["*"]\n')
    clone.commit("look away", model=("def build():", "def build():\n    raise RuntimeError('measured')"))
    done = perfgate("check", "--base", "main", "--out", str(tmp_path / "out"), "--steps", "4", cwd=clone.root)
    assert done.returncode == 2
    assert "RuntimeError: measured" in done.stderr


def test_check__only_docstrings_and_comments_changed__skipped_by_that_rule(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    clone.commit("words", model=("def build():", "# builds\ndef build():"))
    done = perfgate("check", "--base", "main", "--out", str(tmp_path / "out"), cwd=clone.root)
    assert done.returncode == 0, done.stderr
    assert "SKIPPED – nothing relevant changed: 1 file, by the rule same syntax tree" in done.stdout
