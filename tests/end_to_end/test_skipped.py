"""A change that the base's path filter finds nothing in is not measured, and that is a decision like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Clone, Perfgate


def test_check__only_documentation_changed__skipped_once_a_trial_shows_that_nothing_reads_it(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    (clone.root / "docs").mkdir()
    (clone.root / "docs" / "a.md").write_text("an example")
    head = clone.commit("words")
    out = tmp_path / "out"
    done = perfgate("check", "--base", "main", "--out", str(out), cwd=clone.root)
    assert done.returncode == 0, done.stderr
    assert "SKIPPED – not measured: no workload reads the changed text (1 file)" in done.stdout
    decision = json.loads((out / "decision.json").read_text())
    assert decision["verdict"] == "SKIPPED"
    assert decision["measured"]["coverage"]["files"] == ["docs/a.md"]
    assert decision["measured"]["coverage"]["functions"] == []
    assert decision["sides"]["head"]["commit"] == head
    assert decision["sides"]["base"]["commit"] == clone.git("rev-parse", "main")
    run = json.loads((out / "head" / "run.json").read_text())
    assert run["workloads"] == []
    assert "testbed identical" not in (out / "comment.md").read_text()


@pytest.mark.slow
def test_check__function_that_no_workload_runs__skipped_or_as_perfgate_toml_says(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    (clone.root / "decoder.py").write_text("def decode(x):\n    return x\n")
    (clone.root / "tests").mkdir(exist_ok=True)
    test = "from decoder import decode\n\n\ndef test_decode():\n    assert decode(1) == 1\n"
    (clone.root / "tests" / "test_decoder.py").write_text(test)
    clone.git("add", "--all")
    clone.commit("a decoder")
    clone.git("branch", "-f", "main")
    (clone.root / "decoder.py").write_text("def decode(x):\n    return x + 0\n")
    clone.commit("a slower decoder")
    out = tmp_path / "out"
    done = perfgate("check", "--base", "main", "--out", str(out), cwd=clone.root)
    assert done.returncode == 0, done.stderr
    assert "SKIPPED – not measured: no workload runs the changed code" in done.stdout
    comment = (out / "comment.md").read_text()
    assert "Not measured: `decode` (`decoder.py:2`). Nearest to it: `tests/test_decoder.py::test_decode`." in comment
    again = perfgate("gate", str(out), cwd=clone.root)
    assert "SKIPPED – not measured: no workload runs the changed code" in again.stdout

    # The base's setting decides.
    config = clone.root / "perfgate.toml"
    before = config.read_text()
    for setting, verdict, code in (("warn", "WARN", 0), ("fail", "FAIL", 1)):
        clone.git("switch", "-q", "main")
        config.write_text(before.replace("[gate]\n", f'[gate]\nunmeasured = "{setting}"\n'))
        clone.git("commit", "-qam", "measure all code")
        clone.git("switch", "-q", "-")
        clone.git("rebase", "-q", "main")
        done = perfgate("check", "--base", "main", "--out", str(out), cwd=clone.root)
        assert done.returncode == code, done.stderr
        assert f"{verdict} – not measured: no workload runs the changed code" in done.stdout
        assert "add a workload or a shape that runs the changed code" in done.stdout
        decision = json.loads((out / "decision.json").read_text())
        assert decision["verdict"] == verdict
        assert [function["function"] for function in decision["measured"]["coverage"]["functions"]] == ["decode"]
        title = f"perfgate: {verdict} – not measured: no workload runs the changed code"
        comment = (out / "comment.md").read_text()
        assert title in comment
        assert "- **To do:** add a workload or a shape that runs the changed code." in comment
        assert perfgate("gate", str(out), cwd=clone.root).returncode == code


@pytest.mark.slow
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
    assert "SKIPPED – only comments or formatting changed (1 file)" in done.stdout


READS = (
    "def build():\n    import pathlib\n    words = len((pathlib.Path(__file__).parent / {path}).read_text().split())\n"
)


def _reads(clone: Clone, file: str, path: str = "") -> None:
    """Make the model of main read a text, and work longer with a longer one; ``path`` is how its code writes that."""
    (clone.root / file).parent.mkdir(exist_ok=True)
    (clone.root / file).write_text("Be brief.\n")
    clone.commit("the model reads a text", model=("def build():\n", READS.format(path=path or repr(file))))
    clone.git("branch", "-f", "main")


@pytest.mark.slow
def test_check__prompt_of_the_model_changed__measured(perfgate: Perfgate, clone: Clone, tmp_path: Path) -> None:
    _reads(clone, "prompts/system.md")
    (clone.root / "prompts" / "system.md").write_text("Be brief.\n" * 60)
    clone.commit("more words")
    done = perfgate("check", "--base", "main", "--out", str(tmp_path / "out"), "--steps", "4", cwd=clone.root)
    assert "SKIPPED" not in done.stdout
    run = json.loads((tmp_path / "out" / "base" / "run.json").read_text())
    assert {"prompts/system.md", "model.py"} <= set(run["source"]["files_read"])


@pytest.mark.slow
def test_check__documentation_that_main_was_seen_to_read__measured_without_the_clone_that_saw_it(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    _reads(clone, "docs/system.md", "'/'.join(['do' + 'cs', 'system' + '.md'])")  # only the record tells it
    (clone.root / "docs" / "guide.txt").write_text("read by nobody")
    clone.git("add", "--all")
    clone.commit("a guide")
    clone.git("branch", "-f", "main")
    measured = perfgate("run", "--quick", "--steps", "4", "--out", str(tmp_path / "main"), cwd=clone.root)
    assert measured.returncode == 0, measured.stderr
    kept = perfgate("baseline", "record", "--run", str(tmp_path / "main" / "run.json"), cwd=clone.root)
    assert kept.returncode == 0, kept.stderr
    run = json.loads((tmp_path / "main" / "run.json").read_text())
    assert "docs/system.md" in run["source"]["files_read"]
    assert "docs/guide.txt" not in run["source"]["files_read"]
    (clone.root / ".git" / "perfgate-reads.json").unlink()

    (clone.root / "docs" / "guide.txt").write_text("other words")
    clone.commit("words that nobody reads")
    arguments = ("check", "--base", "main", "--out", str(tmp_path / "out"), "--steps", "4")
    assert "SKIPPED – only documentation changed (1 file)" in perfgate(*arguments, cwd=clone.root).stdout
    (clone.root / "docs" / "system.md").write_text("Be brief.\n" * 60)
    clone.commit("words that the model reads")
    assert "SKIPPED" not in perfgate(*arguments, cwd=clone.root).stdout
    # From now on the clone knows it by itself.
    (tmp_path / "store.sqlite").unlink()
    assert "SKIPPED" not in perfgate(*arguments, cwd=clone.root).stdout


@pytest.mark.slow
def test_check__documentation_that_the_code_names__measured_in_a_clone_that_never_measured(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    _reads(clone, "docs/system.md")
    (clone.root / "docs" / "system.md").write_text("Be brief.\n" * 60)
    clone.commit("more words")
    done = perfgate("check", "--base", "main", "--out", str(tmp_path / "out"), "--steps", "4", cwd=clone.root)
    assert "SKIPPED" not in done.stdout
