"""The parts of examples/minilm/gate.py that need neither the model nor a measurement."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "minilm"


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    yield load("example_minilm_gate", EXAMPLE / "gate.py")
    del sys.modules["example_minilm_gate"]


@pytest.fixture
def repository(example: ModuleType, tmp_path: Path) -> Path:
    root = tmp_path / "minilm"
    example.make_repository(root)
    return root


def git(root, *arguments):
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.split("\n")[
        :-1
    ]


def seen(example, name, verdict, *, exit_code, regressed=()):
    change = next(change for change in example.CHANGES if change.name == name)
    return example.Seen(change, verdict, frozenset(regressed), exit_code, 1.0, Path("out"))


def test_make_repository__project_files__one_clean_commit_on_main(example: ModuleType, repository: Path) -> None:
    assert git(repository, "ls-tree", "-r", "--name-only", "main") == sorted(example.PROJECT)
    assert git(repository, "rev-list", "--all", "--count") == ["1"]
    assert git(repository, "status", "--porcelain") == []


def test_make_branch__every_change__one_commit_with_its_subject(example: ModuleType, repository: Path) -> None:
    for change in example.CHANGES:
        example.make_branch(repository, change)
        assert git(repository, "log", "--format=%s", "main..HEAD") == [change.subject]
        assert git(repository, "status", "--porcelain") == []


def test_make_branch__identical__same_tree_as_main(example: ModuleType, repository: Path) -> None:
    example.make_branch(repository, example.CHANGES[0])
    assert git(repository, "rev-parse", "HEAD^{tree}") == git(repository, "rev-parse", "main^{tree}")


def test_changes__every_patch_file__has_an_expected_verdict(example: ModuleType) -> None:
    patches = {path.stem for path in (EXAMPLE / "changes").glob("*.patch")}
    assert patches == {change.name for change in example.CHANGES if change.patch}


def test_missing_requirements__absent_or_other_version__named(example: ModuleType) -> None:
    text = "# a comment\npytest\npytest==0.0.1  # another one\n\nno-such-distribution-of-ours==1.0\n"
    assert example.missing_requirements(text) == ["pytest==0.0.1", "no-such-distribution-of-ours==1.0"]


def test_missing_requirements__a_range__says_what_it_must_read(example: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"'pytest>=7' must read NAME or NAME==VERSION"):
        example.missing_requirements("pytest>=7")


def test_requirements__the_file__never_names_torch(example: ModuleType) -> None:
    lines = example.REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if line.startswith("torch")]


def test_main__unknown_change__exit_2_and_the_choices(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        example.main(["egaer-attention"])
    assert stopped.value.code == 2
    assert "there is no change 'egaer-attention'; choose from identical, refactor-only" in capsys.readouterr().err


def test_as_expected__verdict_exit_code_and_reason_agree__true(example: ModuleType) -> None:
    assert seen(example, "identical", "PASS", exit_code=0).as_expected
    assert seen(example, "dtype-round-trip", "FAIL", exit_code=1, regressed=["counters.copies"]).as_expected


def test_as_expected__one_of_them_differs__false(example: ModuleType) -> None:
    assert not seen(example, "identical", "FAIL", exit_code=1, regressed=["latency.low"]).as_expected
    assert not seen(example, "identical", None, exit_code=4).as_expected
    assert not seen(example, "dtype-round-trip", "FAIL", exit_code=1, regressed=["latency.low"]).as_expected
    assert not seen(example, "dtype-round-trip", "FAIL", exit_code=0, regressed=["counters.copies"]).as_expected


def test_print_summary__inconclusive__says_to_run_again(
    example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    example.print_summary([seen(example, "identical", "INCONCLUSIVE", exit_code=3)])
    assert capsys.readouterr().out.splitlines()[-1] == (
        "identical             PASS      INCONCLUSIVE         1"
        "   <- this machine is too busy to tell; run it again when it is quieter"
    )


def test_read_decision__a_document__verdict_and_what_regressed(example: ModuleType, tmp_path: Path) -> None:
    rows = [{"metric": "counters.copies", "outcome": "regressed"}, {"metric": "latency.low", "outcome": "unchanged"}]
    path = tmp_path / "decision.json"
    path.write_text(json.dumps({"verdict": "FAIL", "comparisons": rows}), encoding="utf-8")
    assert example.read_decision(path) == ("FAIL", frozenset({"counters.copies"}))
    assert example.read_decision(tmp_path / "none.json") == (None, frozenset())


def test_sentences__this_python__enough_for_the_largest_batch() -> None:
    text = load("example_minilm_sentences", EXAMPLE / "sentences.py")
    del sys.modules["example_minilm_sentences"]
    short, long = text.sentences(2, 5), text.sentences(12, 24)
    assert min(len(short), len(long)) >= 64
    assert long == sorted(set(long))
    assert all(2 <= len(sentence.split()) <= 5 and sentence.endswith(".") for sentence in short)
