"""Real virtual environments, made without a network by setup commands of one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from perfgate.conductor.workers.interpreters import ask_about, check_interpreter, is_running, share_code, with_code
from perfgate.conductor.workers.virtualenv import (
    UNUSED_SECONDS,
    SetupPlan,
    Virtualenv,
    _run,
    cache_folder,
    differing_files,
    provide_virtualenv,
    read_requirements,
)
from perfgate.config import REQUIREMENTS
from perfgate.errors import ConfigError, MeasuringError, UsageError
from tests.waiting import left_in_the_end

MODULE = "import sysconfig, pathlib; pathlib.Path(sysconfig.get_path('purelib'), '{name}.py').write_text('{text}')"
Provide = Callable[..., Virtualenv]


def plan_of(command: str, checkout: Path, **changes: object) -> SetupPlan:
    values: dict[str, object] = {
        "requirements": {"requirements.txt": "1"},
        "inherit": True,
        "timeout": 600.0,
        **changes,
    }
    return SetupPlan(side="head", command=command, checkout=checkout, **values)  # type: ignore[arg-type]


def module(name: str, text: str) -> str:
    """Return a setup command that installs a module."""
    return f'python -c "{MODULE.format(name=name, text=text)}"'


@pytest.fixture
def provide(tmp_path: Path) -> Provide:
    def make(command: str, **changes: object) -> Virtualenv:
        plan = plan_of(command, tmp_path, **changes)
        environ = {"PATH": os.environ["PATH"], "SECRET_TOKEN": "t0ken", "PIP_INDEX_URL": "https://index.example"}
        return provide_virtualenv(
            plan, cache=tmp_path / "cache", environ=environ, log=tmp_path / "setup.log", say=lambda _: None
        )

    return make


def alive_in(group: int) -> list[str]:
    """Return the processes of a group; one that is dead and waits to be reaped is none."""
    stats = [_stat(process) for process in Path("/proc").glob("[0-9]*")]
    return [" ".join(fields) for fields in stats if fields and int(fields[2]) == group and fields[0] != "Z"]


def _stat(process: Path) -> list[str]:
    """Return state, parent, process group, ... of a process (proc(5), /proc/pid/stat, from the third field on)."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def run(python: Path, code: str) -> str:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_provide_virtualenv__module_that_we_have_too__its_own_comes_first_and_ours_are_seen(
    provide: Provide, tmp_path: Path
) -> None:
    python, kept, notes = provide(f"{module('msgspec', 'whose = 1')}; env > environment")
    assert (kept, notes) == (False, ())
    assert run(python, "import msgspec; print(msgspec.whose)") == "1"
    assert run(python, "import numpy; print(numpy.__file__)") == run(
        Path(sys.executable), "import numpy; print(numpy.__file__)"
    )
    seen = (tmp_path / "environment").read_text()
    assert "SECRET_TOKEN" not in seen
    assert "PIP_INDEX_URL=https://index.example" in seen
    assert f"VIRTUAL_ENV={python.parents[1]}" in seen
    made = (python.parents[1] / "perfgate-complete").stat().st_mtime
    assert provide(f"{module('msgspec', 'whose = 1')}; env > environment") == (python, True, ())
    assert (python.parents[1] / "perfgate-complete").stat().st_mtime >= made


@pytest.mark.slow
def test_provide_virtualenv__pip__installs_the_version_asked_for_and_nothing_that_we_have(
    provide: Provide, tmp_path: Path
) -> None:
    # A package that we have in another version, and one that we have in any: without an index only the wheel can come.
    make_wheel(tmp_path / "wheels", "msgspec", "99.0")
    (tmp_path / "requirements.txt").write_text("msgspec==99.0\nnumpy\n")
    python = provide("pip install --no-index --find-links wheels -r requirements.txt").python
    assert run(python, "import msgspec; print(msgspec.whose)") == "99.0"
    assert run(Path(sys.executable), "import msgspec; print(msgspec.__version__)") == msgspec.__version__
    assert not list(python.parents[1].glob("lib/python*/site-packages/numpy"))
    assert "Requirement already satisfied: numpy" in (tmp_path / "setup.log").read_text()


