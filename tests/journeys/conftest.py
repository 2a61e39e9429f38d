"""One installation for all journeys, and a new user for each."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys.installation import Installation, build_wheel, install_everything, install_with_borrowed_packages
from tests.journeys.shell import Shell, open_shell


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = _shared_folder(tmp_path_factory) / "wheel"
    _once(folder, lambda: build_wheel(folder))
    (built,) = (folder / "wheels").glob("perfgate-*.whl")
    return built


@pytest.fixture(scope="session")
def quick_installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The wheel, with the heavy packages of the tests."""
    folder = _shared_folder(tmp_path_factory) / "quick"
    installation = Installation(folder / "venv", wheel)
    _once(folder, lambda: install_with_borrowed_packages(installation))
    return installation


@pytest.fixture(scope="session")
def full_installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The wheel, with what `pip install` brings for its extras, torch included."""
    folder = _shared_folder(tmp_path_factory) / "full"
    installation = Installation(folder / "venv", wheel)
    _once(folder, lambda: install_everything(installation))
    return installation


@pytest.fixture
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    """A new user. A journey has everything installed; the tests of the shell have borrowed packages."""
    is_long = request.node.get_closest_marker("journey") is not None
    installation = request.getfixturevalue("full_installation" if is_long else "quick_installation")
    return open_shell(installation, tmp_path)


def _shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of one pytest run share: with pytest-xdist each has a folder of its own in it."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if base.name.startswith("popen-") else base


def _once(folder: Path, make: Callable[[], object]) -> None:
    """Make what lies in a folder, in the first process of pytest that asks for it; the others wait."""
    folder.mkdir(exist_ok=True)
    made = folder / "made"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            make()
            made.touch()
