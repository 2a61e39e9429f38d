"""What CI installs by the lock file of `perfgate init`: each kind of file that a project keeps its dependencies in."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perfgate.errors import UsageError
from perfgate.flows.init import lock as lock_module
from perfgate.flows.init.index import default_index, find_hashes
from perfgate.flows.init.lock import Lock, lock_project, missing_in
from perfgate.flows.init.requirements import read_declared
from tests.fakes.package_index import serve_index, write_wheel
from tests.installed import from_git, write_distribution

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
COMMIT = "git+https://example.com/b@" + "0" * 40
TORCH_VERSION = importlib.metadata.version("torch")


@pytest.fixture(autouse=True)
def _no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    return folder


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where further distributions are installed: probe 1.5, which needs probe-core."""
    folder = tmp_path / "installed"
    write_distribution(
        folder, "probe", "1.5", "probe-core>=1", "odd (>dev)", 'probe-extra; extra == "more"', module="probe"
    )
    write_distribution(folder, "probe-core", "2.0")
    write_distribution(folder, "probe-extra", "3.0", module="probe_extra")
    monkeypatch.syspath_prepend(folder)
    return folder


def locked(folder: Path, *imported: str) -> Lock:
    return lock_project(read_declared(folder), folder, python=RUNNING, imported=imported)


def versions(lock: Lock) -> dict[str, str]:
    return {pin.name: pin.version for pin in lock.pins}


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
        {"setup.cfg": SETUP_CFG},
        {"environment.yml": ENVIRONMENT},
        {"requirements.txt": "-r more.txt\ntorch  # any\n-e .\n", "more.txt": "probe>=1 --hash=sha256:0\n"},
        {"requirements-run.txt": "probe\n", "requirements-dev.txt": "no-such-package\n"},
        {"requirements/base.txt": "probe\n", "requirements/test.txt": "no-such-package\n"},
        {"setup.py": SETUP_PY},
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
    assert {"probe", "probe-core"} < set(versions(locked(project)))
    assert "model" not in versions(locked(project))


def test_lock__build_backend_fails__said_with_its_reason_and_the_way_out(project: Path) -> None:
    (project / "setup.py").write_text("raise RuntimeError('needs CUDA_HOME')\n")
    with pytest.raises(UsageError, match=r"known to its build backend alone, and that fails .*pip install --editable"):
        read_declared(project)


UV_LOCK = """\
version = 1
[[package]]
name = "model"
source = { editable = "." }
[[package]]
name = "unseen"
version = "4.0"
source = { registry = "https://wheels.example.com/simple" }
dependencies = [{ name = "unseen-core" }, { name = "unseen-mac", marker = "sys_platform == 'darwin'" }]
wheels = [{ url = "https://x/unseen-4.0-py3-none-any.whl", hash = "sha256:aa" }]
[[package]]
name = "unseen-core"
version = "0.1"
source = { registry = "https://pypi.org/simple" }
sdist = { url = "https://x/unseen_core-0.1.tar.gz", hash = "sha256:bb" }
[[package]]
name = "unseen-mac"
version = "1.0"
source = { registry = "https://pypi.org/simple" }
[[package]]
name = "probe"
version = "1.4"
source = { registry = "https://pypi.org/simple" }
wheels = [{ url = "https://x/probe.whl", hash = "sha256:cc" }]
"""
POETRY_LOCK = """\
[[package]]
name = "unseen"
version = "4.0"
files = [{ file = "unseen-4.0-py3-none-any.whl", hash = "sha256:aa" }]
[package.dependencies]
unseen-core = ">=0"
unseen-mac = { version = "*", markers = "sys_platform == \\"darwin\\"" }
[package.source]
type = "legacy"
url = "https://wheels.example.com/simple"
reference = "mine"
[[package]]
name = "unseen-core"
version = "0.1"
files = [{ file = "unseen_core-0.1.tar.gz", hash = "sha256:bb" }]
[[package]]
name = "unseen-mac"
version = "1.0"
"""


