"""Which distributions own the files that a process has loaded, by each way in which a distribution can be installed."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from perfgate.measuring.worker.packages import distributions_of, loaded_distributions


def install(site: Path, name: str, **files: str) -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for file, text in files.items():
        (info / file.replace("_json", ".json")).write_text(text)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Five distributions: two of one namespace with a list of files, one editable, two without a list."""
    site = tmp_path / "site-packages"
    install(site, "vendor-blas", RECORD="vendor/blas/lib.so,,\nvendor/blas/__init__.py,,\n")
    install(site, "vendor-fft", RECORD='"vendor/fft,1/__init__.py",,\n../bin/fft,,\n')
    source = {"url": f"file://{tmp_path}/my%20code", "dir_info": {"editable": True}}
    install(site, "ours", RECORD="ours.pth,,\n", direct_url_json=json.dumps(source))
    install(site, "old-egg", **{"top_level.txt": "egg\nshell\n"})
    install(site, "by-name")
    return site


@pytest.mark.parametrize(
    ("file", "owners"),
    [
        ("vendor/blas/lib.so", ["vendor-blas"]),
        ("vendor/fft,1/__init__.py", ["vendor-fft"]),
        ("vendor/other/__init__.py", []),
        ("../my code/model.py", ["ours"]),
        ("shell.py", ["old-egg"]),
        ("shelly.py", []),
        ("by_name/part.py", ["by-name"]),
    ],
)
def test_distributions_of__loaded_file__the_distribution_it_was_installed_with(
    site: Path, file: str, owners: list[str]
) -> None:
    installed = list(importlib.metadata.distributions(path=[str(site)]))
    assert distributions_of([str((site / file).resolve())], installed) == owners


def test_distributions_of__site_packages_reached_by_a_link__found(site: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(site)
    installed = list(importlib.metadata.distributions(path=[str(tmp_path / "link")]))
    assert distributions_of([str(site / "vendor/blas/lib.so")], installed) == ["vendor-blas"]


def test_loaded_distributions__this_process__has_what_it_imported_and_nothing_else() -> None:
    loaded = loaded_distributions()
    assert {"pytest", "msgspec"} <= set(loaded)
    assert "pip" not in loaded
