"""What CI installs by the lock file of `perfgate init`: each kind of file that a project keeps its dependencies in."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perfgate.errors import UsageError
from perfgate.flows.init.lock import Lock, lock_project, missing_in
from perfgate.flows.init.project import read_declared
from perfgate.flows.init.uv import find_uv, pip_indexes
from tests.fakes.package_index import installed_wheels, offline, serve_index, write_wheel
from tests.installed import from_git, write_distribution

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
TORCH_VERSION = importlib.metadata.version("torch")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that uv knows besides those of the installed packages."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, value in offline(installed_wheels(), folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UV_NO_BUILD_ISOLATION", "1")  # setuptools has no wheel with its code here
    return folder


@pytest.fixture
def project(tmp_path: Path, wheels: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    return folder


@pytest.fixture
def installed(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where further distributions are installed: probe 1.5, which needs probe-core. The index has a newer probe."""
    folder = tmp_path / "installed"
    for name, version, needs in (
        ("probe", "1.5", ["probe-core>=1", 'probe-extra; extra == "more"']),
        ("probe-core", "2.0", []),
        ("probe-extra", "3.0", []),
    ):
        write_distribution(folder, name, version, *needs, module=name.replace("-", "_"))
        write_wheel(wheels, name, version, *needs)
    write_wheel(wheels, "probe", "1.6")
    monkeypatch.syspath_prepend(folder)
    return folder


def locked(folder: Path, *imported: str) -> Lock:
    return lock_project(read_declared(folder), folder, python=RUNNING, imported=imported)


def versions(lock: Lock) -> dict[str, str]:
    lines = (line.removesuffix(" \\") for line in lock.text.splitlines() if "==" in line)
    return {name: version for name, _, version in (line.partition("==") for line in lines)}


SETUP_PY = (
    "from setuptools import setup\nsetup(name='model', version='1', py_modules=[], install_requires=['probe>=1'])\n"
)
SETUP_CFG = """\
[metadata]
name = model
[options]
python_requires = >=3.10
install_requires =
    probe>=1
    tomli; python_version<'3'
"""
ENVIRONMENT = """\
name: model
channels: [conda-forge]
dependencies:
  - python=3.11
  - conda-forge::probe>=1.0
  - pytorch=2.9=cpu_py311  # the CPU build
  - cudatoolkit
  - pip
  - pip:
      - probe-extra
"""
PEP_621 = '[project]\nname = "model"\ndependencies = ["probe>=1", "tomli; python_version < \'3.0\'"]\n'
POETRY = """\
[tool.poetry]
name = "model"
[tool.poetry.dependencies]
python = "^3.10"
probe = {version = "^1"}
unwanted = {version = "*", optional = true}
[tool.poetry.group.dev.dependencies]
pytest = "*"
"""
SETUPTOOLS = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
DYNAMIC = SETUPTOOLS + (
    '[project]\nname = "model"\nversion = "1"\ndynamic = ["dependencies"]\n[tool.setuptools]\npy-modules = []\n'
    '[tool.setuptools.dynamic]\ndependencies = {file = ["deps.in"]}\n'
)


@pytest.mark.parametrize(
    "texts",
    [
        {"pyproject.toml": PEP_621},
        {"pyproject.toml": POETRY},
        pytest.param({"setup.cfg": SETUP_CFG}, marks=pytest.mark.slow),
        {"environment.yml": ENVIRONMENT},
        {"requirements.txt": "-r more.txt\ntorch  # any\n-e .\n", "more.txt": "probe>=1 --hash=sha256:0\n"},
        {"requirements-run.txt": "probe\n", "requirements-dev.txt": "no-such-package\n"},
        pytest.param(
            {"requirements/base.txt": "probe\n", "requirements/test.txt": "no-such-package\n"}, marks=pytest.mark.slow
        ),
        pytest.param({"setup.py": SETUP_PY}, marks=pytest.mark.slow),
        {"setup.py": "from setuptools import setup\nsetup()\n", "setup.cfg": SETUP_CFG},
        {"pyproject.toml": DYNAMIC, "deps.in": "probe>=1\n"},
    ],
    ids=" ".join,
)
def test_lock__any_file_of_dependencies__everything_with_the_version_that_is_installed(
    project: Path, installed: Path, texts: Mapping[str, str]
) -> None:
    for name, text in texts.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    lock = locked(project)
    found = versions(lock)
    assert (found["probe"], found["probe-core"], found["torch"]) == ("1.5", "2.0", TORCH_VERSION)
    assert "sympy" in found  # what torch needs in turn
    assert not {"tomli", "pytest", "unwanted", "no-such-package", "model", "python", "pip"} & set(found)
    assert ("probe-extra" in found) == ("environment.yml" in texts)
    assert list(lock.left_out) == (["cudatoolkit"] if "environment.yml" in texts else [])
    # Asking a build backend leaves nothing behind.
    assert {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()} == set(texts)


def test_lock__extras_of_a_requirement__are_installed_too(project: Path, installed: Path) -> None:
    (project / "requirements.txt").write_text("probe[more]\n")
    assert versions(locked(project))["probe-extra"] == "3.0"


