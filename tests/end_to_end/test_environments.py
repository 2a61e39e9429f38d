"""Each side in an environment of its own: real virtual environments, made without a network from modules in the project."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Clone, Perfgate
from tests.fakes.wording import worded

# A package that tests pin to a version: `steps` is how many more operators a call of the model runs.
VENDORED = """
from importlib.metadata import version

VERSION = {version!r}


def more(y):
    for _ in range({steps}):
        y = y + 0
    return y
"""
METADATA = "Metadata-Version: 2.1\nName: slowdep\nVersion: {version}\n"
# Installs what requirements.txt pins: a module and its metadata, where a wheel would put them.
INSTALL = """
import pathlib, shutil, sys, sysconfig
print("installing for", sys.prefix)
pin = pathlib.Path("requirements.txt").read_text().split("==")[1].strip()
shutil.copytree(pathlib.Path("vendored") / pin, sysconfig.get_path("purelib"), dirs_exist_ok=True)
with open({counter!r}, "a") as counter:
    counter.write(sys.prefix + "\\n")
"""
RELU = "return torch.relu(y)"
USE = "import slowdep\n        print('slowdep', slowdep.VERSION, slowdep.__file__)\n        return torch.relu(slowdep.more(y))"


def vendor(folder: Path, version: str, steps: int) -> None:
    package = folder / version / "slowdep"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(VENDORED.format(version=version, steps=steps))
    info = folder / version / f"slowdep-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA.format(version=version))


@pytest.fixture
def cache(tmp_path: Path, perfgate: Perfgate) -> Path:
    perfgate.environment["PERFGATE_CACHE"] = str(tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A file with one line for every time that a setup command ran."""
    return tmp_path / "installed"


@pytest.fixture
def pinned(clone: Clone, installed: Path) -> Clone:
    """A clone whose main needs slowdep 1.0 and whose head, the same code, needs the slower 2.0."""
    clone.git("checkout", "-q", "main")
    vendor(clone.root / "vendored", "1.0", steps=1)
    vendor(clone.root / "vendored", "2.0", steps=7)
    (clone.root / "install.py").write_text(INSTALL.format(counter=str(installed)))
    (clone.root / "requirements.txt").write_text("# what it needs\nslowdep==1.0\n")
    set_up(clone, "python install.py")
    clone.commit("uses slowdep", model=(RELU, USE))
    clone.git("branch", "-f", "feature")
    clone.git("checkout", "-q", "feature")
    (clone.root / "requirements.txt").write_text("slowdep==2.0\n")
    clone.commit("slowdep 2.0")
    return clone


def set_up(clone: Clone, command: str, more: str = "") -> None:
    """Write the setup command into perfgate.toml, in the place of one that stands there."""
    config = clone.root / "perfgate.toml"
    text = re.sub(r"\[measure\]\nsetup = .*\n", "", config.read_text())
    config.write_text(f'{text}\n[measure]\nsetup = "{command}"\n{more}')


def decision_in(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "decision.json").read_text()))


def check(perfgate: Perfgate, clone: Clone, *flags: str, out: str = "out") -> Any:
    return perfgate("check", "--base", "main", "--steps", "4", "--out", out, *flags, cwd=clone.root)


@pytest.mark.slow
def test_check__other_version_pinned__each_side_imports_its_own_and_the_slower_one_fails(
    perfgate: Perfgate, pinned: Clone, cache: Path, installed: Path
) -> None:
    done = check(perfgate, pinned)
    assert done.returncode == 1, done.stderr
    decision = decision_in(pinned.root / "out")
    counted = next(c for c in decision["comparisons"] if c["metric"] == "counters.framework_ops")
    assert counted["head"] - counted["base"] == 6
    assert decision["sides"]["package_differences"] == [
        {"field": "slowdep", "base": "1.0", "head": "2.0", "loaded": True}
    ]
    assert decision["sides"]["testbed_differences"] == []
    assert decision["measured"]["pairs"] == 8
    environments = [
        json.loads((pinned.root / "out" / side / "run.json").read_text())["testbed"]["environment"]
        for side in ("base", "head")
    ]
    assert [found["kind"] for found in environments] == ["built", "built"]
    # The same torch on both sides, installed once.
    assert environments[0]["packages"]["torch"] == environments[1]["packages"]["torch"]
    assert not list(cache.glob("environments/*/lib/python*/site-packages/torch"))
    imported = {
        (version, Path(file).parents[4].name)
        for log in (pinned.root / "out" / "head" / "logs").glob("*.log")
        for version, file in re.findall(r"^slowdep (\S+) (\S+)$", log.read_text(), re.MULTILINE)
    }
    assert {version for version, _ in imported} == {"1.0", "2.0"}
    assert len({environment for _, environment in imported}) == 2
    assert len(installed.read_text().splitlines()) == 2
    assert "installing for" in (pinned.root / "out" / "base" / "setup.log").read_text()
    assert "packages differ: `slowdep` `1.0` → `2.0`" in (pinned.root / "out" / "comment.md").read_text()

    again = check(perfgate, pinned, "--workload", "small")
    assert again.returncode == 1, again.stderr
    assert len(installed.read_text().splitlines()) == 2, "the environments are kept"
    assert perfgate.scratch_folders == []


