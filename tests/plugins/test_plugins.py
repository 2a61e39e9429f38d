"""A package of somebody else adds a device, a reader, a step, a store and a forge, and nothing in perfgate changes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.plugins.environment import install, perfgate

PACKAGE = Path(__file__).parent / "package"
WORKLOAD = """
import perfgate
import torch


def build(device):
    return torch.nn.Linear(4, 4).to(device)


def inputs(batch, seed, length):
    return torch.ones(batch, length, 4)


linear = perfgate.Workload(build=build, inputs=inputs, batch=2, shapes={"short": {"length": 1}, "long": {"length": 8}})
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the package of somebody else."""
    return install(PACKAGE, tmp_path_factory.mktemp("environment"))


def test_trace_top__format_of_a_plug_in__its_kernels_are_listed(python: Path, tmp_path: Path) -> None:
    (tmp_path / "a.toytrace").write_text("0 1000 7 twirl\n1000 3000 7 hop\n5000 1000 8 twirl\n")

    printed = perfgate(python, "trace", "top", "a.toytrace", "--json", folder=tmp_path)

    document = json.loads(printed)
    assert document["format"] == "toy"
    assert [(row["name"], row["count"], row["total"]) for row in document["timelines"][0]["rows"]] == [
        ("hop", 1, 3e-6),
        ("twirl", 2, 2e-6),
    ]


def test_trace_top__damaged_recording_of_a_plug_in__its_words_reach_the_user(python: Path, tmp_path: Path) -> None:
    (tmp_path / "a.toytrace").write_text("none\n")

    assert "line 1 is no event" in perfgate(python, "trace", "top", "a.toytrace", folder=tmp_path, code=2)


def test_run__device_and_step_of_a_plug_in__measured_and_reported(python: Path, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(WORKLOAD)
    (tmp_path / "perfgate.toml").write_text('workload = "model.py:linear"\n')

    perfgate(python, "run", "--device", "toy", "--quick", "--steps", "17,21", "--out", "out", folder=tmp_path)

    document = json.loads((tmp_path / "out" / "run.json").read_text())
    assert document["testbed"]["device_kind"] == "toy"
    steps = {step["number"]: step for step in document["checklist"]["steps"]}
    assert steps[17]["status"] == "ok"
    assert [(value["metric"], value["value"]) for value in steps[21]["values"]] == [("toy.shapes", 2.0)]


def test_load__store_and_forge_of_a_plug_in__found_by_address_and_name(python: Path, tmp_path: Path) -> None:
    code = (
        "from perfgate.judging.forge.forge import token_variables\n"
        "from perfgate.judging.store.store import open_location\n"
        "print(token_variables('toy'), open_location('toy://x', None).location)"
    )

    assert subprocess.run(
        [str(python), "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout == ("('TOY_TOKEN',) toy://x\n")


def _broken(python: Path, folder: Path, entry: str, module: str = "") -> str:
    """Install another package by hand, which a plug-in's author broke; return what `trace top` says."""
    information = folder / "packages" / "broken-2.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 2.0\n")
    (information / "entry_points.txt").write_text(f"[perfgate.readers]\n{entry}\n")
    (folder / "packages" / "broken.py").write_text(module)
    (folder / "a.toytrace").write_text("0 1 0 hop\n")
    done = subprocess.run(
        [str(python), "-m", "perfgate", "trace", "top", "a.toytrace"],
        cwd=folder,
        env={"PYTHONPATH": str(folder / "packages")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_load__plug_in_that_cannot_be_imported__named_with_its_package(python: Path, tmp_path: Path) -> None:
    said = _broken(python, tmp_path, "broken = broken", "import missing_module")

    assert "package broken 2.0: its plug-in broken = 'broken' of perfgate.readers cannot be imported" in said
    assert "No module named 'missing_module'" in said


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("kineto = broken", "has the name of perfgate's own perfgate.trace.readers.formats.kineto"),
        ("toy = broken", "has the same name as the plug-in of package"),
    ],
)
def test_load__two_members_of_one_name__refused(python: Path, tmp_path: Path, entry: str, message: str) -> None:
    assert message in _broken(python, tmp_path, entry)


def test_load__package_in_the_current_folder__not_looked_at(python: Path, tmp_path: Path) -> None:
    """``python -m perfgate`` in a checkout must not run what a change brings along."""
    _broken(python, tmp_path, "broken = broken", "raise RuntimeError('ran')")

    perfgate(python, "trace", "top", str(tmp_path / "a.toytrace"), folder=tmp_path / "packages")
