"""Wrong use of `run` and `check`: the documented exit code, and a message that says what to do."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Clone, Perfgate
from tests.fakes.wording import worded

Project = Callable[..., Path]

GOOD = 'workload = "perf/workload.py:small"\n'


def _project(root: Path, toml: str, workload: str = "") -> Path:
    (root / "perf").mkdir(parents=True)
    (root / "perfgate.toml").write_text(toml)
    (root / "perf" / "workload.py").write_text(workload)
    return root


def test_run__no_perfgate_toml__shows_one(perfgate: Perfgate, tmp_path: Path) -> None:
    done = perfgate("run", cwd=tmp_path)
    assert done.returncode == 2
    assert (
        "perfgate.toml does not exist; `perfgate init` writes one with a workload that runs, or write it by hand: "
        'workload = "perf/workload.py:encoder"' in done.stderr
    )
    assert not (tmp_path / "perfgate-out").exists()


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ('workloda = "perf/workload.py:small"', "unknown key 'workloda'; did you mean 'workload'?"),
        (GOOD + "[measure]\nstep_timout = 3", "[measure] unknown key 'step_timout'; did you mean 'step_timeout'?"),
        ("workload = perf", "is not valid TOML"),
        ('workload = "perf/workload.py"', 'must read "FILE.py:NAME"'),
    ],
)
def test_run__wrong_perfgate_toml__names_file_and_remedy(
    perfgate: Perfgate, tmp_path: Path, toml: str, words: str
) -> None:
    done = perfgate("run", cwd=_project(tmp_path / "p", toml))
    assert done.returncode == 2
    assert words in done.stderr
    assert "perfgate.toml" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--steps", "fast"), "--steps does not know 'fast'; write numbers, ranges or names"),
        (("--workload", "smal"), "no workload 'smal' in perfgate.toml; did you mean 'small'?"),
        (("--out", "perfgate.toml"), "perfgate.toml"),
        (("--out", "perfgate.toml/out"), "cannot be written"),
        (("--out", "/proc/out"), "the output folder /proc/out cannot be written"),
        (("--nonsense",), "No such option"),
        (("-C", "absent"), "does not exist"),
    ],
)
def test_run__wrong_option__exit_2_before_anything_is_measured(
    perfgate: Perfgate, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = perfgate("run", *arguments, cwd=_project(tmp_path / "p", GOOD))
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert not (tmp_path / "lock").exists()


_FILES = {
    "gone": (None, "perf/gone.py does not exist; correct `workload` in perfgate.toml"),
    "syntax": ("def build(:\n", "SyntaxError"),
    "raises": ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
    "imports": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    "number": ("w = 3", "is a int, not a perfgate.Workload; write w = Workload(build=…, inputs=…)"),
    "close": ("from perfgate import Workload\nww = Workload(build=print, inputs=print)", "did you mean 'ww'?"),
}


def test_run__wrong_workload_files_in_ci__exit_4_and_each_cause_in_run_json(perfgate: Perfgate, tmp_path: Path) -> None:
    lines = [f'{name} = "perf/{name}.py:w"' for name in _FILES]
    root = _project(tmp_path / "p", "\n".join(["[workloads]", *lines, "[measure]", "preload = []"]))
    for name, (text, _) in _FILES.items():
        if text is not None:
            (root / "perf" / f"{name}.py").write_text(text)
    done = perfgate("run", "--steps", "3", cwd=root, CI="true")
    assert done.returncode == 4, done.stderr
    run = json.loads((root / "perfgate-out" / "run.json").read_text())
    errors = {workload["name"]: workload["error"] for workload in run["workloads"]}
    for name, (_, words) in _FILES.items():
        assert words in worded(errors[name]["message"]) + (errors[name]["traceback"] or "")


@pytest.mark.slow
def test_run__workload_file_never_returns__exit_4_at_the_load_limit(perfgate: Perfgate, tmp_path: Path) -> None:
    root = _project(tmp_path / "p", GOOD + "[measure]\nload_timeout = 3\npreload = []", "import time\ntime.sleep(600)")
    done = perfgate("run", "--steps", "3", cwd=root)
    assert done.returncode == 4, done.stderr
    assert "importing workload.py took longer than 3 s" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("gpu9", 2, "device 'gpu9' is not known; known kinds: cpu"),
        pytest.param("cpu:7", 4, "cpu:7", marks=pytest.mark.slow),
    ],
)
def test_run__device_that_is_not_there__what_is(
    perfgate: Perfgate, tmp_path: Path, kind: str, code: int, words: str
) -> None:
    root = _project(tmp_path / "p", GOOD + "[measure]\npreload = []")
    done = perfgate("run", "--device", kind, cwd=root)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_run__preload_that_cannot_be_imported__exit_4_with_its_traceback_and_no_ci_command(
    perfgate: Perfgate, tmp_path: Path
) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "hostile.py").write_text("raise ValueError('\\n::error::forged\\n##[error]forged')")
    root = _project(tmp_path / "p", GOOD + '[measure]\npreload = ["hostile"]')
    done = perfgate("run", cwd=root, PYTHONPATH=str(folder))
    assert done.returncode == 4
    assert "cannot import a module of [measure] preload: ValueError" in done.stderr
    assert not any(line.lstrip().startswith("::") or "##[" in line for line in done.stderr.splitlines())


@pytest.mark.parametrize("path", ["/proc/perfgate.lock", "/"])
def test_run__lock_that_cannot_be_opened__exit_4_with_the_remedy(perfgate: Perfgate, tmp_path: Path, path: str) -> None:
    done = perfgate("run", cwd=_project(tmp_path / "p", GOOD), PERFGATE_LOCK=path)
    assert done.returncode == 4
    assert "set PERFGATE_LOCK to a file you can write" in done.stderr


def test_check__no_git__exit_2(perfgate: Perfgate, tmp_path: Path) -> None:
    done = perfgate("check", cwd=_project(tmp_path / "p", GOOD))
    assert done.returncode == 2
    assert f"{tmp_path / 'p'} is not in a git repository; run `git init` and commit" in done.stderr


def test_check__no_main_and_unknown_base__exit_2_with_the_remedy(perfgate: Perfgate, clone: Clone) -> None:
    clone.git("branch", "-m", "main", "develop")
    done = perfgate("check", cwd=clone.root)
    assert done.returncode == 2
    assert "no branch main, master or trunk" in done.stderr
    assert 'name one with --base, or set main_branch = "develop" under [store]' in done.stderr
    done = perfgate("check", "--base", "origin/main", cwd=clone.root)
    assert done.returncode == 2
    assert "git knows no commit 'origin/main'" in done.stderr


@pytest.mark.slow
def test_run__git_not_installed__measured_all_the_same(perfgate: Perfgate, clone: Clone, tmp_path: Path) -> None:
    done = perfgate("run", "--steps", "3", "--out", str(tmp_path / "out"), cwd=clone.root, PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_run__disk_full__says_so_and_nothing_half_written(perfgate: Perfgate, tmp_path: Path, small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * 56 * 1024)
    root = _project(tmp_path / "p", GOOD + "[measure]\npreload = []", "small = 'x' * 3\nraise ValueError('y' * 9000)")
    done = perfgate("run", "--steps", "1-5", "--out", str(small_disk / "out"), cwd=root, CI="true")
    assert done.returncode == 2, done.stderr
    assert "cannot be written: No space left on device; free space there, or choose another folder" in done.stderr
    left = sorted(path.name for path in (small_disk / "out").rglob("*") if path.is_file() and path.name != ".gitignore")
    assert left in ([], ["workload.log"], ["small.log"], ["small.log", "testbed.log"])