@pytest.mark.parametrize(("file", "text"), [("uv.lock", UV_LOCK), ("poetry.lock", POETRY_LOCK)])
def test_lock__lock_file_of_the_project__versions_hashes_and_index_of_what_is_not_installed(
    project: Path, installed: Path, file: str, text: str
) -> None:
    (project / file).write_text(text)
    (project / "pyproject.toml").write_text('[project]\nname = "model"\ndependencies = ["unseen", "probe"]\n')
    lock = locked(project)
    pins = {pin.name: pin for pin in lock.pins}
    assert (pins["unseen"].version, list(pins["unseen"].hashes)) == ("4.0", ["sha256:aa"])
    assert (pins["unseen-core"].version, list(pins["unseen-core"].hashes)) == ("0.1", ["sha256:bb"])
    assert "unseen-mac" not in pins
    # What runs here counts, not what another version of it would have for a hash.
    assert (pins["probe"].version, list(pins["probe"].hashes)) == ("1.5", [])
    assert "--extra-index-url https://wheels.example.com/simple\n" in lock.text


@pytest.mark.parametrize(
    ("build", "index"),
    [("cpu", "https://download.pytorch.org/whl/cpu"), ("cu128", "https://download.pytorch.org/whl/cu128")],
)
def test_lock__torch_of_another_index__keeps_its_build_and_names_the_index(
    project: Path, installed: Path, build: str, index: str
) -> None:
    write_distribution(installed, "torch", f"2.9.1+{build}")
    lock = locked(project)
    assert f"\ntorch==2.9.1+{build}\n" in lock.text
    assert lock.text.count(f"--extra-index-url {index}\n") == 1


def test_lock__indexes_that_the_requirements_name__are_named_in_it(project: Path, installed: Path) -> None:
    (project / "requirements.txt").write_text("--extra-index-url https://example.com/simple\n-f wheels/\nprobe\n")
    assert locked(project).text.splitlines()[1:3] == ["--extra-index-url https://example.com/simple", "-f wheels/"]


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (from_git("https://example.com/odd", "b" * 40), "odd @ git+https://example.com/odd@" + "b" * 40),
        (
            {"url": "https://example.com/odd-1.whl", "archive_info": {"hashes": {"sha256": "a" * 64}}},
            "odd @ https://example.com/odd-1.whl#sha256=" + "a" * 64,
        ),
        ({"url": "file:///tmp/odd-1.whl", "archive_info": {}}, "odd==1.0"),
    ],
)
def test_lock__installed_from_an_address__that_very_commit_or_archive(
    project: Path, installed: Path, record: Any, line: str
) -> None:
    write_distribution(installed, "odd", "1.0", direct_url=record)
    (project / "requirements.txt").write_text("odd\n")
    assert f"\n{line}\n" in locked(project).text