def make_wheel(folder: Path, name: str, version: str) -> None:
    """Write a wheel with one module (PyPA, "Binary distribution format")."""
    folder.mkdir()
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"whose = '{version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(file, text)


@pytest.mark.slow
def test_provide_virtualenv__not_inheriting__no_worker_can_run_and_the_error_names_what_lacks(
    provide: Provide, tmp_path: Path
) -> None:
    python = provide("true", inherit=False).python
    environment = with_code({"PATH": os.environ["PATH"]}, share_code(tmp_path / "code"))
    with pytest.raises(ConfigError, match=r"No module named '\w+'; install it"):
        ask_about(python, environment, cwd=tmp_path, remedy="install it")


@pytest.mark.slow
def test_provide_virtualenv__setup_fails__the_log_in_the_error_and_made_anew_the_next_time(
    provide: Provide, tmp_path: Path
) -> None:
    command = "echo no such package; test -e works"
    with pytest.raises(MeasuringError, match="environment of the head failed with exit code 1") as raised:
        provide(command)
    assert "no such package" in str(raised.value)
    assert str(tmp_path / "setup.log") in str(raised.value)
    (tmp_path / "works").touch()
    assert provide(command).python.exists()


def test_set_up__command_hangs__killed_with_what_it_started(tmp_path: Path) -> None:
    """The command alone: making the environment before it may take longer than one wants to wait for this."""
    command = "echo $$ > pid; sleep 600 & sleep 600"
    plan, log = plan_of(command, tmp_path, timeout=3.0), tmp_path / "setup.log"
    with pytest.raises(MeasuringError, match=r"took longer than 3 s and was killed; raise \[measure\] setup_timeout"):
        _run(plan, ["/bin/sh", "-c", command], "setting up", {"PATH": os.environ["PATH"]}, log, lambda _: None)
    group = int((tmp_path / "pid").read_text())
    assert left_in_the_end(lambda: alive_in(group)) == []


def test_set_up__leaves_a_daemon_in_a_session_of_its_own__killed_and_named(tmp_path: Path) -> None:
    # Asked for when the one is what it will be called, and the other has ended and waits to be reaped.
    command = (
        "(setsid sh -c 'echo $$ > pid; exec sleep 600' > /dev/null 2>&1 &); (sh -c 'echo $$ > ended' &); "
        "until test -s pid && test -s ended; do sleep 0.01; done; "
        "until grep -qx sleep /proc/$(cat pid)/comm; do sleep 0.01; done; "
        "while grep -q '^State:.[^Z]' /proc/$(cat ended)/status; do sleep 0.01; done"
    )
    plan, log = plan_of(command, tmp_path), tmp_path / "setup.log"
    environment = {"PATH": os.environ["PATH"]}
    assert _run(plan, ["/bin/sh", "-c", command], "setting up", environment, log, lambda _: None) == ["sleep"]
    assert alive_in(int((tmp_path / "pid").read_text())) == []


@pytest.mark.slow
def test_provide_virtualenv__unfinished_and_unused_ones__gone(provide: Provide, tmp_path: Path) -> None:
    kept = provide("true").python.parents[1]
    (kept / "perfgate-complete").unlink()
    (kept / "half").touch()
    old = tmp_path / "cache" / "old"
    old.mkdir()
    (old / "perfgate-complete").touch()
    long_ago = time.time() - UNUSED_SECONDS - 60
    os.utime(old / "perfgate-complete", (long_ago, long_ago))
    assert provide("true").python.parents[1] == kept
    assert not (kept / "half").exists()
    assert not old.exists()