def test_lock__project_installed_from_its_folder__what_pip_noted_and_not_the_project(
    project: Path, installed: Path
) -> None:
    (project / "setup.py").write_text("raise SystemExit('not to be run')\n")
    record = {"url": project.as_uri(), "dir_info": {"editable": True}}
    write_distribution(installed, "model", "1", "probe", direct_url=record)
    packages = set(versions(locked(project)))
    assert {"probe", "probe-core"} < packages
    assert "model" not in packages


def test_lock__build_backend_fails__said_with_its_reason_and_the_way_out(project: Path) -> None:
    (project / "setup.py").write_text("raise RuntimeError('needs CUDA_HOME')\n")
    with pytest.raises(UsageError, match=r"uv cannot pin .*needs CUDA_HOME.*; install the project .* --setup"):
        locked(project)


@pytest.mark.parametrize("build", ["cpu", "cu128"])
def test_lock__torch_of_another_index__keeps_its_build_and_names_the_index(
    project: Path, installed: Path, wheels: Path, build: str
) -> None:
    write_distribution(installed, "torch", f"2.9.1+{build}")
    write_wheel(wheels, "torch", f"2.9.1+{build}")
    text = locked(project).text
    assert f"\ntorch==2.9.1+{build} \\\n" in text
    assert text.count("download.pytorch.org") == text.count(
        f"--extra-index-url https://download.pytorch.org/whl/{build}\n"
    )


@pytest.mark.parametrize(
    ("texts", "lines"),
    [
        ({"requirements.txt": "-f ../wheels/\nprobe\n"}, ["-f ../wheels/"]),
        (
            {"pyproject.toml": '[project]\nname = "a"\n[[tool.uv.index]]\nurl = "https://example.com/simple"\n'},
            ["--extra-index-url https://example.com/simple"],
        ),
    ],
)
def test_lock__indexes_that_the_project_names__are_named_in_it(
    project: Path, installed: Path, texts: Mapping[str, str], lines: list[str]
) -> None:
    for name, text in texts.items():
        (project / name).write_text(text)
    assert locked(project).text.splitlines()[1 : 1 + len(lines)] == lines


def test_lock__installed_from_a_commit__that_very_commit_and_no_hashes(
    project: Path, installed: Path, tmp_path: Path
) -> None:
    source = tmp_path / "odd"
    source.mkdir()
    (source / "pyproject.toml").write_text('[project]\nname = "odd"\nversion = "1.0"\ndependencies = ["probe"]\n')
    git = ["git", "-c", "user.name=a", "-c", "user.email=a", "-C", str(source)]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "odd"]):
        subprocess.run([*git, *arguments], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    write_distribution(installed, "odd", "1.0", "probe", direct_url=from_git(source.as_uri(), commit))
    (project / "requirements.txt").write_text("odd\n")
    lock = locked(project)
    assert f"\nodd @ git+{source.as_uri()}@{commit}\n" in lock.text
    assert versions(lock)["probe"] == "1.5"
    assert (lock.unhashed, "--hash" in lock.text) == ("odd", False)


def test_lock__installed_from_a_wheel_of_an_index__its_version(project: Path, installed: Path, wheels: Path) -> None:
    write_wheel(wheels, "odd", "1.0")
    write_distribution(installed, "odd", "1.0", direct_url={"url": "file:///tmp/odd-1.whl", "archive_info": {}})
    (project / "requirements.txt").write_text("odd\n")
    assert versions(locked(project))["odd"] == "1.0"


@pytest.mark.parametrize(
    ("version", "is_local", "words"),
    [
        ("1.0", True, r"odd is installed from .*/odd, a folder that CI does not have"),
        ("1.0+mine", False, r"uv cannot pin .*odd==1\.0\+mine"),
    ],
)
def test_lock__what_ci_cannot_get__refused_by_name(
    project: Path, installed: Path, tmp_path: Path, version: str, is_local: bool, words: str
) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "pyproject.toml").write_text('[project]\nname = "odd"\nversion = "1.0"\n')
    record: Any = {"url": (tmp_path / "odd").as_uri(), "dir_info": {}} if is_local else None
    write_distribution(installed, "odd", version, direct_url=record)
    (project / "requirements.txt").write_text("odd\n")
    with pytest.raises(UsageError, match=words):
        locked(project)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"pyproject.toml": '[project]\nname = "a"\ndependencies = ["no-such-package>=1"]'},
            "no-such-package.*--setup",
        ),
        ({"requirements.txt": "not a requirement\n"}, "'not a requirement' cannot be read.*--setup"),
        ({"pyproject.toml": "requires = ["}, r"pyproject\.toml cannot be read: .*; repair it"),
        ({"setup.cfg": "["}, r"setup\.cfg cannot be read: .*; repair it"),
        ({"environment.yml": "dependencies: [numpy]\n"}, "must be followed by lines of `- NAME`"),
    ],
)
def test_lock__a_file_that_gives_no_version__said(project: Path, texts: Mapping[str, str], message: str) -> None:
    for name, text in texts.items():
        (project / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        locked(project)


UV_WORKSPACE = """
[tool.uv.workspace]
members = ["model"]
[tool.uv.sources]
probe = { workspace = true }
"""


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        (
            {"pyproject.toml": '[project]\ndependencies = ["probe"]\n[tool.uv.sources]\nprobe = {path = "../probe"}\n'},
            "probe",
        ),
        ({"pyproject.toml": '[project]\ndependencies = ["Probe"]\n', "../pyproject.toml": UV_WORKSPACE}, "probe"),
        ({"pyproject.toml": '[tool.poetry.dependencies]\npython = "^3.10"\nprobe = {path = "../probe"}\n'}, "probe"),
        (
            {
                "pyproject.toml": '[tool.poetry.dependencies]\nprobe = [{git = "https://example.org/probe", rev = "v1"}]\n'
            },
            "probe",
        ),
    ],
)
def test_read_declared__dependency_of_no_index_that_is_not_installed__not_taken_from_an_index(
    project: Path, texts: Mapping[str, str], name: str
) -> None:
    for file, text in texts.items():
        (project / file).write_text(text)
    with pytest.raises(UsageError, match=f"takes {name} from a folder, a repository or an address"):
        read_declared(project)