@pytest.mark.parametrize(
    ("version", "record", "words"),
    [
        (
            "1.0",
            {"url": "file:///srv/odd", "dir_info": {}},
            r"odd is installed from /srv/odd, a folder that CI does not",
        ),
        ("1.0+mine", None, r"odd 1.0\+mine is a build of its own"),
    ],
)
def test_lock__what_ci_cannot_get__refused_by_name(
    project: Path, installed: Path, version: str, record: Any, words: str
) -> None:
    write_distribution(installed, "odd", version, direct_url=record)
    (project / "requirements.txt").write_text("odd\n")
    with pytest.raises(UsageError, match=words):
        locked(project)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"pyproject.toml": '[project]\nname = "a"\ndependencies = ["no-such-package>=1"]'}, "is not installed here"),
        ({"requirements.txt": "a @ git+https://example.com/a@main\n"}, "a is not installed here.*--setup"),
        ({"requirements.txt": "not a requirement\n"}, "'not a requirement' cannot be read.*--setup"),
        ({"pyproject.toml": "requires = ["}, r"pyproject\.toml cannot be read: .*; repair it"),
        ({"uv.lock": "["}, r"uv\.lock cannot be read: .*; repair it"),
        ({"setup.cfg": "["}, r"setup\.cfg cannot be read: .*; repair it"),
        ({"environment.yml": "dependencies: [numpy]\n"}, "must be followed by lines of `- NAME`"),
    ],
)
def test_lock__a_file_that_gives_no_version__said(project: Path, texts: Mapping[str, str], message: str) -> None:
    for name, text in texts.items():
        (project / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        locked(project)


def test_lock__not_installed_but_pinned_by_the_project__as_it_says(project: Path) -> None:
    (project / "requirements.txt").write_text(f"no-such-package==1.5\nb @ {COMMIT}\n")
    lock = locked(project)
    assert f"\nb @ {COMMIT}\n" in lock.text
    assert "\nno-such-package==1.5\n" in lock.text
    assert lock.unhashed == "no-such-package is not installed here, so what it needs is not known"


def test_lock__not_installed_while_the_workload_runs__left_out_by_name(project: Path) -> None:
    (project / "requirements.txt").write_text("numpy\nno-such-package==1.5\nno-such-tool\n")
    lock = lock_project(read_declared(project), project, python=RUNNING, ran=True)
    assert lock.absent == ["no-such-package", "no-such-tool"]
    assert "\nnumpy==" in lock.text
    assert "no-such" not in lock.text
    assert "no-such" not in lock.unhashed


@pytest.mark.parametrize("texts", [{"pyproject.toml": PEP_621}, {"setup.py": SETUP_PY}], ids=" ".join)
def test_lock__metadata_name_the_dependencies__requirements_of_developers_do_not_count(
    project: Path, installed: Path, texts: Mapping[str, str]
) -> None:
    for name, text in {
        **texts,
        "requirements.txt": "--extra-index-url https://example.com/\nno-such-tool==3.5.0\n",
    }.items():
        (project / name).write_text(text)
    lock = locked(project)
    assert "probe" in versions(lock)
    assert "no-such-tool" not in lock.text
    assert "--extra-index-url https://example.com/" in lock.text


def test_lock__loaded_packages__those_that_it_lacks_and_that_do_not_come_with_perfgate(
    project: Path, installed: Path
) -> None:
    lock = locked(project)
    assert missing_in(lock, ["torch", "sympy", "probe", "perfgate", "numpy", "GitPython"]) == {"probe"}
    assert {"probe", "probe-core"} <= set(versions(locked(project, "probe")))


# --- hashes


@pytest.mark.parametrize("as_html", [False, True])
def test_hashes__of_the_index_that_pip_is_told_of__every_file_of_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_html: bool
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    for version in ("1.5", "1.6"):
        write_wheel(tmp_path / "wheels", "probe", version)
    with serve_index(tmp_path / "wheels", as_html=as_html) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index)
        hashes, complaint = find_hashes({("probe", "1.5", "")})
        assert complaint == ""
        (digest,) = hashes["probe"]
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
        assert "127.0.0.1 gave none (HTTPError)" in find_hashes({("other", "1", index)})[1]


def test_hashes__of_every_package__each_line_has_them_and_of_none_otherwise(
    project: Path, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setattr(lock_module, "_TORCH_INDEX", "{build}")
    write_distribution(installed, "torch", "9.9", "probe")
    for name, version in (("probe", "1.5"), ("probe-core", "2.0"), ("torch", "9.9")):
        write_wheel(tmp_path / "wheels", name, version)
    with serve_index(tmp_path / "wheels") as index:
        monkeypatch.setenv("PIP_INDEX_URL", index)
        lock = locked(project)
        if lock.unhashed.startswith("this machine is"):
            pytest.skip(lock.unhashed)
        assert re.sub(r"[0-9a-f]{64}", "…", lock.text.partition("\n")[2]) == "".join(
            f"{pin} \\\n    --hash=sha256:…\n" for pin in ("probe==1.5", "probe-core==2.0", "torch==9.9")
        )
        (tmp_path / "wheels" / "probe_core-2.0-py3-none-any.whl").unlink()
        write_wheel(tmp_path / "wheels", "probe-core", "2.1")
        lock = locked(project)
        assert (lock.unhashed, "--hash" in lock.text) == ("the index has no hash of probe-core", False)
        assert "Python 3.8" in lock_project(read_declared(project), project, python="3.8").unhashed


def test_index__configuration_of_pip__is_asked_and_the_environment_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://mirror.example.com/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert default_index() == "https://mirror.example.com/simple"
    monkeypatch.setenv("PIP_INDEX_URL", "https://other.example.com/simple")
    assert default_index() == "https://other.example.com/simple"
