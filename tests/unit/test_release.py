"""What .ci/release.py refuses without building anything; tests/ci/test_release.py runs all of it."""

from __future__ import annotations

import importlib.util
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

from perfgate.version import __version__

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "release.py"
TRACKED = {"README.md", "perfgate/cli.py", "perfgate/locale/zh.po", "schemas/run.schema.json"}
IN_WHEEL = [
    "perfgate/cli.py",
    "perfgate/locale/zh.po",
    "perfgate/schemas/run.schema.json",
    "perfgate-1.dist-info/METADATA",
    "perfgate-1.dist-info/licenses/LICENSE",
]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "release", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "committed", lambda: TRACKED)
    return module


def write_wheel(folder: Path, names: Iterable[str]) -> Path:
    path = folder / "perfgate.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


def write_changelog(folder: Path, heading: str) -> Path:
    path = folder / "CHANGELOG.md"
    path.write_text(f"# Changelog\n\n{heading}\n\n### Added\n")
    return path


def test_read_version__changelog_of_this_repository__names_it_with_its_date(release: ModuleType) -> None:
    assert release.read_version(f"v{__version__}") == __version__


@pytest.mark.parametrize(("date", "accepted"), [("(2026-12-01)", True), ("(not released yet)", False), ("", False)])
def test_read_version__tag_of_the_version__needs_its_date_in_the_changelog(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, date: str, accepted: bool
) -> None:
    monkeypatch.setattr(release, "CHANGELOG", write_changelog(tmp_path, f"## {__version__} {date}".rstrip()))
    if accepted:
        assert release.read_version(f"v{__version__}") == __version__
        return
    with pytest.raises(release.ReleaseError, match="a release has a date"):
        release.read_version(f"v{__version__}")


def test_read_version__another_tag__says_which_it_must_be(release: ModuleType) -> None:
    with pytest.raises(release.ReleaseError, match=f"the tag must be v{__version__}"):
        release.read_version("v9.9.9")


def test_read_version__changelog_without_it__says_what_to_write(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "CHANGELOG", write_changelog(tmp_path, "## 0.0.1"))
    with pytest.raises(release.ReleaseError, match="has no section"):
        release.read_version(None)


def test_check_wheel__the_tracked_files__accepted(release: ModuleType, tmp_path: Path) -> None:
    release.check_wheel(write_wheel(tmp_path, IN_WHEEL), compiled=False)
    release.check_wheel(write_wheel(tmp_path, [*IN_WHEEL, release.SCANNER]), compiled=True)


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        ([*IN_WHEEL, "tests/test_cli.py"], "has too much: tests/test_cli.py"),
        ([*IN_WHEEL, "perfgate/__pycache__/cli.pyc"], "has too much: perfgate/__pycache__/cli.pyc"),
        ([name for name in IN_WHEEL if "schema" not in name], "lacks perfgate/schemas/run.schema.json"),
        ([name for name in IN_WHEEL if not name.endswith(".po")], "lacks perfgate/locale/zh.po"),
        ([name for name in IN_WHEEL if "licenses" not in name], "no licence text"),
    ],
)
def test_check_wheel__other_files__named(release: ModuleType, tmp_path: Path, names: list[str], complaint: str) -> None:
    with pytest.raises(release.ReleaseError, match=complaint):
        release.check_wheel(write_wheel(tmp_path, names), compiled=False)


def test_check_wheel__without_what_was_compiled__named(release: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(release.ReleaseError, match=f"lacks {release.SCANNER}"):
        release.check_wheel(write_wheel(tmp_path, IN_WHEEL), compiled=True)


@pytest.mark.parametrize(("needed", "accepted"), [(b"GLIBC_2.14", True), (b"GLIBC_2.2.5 GLIBC_2.34", False)])
def test_check_compiled__newer_c_library_than_the_platform__refused(
    release: ModuleType, tmp_path: Path, needed: bytes, accepted: bool
) -> None:
    path = tmp_path / "perfgate.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(release.SCANNER, b"\x7fELF" + needed)
    if accepted:
        release.check_compiled(path)
        return
    with pytest.raises(release.ReleaseError, match=r"needs glibc 2\.34, and the wheel says manylinux_2_17"):
        release.check_compiled(path)


def test_check_sdist__a_file_is_missing__named(release: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "perfgate.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in TRACKED - {"README.md"}:
            archive.addfile(tarfile.TarInfo(f"perfgate-1/{name}"))
    with pytest.raises(release.ReleaseError, match=r"the sdist lacks README\.md"):
        release.check_sdist(path)
