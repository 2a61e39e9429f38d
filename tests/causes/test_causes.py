"""Each planted cause is what the comment names first, with its line; a gate a plant, so they run with ``make test-causes``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.causes.comments import first_cause, title, verdict
from tests.causes.plants import PLANTS, Plant
from tests.end_to_end.conftest import Perfgate

PROJECT = Path(__file__).parent / "project"


class Planted(NamedTuple):
    """A repository with the plant as its last commit, and the lines of which the comment has to name one."""

    folder: Path
    lines: tuple[str, ...]


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name.replace(" ", "-"))
def test_comment__planted_cause__named_first_with_its_line(plant: Plant, perfgate: Perfgate, tmp_path: Path) -> None:
    planted = plant_into(tmp_path / "project", plant)

    done = perfgate(
        "check", "--base", "HEAD~1", "--workload", plant.workload, "--steps", "4", "--out", "out", cwd=planted.folder
    )

    comment = (planted.folder / "out" / "comment.md").read_text()
    assert done.returncode in (0, 1), done.stderr
    assert verdict(comment) in ("FAIL", "WARN"), comment
    first = first_cause(comment)
    assert any(name in first for name in plant.names), f"{first}\n\n{comment}"
    assert any(line in first for line in planted.lines), f"{first}\n\n{comment}"
    assert any(line in title(comment) for line in planted.lines), comment


def plant_into(folder: Path, plant: Plant) -> Planted:
    """Commit the project, then the project with the plant."""
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    settings = folder / "perfgate.toml"
    if plant.whole:
        settings.write_text(settings.read_text().partition("[gate]")[0])
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "base")
    file = folder / plant.file
    before = file.read_text().splitlines()
    (at,) = [number for number, line in enumerate(before) if line.endswith(f"# plant: {plant.mark}")]
    after = [*before[:at], *plant.lines, *before[at + 1 :]]
    file.write_text("\n".join(after) + "\n")
    commit(folder, plant.name)
    here = [
        f"{plant.file}:{number}"
        for number, line in enumerate(after, start=1)
        if (line.startswith(plant.felt_at) if plant.felt_at else line.endswith("# here"))
    ]
    assert len(here) == max(1, len(plant.felt_at)), here
    return Planted(folder, tuple(here))


def commit(folder: Path, message: str) -> None:
    """Commit everything in the folder."""
    git(folder, "add", ".")
    git(folder, "-c", "user.name=Lab", "-c", "user.email=lab@example.org", "commit", "-qm", message)


def git(folder: Path, *arguments: str) -> None:
    """Run git in the folder."""
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)
