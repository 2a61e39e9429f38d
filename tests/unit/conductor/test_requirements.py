"""What counts as another set of dependencies, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.conductor.workers.virtualenv import differing_files, read_requirements
from perfgate.config import REQUIREMENTS

PYPROJECT = '[project]\nname = "x"\ndependencies = ["torch>=2"]\n[tool.ruff]\nline-length = 100\n'


@pytest.mark.parametrize(
    ("name", "before", "after", "differs"),
    [
        ("requirements.txt", "torch==2.1\n", "torch==2.2\n", True),
        ("requirements.txt", "# all\ntorch==2.1\n", "torch==2.1   \n\n# of it\n", False),
        ("requirements.txt", "x @ https://host/x.zip#sha=1\n", "x @ https://host/x.zip#sha=2\n", True),
        ("requirements-dev.txt", "ruff\n", None, True),
        ("requirements/gpu.txt", None, "torch\n", True),
        ("uv.lock", "version = 1\n", "version = 2\n", True),
        ("pyproject.toml", PYPROJECT, PYPROJECT.replace("100", "120"), False),
        ("pyproject.toml", PYPROJECT, PYPROJECT.replace("torch>=2", "torch>=2.3"), True),
        ("pyproject.toml", "[tool.ruff]\n", None, False),
        ("pyproject.toml", "not toml at all = [", "not toml either = [", True),
        ("setup.cfg", "a", "b", False),
    ],
)
def test_read_requirements__file_on_both_sides__differs_by_what_it_says(
    tmp_path: Path, name: str, before: str, after: str, differs: bool
) -> None:
    for side, text in (("base", before), ("head", after)):
        (tmp_path / side / name).parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            (tmp_path / side / name).write_text(text)
    sides = [read_requirements(tmp_path / side, REQUIREMENTS) for side in ("base", "head")]
    assert differing_files(*sides) == ([name] if differs else [])


def test_read_requirements__own_patterns__files_in_folders_too(tmp_path: Path) -> None:
    (tmp_path / "vendored" / "a").mkdir(parents=True)
    (tmp_path / "vendored" / "a" / "code.py").write_text("x = 1\n")
    assert list(read_requirements(tmp_path, ["vendored/**/*"])) == ["vendored/a/code.py"]