def test_read_declared__dependency_of_no_index_that_is_installed__what_pip_noted_decides(
    project: Path, installed: Path
) -> None:
    (project / "pyproject.toml").write_text(
        '[project]\ndependencies = ["probe"]\n[tool.uv.sources]\nprobe = {git = "https://example.org/probe"}\n'
    )
    assert read_declared(project).requirements == ["probe"]


def test_read_declared__extras_of_poetry__kept(project: Path) -> None:
    (project / "pyproject.toml").write_text(
        '[tool.poetry.dependencies]\npython = "^3.10"\ntorch = "^2.1"\nprobe = {version = "^1", extras = ["more", "http"]}\n'
        'unused = {version = "*", optional = true}\n'
    )
    assert read_declared(project).requirements == ["torch", "probe[http,more]"]


def test_read_declared__requirements_of_power_shell_that_include_themselves__read_once(project: Path) -> None:
    (project / "requirements.txt").write_bytes("probe==1.5\r\n-r requirements.txt\r\ntorch\r\n".encode("utf-16"))
    assert read_declared(project).requirements == ["probe==1.5", "torch"]


def test_find_uv__not_installed__said_with_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/nowhere/bin/python")
    with pytest.raises(UsageError, match=r"uv is not installed.*run `python -m pip install uv`, or .* --setup "):
        find_uv()


def test_lock__not_installed__the_newest_that_the_project_accepts(project: Path, installed: Path, wheels: Path) -> None:
    for version in ("1.0", "1.1", "2.0"):
        write_wheel(wheels, "unseen", version, "probe")
    (project / "requirements.txt").write_text("unseen<2\n")
    found = versions(locked(project))
    assert (found["unseen"], found["probe"]) == ("1.1", "1.5")


@pytest.mark.parametrize("texts", [{"pyproject.toml": PEP_621}, {"setup.py": SETUP_PY}], ids=" ".join)
def test_lock__metadata_name_the_dependencies__requirements_of_developers_do_not_count(
    project: Path, installed: Path, texts: Mapping[str, str]
) -> None:
    for name, text in {**texts, "requirements.txt": "-f ../wheels\nno-such-tool==3.5.0\n"}.items():
        (project / name).write_text(text)
    lock = locked(project)
    assert "probe" in versions(lock)
    assert "no-such-tool" not in lock.text
    assert "\n-f ../wheels\n" in lock.text


def test_lock__loaded_packages__those_that_it_lacks_and_that_do_not_come_with_perfgate(
    project: Path, installed: Path
) -> None:
    lock = locked(project)
    assert missing_in(lock, ["torch", "sympy", "probe", "perfgate", "numpy", "GitPython"], project) == {"probe"}
    assert {"probe", "probe-core"} <= set(versions(locked(project, "probe")))


def test_lock__any_machine__every_line_has_the_hashes_of_its_files(
    project: Path, installed: Path, monkeypatch: pytest.MonkeyPatch, wheels: Path
) -> None:
    """The index is one that pip is told of: uv itself does not read pip's settings."""
    write_distribution(installed, "torch", "9.9", "probe")
    write_wheel(wheels, "torch", "9.9", "probe")
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    with serve_index(wheels) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index)
        lock = locked(project)
    assert re.sub(r"[0-9a-f]{64}", "…", lock.text.partition("\n")[2]) == "".join(
        f"{pin} \\\n    --hash=sha256:…\n" for pin in ("probe==1.5", "probe-core==2.0", "torch==9.9")
    )


def test_pip_indexes__files_and_environment_of_pip__its_options_with_every_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://mirror.example.com/simple\nextra-index-url =\n  https://a.example\n  https://b.example\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    extra = ["--extra-index-url https://a.example", "--extra-index-url https://b.example"]
    assert pip_indexes() == ["--index-url https://mirror.example.com/simple", *extra]
    monkeypatch.setenv("PIP_INDEX_URL", "https://other.example.com/simple")
    assert pip_indexes() == ["--index-url https://other.example.com/simple", *extra]