@pytest.mark.slow
def test_check__two_jobs_at_once__each_environment_is_made_once(
    perfgate: Perfgate, pinned: Clone, cache: Path, installed: Path, tmp_path: Path
) -> None:
    set_up(pinned, "sleep 2; python install.py")
    pinned.commit("a slow setup")
    jobs = []
    for number in (0, 1):
        perfgate.environment["PERFGATE_LOCK"] = str(tmp_path / f"lock-{number}")
        arguments = ("check", "--base", "main", "--steps", "4", "--out", str(tmp_path / f"out-{number}"))
        jobs.append(perfgate.start(*arguments, cwd=pinned.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    assert [job.wait(240) for job in jobs] == [1, 1]
    assert len(installed.read_text().splitlines()) == 2
    assert len(list(cache.glob("environments/*/perfgate-complete"))) == 2


@pytest.mark.slow
def test_check__setup_fails__exit_4_with_the_end_of_its_log_and_nothing_is_kept(
    perfgate: Perfgate, pinned: Clone, cache: Path
) -> None:
    set_up(pinned, "echo cannot find slowdep 2.0 >&2; exit 3")
    pinned.commit("a setup that fails")
    done = check(perfgate, pinned)
    assert done.returncode == 4
    assert "setting up the environment of the head failed with exit code 3" in done.stderr
    assert "cannot find slowdep 2.0" in done.stderr
    assert not (pinned.root / "out" / "decision.json").exists()
    # That of the base, whose own perfgate.toml has a setup that works, is kept.
    assert len(list(cache.glob("environments/*/perfgate-complete"))) == 1
    assert len([path for path in cache.glob("environments/*") if path.is_dir()]) == 1


@pytest.mark.slow
def test_check__other_requirements_and_no_setup__a_note_and_the_comparison_goes_on(
    perfgate: Perfgate, clone: Clone, cache: Path
) -> None:
    (clone.root / "requirements.txt").write_text("slowdep==2.0\n")
    clone.commit("a requirement")
    done = check(perfgate, clone)
    decision = decision_in(clone.root / "out")
    assert decision["verdict"] in ("PASS", "INCONCLUSIVE"), done.stderr
    note = "requirements.txt differs between base and head, and both sides ran with the installed packages"
    assert any(note in worded(warning) for warning in decision["warnings"])
    assert not cache.exists()


@pytest.mark.slow
def test_check__only_a_comment_of_the_requirements_changed__one_environment_for_both(
    perfgate: Perfgate, pinned: Clone, cache: Path
) -> None:
    pinned.git("checkout", "-q", "-b", "comment", "main")
    (pinned.root / "requirements.txt").write_text("# what the model needs\n\nslowdep==1.0\n")
    pinned.commit("a comment", model=(USE, RELU))
    check(perfgate, pinned)
    decision = decision_in(pinned.root / "out")
    assert decision["warnings"] == []
    assert not cache.exists()


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """The interpreter of an environment with slowdep 2.0, a setting that changes the testbed, and whatever this one has."""
    folder = tmp_path / "stack"
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    vendor(tmp_path / "vendored", "2.0", steps=7)
    unused = tmp_path / "vendored" / "2.0" / "unused-1.0.dist-info"
    unused.mkdir()
    (unused / "METADATA").write_text("Metadata-Version: 2.1\nName: unused\nVersion: 1.0\n")
    (tmp_path / "vendored" / "2.0").rename(tmp_path / "vendored" / "site")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "setting.pth").write_text("import os; os.environ['TORCH_CPP_LOG_LEVEL'] = 'ERROR'\n")
    (packages / "zz.pth").write_text("\n".join([str(tmp_path / "vendored" / "site"), *ours]) + "\n")
    return folder / "bin" / "python"


@pytest.mark.slow
def test_upgrade__slower_stack__warn_that_names_the_package_and_what_got_slower(
    perfgate: Perfgate, clone: Clone, stack: Path
) -> None:
    optional = (
        "try:\n            from slowdep import more\n        except ImportError:\n            more = list\n        "
    )
    clone.commit("slower with slowdep", model=(RELU, f"{optional}return torch.relu(torch.stack(list(more(y))))"))
    done = perfgate("upgrade", "--python", str(stack), "--steps", "4", "--out", "out", "--json", cwd=clone.root)
    assert done.returncode == 0, done.stderr
    decision = decision_in(clone.root / "out")
    assert json.loads(done.stdout) == decision
    assert (decision["verdict"], decision["sides"]["comparing"]) == ("WARN", "stack")
    assert decision["sides"]["base"]["commit"] == decision["sides"]["head"]["commit"] == clone.git("rev-parse", "HEAD")
    differences = {entry["field"]: entry for entry in decision["sides"]["package_differences"]}
    assert differences["slowdep"] == {"field": "slowdep", "base": None, "head": "2.0", "loaded": True}
    assert not differences["unused"]["loaded"]
    assert decision["sides"]["testbed_differences"] == [
        {"field": "env.TORCH_CPP_LOG_LEVEL", "base": None, "head": "ERROR"}
    ]
    assert decision["measured"]["pairs"] == 8
    assert "regressed: small/default counters.framework_ops" in map(worded, decision["reasons"])
    title = (clone.root / "out" / "comment.md").read_text().splitlines()[2]
    assert "WARN – upgrade (`env.TORCH_CPP_LOG_LEVEL` none → `ERROR` and " in title


@pytest.mark.parametrize(
    ("option", "kinds"),
    [
        pytest.param("--head-python", ["running", "given"], marks=pytest.mark.slow),
        pytest.param("--base-python", ["given", "running"], marks=pytest.mark.slow),
    ],
)
def test_check__named_interpreter_of_another_testbed__not_comparable_and_no_pairs(
    perfgate: Perfgate, clone: Clone, stack: Path, option: str, kinds: list[str]
) -> None:
    done = check(perfgate, clone, option, str(stack))
    assert done.returncode == 3, done.stderr
    assert perfgate.scratch_folders == []
    decision = decision_in(clone.root / "out")
    assert list(map(worded, decision["reasons"])) == ["testbed: env.TORCH_CPP_LOG_LEVEL"]
    assert decision["measured"]["pairs"] == 0
    assert {c["outcome"] for c in decision["comparisons"] if c["kind"] == "exact"} == {"not_comparable"}
    environments = [
        json.loads((clone.root / "out" / side / "run.json").read_text())["testbed"]["environment"]
        for side in ("base", "head")
    ]
    assert [found["kind"] for found in environments] == kinds


@pytest.mark.parametrize(
    ("python", "wanted"),
    [
        ("nowhere/python", "is not an interpreter; name the python of an environment"),
        (sys.executable, "both sides are the same interpreter"),
    ],
)
def test_upgrade__no_other_interpreter__exit_2_says_so(
    perfgate: Perfgate, clone: Clone, python: str, wanted: str
) -> None:
    done = perfgate("upgrade", "--python", python, "--out", "out", cwd=clone.root)
    assert done.returncode == 2
    assert wanted in done.stderr


@pytest.mark.parametrize("option", ["--head-python", "--base-python"])
def test_check__interpreter_without_what_a_worker_needs__exit_2_names_it(
    perfgate: Perfgate, clone: Clone, tmp_path: Path, option: str
) -> None:
    venv.create(tmp_path / "empty", with_pip=False)
    done = check(perfgate, clone, option, str(tmp_path / "empty" / "bin" / "python"))
    assert done.returncode == 2
    assert "No module named" in done.stderr
    assert "install torch and this same perfgate there" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("inherit", [pytest.param(True, marks=pytest.mark.slow), False])
def test_check__inherit_packages__says_whether_what_is_installed_is_seen_while_setting_up(
    perfgate: Perfgate, pinned: Clone, cache: Path, inherit: bool
) -> None:
    looks = (
        "import importlib.util\nraise SystemExit(f'torch is seen: {importlib.util.find_spec(\"torch\") is not None}')\n"
    )
    (pinned.root / "install.py").write_text(looks)
    set_up(pinned, "python install.py", f"inherit_packages = {str(inherit).lower()}\n")
    pinned.commit("asks for torch")
    done = check(perfgate, pinned)
    assert done.returncode == 4
    assert f"torch is seen: {inherit}" in done.stderr


@pytest.mark.slow
def test_check__own_environments_without_what_a_worker_needs__exit_2_and_both_ways_out(
    perfgate: Perfgate, pinned: Clone, cache: Path
) -> None:
    set_up(pinned, "python install.py", "inherit_packages = false\n")
    pinned.commit("no packages but its own")
    done = check(perfgate, pinned)
    assert done.returncode == 2, done.stderr
    assert "No module named" in done.stderr
    assert "have [measure] setup install perfgate and torch too, or leave inherit_packages true" in done.stderr
