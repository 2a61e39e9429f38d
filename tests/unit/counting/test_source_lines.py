"""Which files are the project's: those of its checkout, named from the project's folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import torch

import perfgate
from perfgate.measuring.counting.tally import SourceLines


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in a folder of a clone."""
    (tmp_path / "clone" / ".git").mkdir(parents=True)
    root = tmp_path / "clone" / "services" / "ranker"
    root.mkdir(parents=True)
    return root


def test_at__project_in_a_folder_of_its_clone__code_beside_it_is_the_projects_too(project: Path) -> None:
    lines = SourceLines(project)
    assert lines.at(str(project / "net" / "model.py"), 3) == "net/model.py:3"
    assert lines.at(str(project.parents[1] / "libs" / "common.py"), 4) == "../../libs/common.py:4"


def test_at__code_of_others__none(project: Path) -> None:
    lines = SourceLines(project)
    installed = project.parents[1] / ".venv" / "lib" / "site-packages" / "a.py"
    for file in (installed, project.parents[2] / "a.py", Path(torch.__file__), Path(perfgate.__file__)):
        assert lines.at(str(file), 1) is None
    assert lines.at("<string>", 1) is None


def test_at__python_installed_below_the_clone__its_library_is_not_the_projects() -> None:
    lines = SourceLines(Path(os.__file__).parents[1])
    assert lines.at(tempfile.__file__, 1) is None


def test_at__project_outside_git__nothing_above_it(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    lines = SourceLines(tmp_path / "project")
    assert lines.at(str(tmp_path / "project" / "a.py"), 1) == "a.py:1"
    assert lines.at(str(tmp_path / "b.py"), 1) is None
