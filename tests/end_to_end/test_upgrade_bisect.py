"""`perfgate upgrade --bisect` and `bisect --between` with real environments and gates; pip installs wheels made here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Clone, Perfgate
from tests.fakes.wheels import write_wheel

# Up to six gates, and an environment for each; only a command that hangs takes as long.
SECONDS = 3600
PACKAGES = [f"part{number:02}" for number in range(16)]
RELU = "return torch.relu(y)"
# What a call of the model does more with a slow release of a package.
CODE = "def more(y):\n    for _ in range({steps}):\n        y = y + 0\n    return y\n"


@pytest.fixture
def wheels(tmp_path: Path, perfgate: Perfgate) -> Path:
    """The folder that pip installs from, and from nowhere else."""
    folder = tmp_path / "wheels"
    perfgate.environment |= {
        "PERFGATE_CACHE": str(tmp_path / "cache"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
    }
    return folder


def write_release(wheels: Path, package: str, version: str, *, steps: int = 0, requires: str = "") -> None:
    write_wheel(wheels, package, version, CODE.format(steps=steps), requires=requires)


def uses(clone: Clone, packages: list[str]) -> None:
    """Have the model use the packages, whose old versions the project's own setup installs."""
    imports = "\n        ".join([f"import {package}\n        y = {package}.more(y)" for package in packages])
    old = " ".join(f"{package}==1.0" for package in packages)
    config = clone.root / "perfgate.toml"
    config.write_text(config.read_text() + f'\n[measure]\nsetup = "python -m pip install {old}"\n')
    clone.commit("uses packages", model=(RELU, f"{imports}\n        {RELU}"))


def bisect(perfgate: Perfgate, clone: Clone, *command: str) -> tuple[str, dict[str, Any]]:
    perfgate.environment["COLUMNS"] = "200"
    process = perfgate.start(
        *command, "--steps", "4", "--out", "out", cwd=clone.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    document = json.loads((clone.root / "out" / "bisection.json").read_text())
    assert not clone.git("status", "--porcelain", "--untracked-files=no")
    return output, document


@pytest.mark.slow
def test_upgrade__bisect_sixteen_packages__the_slow_one_named_after_six_gates_with_its_comment(
    perfgate: Perfgate, clone: Clone, wheels: Path
) -> None:
    for package in PACKAGES:
        write_release(wheels, package, "1.0")
        write_release(wheels, package, "2.0", steps=8 if package == "part10" else 0)
    uses(clone, PACKAGES)
    output, document = bisect(
        perfgate, clone, "upgrade", "--bisect", ",".join(f"{package}==2.0" for package in PACKAGES)
    )
    assert "part10 1.0 → 2.0 makes it slower, alone" in output
    assert (document["outcome"], document["culprits"], document["suspects"]) == ("found", [[10]], [])
    assert "small/default counters.framework_ops" in document["followed"]
    change = {"kind": "package", "package": "part10", "before": "1.0", "after": "2.0"}
    assert document["searched"]["changes"][10] == change
    assert len(document["tried"]) <= 6
    assert sum(trial["answered_by"] == "gate" for trial in document["tried"]) == 2
    deciding = document["tried"][document["deciding"]]
    assert (deciding["changes"], deciding["answer"]) == ([10], "slow")
    assert "`part10` `1.0` → `2.0`" in (clone.root / "out" / deciding["folder"] / "comment.md").read_text()
    # One environment for each stack and one for the old; the culprit's is used again.
    assert len(list((wheels.parent / "cache").glob("environments/*/perfgate-complete"))) == len(document["tried"]) + 1


@pytest.mark.slow
def test_upgrade__bisect_releases__the_first_slow_one_named_and_the_one_that_does_not_install_skipped(
    perfgate: Perfgate, clone: Clone, wheels: Path
) -> None:
    for version in ("1.0", "1.1", "1.2", "1.3", "2.0"):
        requires = "absent-package" if version == "1.2" else ""
        write_release(wheels, "part00", version, steps=8 if version >= "1.3" else 0, requires=requires)
    uses(clone, ["part00"])
    output, document = bisect(perfgate, clone, "upgrade", "--bisect", "part00==1.0..2.0")
    assert "part00 1.3 is slower and 1.1 is not; those between cannot be tried" in output
    assert (document["outcome"], document["searched"]["cumulative"], document["culprits"]) == ("found", True, [[1, 2]])
    answers = {
        document["searched"]["changes"][max(one["changes"])]["after"]: one["answer"] for one in document["tried"]
    }
    assert answers == {"2.0": "slow", "1.2": "impossible", "1.1": "fast", "1.3": "slow"}
    (skipped,) = [one for one in document["tried"] if one["answer"] == "impossible"]
    assert "absent-package" in skipped["reason"]
    assert skipped["folder"] is None


@pytest.mark.slow
def test_bisect__named_versions_of_packages__the_first_slow_set_named(
    perfgate: Perfgate, clone: Clone, wheels: Path
) -> None:
    for version in ("1.0", "1.1", "2.0"):
        write_release(wheels, "part00", version, steps=8 if version >= "1.1" else 0)
        write_release(wheels, "part01", version)
    uses(clone, ["part00", "part01"])
    sets = [f"part00=={version} part01=={version}" for version in ("1.0", "1.1", "2.0")]
    output, document = bisect(perfgate, clone, "bisect", "--between", ", ".join(sets))
    assert f"Slower since {sets[1]}; {sets[0]} is not" in output
    assert [document["searched"]["changes"][max(one["changes"])]["after"] for one in document["tried"]] == [
        sets[2],
        sets[1],
    ]


SCRIPT = "source {toolkit}/{{}}/set_env.sh"
# As a container is entered: Python starts in file systems of its own, with the socket that it talks to perfgate by.
NAMESPACE = (
    "exec unshare --mount bash -c 'mount --bind {toolkit}/{{}} {toolkit}/current && "
    'source {toolkit}/current/set_env.sh && exec "$@"\' enter {python} "$@"'
)


@pytest.mark.slow
@pytest.mark.parametrize("line", [SCRIPT, NAMESPACE], ids=["script", "namespace"])
def test_bisect__environments_of_shell_lines__the_first_slow_one_named_and_the_absent_one_skipped(
    perfgate: Perfgate, clone: Clone, tmp_path: Path, line: str
) -> None:
    if (
        line is NAMESPACE
        and subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("only root may make a mount namespace")
    steps = 'for _ in range(int(__import__("os").environ.get("PLANTED_STEPS", "0"))):\n            y = y + 0'
    clone.commit("slower with some toolkits", model=(RELU, f"{steps}\n        {RELU}"))
    toolkit = tmp_path / "toolkit"
    for version, count in (("8.0", 0), ("8.1", 0), ("8.3", 8), ("9.0", 8), ("current", 99)):
        script = toolkit / version / "set_env.sh"
        script.parent.mkdir(parents=True)
        script.write_text(f"export PLANTED_STEPS={count}\n")
    lines = line.format(toolkit=toolkit, python=sys.executable)
    versions = "8.0,8.1,8.2,8.3,9.0"
    output, document = bisect(perfgate, clone, "bisect", "--between", versions, "--environment", lines)
    assert "8.3 is slower and 8.1 is not; those between cannot be tried" in output
    (skipped,) = [one for one in document["tried"] if one["answer"] == "impossible"]
    assert (document["searched"]["changes"][max(skipped["changes"])]["after"], skipped["folder"]) == ("8.2", None)
