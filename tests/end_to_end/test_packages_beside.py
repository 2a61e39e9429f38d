"""Somebody else installs packages and libraries while a check measures: only what a side uses makes it invalid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import SECONDS, UNDECIDED, Clone, Perfgate
from tests.waiting import wait_until

# What the model imports: one package that is there, and one that only its planter has.
IMPORTS = """
import used_package
try:
    import faster_package
except ImportError:
    faster_package = None
"""


@dataclass
class Machine:
    """An environment of its own with perfgate in it, a folder of libraries, and a folder of programs on the path."""

    python: Path
    packages: Path
    libraries: Path
    programs: Path
    wheels: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(self.libraries), os.environ.get("LD_LIBRARY_PATH")])),
            "PATH": os.pathsep.join([str(self.programs), str(self.python.parent), os.environ["PATH"]]),
        }

    def wheel(self, name: str, *, version: str = "1.0", code: str = "") -> Path:
        """A wheel of one package with a program, as `pip wheel` would make it."""
        file, info = self.wheels / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
        members = {
            f"{name}/__init__.py": code,
            f"{name}/part.py": "x = 1\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": f"[console_scripts]\n{name}-program = {name}:main\n",
        }
        with zipfile.ZipFile(file, "w") as archive:
            for member, text in members.items():
                archive.writestr(member, text)
            archive.writestr(f"{info}/RECORD", "".join(f"{member},,\n" for member in [*members, f"{info}/RECORD"]))
        return file

    def pip(self, *arguments: str | Path) -> None:
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
        subprocess.run(command, check=True, capture_output=True)

    def install(self, name: str, **wheel: str) -> None:
        self.pip("install", "--no-index", "--no-deps", "--force-reinstall", self.wheel(name, **wheel))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    root = tmp_path / "environment"
    venv.create(root, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(root), "platbase": str(root)}))
    (packages / "ours.pth").write_text("".join(f"{path}\n" for path in sys.path if "site-packages" in path))
    (packages / "perfgate.pth").write_text(f"{Path(__file__).parents[2]}\n")
    found = Machine(root / "bin" / "python", packages, *(tmp_path / name for name in ("lib", "programs", "wheels")))
    for folder in (found.libraries, found.programs, found.wheels):
        folder.mkdir()
    found.install("used_package")
    return found


@pytest.fixture
def project(clone: Clone, machine: Machine) -> Clone:
    clone.git("checkout", "-q", "main")
    model = clone.root / "model.py"
    model.write_text(f"{IMPORTS}\n{model.read_text()}")
    clone.commit("imports")
    clone.git("checkout", "-qB", "feature")
    clone.commit("no effect", model=("return torch.relu(y)", "z = y\n        return torch.relu(z)"))
    return clone


def checked(
    perfgate: Perfgate, machine: Machine, clone: Clone, beside: Callable[[], bool]
) -> tuple[int, dict[str, Any]]:
    """Check the change; ``beside`` is called again and again from the start of measuring until it returns False."""
    out = clone.root / "out"
    command = [
        str(machine.python),
        "-m",
        "perfgate.cli.main",
        "check",
        "--base",
        "main",
        "--steps",
        "4",
        "--out",
        "out",
    ]
    environment = {**perfgate.environment, **machine.environment}
    with (clone.root.parent / "log").open("w+") as log:
        process = subprocess.Popen(command, cwd=clone.root, env=environment, stdout=log, stderr=log)
        try:
            wait_until(lambda: any((out / "head" / "logs").glob("*.log")) or process.poll() is not None, SECONDS)
            while process.poll() is None and beside():
                pass
            code = process.wait(SECONDS)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        assert (out / "decision.json").exists(), log.read()
    return code, json.loads((out / "decision.json").read_text())


def changed_files(decision: dict[str, Any]) -> str:
    return json.dumps([entry for entry in decision["gaps"]["invalid"] if entry["kind"] == "code_changed"])


def installing(machine: Machine, done: list[str]) -> Callable[[], bool]:
    """Install and remove packages, libraries and programs that no side uses."""

    def step() -> bool:
        name = f"unrelated_{len(done)}"
        machine.install(name)
        (machine.libraries / f"lib{name}.so.12").write_bytes(b"\x7fELF")
        (machine.programs / f"{name}-tool").write_text("#!/bin/sh\n")
        if len(done) % 2:
            machine.pip("uninstall", "--yes", name)
            (machine.libraries / f"lib{name}.so.12").unlink()
        done.append(name)
        return True

    return step


@pytest.mark.slow
def test_check__packages_libraries_and_programs_come_and_go_beside_it__nothing_is_invalid(
    project: Clone, perfgate: Perfgate, machine: Machine
) -> None:
    done: list[str] = []
    code, decision = checked(perfgate, machine, project, installing(machine, done))
    assert len(done) > 1
    assert changed_files(decision) == "[]"
    assert (code, decision["verdict"]) in [(0, "PASS"), *UNDECIDED], decision["reasons"]


@pytest.mark.slow
def test_check__twenty_times_beside_installations__none_is_invalid(
    project: Clone, perfgate: Perfgate, machine: Machine
) -> None:
    done: list[str] = []
    found = [changed_files(checked(perfgate, machine, project, installing(machine, done))[1]) for _ in range(20)]
    assert found == ["[]"] * 20
    assert len(done) >= 20


def once(action: Callable[[], None]) -> Callable[[], bool]:
    def steps() -> Iterator[bool]:
        action()
        yield False

    return steps().__next__


@pytest.mark.slow  # tests/unit/conductor/test_in_use.py has the same without pairs
def test_check__package_that_both_sides_import_is_upgraded_beside_it__invalid_and_named(
    project: Clone, perfgate: Perfgate, machine: Machine
) -> None:
    upgrade = once(lambda: machine.install("used_package", version="2.0", code="x = 2\n"))
    code, decision = checked(perfgate, machine, project, upgrade)
    assert (code, decision["verdict"]) == (4, "INCONCLUSIVE")
    assert str(machine.packages / "used_package") in changed_files(decision)


@pytest.mark.slow
def test_check__package_that_no_side_could_import_appears__invalid_as_soon_as_it_is_imported(
    project: Clone, perfgate: Perfgate, machine: Machine
) -> None:
    code, decision = checked(perfgate, machine, project, once(lambda: machine.install("faster_package")))
    assert (code, decision["verdict"]) == (4, "INCONCLUSIVE")
    assert str(machine.packages / "faster_package" / "__init__.py") in changed_files(decision)