def test_provide_virtualenv__cache_is_a_file__says_what_to_set(provide: Provide, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(ConfigError, match="set PERFGATE_CACHE to a folder you can write"):
        provide("true")


@pytest.mark.parametrize(
    "changes", [{"requirements": {"requirements.txt": "2"}}, {"inherit": False}, {"command": "false"}]
)
def test_key__anything_it_is_made_from_differs__another(tmp_path: Path, changes: dict[str, object]) -> None:
    command = str(changes.pop("command", "true"))
    assert plan_of(command, tmp_path, **changes).key != plan_of("true", tmp_path).key
    assert plan_of("true", tmp_path / "elsewhere").key == plan_of("true", tmp_path).key


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"PERFGATE_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own/environments"),
        ({"XDG_CACHE_HOME": "/xdg", "HOME": "/home/x"}, "/xdg/perfgate/environments"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/x"}, "/home/x/.cache/perfgate/environments"),
    ],
)
def test_cache_folder__environment__xdg_rules(environ: dict[str, str], folder: str) -> None:
    assert cache_folder(environ) == Path(folder)


def test_check_interpreter__link_of_a_venv__kept_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    assert check_interpreter(tmp_path / "python", "--base-python") == tmp_path / "python"
    assert not is_running(tmp_path / "python")
    assert is_running(Path(sys.executable))
    with pytest.raises(UsageError, match=r"--base-python .* is not an interpreter"):
        check_interpreter(tmp_path, "--base-python")


def test_ask_about__program_that_says_nothing__its_exit_code(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no worker can run in \S*false: exit code 1; name another"):
        ask_about(Path("/bin/false"), {}, cwd=tmp_path, remedy="name another")


def test_ask_about__our_own_interpreter__its_version_and_packages(tmp_path: Path) -> None:
    environment = with_code({"PATH": os.environ["PATH"]}, share_code(tmp_path / "code"))
    about = ask_about(Path(sys.executable), environment, cwd=tmp_path, remedy="none")
    assert about.python == ".".join(map(str, sys.version_info[:3]))
    assert about.packages["msgspec"] == msgspec.__version__
    shown = subprocess.run(
        [sys.executable, "-c", "import perfgate; print(perfgate.__file__)"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.dumps(str(tmp_path / "code"))[1:-1] in shown.stdout


PYPROJECT = '[project]\nname = "x"\ndependencies = ["torch>=2"]\n[tool.ruff]\nline-length = 100\n'


@pytest.mark.parametrize(
    ("name", "before", "after", "differs"),
    [
        ("requirements.txt", "torch==2.1\n", "torch==2.2\n", True),
        ("requirements.txt", "# all\ntorch==2.1\n", "torch==2.1   \n\n# of it\n", False),
        ("requirements.txt", "x @ https://host/x.zip#sha=1\n", "x @ https://host/x.zip#sha=2\n", True),
        ("requirements-dev.txt", "ruff\n", None, True),
        ("requirements/gpu.txt", None, "torch\n", True),
        ("uv.lock", "version = 1\n", "version = 2\n", True),
        ("pyproject.toml", PYPROJECT, PYPROJECT.replace("100", "120"), False),
        ("pyproject.toml", PYPROJECT, PYPROJECT.replace("torch>=2", "torch>=2.3"), True),
        ("pyproject.toml", "[tool.ruff]\n", None, False),
        ("pyproject.toml", "not toml at all = [", "not toml either = [", True),
        ("setup.cfg", "a", "b", False),
    ],
)
def test_read_requirements__file_on_both_sides__differs_by_what_it_says(
    tmp_path: Path, name: str, before: str, after: str, differs: bool
) -> None:
    for side, text in (("base", before), ("head", after)):
        (tmp_path / side / name).parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            (tmp_path / side / name).write_text(text)
    sides = [read_requirements(tmp_path / side, REQUIREMENTS) for side in ("base", "head")]
    assert differing_files(*sides) == ([name] if differs else [])


def test_read_requirements__own_patterns__files_in_folders_too(tmp_path: Path) -> None:
    (tmp_path / "vendored" / "a").mkdir(parents=True)
    (tmp_path / "vendored" / "a" / "code.py").write_text("x = 1\n")
    assert list(read_requirements(tmp_path, ["vendored/**/*"])) == ["vendored/a/code.py"]
